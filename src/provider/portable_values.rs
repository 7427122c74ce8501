//! Converts the ids, names, arguments and content in a history to a form that every vendor accepts.

use std::borrow::Cow;

use crate::fnv::fnv1a_64;
use crate::item::{Content, ToolCall, ToolResult, validate_json};
use crate::provider::lenient::repair_json;

/// The text sent in place of a missing user message before the first assistant message.
pub(super) const USER_TEXT_PLACEHOLDER: &str = "(Earlier messages are not shown.)";

/// The text sent in place of an empty tool error message.
pub(super) const EMPTY_ERROR_TEXT: &str = "It failed without a message.";

/// Returns a call's arguments as a JSON object, the only form that APIs accept. Arguments that are
/// not a JSON object are wrapped in an object, so that the model can see its mistake.
pub(super) fn arguments_as_object(call: &ToolCall) -> Cow<'_, str> {
    let written = call.arguments_or_empty_object();
    if written.starts_with('{') && validate_json(&call.arguments).is_ok() {
        // Unpaired surrogates are valid in JSON text, but every vendor rejects them.
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

/// The maximum length of a call id on the Anthropic and Responses wires.
pub(super) const MAX_LONG_ID_BYTES: usize = 64;
/// The maximum length of a call id on the Chat Completions wire.
pub(super) const MAX_SHORT_ID_BYTES: usize = 40;

/// Returns a call id that the vendor accepts, consisting of at most `longest` letters, digits, `_`
/// and `-`. An invalid id is replaced with its valid characters and a hash, so that a call and its
/// result still match.
pub(super) fn wire_id(id: &str, longest: usize) -> Cow<'_, str> {
    if !id.is_empty() && id.len() <= longest && id.bytes().all(is_id_byte) {
        return Cow::Borrowed(id);
    }
    let hash = fnv1a_64(id.bytes());
    let kept: String = id.bytes().filter(|b| is_id_byte(*b)).take(23).map(char::from).collect();
    Cow::Owned(format!("{kept}_{hash:016x}"))
}

/// Converts a tool name to a name that every vendor accepts, because a model may have made up an
/// invalid name.
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

/// Returns whether the content contains any part that is not text.
pub(super) fn has_media(content: &Content) -> bool {
    match content {
        Content::Text(_) => false,
        Content::Parts(parts) => parts.iter().any(|part| part.as_text().is_none()),
    }
}

/// Returns the content's text.
pub(super) fn content_text(content: &Content) -> Cow<'_, str> {
    match content {
        Content::Text(text) => text.into(),
        Content::Parts(_) => content.text().into(),
    }
}

/// Returns a tool result's text, or a placeholder if the result is an error without text.
pub(super) fn result_text(result: &ToolResult) -> Cow<'_, str> {
    match content_text(&result.content) {
        text if text.is_empty() && result.is_error() => EMPTY_ERROR_TEXT.into(),
        text => text,
    }
}
