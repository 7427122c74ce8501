//! Describes the provider under test and the responses of the server that it connects to.

use std::fmt;

use serde_json::json;
use turnstream::provider::{Piece, Provider};

/// A trait that creates the provider under test and encodes the answers of its server.
///
/// The suite sends requests through the provider. A server on the loopback interface responds with
/// the bytes that this trait's methods return, split and truncated as each check requires. For an
/// example, see the [module](mod@crate::provider_suite).
pub trait Subject {
    /// The provider's type, for example an `HttpProvider`
    /// that uses a custom wire.
    type Provider: Provider + fmt::Debug + 'static;

    /// Creates a provider that sends its requests to `url`, such as `http://127.0.0.1:4711`, and
    /// authenticates with `key`. If the provider needs no key, ignore `key`.
    ///
    /// The provider may retry requests. The suite's requests disable retries, except in the checks
    /// that test retries.
    fn provider(&self, url: &str, key: &str) -> Self::Provider;

    /// Returns the body of an answer that consists of these pieces, in this order. Returns `None`
    /// if the wire cannot express one of the pieces or their order.
    ///
    /// Write each piece of text or reasoning, and each call, as one or more frames. If the last
    /// piece is not a [`Piece::Stop`], write the answer as if the connection had been lost after
    /// the last piece, without a stop reason, an end marker, or anything else that tells the
    /// provider that the turn is complete. If the wire has no field for a call's id, write the call
    /// without the id.
    fn response_body(&self, pieces: &[Piece]) -> Option<Vec<u8>>;

    /// Returns the frame that the server uses to report an error after sending part of its answer,
    /// or `None` if the wire has no such frame. The default is `None`.
    fn stream_error_frame(&self, message: &str) -> Option<Vec<u8>> {
        let _ = message;
        None
    }

    /// Returns the body of an error response with this status. The default body is
    /// `{"error":{"message":…}}`.
    fn error_body(&self, status: u16, message: &str) -> Vec<u8> {
        let _ = status;
        json!({ "error": { "message": message } }).to_string().into_bytes()
    }

    /// Returns the media type for streamed answers. The default is `text/event-stream`.
    #[expect(clippy::unnecessary_literal_bound, reason = "a subject may have it as a setting")]
    fn media_type(&self) -> &str {
        "text/event-stream"
    }

    /// Returns the reason why a check does not apply to this provider, or `None` if the check
    /// applies. `claim` is the name of the check's function. If a reason is returned, the check is
    /// skipped and the reason is included in the report. By default, every check applies.
    fn exemption_reason(&self, claim: &str) -> Option<String> {
        let _ = claim;
        None
    }
}
