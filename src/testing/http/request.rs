//! An HTTP request, as handlers and tests receive it.

use bytes::Bytes;

/// A complete HTTP request, as the server received it.
///
/// Clones of a request share the body, since [`Bytes`] are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The HTTP method as sent, such as `POST`.
    pub method: String,
    /// The request target as sent, which is the path, and the query if there is a query.
    pub path: String,
    /// The headers in the order in which they were sent, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body of the request, without a chunked transfer encoding.
    pub body: Bytes,
    /// The index of the server's connection on which the request arrived, starting at 0.
    pub connection: usize,
}

impl HttpRequest {
    /// Returns the first value of the header `name`, which is matched case-insensitively.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}
