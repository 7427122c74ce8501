//! Conversions between turnstream's errors and Restate's errors.

use restate_sdk::errors::{HandlerError, TerminalError};
use turnstream::durable::{AttemptLost, is_attempt_lost};
use turnstream::hub::NotRunning;
use turnstream::{Error, ErrorKind};

/// The code of the error that reports that no run is active.
const NOT_RUNNING: u16 = 410;

/// Converts a turnstream error to an error that ends an invocation. The resulting error's message
/// contains the entire original error as JSON.
pub(crate) fn to_terminal(error: &Error) -> TerminalError {
    let code = match error.kind() {
        _ if error.find_source::<NotRunning>().is_some() => NOT_RUNNING,
        ErrorKind::InvalidRequest => 400,
        ErrorKind::Conflict => 409,
        ErrorKind::TooLarge => 413,
        ErrorKind::Unsupported => 501,
        _ => 500,
    };
    let message = serde_json::to_string(error).unwrap_or_else(|_| error.to_string());
    TerminalError::new_with_code(code, message)
}

/// Converts the error that ended an invocation to a turnstream error.
pub(crate) fn from_terminal(code: u16, message: &str) -> Error {
    let error = serde_json::from_str(message).unwrap_or_else(|_| {
        let kind = match code {
            // The handler was not found: while a server is starting, it does not know the services
            // yet.
            404 => ErrorKind::Connect,
            400 => ErrorKind::InvalidRequest,
            // Restate reports 409 if the invocation was cancelled or killed.
            _ => ErrorKind::Other,
        };
        Error::new(kind, format!("Restate has ended the invocation ({code}): {message}"))
    });
    match code {
        NOT_RUNNING => error.with_source(NotRunning { run: String::new() }),
        _ => error,
    }
}

/// Converts the error from an operation on a context. The error means that the invocation was
/// cancelled, or that another invocation that it called has failed.
pub(crate) fn from_context(error: &TerminalError) -> Error {
    from_terminal(error.code(), error.message())
}

/// Converts an error to the form that a handler returns. If the error means that the attempt was
/// lost, Restate retries the invocation. All other errors are returned to the client.
pub(crate) fn to_handler_error(error: Error) -> HandlerError {
    match is_attempt_lost(&error) {
        true => HandlerError::from(error),
        false => to_terminal(&error).into(),
    }
}

/// Creates the error for stored state or a message that cannot be read. A later version may have
/// written the data, so Restate retries the invocation.
pub(crate) fn unreadable(what: &str, error: impl std::fmt::Display) -> Error {
    let message = format!("{what} cannot be read: {error}");
    Error::new(ErrorKind::Store, message).with_source(AttemptLost)
}
