//! A protocol of model providers, as far as one differs from another.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::framing::Framing;
use crate::http::KeyHeader;
use crate::provider::decode::Decode;
use crate::provider::{body, failure};
use crate::request::Request;

/// A vendor's HTTP protocol for requests to models.
///
/// A wire defines how a request is encoded, where it is sent, and how the answer is decoded;
/// [`HttpProvider`](crate::provider::HttpProvider) does the rest: it sends the request by `POST`, waits
/// within its time limits, retries, and hides keys. The value of a wire holds the settings that only
/// this wire has; it is cloned for each turn.
///
/// [`name`](Self::name), [`path`](Self::path), [`encode`](Self::encode), [`decoder`](Self::decoder) and
/// the two types are required. The example `own_wire` implements a wire for a vendor that does not
/// exist, and `testing::provider_suite` (with the feature `testing`) tests a provider.
///
/// A panic in a method is an error of the turn, but for [`name`](Self::name),
/// [`base_url`](Self::base_url), and [`path`](Self::path) of the provider's own model, which are called
/// when a provider is built.
pub trait Wire: Clone + fmt::Debug + Send + Sync + 'static {
    /// How the bytes of an answer are cut into frames: one of [`framing`](crate::framing), or one of
    /// your own. Its media type is sent as `accept`.
    type Framing: Framing + Default + Send + Unpin + 'static;

    /// Reads the frames of one answer.
    type Decoder: Decode + Send + Unpin + 'static;

    /// The name of the wire in messages, and in the [`ProviderData`](crate::item::ProviderData) of the
    /// items that its decoder pushes. It is stored with histories: it stays the same.
    fn name(&self) -> &str;

    /// The base URL that is used unless
    /// [`with_base_url`](crate::provider::HttpProvider::with_base_url) sets another one. If it is empty,
    /// which is the default, one has to be set.
    ///
    /// The host of an https URL counts as the vendor's own: a request to it without a key is an
    /// [`Auth`](crate::ErrorKind::Auth) error, and nothing is sent.
    #[expect(clippy::unnecessary_literal_bound, reason = "a wire may have it as a setting")]
    fn base_url(&self) -> &str {
        ""
    }

    /// The path below the base URL, for example `/v1/messages`. `{model}` stands for the name of the
    /// model, which is percent-encoded but for a `/`, and a query may follow:
    /// `/models/{model}:streamGenerateContent?alt=sse`.
    fn path(&self, model: &str) -> &str;

    /// The headers that are sent with each request, their names in lower case; none by default. The
    /// headers that describe the body, such as `content-type`, and the key's header are set already.
    fn headers(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    /// The header that a key is sent in: `authorization: Bearer …` by default. A provider without a
    /// key sends none.
    fn key_header(&self) -> KeyHeader {
        KeyHeader::Bearer
    }

    /// Writes the body of a request: `application/json` that requests a stream. It is called once for
    /// each turn, on the first poll; retries send the same body.
    ///
    /// What an encoder sends of a [`Request`]:
    ///
    /// - [`system`](Request::system), the stable zone before the volatile one. Either may be empty.
    /// - [`context`](Request::context) and not `history`, after
    ///   [`settled`](crate::History::settled): each call has its one result then, directly after its
    ///   turn. Items with [`tombstone`](crate::Item::tombstone) set are void and are left out.
    /// - Of each item what [`handoff`](crate::provider::handoff()) allows, if the wire has provider data:
    ///   signatures and items of its own go back to the model that wrote them, and to no other.
    ///   [`arguments_or_empty_object`](crate::item::ToolCall::arguments_or_empty_object) is the text of a call's
    ///   arguments, which is not always JSON: models write what they like.
    /// - [`tools`](Request::tools).
    /// - [`options`](Request::options): what is set and cannot be expressed is an error, for which
    ///   [`Options::ensure_only_supported`](crate::request::Options::ensure_only_supported) and
    ///   [`unsupported_error`](crate::request::unsupported_error) are there. [`EncodedRequest::from_json`] merges `extra`.
    ///
    /// The model is that of `to`. The same request has to give the same bytes, and the items that two
    /// requests begin with the same elements of the body: vendors cache by them.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) or
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for what the wire cannot express; nothing is
    /// sent then.
    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error>;

    /// Makes the decoder of one answer. It is called at the beginning of each attempt.
    fn decoder(&self, request: &Request, to: Destination<'_>) -> Self::Decoder;

    /// Whether the server searches [deferred](crate::tool::ToolSpec::deferred) tools itself; `false` by default. Then
    /// [`encode`](Self::encode) marks those tools in the wire's own way.
    fn has_tool_search(&self) -> bool {
        false
    }

    /// Makes the error of an answer whose status is not 2xx. By default this is
    /// [`ErrorResponse::to_error`]. To an error of a wire's own, the status is added if it has none, and what the headers
    /// say.
    fn error_from_response(&self, refusal: &ErrorResponse<'_>) -> Error {
        refusal.to_error()
    }
}

/// The model and the server that a request goes to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Destination<'a> {
    /// The name of the model.
    pub model: &'a str,
    /// Whether the server is the vendor's own, by the host of [`Wire::base_url`], and not one that
    /// copies the wire.
    pub is_vendor: bool,
}

