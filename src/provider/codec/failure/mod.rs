//! Converts errors reported by providers into errors that a caller can act on.

mod classify;
mod context_limits;
mod error_body;
mod error_codes;
mod retry_delay;

use std::time::SystemTime;

use serde_json::value::RawValue;

use crate::error::{AuthProblem, Error, ErrorKind};
use error_body::ErrorBody;
#[cfg(feature = "http")]
pub(in crate::provider) use error_body::is_error_object;

/// Creates the error for a response with an error status. Dates in the body are converted to delays
/// relative to `now`.
#[cfg(any(feature = "http", test))]
pub(in crate::provider) fn error_for_status(status: u16, body: &str, now: SystemTime) -> Error {
    let error_body = ErrorBody::from_body(body);
    let message = match error_body.message.as_str() {
        "" => format!("the provider answered with status {status}"),
        message => format!("the provider answered with status {status}: {message}"),
    };
    let kind = classify::error_kind(Some(status), &error_body);
    add_error_details(
        Error::new(kind, message).with_status(status),
        &error_body,
        Some(status),
        Some(now),
    )
}

/// Creates an [`Error`] from an error that a server reports within a stream. `text` is either plain
/// text or the error's JSON: the value of an `error` field, or an object that contains this field.
/// Use this function in a [decoder](crate::provider::Decode) for a wire that has its own error
/// frames. Server-sent events of type `error` that contain data do not reach a decoder, because
/// they are already converted with this function.
///
/// The function finds messages, codes and retry delays in all formats that servers are known to
/// use. An error that cannot be classified is given the kind [`Server`](ErrorKind::Server).
///
/// ```
/// use turnstream::ErrorKind;
/// use turnstream::provider::error_in_stream;
///
/// let error = error_in_stream(r#"{"message":"slow down","code":"rate_limit_exceeded"}"#);
/// assert_eq!(error.kind(), ErrorKind::RateLimited);
/// ```
pub fn error_in_stream(text: &str) -> Error {
    embedded_error(text, None)
}

/// Returns the value of a chunk's `error` field if it reports an error.
pub(in crate::provider) fn non_null_error(error: Option<&RawValue>) -> Option<&RawValue> {
    error.filter(|error| !matches!(error.get(), "null" | "\"\"" | "false"))
}

/// Creates the error for a provider that violates its wire's protocol.
pub(in crate::provider) fn protocol_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, message)
}

/// Creates the error for a failure that a server reports within a stream, or in a response that has
/// a success status but is not a stream.
pub(in crate::provider) fn embedded_error(text: &str, now: Option<SystemTime>) -> Error {
    let error_body = ErrorBody::from_body(text);
    let kind = match classify::error_kind(error_body.status, &error_body) {
        // An unclassified error within a server's response counts as a server failure.
        ErrorKind::Other | ErrorKind::Protocol => ErrorKind::Server,
        kind => kind,
    };
    let message = match error_body.message.as_str() {
        "" => "the provider broke off with an error".to_owned(),
        message => format!("the provider broke off: {message}"),
    };
    let error = Error::new(kind, message).mark_as_server_message();
    add_error_details(error, &error_body, error_body.status, now)
}

/// Adds details from the error body to an error. Details that do not apply to the error's kind are
/// omitted.
fn add_error_details(
    mut error: Error,
    error_body: &ErrorBody,
    status: Option<u16>,
    now: Option<SystemTime>,
) -> Error {
    if let Some(id) = &error_body.request_id {
        error = error.with_request_id(id);
    }
    match error.kind() {
        ErrorKind::RateLimited => {
            if let Some(scope) = classify::rate_limit_scope(error_body) {
                error = error.with_rate_limit_scope(scope);
            }
        }
        ErrorKind::Auth => {
            let by_status = match status {
                Some(403) => Some(AuthProblem::Forbidden),
                Some(401) => Some(AuthProblem::InvalidKey),
                _ => None,
            };
            if let Some(problem) = classify::auth_problem(error_body).or(by_status) {
                error = error.with_auth_problem(problem);
            }
        }
        ErrorKind::ContextWindow => {
            if let Some(limits) = error_body
                .context_limits
                .or_else(|| context_limits::read_context_limits(&error_body.text))
            {
                error = error.with_context_limits(limits);
            }
        }
        ErrorKind::InvalidRequest | ErrorKind::ReasoningRefused | ErrorKind::Unsupported => {
            let parameter =
                error_body.parameter.clone().or_else(|| classify::refused_parameter(error_body));
            if let Some(name) = parameter {
                error = error.with_parameter(name);
            }
        }
        _ => {}
    }
    let transient = matches!(
        error.kind(),
        ErrorKind::RateLimited | ErrorKind::Overloaded | ErrorKind::Server | ErrorKind::Timeout
    );
    match retry_delay::read_retry_delay(error_body, now).filter(|_| transient) {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

#[cfg(test)]
mod tests;
