//! Provider data for the Responses API. An item's provider data contains the fields that are sent
//! back to the model that wrote the item.
//!
//! Reasoning and provider-specific items are stored as a whole. For a message or a call, only the
//! fields that the history item lacks are stored, in the form
//! `{"item":{"type":"message","id":"msg_1",…},"after":"rs_1"}`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::item::{ProviderData, RawJson};
use crate::provider::codec::lenient::{LenientList, LenientStr, deserialize_json};
use crate::provider::codec::ordered_fields::OrderedFields;

/// The name that identifies this API in provider data.
pub(super) const PROVIDER_NAME: &str = "openai_responses";

/// Returns whether a provider-specific item is only metadata that the server adds to its output.
pub(in crate::provider) fn is_metadata(data: &ProviderData) -> bool {
    data.provider == PROVIDER_NAME
        && data.value.deserialize_as::<MessagePart<'_>>().is_ok_and(|item| {
            matches!(item.r#type.or_empty(), "mcp_list_tools" | "additional_tools")
        })
}

/// A part of a message or of a reasoning item.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct MessagePart<'a> {
    pub(super) r#type: LenientStr<'a>,
    pub(super) text: LenientStr<'a>,
    pub(super) refusal: LenientStr<'a>,
    pub(super) annotations: Option<&'a RawValue>,
    pub(super) logprobs: Option<&'a RawValue>,
}

/// The fields that are stored for a message or a call.
#[derive(Serialize, Deserialize)]
pub(super) struct PassthroughItem<'a> {
    #[serde(borrow)]
    item: OrderedFields<'a>,
    /// The id of the reasoning item that was written before this item. The API links the two items:
    /// "Item … was provided without its required 'reasoning' item".
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Cow<'a, str>>,
}

/// The text of a message whose content is a single text part without annotations.
#[derive(Serialize)]
struct PlainText<'a> {
    r#type: &'static str,
    text: &'a str,
    annotations: [(); 0],
}

/// Returns the fields to store for a message. The message's content is included, unless it consists
/// of a single text part without annotations.
pub(super) fn message_data(
    raw: &RawValue,
    parts: &[MessagePart<'_>],
    after: Option<&str>,
) -> Option<RawJson> {
    let json = deserialize_json(raw)?;
    let mut item = OrderedFields::parse(json.as_str())?;
    let is_plain = |part: &MessagePart<'_>| {
        let annotations = part.annotations.map_or("[]", RawValue::get);
        part.r#type.or_empty() == "output_text" && annotations == "[]"
    };
    let is_plain = parts.len() == 1 && parts.iter().all(is_plain);
    let content = item.get("content").filter(|_| !is_plain);
    match content.map(|content| serde_json::from_str::<Vec<OrderedFields<'_>>>(content.get())) {
        Some(Ok(content)) => {
            let content = content.into_iter().map(|part| part.without(&["logprobs"]));
            let content = to_raw_value(&content.collect::<Vec<_>>()).ok()?;
            item.set("content", content);
        }
        Some(Err(_)) | None => item = item.without(&["content"]),
    }
    passthrough_item_json(item, after)
}

/// Returns the fields to store for a call.
pub(super) fn call_data(raw: &RawValue, after: Option<&str>) -> Option<RawJson> {
    let json = deserialize_json(raw)?;
    let item = OrderedFields::parse(json.as_str())?;
    passthrough_item_json(item.without(&["call_id", "name", "arguments"]), after)
}

/// Returns the fields to store for the call of a client tool: the whole item.
pub(super) fn client_call_data(json: &str, after: Option<&str>) -> Option<RawJson> {
    passthrough_item_json(OrderedFields::parse(json)?, after)
}

fn passthrough_item_json(item: OrderedFields<'_>, after: Option<&str>) -> Option<RawJson> {
    let text = serde_json::to_string(&PassthroughItem { item, after: after.map(Cow::Borrowed) });
    RawJson::parse(&text.ok()?).ok()
}

impl<'a> PassthroughItem<'a> {
    pub(super) fn from_provider_data(data: &'a ProviderData) -> Option<Self> {
        data.value.deserialize_as().ok()
    }

    /// Returns the JSON of a stored item.
    pub(super) fn client_call_json(data: &'a ProviderData) -> Option<&'a RawValue> {
        #[derive(Deserialize)]
        #[serde(bound(deserialize = "'de: 'a"))]
        struct Stored<'a> {
            item: &'a RawValue,
        }
        Some(data.value.deserialize_as::<Stored<'a>>().ok()?.item)
    }

    /// Returns whether a field is stored.
    pub(super) fn has_field(&self, name: &str) -> bool {
        self.item.get(name).is_some()
    }

    /// Returns the stored fields.
    pub(super) fn into_item(self) -> OrderedFields<'a> {
        self.item
    }

    /// Returns the message as it was received, with its text. Returns `None` if the history item's
    /// text differs from the received text.
    pub(super) fn into_message(self, text: &str) -> Option<OrderedFields<'a>> {
        let mut item = self.into_fields_of_type("message")?;
        match item.get("content") {
            None => {
                let part = PlainText { r#type: "output_text", text, annotations: [] };
                item.set("content", to_raw_value(&[part]).ok()?);
            }
            Some(content) => {
                let LenientList(parts) =
                    serde_json::from_str::<LenientList<MessagePart<'_>>>(content.get()).ok()?;
                let part_text = |part: &MessagePart<'_>| match part.r#type.or_empty() {
                    "refusal" => part.refusal.or_empty().to_owned(),
                    _ => part.text.or_empty().to_owned(),
                };
                if parts.iter().map(part_text).collect::<String>() != text {
                    return None;
                }
            }
        }
        Some(item)
    }

    /// Returns the call with the given id, name and arguments.
    pub(super) fn into_call(
        self,
        call_id: &str,
        name: &str,
        arguments: &str,
    ) -> Option<OrderedFields<'a>> {
        let mut item = self.into_fields_of_type("function_call")?;
        for (field, value) in [("call_id", call_id), ("name", name), ("arguments", arguments)] {
            item.set(field, to_raw_value(value).ok()?);
        }
        Some(item)
    }

    fn into_fields_of_type(self, wanted: &str) -> Option<OrderedFields<'a>> {
        let kind = self.item.get("type")?;
        (serde_json::from_str::<&str>(kind.get()).ok()? == wanted).then_some(self.item)
    }
}

/// The fields that determine whether a reasoning item is sent. The server does not store items, so
/// a reasoning item is useful only if it contains encrypted content or the plain reasoning text
/// that some servers return.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct ReasoningItem<'a> {
    r#type: LenientStr<'a>,
    id: LenientStr<'a>,
    encrypted_content: LenientStr<'a>,
    content: LenientList<MessagePart<'a>>,
}

impl<'a> ReasoningItem<'a> {
    /// Parses a reasoning item. Returns `None` if the item cannot be sent.
    pub(super) fn from_provider_data(data: &'a ProviderData) -> Option<Self> {
        let thought: Self = data.value.deserialize_as().ok()?;
        let means_something =
            !thought.encrypted_content.or_empty().is_empty() || !thought.content.0.is_empty();
        (thought.r#type.or_empty() == "reasoning" && means_something).then_some(thought)
    }

    pub(super) fn id(&self) -> &str {
        self.id.or_empty()
    }
}
