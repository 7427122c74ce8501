//! Converts errors to what clients read.

use turnstream::{Error, ErrorKind};

/// An error as a client sees it.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Error,
    /// Whether the client must not repeat the request on its own: a tool has started, or the same
    /// request would fail again.
    must_not_repeat: bool,
}

impl Failure {
    pub(crate) fn new(error: Error, must_not_repeat: bool) -> Self {
        Self { error, must_not_repeat }
    }

    pub(crate) fn error(&self) -> &Error {
        &self.error
    }

    pub(crate) fn must_not_repeat(&self) -> bool {
        self.must_not_repeat
    }
}

/// An error of the request, before a run has started.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error, false)
    }
}

/// Returns the error of a run as a client sees it: with the kind of the error, but without its
/// text, which may quote other people's data. The error of the agent's own key is not the client's.
pub(crate) fn client_error(error: &Error, id: &str) -> Error {
    let (kind, status, message) = match error.kind() {
        ErrorKind::RateLimited => (ErrorKind::RateLimited, 429, "the agent's model is busy"),
        ErrorKind::Overloaded => (ErrorKind::Overloaded, 503, "the agent's model is overloaded"),
        ErrorKind::ContextWindow => {
            (ErrorKind::ContextWindow, 400, "the conversation does not fit into the model")
        }
        ErrorKind::Filtered => (ErrorKind::Filtered, 400, "the request was filtered"),
        ErrorKind::TooLarge => (ErrorKind::TooLarge, 413, "the request is too large"),
        ErrorKind::Timeout => (ErrorKind::Timeout, 504, "the agent took too long"),
        // Options and parts that the agent's model does not support.
        ErrorKind::Unsupported => {
            let what = error.parameter().unwrap_or("content");
            let message = format!("the agent's model does not support the request's {what}");
            return Error::new(ErrorKind::Unsupported, message).with_status(400);
        }
        kind => {
            let message = format!("the agent failed ({kind}), response {id}");
            return Error::new(ErrorKind::Server, message).with_status(500);
        }
    };
    let client_error = Error::new(kind, message).with_status(status);
    match error.retry_after() {
        Some(delay) => client_error.with_retry_after(delay),
        None => client_error,
    }
}
