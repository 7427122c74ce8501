//! The trait for a provider's HTTP protocol.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use crate::chunked_bytes::ChunkedBytes;
use crate::error::{Error, ErrorKind};
use crate::framing::Framing;
use crate::http::KeyHeader;
use crate::provider::codec::decode::Decode;
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::codec::{body, failure};
use crate::request::Request;

/// Defines a vendor's HTTP protocol for requests to models.
///
/// A wire defines how a request is encoded, where it is sent, and how the response is decoded.
/// [`HttpProvider`](crate::provider::HttpProvider) sends the request with `POST`, enforces
/// timeouts, retries, and masks secrets. A value of the implementing type contains the settings
/// specific to the wire and is cloned for each turn.
///
/// [`name`](Self::name), [`path`](Self::path), [`encode`](Self::encode), [`decoder`](Self::decoder)
/// and the two associated types are required. The `own_wire` example implements a wire for a
/// fictional vendor, and `provider_suite!` in the crate `turnstream-testing` tests a provider.
///
/// If a method panics, the turn fails with an error. The exceptions are [`name`](Self::name),
/// [`base_url`](Self::base_url), and [`path`](Self::path) for the provider's own model, because
/// these methods are called when a provider is built.
///
/// This wire sends the user's messages. The decoder pushes the answer into a
/// [`TurnBuilder`](crate::turn::TurnBuilder):
///
/// ```
/// use serde_json::{Value, json};
/// use turnstream::framing::{Frame, NdJson};
/// use turnstream::item::StopReason;
/// use turnstream::provider::{Decode, Destination, EncodedRequest, FrameOutcome};
/// use turnstream::provider::{HttpProvider, Wire};
/// use turnstream::turn::TurnBuilder;
/// use turnstream::{Agent, Error, Request};
///
/// #[derive(Clone, Debug, Default)]
/// struct ParrotWire;
///
/// impl Wire for ParrotWire {
///     type Framing = NdJson;
///     type Decoder = ParrotDecoder;
///
///     fn name(&self) -> &str {
///         "parrot"
///     }
///
///     fn path(&self, _model: &str) -> &str {
///         "/talk"
///     }
///
///     fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error> {
///         // Options that the wire cannot express cause an error; they are not dropped.
///         request.options.ensure_only_supported("parrot", &[])?;
///         let context = request.context.settled();
///         let items = context.iter().filter(|item| !item.tombstone);
///         let lines = items.filter_map(|item| Some(item.as_user()?.text()));
///         let body = json!({ "model": to.model, "lines": lines.collect::<Vec<_>>() });
///         EncodedRequest::from_json(&body, &request.options.extra)
///     }
///
///     fn decoder(&self, _request: &Request, to: Destination<'_>) -> ParrotDecoder {
///         ParrotDecoder { model: to.model.to_owned() }
///     }
/// }
///
/// struct ParrotDecoder {
///     model: String,
/// }
///
/// impl Decode for ParrotDecoder {
///     fn frame(
///         &mut self,
///         frame: Frame<'_>,
///         turn: &mut TurnBuilder,
///     ) -> Result<FrameOutcome, Error> {
///         turn.set_provider("parrot");
///         turn.set_model(&self.model);
///         let line: Value = frame.json()?;
///         if let Some(text) = line["text"].as_str() {
///             turn.push_text(0, text);
///         }
///         if line["done"] == true {
///             turn.stop(StopReason::Stop, "done");
///             return Ok(FrameOutcome::Done);
///         }
///         Ok(FrameOutcome::Continue)
///     }
/// }
///
/// fn parrot() -> Result<Agent, Error> {
///     let model = HttpProvider::<ParrotWire>::new("grey-1");
///     Ok(Agent::new(model.with_base_url("http://localhost:8000")?))
/// }
/// # assert!(parrot().is_ok());
/// ```
pub trait Wire: Clone + fmt::Debug + Send + Sync + 'static {
    /// The framing that splits the response body into frames: either a type from the
    /// [`framing`](crate::framing) module or your own. The framing's media type is sent in the
    /// `accept` header.
    type Framing: Framing + Default + Send + Unpin + 'static;

    /// The decoder for a response's frames.
    type Decoder: Decode + Send + Unpin + 'static;

    /// Returns the wire's name, which is used in messages and in the
    /// [`ProviderData`](crate::item::ProviderData) of the items that the decoder pushes. Because
    /// the name is stored in histories, it must not change.
    fn name(&self) -> &str;

    /// Returns the default base URL, which
    /// [`with_base_url`](crate::provider::HttpProvider::with_base_url) overrides. The default
    /// implementation returns an empty URL, so that users must set their own.
    ///
    /// If the returned URL uses HTTPS, its host is considered the vendor's own host. A request to
    /// the vendor's host without a key fails with an [`Auth`](crate::ErrorKind::Auth) error, and
    /// nothing is sent.
    #[expect(clippy::unnecessary_literal_bound, reason = "a wire may have it as a setting")]
    fn base_url(&self) -> &str {
        ""
    }

    /// Returns the path below the base URL, for example `/v1/messages`. `{model}` is replaced with
    /// the model's name, which is percent-encoded except for `/`. The path may include a query:
    /// `/models/{model}:streamGenerateContent?alt=sse`.
    fn path(&self, model: &str) -> &str;

    /// Returns the headers to send with each request, with lower-case names; empty by default. The
    /// key header and headers that describe the body, such as `content-type`, are set
    /// automatically.
    fn headers(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    /// Returns the header in which a key is sent: `authorization: Bearer …` by default. The header
    /// is omitted if no key is set.
    fn key_header(&self) -> KeyHeader {
        KeyHeader::Bearer
    }

    /// Encodes the body of a request. The body is sent as `application/json` and must request a
    /// streaming response. This method is called once per turn, at the first poll; retries resend
    /// the same body.
    ///
    /// The body must contain these parts of a [`Request`]:
    ///
    /// - [`system`](Request::system): the stable part, followed by the volatile part. Either part
    ///   may be empty.
    /// - [`context`](Request::context) rather than `history`, after calling
    ///   [`settled`](crate::History::settled). In a settled history, each call has exactly one
    ///   result, which directly follows the call's turn. Items whose
    ///   [`tombstone`](crate::Item::tombstone) flag is set are void and must be omitted.
    /// - The parts of each item that [`handoff`](crate::provider::handoff()) allows, if the wire
    ///   uses provider data. Signatures and provider-specific items are sent back only to the model
    ///   that produced them. The method
    ///   [`arguments_or_empty_object`](crate::item::ToolCall::arguments_or_empty_object) returns a
    ///   call's arguments as a string. The string is not always valid JSON, since a model may write
    ///   arbitrary text.
    /// - [`tools`](Request::tools).
    /// - [`options`](Request::options): if an option is set that the wire cannot express, return an
    ///   error. See
    ///   [`Options::ensure_only_supported`](crate::request::Options::ensure_only_supported) and
    ///   [`unsupported_error`](crate::request::unsupported_error). [`EncodedRequest::from_json`]
    ///   merges `extra`.
    ///
    /// `to` contains the name of the model. Encoding must be deterministic, so that the same
    /// request always produces the same bytes. Two requests that start with the same items must
    /// have bodies that start with the same elements, because vendors cache by prefix.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) or
    /// [`Unsupported`](crate::ErrorKind::Unsupported) error if the wire cannot express the request;
    /// the request is then not sent.
    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error>;

    /// Creates the decoder for a response. This method is called at the start of each attempt.
    fn decoder(&self, request: &Request, to: Destination<'_>) -> Self::Decoder;

    /// Encodes a request whose tokens the server counts without answering it. Returns `None` by
    /// default, which means that the server cannot count.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`encode`](Self::encode), for example if the wire cannot express the
    /// request. Nothing is then sent, and [`count_tokens`](crate::Provider::count_tokens) returns
    /// the error.
    fn encode_token_count(
        &self,
        request: &Request,
        to: Destination<'_>,
    ) -> Option<Result<TokenCountRequest, Error>> {
        let _ = (request, to);
        None
    }

    /// Returns whether the server itself searches [deferred](crate::tool::ToolSpec::deferred)
    /// tools; `false` by default. If the server searches deferred tools, [`encode`](Self::encode)
    /// must mark the deferred tools as such in the request body.
    fn has_tool_search(&self) -> bool {
        false
    }

    /// Creates the error for a response with a status other than 2xx. The default implementation
    /// calls [`ErrorResponse::to_error`]. After this method returns, the details from the headers
    /// are added to the error. The status is also added, unless the error already contains one.
    fn error_from_response(&self, refusal: &ErrorResponse<'_>) -> Error {
        refusal.to_error()
    }
}

/// The model and the server to which a request is sent.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Destination<'a> {
    /// The name of the model.
    pub model: &'a str,
    /// Whether the server is the vendor's own rather than a compatible server, based on the host in
    /// [`Wire::base_url`].
    pub is_vendor: bool,
}

