//! The errors of `OpenAI`, which are the same on both of its wires.

use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};

/// The header that carries the id of a request.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// The body of an answer that is an error.
pub(crate) fn error_body(error: &Error, message: &str) -> Value {
    let (kind, code) = error_words(error.kind());
    json!({ "error": {
        "message": message, "type": kind, "param": error.parameter(), "code": code,
    } })
}

/// Type and code, <https://platform.openai.com/docs/guides/error-codes>.
pub(crate) fn error_words(kind: ErrorKind) -> (&'static str, Option<&'static str>) {
    match kind {
        ErrorKind::Auth => ("invalid_request_error", Some("invalid_api_key")),
        ErrorKind::Billing => ("insufficient_quota", Some("insufficient_quota")),
        ErrorKind::RateLimited => ("requests", Some("rate_limit_exceeded")),
        ErrorKind::Overloaded => ("service_unavailable_error", Some("server_is_overloaded")),
        ErrorKind::Timeout => ("server_error", Some("timeout")),
        ErrorKind::ContextWindow => ("invalid_request_error", Some("context_length_exceeded")),
        ErrorKind::Filtered => ("invalid_request_error", Some("content_filter")),
        ErrorKind::Unsupported => ("invalid_request_error", Some("unsupported_parameter")),
        ErrorKind::InvalidRequest | ErrorKind::TooLarge => ("invalid_request_error", None),
        _ => ("server_error", Some("server_error")),
    }
}
