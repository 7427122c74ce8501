//! Errors on their way through Restate.

use restate_sdk::errors::{HandlerError, TerminalError};
use turnstream::durable::{AttemptLost, is_attempt_lost};
use turnstream::hub::NotRunning;
use turnstream::{Error, ErrorKind};

/// The code of an error that says that no run is active.
const NOT_RUNNING: u16 = 410;

/// An error of ours, as one that ends an invocation. Its message has the whole error.
pub(crate) fn to_terminal(error: &Error) -> TerminalError {
    let code = match error.kind() {
        _ if NotRunning::from_error(error).is_some() => NOT_RUNNING,
        ErrorKind::InvalidRequest => 400,
        ErrorKind::Conflict => 409,
        ErrorKind::TooLarge => 413,
        ErrorKind::Unsupported => 501,
        _ => 500,
    };
    let message = serde_json::to_string(error).unwrap_or_else(|_| error.to_string());
    TerminalError::new_with_code(code, message)
}

/// What ended an invocation, as an error of ours.
pub(crate) fn from_terminal(code: u16, message: &str) -> Error {
    let error = serde_json::from_str(message).unwrap_or_else(|_| {
        let kind = match code {
            // No handler of ours: a server that starts does not know the services yet.
            404 => ErrorKind::Connect,
            400 => ErrorKind::InvalidRequest,
            // 409 says that the invocation was cancelled or killed.
            _ => ErrorKind::Other,
        };
        Error::new(kind, format!("Restate has ended the invocation ({code}): {message}"))
    });
    match code {
        NOT_RUNNING => error.with_source(NotRunning { run: String::new() }),
        _ => error,
    }
}

/// What an operation of the context has failed with: the invocation was cancelled, or a call of it has failed.
pub(crate) fn from_context(error: &TerminalError) -> Error {
    from_terminal(error.code(), error.message())
}

/// How a handler ends: Restate makes another attempt if this one was lost, and answers with all other errors.
pub(crate) fn to_handler_error(error: Error) -> HandlerError {
    match is_attempt_lost(&error) {
        true => HandlerError::from(error),
        false => to_terminal(&error).into(),
    }
}

/// A state or a message that cannot be read: a later version may have written it, so the invocation is tried again.
pub(crate) fn unreadable(what: &str, error: impl std::fmt::Display) -> Error {
    let message = format!("{what} cannot be read: {error}");
    Error::new(ErrorKind::Store, message).with_source(AttemptLost)
}