/// The encoded body of a request, along with headers that are sent only with this body.
#[derive(Clone, Debug, Default)]
pub struct EncodedRequest {
    pub(super) body: ChunkedBytes,
    pub(super) headers: Vec<(Cow<'static, str>, String)>,
}

impl EncodedRequest {
    /// Serializes a body as JSON and merges `extra` into it; see
    /// [`Options::extra`](crate::request::Options::extra).
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if the body cannot be
    /// serialized as JSON, for example because a map has keys that are not strings.
    pub fn from_json(body: &impl Serialize, extra: &Map<String, Value>) -> Result<Self, Error> {
        body::serialize_body(body, extra).map(Self::from)
    }

    pub(in crate::provider) fn new(body: ChunkedBytes) -> Self {
        Self { body, headers: Vec::new() }
    }

    /// Adds a header that is sent with this body. If the user has set a header with the same name,
    /// the value is appended to the user's value, separated by a comma. A value for the same name
    /// in [`Wire::headers`] is replaced.
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, value: &str) -> Self {
        self.headers.push((name.into(), value.to_owned()));
        self
    }

    /// Removes all fields of the body that are not in `names`.
    pub(in crate::provider) fn with_fields(self, names: &[&str]) -> Result<Self, Error> {
        let body = body::keep_fields(&self.body.into_vec(), names)?.into();
        Ok(Self { body, headers: self.headers })
    }

