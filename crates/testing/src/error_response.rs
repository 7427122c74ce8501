//! Creates error responses in a vendor's format.

use turnstream::error::{Error, ErrorKind};

use crate::Wire;
use crate::response_stream::StreamResponse;

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
    let document = wire.error_document(error);
    let mut response = StreamResponse::json(document.status, &document.body)
        .with_request_id(wire, error.request_id().unwrap_or("req_refused"));
    let headers = document.headers.into_iter();
    response.headers.extend(headers.map(|(name, value)| (name.to_owned(), value)));
    response
}

/// Creates the error response to send when the wire format cannot express a scripted answer.
pub(super) fn server_error(wire: Wire, what: &str) -> StreamResponse {
    error_response(wire, &Error::new(ErrorKind::Server, what).with_status(500))
}
