//! Receives the bodies of requests.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header;
use axum::http::request::Parts;
use turnstream::{Error, ErrorKind};

use crate::authorize::header_text;

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// Receives a body of at most `max` bytes. A body that declares a larger size is refused before any
/// of it is received.
///
/// # Errors
///
/// Returns an error with the status 413 or 408.
pub(crate) async fn receive(parts: &Parts, body: Body, max: usize) -> Result<Bytes, Error> {
    let too_large = || {
        let message = format!("the request is larger than {max} bytes");
        Error::new(ErrorKind::TooLarge, message).with_status(413)
    };
    let length = header_text(&parts.headers, header::CONTENT_LENGTH.as_str());
    if length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| length > max) {
        return Err(too_large());
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, max)).await;
    let body = body.map_err(|_| {
        let message = "the request did not arrive in time";
        Error::new(ErrorKind::Timeout, message).with_status(408)
    })?;
    body.map_err(|_| too_large())
}