    /// Places the body in a field of another object, after `fields` have been added to the body.
    pub(in crate::provider) fn inside(
        self,
        name: &str,
        fields: &[(&str, &str)],
    ) -> Result<Self, Error> {
        let body = self.body.into_vec();
        let mut own: OrderedFields<'_> =
            serde_json::from_slice(&body).map_err(body::serialization_error)?;
        for (name, value) in fields {
            own.set(name, to_raw_value(value).map_err(body::serialization_error)?);
        }
        let outer = HashMap::from([(name, own)]);
        let outer = serde_json::to_vec(&outer).map_err(body::serialization_error)?;
        Ok(Self { body: outer.into(), headers: self.headers })
    }
}

/// A request that asks a server to count tokens, and where its answer contains the count. See
/// [`Wire::encode_token_count`](crate::provider::Wire::encode_token_count).
#[derive(Clone, Debug)]
pub struct TokenCountRequest {
    pub(super) path: Cow<'static, str>,
    pub(super) encoded: EncodedRequest,
    field: &'static str,
}

impl TokenCountRequest {
    /// Creates a request to a path below the base URL, in which `{model}` is replaced with the
    /// model's name. `field` is the name of the field of the answer that contains the count.
    pub fn new(
        path: impl Into<Cow<'static, str>>,
        encoded: EncodedRequest,
        field: &'static str,
    ) -> Self {
        Self { path: path.into(), encoded, field }
    }

    /// Reads the count from the body of a response.
    pub(super) fn read_count(field: &str, body: &[u8]) -> Result<u64, Error> {
        let answer: Option<Value> = serde_json::from_slice(body).ok();
        answer.and_then(|answer| answer[field].as_u64()).ok_or_else(|| {
            let message = format!("the answer to a token count has no number in `{field}`");
            Error::new(ErrorKind::Protocol, message)
        })
    }

    pub(super) fn field(&self) -> &'static str {
        self.field
    }
}

/// Creates an encoded request from a body that is already serialized as JSON.
impl From<Vec<u8>> for EncodedRequest {
    fn from(body: Vec<u8>) -> Self {
        Self::new(body.into())
    }
}

/// A response with a status other than 2xx.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ErrorResponse<'a> {
    /// The HTTP status code of the response.
    pub status: u16,
    /// The start of the body: at most 64 KiB, received within 5 seconds. The string is empty if the
    /// body is compressed.
    pub body: &'a str,
    /// The time at which the head of the response was received. Dates in the body are converted to
    /// delays relative to this time.
    pub received_at: SystemTime,
}

impl ErrorResponse<'_> {
    /// Creates an error from the response's status and body. Messages, codes and retry delays are
    /// recognized in all formats that servers are known to use.
    ///
    /// Details from the headers, such as `retry-after` and a request id, are added to the error
    /// after [`Wire::error_from_response`] returns.
    pub fn to_error(&self) -> Error {
        failure::error_for_status(self.status, self.body, self.received_at)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn to_vec(encoded: Result<EncodedRequest, Error>) -> Vec<u8> {
        encoded.unwrap().body.into_vec()
    }

    #[test]
    fn extra_options_are_merged_into_a_body_of_json() {
        let body = json!({ "engine": "m", "limits": { "words": 9 } });
        let extra = json!({ "limits": { "lines": 2 }, "mood": "calm" });
        let extra = extra.as_object().unwrap();
        let merged: Value =
            serde_json::from_slice(&to_vec(EncodedRequest::from_json(&body, extra))).unwrap();
        let limits = json!({ "words": 9, "lines": 2 });
        assert_eq!(merged, json!({ "engine": "m", "limits": limits, "mood": "calm" }));
        let own = json!({ "tools": [{ "name": "a" }] });
        let extra = json!({ "tools": [{ "name": "b" }] });
        let merged = EncodedRequest::from_json(&own, extra.as_object().unwrap());
        assert_eq!(to_vec(merged), br#"{"tools":[{"name":"a"},{"name":"b"}]}"#);
        let plain = EncodedRequest::from_json(&body, &Map::new());
        assert_eq!(to_vec(plain), serde_json::to_vec(&body).unwrap());
    }
}
