//! A request, as handlers and tests see it.

use bytes::Bytes;

/// A complete request as the server received it.
///
/// Cloning shares the body, since [`Bytes`] are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The method as sent, such as `POST`.
    pub method: String,
    /// The request target as sent: the path, and the query if there is one.
    pub path: String,
    /// The headers in the order in which they were sent, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, without a chunked transfer encoding.
    pub body: Bytes,
    /// The index of the server's connection that received it, starting at 0.
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
