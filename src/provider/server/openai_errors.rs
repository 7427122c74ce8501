//! Creates `OpenAI`'s error responses, which are the same on both `OpenAI` wires.

use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};
use crate::provider::server::error_body::error_message;
use crate::usage::Usage;

/// The name of the header that contains the request id.
pub(crate) const REQUEST_ID_HEADER: &str = "x-request-id";

/// Creates the body of an error response. `full_context` is the wire's phrase for a full context
/// window.
pub(crate) fn error_body(error: &Error, full_context: &str) -> Value {
    let (kind, code) = error_type_and_code(error.kind());
    json!({ "error": {
        "message": error_message(error, &[(ErrorKind::ContextWindow, full_context)]), "type": kind, "param": error.parameter(), "code": code,
    } })
}

/// Returns a turn's token usage as JSON. `input` and `output` are the wire's names for the token
/// counts.
pub(crate) fn usage_json(usage: Usage, input: &str, output: &str) -> Value {
    json!({
        input: usage.input_tokens,
        output: usage.output_tokens,
        "total_tokens": usage.total(),
        format!("{input}_details"): {
            "cached_tokens": usage.cache_read_input_tokens,
            "cache_write_tokens": usage.cache_write_input_tokens,
        },
        format!("{output}_details"): { "reasoning_tokens": usage.reasoning_tokens },
    })
}

/// Returns `OpenAI`'s type and code for errors of the given kind,
/// <https://platform.openai.com/docs/guides/error-codes>.
pub(crate) fn error_type_and_code(kind: ErrorKind) -> (&'static str, Option<&'static str>) {
    match kind {
        ErrorKind::Auth => ("invalid_request_error", Some("invalid_api_key")),
        ErrorKind::Billing => ("insufficient_quota", Some("insufficient_quota")),
        ErrorKind::RateLimited => ("requests", Some("rate_limit_exceeded")),
        ErrorKind::Overloaded => ("service_unavailable_error", Some("server_is_overloaded")),
        ErrorKind::Timeout => ("server_error", Some("timeout")),
        ErrorKind::ContextWindow => ("invalid_request_error", Some("context_length_exceeded")),
        ErrorKind::Filtered => ("invalid_request_error", Some("content_filter")),
        ErrorKind::ReasoningRefused => ("invalid_request_error", Some("invalid_encrypted_content")),
        ErrorKind::Unsupported => ("invalid_request_error", Some("unsupported_parameter")),
        ErrorKind::InvalidRequest | ErrorKind::TooLarge => ("invalid_request_error", None),
        _ => ("server_error", Some("server_error")),
    }
}