/// The body of a request, and the headers that go with it.
#[derive(Clone, Debug, Default)]
pub struct EncodedRequest {
    pub(super) body: Vec<u8>,
    pub(super) headers: Vec<(Cow<'static, str>, String)>,
}

impl EncodedRequest {
    /// A body of JSON, into which `extra` is merged as
    /// [`Options::extra`](crate::request::Options::extra) says.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it cannot be written as JSON, for example
    /// because a map has keys that are not text.
    pub fn from_json(body: &impl Serialize, extra: &Map<String, Value>) -> Result<Self, Error> {
        body::serialize_body(body, extra).map(Self::from)
    }

    /// Adds a header that goes with this body. If the user has set one of the same name, the value
    /// is added to the user's after a comma. It replaces one of [`Wire::headers`].
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, value: &str) -> Self {
        self.headers.push((name.into(), value.to_owned()));
        self
    }
}

/// A body of JSON that is written already.
impl From<Vec<u8>> for EncodedRequest {
    fn from(body: Vec<u8>) -> Self {
        Self { body, headers: Vec::new() }
    }
}

/// An answer whose status is not 2xx.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ErrorResponse<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The beginning of the body: at most 64 KiB, of what came within 5 seconds. Empty if the body is
    /// compressed.
    pub body: &'a str,
    /// When the head of the answer came. Waits that the body states as a date are counted from it.
    pub received_at: SystemTime,
}

impl ErrorResponse<'_> {
    /// Makes the error from status and body. It finds messages, codes and waits in all the forms
    /// that servers are known to send.
    ///
    /// What the headers say, such as `retry-after` and a request id, is added after
    /// [`Wire::error_from_response`].
    pub fn to_error(&self) -> Error {
        failure::error_for_status(self.status, self.body, self.received_at)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extra_options_are_merged_into_a_body_of_json() {
        let body = json!({ "engine": "m", "limits": { "words": 9 } });
        let extra = json!({ "limits": { "lines": 2 }, "mood": "calm" });
        let extra = extra.as_object().unwrap();
        let merged: Value =
            serde_json::from_slice(&EncodedRequest::from_json(&body, extra).unwrap().body).unwrap();
        let limits = json!({ "words": 9, "lines": 2 });
        assert_eq!(merged, json!({ "engine": "m", "limits": limits, "mood": "calm" }));
        let plain = EncodedRequest::from_json(&body, &Map::new()).unwrap();
        assert_eq!(plain.body, serde_json::to_vec(&body).unwrap());
    }
}
