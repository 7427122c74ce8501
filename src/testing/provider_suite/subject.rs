//! The provider that is tested, and how its server answers.

use std::fmt;

use serde_json::json;

use crate::provider::{Piece, Provider};

/// A provider under test: how to make it, and the bytes that its server answers with.
///
/// The suite asks the provider, and a server on the loopback device answers with these bytes, cut and
/// broken off as each claim has it. See the [module](crate::testing::provider_suite) for an example.
pub trait Subject {
    /// The provider, for example an [`HttpProvider`](crate::provider::HttpProvider) over a wire of your
    /// own.
    type Provider: Provider + fmt::Debug + 'static;

    /// Makes a provider that sends its requests to `url`, such as `http://127.0.0.1:4711`, and proves
    /// its right by `key`. One that needs no key ignores it.
    ///
    /// It may retry: the suite sends requests that forbid it, unless a claim is about retries.
    fn provider(&self, url: &str, key: &str) -> Self::Provider;

    /// Writes the body of an answer in which a model says these pieces, in this order; `None` if the
    /// wire cannot say one of them, or not so.
    ///
    /// A piece of text or reasoning is one or more frames, and so is a call. An answer whose last piece
    /// is not [`Piece::Stop`] is written up to where it would be cut off: without a stop reason, a last
    /// word or whatever else tells the provider that the turn is complete. A call whose id the wire has
    /// no place for is written without it.
    fn response_body(&self, pieces: &[Piece]) -> Option<Vec<u8>>;

    /// Writes the frame of an error that the server reports after a part of its answer; `None`, which
    /// is the default, if the wire has none.
    fn stream_error_frame(&self, message: &str) -> Option<Vec<u8>> {
        let _ = message;
        None
    }

    /// Writes the body of an answer with this status, of an error; `{"error":{"message":…}}` by
    /// default.
    fn error_body(&self, status: u16, message: &str) -> Vec<u8> {
        let _ = status;
        json!({ "error": { "message": message } }).to_string().into_bytes()
    }

    /// The media type of an answer that is a stream; `text/event-stream` by default.
    #[expect(clippy::unnecessary_literal_bound, reason = "a subject may have it as a setting")]
    fn media_type(&self) -> &str {
        "text/event-stream"
    }

    /// Says why a claim, by the name of its function, does not apply to this provider: it is skipped
    /// then, and the report has the reason. By default every claim applies.
    fn exemption_reason(&self, claim: &str) -> Option<String> {
        let _ = claim;
        None
    }
}
