//! Requests, errors and usage for tests of providers.

use turnstream::{Error, ErrorKind, History, Item, Request, Usage};

/// An error whose message is the name of its kind.
pub(crate) fn error(kind: ErrorKind) -> Error {
    Error::new(kind, kind.as_str())
}

/// The usage of a request with ten input tokens.
pub(crate) fn spent(output_tokens: u64) -> Usage {
    Usage { input_tokens: 10, output_tokens, ..Usage::default() }
}

/// A request with one message of the user.
pub(crate) fn request() -> Request {
    Request::new(History::from_items("h", [Item::user("hi")]))
}
