//! Creates error responses in a vendor's format.

use crate::error::{Error, ErrorKind};
use crate::testing::Wire;
use crate::testing::response_stream::StreamResponse;

/// Creates the error for an HTTP status, with a message that is not specific to a vendor.
pub(super) fn error_for_status(status: u16) -> Error {
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

/// Creates an error response that has the error's status and contains the error in the wire's
/// format.
pub(super) fn error_response(wire: Wire, error: &Error) -> StreamResponse {
    let server = wire.server_wire();
    let status = error.status().unwrap_or_else(|| (server.status)(error.kind()));
    let mut response = StreamResponse::json(status, &(server.error_body)(error, status))
        .with_request_id(server, error.request_id().unwrap_or("req_refused"));
    if let Some((name, value)) = (server.retry_after_header)(error) {
        response.headers.push((name.to_owned(), value));
    }
    response
}

/// Creates the error response to send when the wire format cannot express a scripted answer.
pub(super) fn server_error(wire: Wire, what: &str) -> StreamResponse {
    error_response(wire, &Error::new(ErrorKind::Server, what).with_status(500))
}
