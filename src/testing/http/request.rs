//! An HTTP request that is passed to a handler or a test.

use bytes::Bytes;

/// A complete HTTP request that the server received.
///
/// Clones of a request share the same body data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The HTTP method as sent, such as `POST`.
    pub method: String,
    /// The request target as sent, consisting of the path and the query, if any.
    pub path: String,
    /// The headers in the order in which they were sent, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The request's body, without any chunked transfer encoding.
    pub body: Bytes,
    /// The index of the connection that the request arrived on. The server's first connection has
    /// the index 0.
    pub connection: usize,
}

impl HttpRequest {
    /// Returns the first value of the header with this name. The name's case is ignored.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}
