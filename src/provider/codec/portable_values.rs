//! Converts the ids, names, arguments and content in a history to a form that every vendor accepts.

use std::borrow::Cow;

use memchr::memchr;

use crate::fnv::fnv1a_64;
use crate::item::{
    Content, Item, MAX_PORTABLE_CALL_ID_BYTES, ToolCall, ToolResult, from_bounded_json,
    validate_json,
};
#[cfg(feature = "http")]
use crate::provider::Destination;
use crate::provider::codec::lenient::repair_json;
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::request::{ClientTool, ToolNameRule};

/// The text sent in place of a missing user message before the first assistant message.
pub(in crate::provider) const USER_TEXT_PLACEHOLDER: &str = "(Earlier messages are not shown.)";

/// The text sent in place of an empty tool error message.
pub(in crate::provider) const EMPTY_ERROR_TEXT: &str = "It failed without a message.";

/// Returns a call's arguments as a JSON object, the only form that APIs accept. Arguments that are
/// not a JSON object are wrapped in an object, so that the model can see its mistake.
pub(in crate::provider) fn arguments_as_object(call: &ToolCall) -> Cow<'_, str> {
    let written = call.arguments_or_empty_object();
    if written.starts_with('{') && validate_json(&call.arguments).is_ok() {
        // Unpaired surrogates are valid in JSON text, but every vendor rejects them.
        let has_surrogate = || ["\\ud", "\\uD"].iter().any(|escape| written.contains(escape));
        let halved = memchr(b'\\', written.as_bytes()).is_some()
            && has_surrogate()
            && from_bounded_json::<serde_json::Value>(written).is_err();
        return match halved.then(|| repair_json(written)).flatten() {
            Some(repaired) => Cow::Owned(repaired),
            None => Cow::Borrowed(written),
        };
    }
    Cow::Owned(serde_json::json!({ "INVALID_JSON": call.arguments }).to_string())
}

/// The maximum length of a call id on the Anthropic and Responses wires.
pub(in crate::provider) const MAX_LONG_ID_BYTES: usize = 64;
/// The maximum length of a call id on the Chat Completions wire.
pub(in crate::provider) const MAX_SHORT_ID_BYTES: usize = MAX_PORTABLE_CALL_ID_BYTES;

/// Returns a call id that the vendor accepts, consisting of at most `longest` letters, digits, `_`
/// and `-`. An invalid id is replaced with its valid characters and a hash, so that a call and its
/// result still match.
pub(in crate::provider) fn wire_id(id: &str, longest: usize) -> Cow<'_, str> {
    if !id.is_empty() && id.len() <= longest && id.bytes().all(is_id_byte) {
        return Cow::Borrowed(id);
    }
    let hash = fnv1a_64(id.bytes());
    let prefix: String = id.bytes().filter(|b| is_id_byte(*b)).take(23).map(char::from).collect();
    Cow::Owned(format!("{prefix}_{hash:016x}"))
}

/// Returns the id under which `provider` itself issued a call. Returns `None` if another provider
/// issued the call, and for an ordinary id, which every provider accepts.
pub(in crate::provider) fn issued_call_id(item: &Item, provider: &str) -> Option<String> {
    let data = item.provider_data.as_deref().filter(|data| data.provider == provider)?;
    // This cheap check limits the number of items whose data has to be parsed.
    if !data.value.as_str().contains("\"wire_id\"") {
        return None;
    }
    let id = OrderedFields::provider_data_field(data, "wire_id")?;
    serde_json::from_str(id.get()).ok().filter(|id: &String| !id.is_empty())
}

/// The open calls whose ids are sent back unchanged to the provider that issued them, although
/// other providers do not accept such ids.
#[derive(Clone, Debug, Default)]
pub(in crate::provider) struct IssuedCallIds(Vec<String>);

impl IssuedCallIds {
    /// Returns the id to send for a call. `issued` is the id under which the provider issued the
    /// call, if this is the same provider.
    pub(in crate::provider) fn call_id<'a>(
        &mut self,
        call: &'a ToolCall,
        issued: Option<String>,
    ) -> Cow<'a, str> {
        match issued {
            // A call that was renamed keeps its new id, because the ids in a request must differ.
            Some(issued) if issued == call.call_id => {
                self.0.push(issued);
                Cow::Borrowed(&call.call_id)
            }
            Some(_) | None => wire_id(&call.call_id, MAX_LONG_ID_BYTES),
        }
    }

    /// Returns the id to send for a call's result.
    pub(in crate::provider) fn result_id<'a>(&mut self, id: &'a str) -> Cow<'a, str> {
        match self.0.iter().position(|open| open == id) {
            Some(at) => {
                self.0.swap_remove(at);
                Cow::Borrowed(id)
            }
            None => wire_id(id, MAX_LONG_ID_BYTES),
        }
    }
}

/// The server of a wire whose requests do not tell which server they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) enum ServerKind {
    /// The vendor that defines the wire.
    Vendor,
    /// Another server, whose rules for ids and names may differ from the vendor's.
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "only a provider over HTTP knows its endpoint")
    )]
    Compatible,
}

impl ServerKind {
    /// Returns the rule that tool names must obey. Some servers only accept names that begin with a
    /// letter.
    pub(in crate::provider) fn tool_name_rule(self) -> ToolNameRule {
        match self {
            Self::Vendor => ToolNameRule::Any,
            Self::Compatible => ToolNameRule::Letter,
        }
    }

    /// Returns the id under which the provider named `provider` issued a call, if the server
    /// accepts any id that it has issued. The vendor itself issues only ordinary ids.
    pub(in crate::provider) fn issued_call_id(self, item: &Item, provider: &str) -> Option<String> {
        match self {
            Self::Vendor => None,
            Self::Compatible => issued_call_id(item, provider),
        }
    }
}

#[cfg(feature = "http")]
impl From<Destination<'_>> for ServerKind {
    fn from(to: Destination<'_>) -> Self {
        if to.is_vendor { Self::Vendor } else { Self::Compatible }
    }
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Returns whether the content contains any part that is not text.
pub(in crate::provider) fn has_media(content: &Content) -> bool {
    match content {
        Content::Text(_) => false,
        Content::Parts(parts) => parts.iter().any(|part| part.as_text().is_none()),
    }
}

/// Returns the content's text.
pub(in crate::provider) fn content_text(content: &Content) -> Cow<'_, str> {
    match content {
        Content::Text(text) => Cow::Borrowed(text),
        Content::Parts(_) => content.text().into(),
    }
}

/// Returns the text sent in place of an approval that is sent as the result of a function, if the
/// result is an approval. The provider that requested the approval runs the call, and the model may
/// not see the call's result.
pub(in crate::provider) fn approval_text(result: &ToolResult) -> Option<&'static str> {
    let is_approval = ClientTool::is_approval_name(&result.name) && ClientTool::is_approved(result);
    is_approval.then_some(
        "Approved. If no result of the call follows, it is unknown whether the call ran.",
    )
}

/// Returns a tool result's text, or a placeholder if the result is an approval, or an error without
/// text.
pub(in crate::provider) fn result_text(result: &ToolResult) -> Cow<'_, str> {
    if let Some(text) = approval_text(result) {
        return text.into();
    }
    match content_text(&result.content) {
        text if text.is_empty() && result.is_error() => EMPTY_ERROR_TEXT.into(),
        text => text,
    }
}
