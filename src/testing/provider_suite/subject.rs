//! Describes the provider under test, and its server's answers.

use std::fmt;

use serde_json::json;

use crate::provider::{Piece, Provider};

/// Creates the provider under test, and the bytes that its server answers with.
///
/// The suite sends requests with the provider, and a server on the loopback device answers with
/// these bytes, split and truncated as each check requires. For an example, see the
/// [module](crate::testing::provider_suite).
pub trait Subject {
    /// The provider's type, for example an [`HttpProvider`](crate::provider::HttpProvider) that
    /// uses a custom wire.
    type Provider: Provider + fmt::Debug + 'static;

    /// Creates a provider that sends its requests to `url`, such as `http://127.0.0.1:4711`, and
    /// authenticates with `key`. A provider that needs no key ignores `key`.
    ///
    /// The provider may retry requests. The suite sends requests that forbid retries, except to
    /// test retries.
    fn provider(&self, url: &str, key: &str) -> Self::Provider;

    /// Returns the body of an answer that consists of these pieces, in this order. Returns `None`
    /// if the wire cannot express a piece, or the order of the pieces.
    ///
    /// Each piece of text or reasoning, and each call, consists of one or more frames. If the last
    /// piece is not a [`Piece::Stop`], write the answer up to the point where it would be cut off.
    /// Such an answer has no stop reason, no end marker, and nothing else that tells the provider
    /// that the turn is complete. If the wire has no field for a call's id, write the call without
    /// the id.
    fn response_body(&self, pieces: &[Piece]) -> Option<Vec<u8>>;

    /// Returns the frame with which the server reports an error after it has sent a part of its
    /// answer. Returns `None`, the default, if the wire has no such frame.
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

    /// Returns the media type of a streamed answer. The default is `text/event-stream`.
    #[expect(clippy::unnecessary_literal_bound, reason = "a subject may have it as a setting")]
    fn media_type(&self) -> &str {
        "text/event-stream"
    }

    /// Returns the reason why a claim does not apply to this provider. `claim` is the name of the
    /// claim's function. If there is a reason, the claim is skipped, and the report contains the
    /// reason. By default, every claim applies.
    fn exemption_reason(&self, claim: &str) -> Option<String> {
        let _ = claim;
        None
    }
}
