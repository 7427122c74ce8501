//! Types and functions that both OpenAI wires share.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::item::Detail;
use crate::provider::codec::failure::protocol_error;
use crate::provider::codec::lenient::{LenientNumber, deserialize_string};
use crate::request::{Options, ServiceTier};

/// The details of the input or output token count. The input details and the output details each
/// contain some of these fields.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the wire defines them")]
pub(in crate::provider) struct TokenDetails {
    pub(in crate::provider) cached_tokens: LenientNumber,
    pub(in crate::provider) cache_write_tokens: LenientNumber,
    pub(in crate::provider) reasoning_tokens: LenientNumber,
    pub(in crate::provider) audio_tokens: LenientNumber,
    pub(in crate::provider) image_tokens: LenientNumber,
}

/// Returns OpenAI's name for a request's service tier,
/// <https://developers.openai.com/api/docs/guides/flex-processing>.
pub(in crate::provider) fn openai_service_tier(options: &Options) -> Option<&str> {
    Some(match options.service_tier.as_ref()? {
        ServiceTier::Standard => "default",
        tier => tier.as_str(),
    })
}

/// Returns OpenAI's name for the detail of an image.
pub(in crate::provider) fn detail_name(detail: Detail) -> &'static str {
    match detail {
        Detail::Low => "low",
        Detail::High => "high",
        Detail::Original => "original",
    }
}

/// Returns the JSON text of a call's arguments, which OpenAI sends as a string and some other
/// servers send as an object. Returns `None` for a value of any other type, because the arguments
/// are then unknown.
pub(in crate::provider) fn arguments_text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let Some(raw) = raw else { return Some(Cow::Borrowed("")) };
    match raw.get().as_bytes().first() {
        Some(b'"') => deserialize_string(raw),
        Some(b'{') => Some(Cow::Borrowed(raw.get())),
        Some(b'n') => Some(Cow::Borrowed("")),
        _ => None,
    }
}

/// Creates the error for call arguments of the wrong type, for which [`arguments_text`] returns
/// `None`.
pub(in crate::provider) fn malformed_arguments_error() -> Error {
    protocol_error("the arguments of a tool call are neither text nor an object")
}
