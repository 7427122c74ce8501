//! How each vendor says that something went wrong.

use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};
use crate::testing::Wire;
use crate::testing::answer::Response;
use crate::testing::write::{Frame, Role};

/// The error for a status, in words that all vendors might use.
pub(super) fn by_status(status: u16) -> Error {
    let (kind, message) = match status {
        401 => (ErrorKind::Auth, "invalid API key"),
        402 => (ErrorKind::Billing, "the credit balance is too low"),
        403 => (ErrorKind::Auth, "the key is not allowed to do this"),
        404 => (ErrorKind::InvalidRequest, "no such model"),
        408 | 504 => (ErrorKind::Timeout, "the request took too long"),
        413 => (ErrorKind::InvalidRequest, "the request is too large"),
        429 => (ErrorKind::RateLimited, "too many requests"),
        503 | 529 => (ErrorKind::Overloaded, "overloaded"),
        500.. => (ErrorKind::Server, "internal server error"),
        _ => (ErrorKind::InvalidRequest, "the request is refused"),
    };
    Error::new(kind, message).with_status(status)
}

/// An answer that is an error by its status.
pub(super) fn response(wire: Wire, error: &Error) -> Response {
    let status = error.status().unwrap_or_else(|| usual_status(wire, error.kind()));
    let mut response = Response::json(status, &body(wire, error, status));
    if let Some(name) = wire.request_id_header() {
        let id = error.request_id().unwrap_or("req_refused");
        response.headers.push((name.to_owned(), id.to_owned()));
    }
    if let Some(wait) = error.retry_after().filter(|_| wire != Wire::Gemini) {
        // "retry-after" counts whole seconds.
        let seconds = wait.as_secs_f64().ceil().to_string();
        response.headers.push(("retry-after".to_owned(), seconds));
    }
    response
}

/// What the server itself cannot do.
pub(super) fn of_server(wire: Wire, what: &str) -> Response {
    response(wire, &Error::new(ErrorKind::Server, what).with_status(500))
}

/// An error in a stream, behind so many frames.
pub(super) fn frame(wire: Wire, error: &Error, frames: usize) -> Frame {
    let message = message(wire, error);
    let status = usual_status(wire, error.kind());
    let (event, data) = match wire {
        Wire::Anthropic => (Some("error"), body(wire, error, status)),
        Wire::OpenAiChat | Wire::Gemini => (None, body(wire, error, status)),
        // The two shapes that the vendor has for it.
        Wire::OpenAiResponses if frames <= 2 => (
            Some("error"),
            json!({
                "type": "error",
                "code": openai_words(error.kind()).1,
                "message": message,
                "param": error.parameter(),
                "sequence_number": frames,
            }),
        ),
        Wire::OpenAiResponses => (
            Some("response.failed"),
            json!({
                "type": "response.failed",
                "sequence_number": frames,
                "response": {
                    "object": "response",
                    "status": "failed",
                    "error": { "code": openai_words(error.kind()).1, "message": message },
                    "incomplete_details": null,
                    "output": [],
                    "usage": null,
                },
            }),
        ),
    };
    Frame { event, data: data.to_string(), role: Role::Event }
}

fn body(wire: Wire, error: &Error, status: u16) -> Value {
    let message = message(wire, error);
    match wire {
        Wire::Anthropic => json!({
            "type": "error",
            "error": { "type": anthropic_word(error.kind(), status), "message": message },
        }),
        Wire::OpenAiChat | Wire::OpenAiResponses => {
            let (kind, code) = openai_words(error.kind());
            json!({ "error": {
                "message": message, "type": kind, "param": error.parameter(), "code": code,
            } })
        }
        Wire::Gemini => {
            let mut inner = json!({
                "code": status,
                "message": message,
                "status": gemini_word(error.kind(), status),
            });
            if let Some(wait) = error.retry_after() {
                inner["details"] = json!([{
                    "@type": "type.googleapis.com/google.rpc.RetryInfo",
                    "retryDelay": format!("{}s", wait.as_secs_f64()),
                }]);
            }
            json!({ "error": inner })
        }
    }
}

/// What the vendors say of a full context window, clients look for.
fn message(wire: Wire, error: &Error) -> String {
    let message = error.message();
    let known = match wire {
        Wire::Anthropic => "prompt is too long",
        Wire::OpenAiChat => "maximum context length",
        Wire::OpenAiResponses => "context window",
        Wire::Gemini => "exceeds the maximum number of tokens",
    };
    match error.kind() {
        ErrorKind::ContextWindow if !message.contains(known) => format!("{known}: {message}"),
        _ => message.to_owned(),
    }
}

fn usual_status(wire: Wire, kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Auth => 401,
        ErrorKind::Billing if wire == Wire::Anthropic => 402,
        ErrorKind::Billing | ErrorKind::RateLimited => 429,
        ErrorKind::Overloaded if wire == Wire::Anthropic => 529,
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

/// <https://docs.anthropic.com/en/api/errors>
fn anthropic_word(kind: ErrorKind, status: u16) -> &'static str {
    match (kind, status) {
        (_, 404) => "not_found_error",
        (_, 413) => "request_too_large",
        (_, 403) => "permission_error",
        (ErrorKind::Auth, _) => "authentication_error",
        (ErrorKind::Billing, _) => "billing_error",
        (ErrorKind::RateLimited, _) => "rate_limit_error",
        (ErrorKind::Overloaded, _) => "overloaded_error",
        (ErrorKind::Timeout, _) => "timeout_error",
        (
            ErrorKind::InvalidRequest
            | ErrorKind::ContextWindow
            | ErrorKind::Unsupported
            | ErrorKind::Filtered,
            _,
        ) => "invalid_request_error",
        _ => "api_error",
    }
}

/// Type and code, <https://platform.openai.com/docs/guides/error-codes>.
fn openai_words(kind: ErrorKind) -> (&'static str, Option<&'static str>) {
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

/// <https://ai.google.dev/gemini-api/docs/troubleshooting>
fn gemini_word(kind: ErrorKind, status: u16) -> &'static str {
    match (kind, status) {
        (_, 404) => "NOT_FOUND",
        (_, 403) => "PERMISSION_DENIED",
        (ErrorKind::Auth, _) => "UNAUTHENTICATED",
        (ErrorKind::RateLimited | ErrorKind::Billing, _) => "RESOURCE_EXHAUSTED",
        (ErrorKind::Overloaded, _) => "UNAVAILABLE",
        (ErrorKind::Timeout, _) => "DEADLINE_EXCEEDED",
        (
            ErrorKind::InvalidRequest
            | ErrorKind::ContextWindow
            | ErrorKind::Unsupported
            | ErrorKind::Filtered
            | ErrorKind::TooLarge,
            _,
        ) => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}
