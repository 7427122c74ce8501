//! The values of a history in the form that every vendor takes: ids, names, arguments, media.

use std::borrow::Cow;

use crate::fnv::fnv1a_64;
use crate::item::{Content, ToolCall, ToolResult, validate_json};
use crate::provider::lenient::repair_json;

/// Stands for the user's text before that of the assistant, if there is none.
pub(super) const USER_TEXT_PLACEHOLDER: &str = "(What was said before is not shown.)";

/// Stands for the text of a tool that failed without one.
pub(super) const EMPTY_ERROR_TEXT: &str = "It failed without a word.";

/// The arguments as an object, which is all that an API takes. What the model wrote instead is
/// wrapped, so that it can see its mistake.
pub(super) fn arguments_as_object(call: &ToolCall) -> Cow<'_, str> {
    let written = call.arguments_or_empty_object();
    if written.starts_with('{') && validate_json(&call.arguments).is_ok() {
        // Half of a surrogate pair is JSON, and refused by every vendor.
        let halved =
            (written.contains("\\ud") || written.contains("\\uD") || written.contains("\\Ud"))
                && serde_json::from_str::<serde_json::Value>(written).is_err();
        return match halved.then(|| repair_json(written)).flatten() {
            Some(repaired) => Cow::Owned(repaired),
            None => Cow::Borrowed(written),
        };
    }
    Cow::Owned(serde_json::json!({ "INVALID_JSON": call.arguments }).to_string())
}

/// The longest id of a call that Anthropic and Responses take.
pub(super) const MAX_LONG_ID_BYTES: usize = 64;
/// The longest id of a call that Chat Completions takes.
pub(super) const MAX_SHORT_ID_BYTES: usize = 40;

/// An id as the vendor takes it: letters, digits, `_` and `-`, at most `longest` of them. Another
/// one is replaced by what is left of it and a fingerprint, the same for a call and its result.
pub(super) fn wire_id(id: &str, longest: usize) -> Cow<'_, str> {
    if !id.is_empty() && id.len() <= longest && id.bytes().all(is_id_byte) {
        return Cow::Borrowed(id);
    }
    let hash = fnv1a_64(id.bytes());
    let kept: String = id.bytes().filter(|b| is_id_byte(*b)).take(23).map(char::from).collect();
    Cow::Owned(format!("{kept}_{hash:016x}"))
}

/// The name of a called tool as every vendor takes it; a model may have made one up.
pub(super) fn wire_name(name: &str) -> Cow<'_, str> {
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_id_byte) {
        return Cow::Borrowed(name);
    }
    let plain = |byte: u8| if is_id_byte(byte) { char::from(byte) } else { '_' };
    Cow::Owned(if name.is_empty() {
        "_".into()
    } else {
        name.bytes().take(64).map(plain).collect()
    })
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Whether a content is more than text.
pub(super) fn has_media(content: &Content) -> bool {
    match content {
        Content::Text(_) => false,
        Content::Parts(parts) => parts.iter().any(|part| part.as_text().is_none()),
    }
}

/// The text of a content.
pub(super) fn content_text(content: &Content) -> Cow<'_, str> {
    match content {
        Content::Text(text) => text.into(),
        Content::Parts(_) => content.text().into(),
    }
}

/// The text of a result; of a failure that says nothing, one that does.
pub(super) fn result_text(result: &ToolResult) -> Cow<'_, str> {
    match content_text(&result.content) {
        text if text.is_empty() && result.is_error() => EMPTY_ERROR_TEXT.into(),
        text => text,
    }
}
