//! A request, as handlers and tests see it.

use bytes::Bytes;

/// A request as the server received it, its body complete.
///
/// Cheap to clone as far as the body goes: [`Bytes`] are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The method as sent, such as `POST`.
    pub method: String,
    /// The request target as sent: the path, with the query if there is one.
    pub path: String,
    /// The headers in the order sent, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, without the chunking it may have travelled in.
    pub body: Bytes,
    /// Which of the server's connections it came on, counted from 0.
    pub connection: usize,
}

impl HttpRequest {
    /// Returns the first value of the header `name`, whose case does not matter.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}
