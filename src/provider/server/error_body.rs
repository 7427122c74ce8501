//! Creates the parts of error responses that are common to several vendors.

use crate::error::{Error, ErrorKind};

/// Returns an error's message. For an error of a kind in `phrases`, the message contains the
/// phrase, which the vendor uses and clients look for.
pub(crate) fn error_message(error: &Error, phrases: &[(ErrorKind, &str)]) -> String {
    let phrase = phrases.iter().find(|(kind, _)| *kind == error.kind());
    message_with_phrase(error, phrase.map_or("", |(_, phrase)| phrase))
}

/// Returns an error's message, with the given phrase added if the message does not contain it.
pub(crate) fn message_with_phrase(error: &Error, phrase: &str) -> String {
    let message = error.message();
    match message.contains(phrase) {
        true => message.to_owned(),
        false => format!("{phrase}: {message}"),
    }
}

/// Returns the `retry-after` header for an error, with the delay in whole seconds.
pub(super) fn retry_after(error: &Error) -> Option<(&'static str, String)> {
    let wait = error.retry_after()?;
    Some(("retry-after", wait.as_secs_f64().ceil().to_string()))
}

/// Returns the HTTP status that most vendors use for errors of the given kind.
pub(crate) fn default_status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Auth => 401,
        ErrorKind::Billing | ErrorKind::RateLimited => 429,
        ErrorKind::Overloaded => 503,
        ErrorKind::Timeout => 504,
        ErrorKind::ContextWindow
        | ErrorKind::InvalidRequest
        | ErrorKind::ReasoningRefused
        | ErrorKind::Unsupported
        | ErrorKind::Filtered => 400,
        ErrorKind::TooLarge => 413,
        // Error kinds that no vendor reports are sent as server errors.
        ErrorKind::Server
        | ErrorKind::GenerationFailed
        | ErrorKind::Malformed
        | ErrorKind::Connect
        | ErrorKind::IncompleteTurn
        | ErrorKind::Protocol
        | ErrorKind::Hook
        | ErrorKind::Panic
        | ErrorKind::Store
        | ErrorKind::OutcomeUnknown
        | ErrorKind::Conflict
        | ErrorKind::ReplayMismatch
        | ErrorKind::Unfinished
        | ErrorKind::Other => 500,
    }
}
