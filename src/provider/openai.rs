//! What both wires of OpenAI have in common, as it is read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::provider::failure::protocol_error;
use crate::provider::lenient::{LenientNumber, deserialize_string};

/// Of the input or of the output: each has some of them.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "they are the wire's")]
pub(super) struct TokenDetails {
    pub(super) cached_tokens: LenientNumber,
    pub(super) cache_write_tokens: LenientNumber,
    pub(super) reasoning_tokens: LenientNumber,
}

/// The JSON text that the arguments of a call add: a string on the wire of the vendor, an object on
/// some others. `None` if they are of a shape that adds none, so that what the model wrote is not
/// known.
pub(super) fn arguments_text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let Some(raw) = raw else { return Some(Cow::Borrowed("")) };
    match raw.get().as_bytes().first() {
        Some(b'"') => deserialize_string(raw),
        Some(b'{') => Some(Cow::Borrowed(raw.get())),
        Some(b'n') => Some(Cow::Borrowed("")),
        _ => None,
    }
}

/// The error for arguments of which [`arguments`] makes nothing.
pub(super) fn malformed_arguments_error() -> Error {
    protocol_error("the arguments of a tool call are neither text nor an object")
}
