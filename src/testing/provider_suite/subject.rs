//! The provider under test, and the answers of its server.

use std::fmt;

use serde_json::json;

use crate::provider::{Piece, Provider};

/// A provider under test, with its constructor and the bytes that its server answers with.
///
/// The suite sends requests with the provider, and a server on the loopback device answers with
/// these bytes, split and truncated as each claim requires. The
/// [module](crate::testing::provider_suite) has an example.
pub trait Subject {
    /// The type of the provider, for example an [`HttpProvider`](crate::provider::HttpProvider)
    /// over a custom wire.
    type Provider: Provider + fmt::Debug + 'static;

    /// Creates a provider that sends its requests to `url`, such as `http://127.0.0.1:4711`, and
    /// authenticates with `key`. A provider that needs no key ignores `key`.
    ///
    /// The provider may retry requests. The suite sends requests that forbid retries, except for
    /// claims about retries.
    fn provider(&self, url: &str, key: &str) -> Self::Provider;

    /// Returns the body of an answer that consists of these pieces, in this order. Returns `None`
    /// if the wire cannot express a piece, or the order of the pieces.
    ///
    /// A piece of text or reasoning consists of one or more frames, and so does a call. If the last
    /// piece is not a [`Piece::Stop`], the answer is written up to the point where it would be cut
    /// off. An answer that is cut off has no stop reason, no end marker, and nothing else that
    /// tells the provider that the turn is complete. If the wire has no field for a call's id, the
    /// call is written without the id.
    fn response_body(&self, pieces: &[Piece]) -> Option<Vec<u8>>;

    /// Returns the frame of an error that the server reports after a part of its answer. Returns
    /// `None`, the default, if the wire has no such frame.
    fn stream_error_frame(&self, message: &str) -> Option<Vec<u8>> {
        let _ = message;
        None
    }

    /// Returns the body of an error response with this status, which is `{"error":{"message":…}}`
    /// by default.
    fn error_body(&self, status: u16, message: &str) -> Vec<u8> {
        let _ = status;
        json!({ "error": { "message": message } }).to_string().into_bytes()
    }

    /// Returns the media type of a streamed answer, which is `text/event-stream` by default.
    #[expect(clippy::unnecessary_literal_bound, reason = "a subject may have it as a setting")]
    fn media_type(&self) -> &str {
        "text/event-stream"
    }

    /// Returns the reason why a claim, by the name of its function, does not apply to this
    /// provider. The claim is then skipped, and the report contains the reason. By default, every
    /// claim applies.
    fn exemption_reason(&self, claim: &str) -> Option<String> {
        let _ = claim;
        None
    }
}
