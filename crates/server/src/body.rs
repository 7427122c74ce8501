//! Receives the bodies of requests.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::http::request::Parts;
use futures::StreamExt;
use turnstream::{Error, ErrorKind};

use crate::authorize::{Principal, header_text};
use crate::slots::{Full, Maximum, Slot, Slots};

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// The maximum number of bytes of bodies that a server holds at the same time.
const MAX_HELD: Maximum = Maximum { of_principal: 64 << 20, of_all: 512 << 20 };

/// Receives the bodies of a server's requests. Clones share their counts.
#[derive(Clone)]
pub(crate) struct Bodies {
    held: Slots,
    max_held: Maximum,
}

/// A body that was received. Its bytes are counted until it is dropped.
pub(crate) struct HeldBody {
    pub(crate) bytes: Bytes,
    _held: Option<Slot>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self { held: Slots::default(), max_held: MAX_HELD }
    }
}

impl HeldBody {
    pub(crate) fn empty() -> Self {
        Self { bytes: Bytes::new(), _held: None }
    }
}

impl Bodies {
    /// Receives a body of at most `max` bytes. A body that declares a larger size is refused before
    /// any of it is received.
    ///
    /// # Errors
    ///
    /// Returns an error with the status 413, 408 or 400, or with 429 or 503 if the bodies that the
    /// principal's requests, or all requests, have sent would be too large together.
    pub(crate) async fn receive(
        &self,
        principal: &Principal,
        parts: &Parts,
        body: Body,
        max: usize,
    ) -> Result<HeldBody, Error> {
        let length = header_text(&parts.headers, header::CONTENT_LENGTH.as_str());
        if length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| length > max) {
            return Err(too_large(max));
        }
        let received = tokio::time::timeout(BODY_TIMEOUT, self.read(principal, body, max)).await;
        received.unwrap_or_else(|_| {
            let message = "the request did not arrive in time";
            Err(Error::new(ErrorKind::Timeout, message).with_status(408))
        })
    }

    async fn read(&self, principal: &Principal, body: Body, max: usize) -> Result<HeldBody, Error> {
        let mut held = self.held.take(principal, 0, self.max_held).map_err(full)?;
        let (mut body, mut bytes) = (body.into_data_stream(), Vec::new());
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|_| {
                let message = "the body of the request has ended early";
                Error::new(ErrorKind::InvalidRequest, message).with_status(400)
            })?;
            if bytes.len() + piece.len() > max {
                return Err(too_large(max));
            }
            held.grow(piece.len(), self.max_held).map_err(full)?;
            bytes.extend_from_slice(&piece);
        }
        Ok(HeldBody { bytes: bytes.into(), _held: Some(held) })
    }
}

fn too_large(max: usize) -> Error {
    let message = format!("the request is larger than {max} bytes");
    Error::new(ErrorKind::TooLarge, message).with_status(413)
}

fn full(full: Full) -> Error {
    let (kind, status) = match full {
        Full::Principal => (ErrorKind::RateLimited, 429),
        Full::All => (ErrorKind::Overloaded, 503),
    };
    Error::new(kind, "too many large requests at the same time").with_status(status)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[tokio::test]
    async fn the_bodies_of_a_principal_and_of_all_are_limited_until_they_are_dropped() {
        let max_held = Maximum { of_principal: 10, of_all: 15 };
        let bodies = Bodies { held: Slots::default(), max_held };
        let receive = async |name: &'static str, size: usize| {
            let (parts, ()) = Request::new(()).into_parts();
            let body = Body::from("x".repeat(size));
            bodies.receive(&Principal::new(name), &parts, body, 100).await
        };
        let status = |received: Result<HeldBody, Error>| received.err().and_then(|it| it.status());
        let first = receive("ada", 8).await.unwrap();
        assert_eq!(status(receive("ada", 3).await), Some(429));
        assert_eq!(status(receive("bob", 8).await), Some(503));
        assert_eq!(status(receive("bob", 7).await), None);
        drop(first);
        assert_eq!(status(receive("ada", 10).await), None);
        assert_eq!(status(receive("ada", 101).await), Some(413));
    }
}
