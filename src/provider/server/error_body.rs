//! What the vendors' errors share.

use crate::error::{Error, ErrorKind};

/// The message of an error. Clients look for the words that a vendor has for a full context window.
pub(crate) fn error_message(error: &Error, full_context: &str) -> String {
    let is_full = error.kind() == ErrorKind::ContextWindow;
    message_with_phrase(error, if is_full { full_context } else { "" })
}

/// The message of an error, in which these words stand.
pub(crate) fn message_with_phrase(error: &Error, words: &str) -> String {
    let message = error.message();
    match message.contains(words) {
        true => message.to_owned(),
        false => format!("{words}: {message}"),
    }
}

/// "retry-after" counts whole seconds.
pub(super) fn retry_after(error: &Error) -> Option<(&'static str, String)> {
    let wait = error.retry_after()?;
    Some(("retry-after", wait.as_secs_f64().ceil().to_string()))
}

/// The status that most vendors have for an error.
pub(crate) fn default_status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Auth => 401,
        ErrorKind::Billing | ErrorKind::RateLimited => 429,
        ErrorKind::Overloaded => 503,
        ErrorKind::Timeout => 504,
        ErrorKind::ContextWindow
        | ErrorKind::InvalidRequest
        | ErrorKind::Unsupported
        | ErrorKind::Filtered => 400,
        ErrorKind::TooLarge => 413,
        // What no vendor says of itself is its own failure.
        ErrorKind::Server
        | ErrorKind::GenerationFailed
        | ErrorKind::Malformed
        | ErrorKind::Connect
        | ErrorKind::IncompleteTurn
        | ErrorKind::Protocol
        | ErrorKind::Hook
        | ErrorKind::Panic
        | ErrorKind::Store
        | ErrorKind::Conflict
        | ErrorKind::ReplayMismatch
        | ErrorKind::Unfinished
        | ErrorKind::Other => 500,
    }
}
