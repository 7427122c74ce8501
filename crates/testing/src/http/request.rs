//! An HTTP request, as a handler or a test receives it.

use bytes::Bytes;

/// A complete HTTP request that the server has received.
///
/// Clones of a request share the body's data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The HTTP method, such as `POST`, exactly as the client sent it.
    pub method: String,
    /// The request target, exactly as the client sent it: the path and, if present, the query.
    pub path: String,
    /// The headers in the order in which they were sent, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The request's body, with any chunked transfer encoding removed.
    pub body: Bytes,
    /// The index of the connection on which the request arrived. The server's first connection has
    /// index 0.
    pub connection: usize,
}

impl HttpRequest {
    /// Returns the first value of the header with this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}
