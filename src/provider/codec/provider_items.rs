//! Reads the provider data of items, as far as an agent must understand it.

use serde_json::value::to_raw_value;

use crate::item::{Item, ItemKind, ProviderData};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::{anthropic, gemini, openai_responses};

/// The fields that contain the signature of the reasoning that precedes a text or a call: on the
/// Gemini wire, and in the two forms in which the Chat wire passes it on.
const SIGNATURE_FIELDS: [&str; 2] = ["thoughtSignature", "thought_signature"];
/// The same field as stored for a call whose id contained the signature.
const CALL_SIGNATURE_FIELDS: [&str; 3] = ["thoughtSignature", "thought_signature", "thought"];

/// Returns whether a provider-specific item contains something that the model has produced, rather
/// than only metadata that the provider adds to a turn.
pub(crate) fn is_model_output(data: &ProviderData) -> bool {
    !anthropic::is_metadata(data)
        && !gemini::is_metadata(data)
        && !openai_responses::is_metadata(data)
}

/// Returns the provider's name for the first call in a turn that only the client can answer
/// although it is not a call of one of its tools.
pub(crate) fn unanswered_client_call(items: &[Item]) -> Option<String> {
    openai_responses::unanswered_client_call(items)
}

/// Returns the item without the reasoning that the model named `model` expects to receive back: the
/// signed or encrypted form of reasoning, and the signatures on other items. The text of the item
/// is unchanged. Returns `None` if the item contains no such reasoning.
pub(crate) fn without_reasoning(item: &Item, model: &str) -> Option<Item> {
    let data = item.provider_data.as_deref().filter(|data| data.model == model)?;
    let names: &[&str] = match &item.kind {
        ItemKind::Reasoning { .. } => return Some(Item { provider_data: None, ..item.clone() }),
        ItemKind::ToolCall(_) => &CALL_SIGNATURE_FIELDS,
        ItemKind::Text { .. } | ItemKind::Other => &SIGNATURE_FIELDS,
        ItemKind::System { .. } | ItemKind::User { .. } | ItemKind::ToolResult(_) => return None,
    };
    let unsigned = without_fields(data.value.as_str(), names)?;
    let data = unsigned.into_json().map(|value| ProviderData { value, ..data.clone() });
    Some(Item { provider_data: data.map(Into::into), ..item.clone() })
}

/// Removes the fields with these names from an object and from the objects in it. Returns `None` if
/// the object contains no such field.
fn without_fields(json: &str, names: &[&str]) -> Option<OrderedFields<'static>> {
    let mut left = OrderedFields::default();
    let mut is_changed = false;
    for (name, value) in OrderedFields::parse(json)?.into_iter() {
        let inner = match names.contains(&&*name) {
            true => Some(OrderedFields::default()),
            false => without_fields(value.get(), names),
        };
        is_changed |= inner.is_some();
        match inner {
            None => left.set(&name, value.into_owned()),
            Some(inner) if inner.is_empty() => {}
            Some(inner) => left.set(&name, to_raw_value(&inner).ok()?),
        }
    }
    is_changed.then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_data(item: Item, value: serde_json::Value) -> Item {
        Item { provider_data: Some(ProviderData::new("p", "m", value).into()), ..item }
    }

    #[track_caller]
    fn check(item: &Item, expected: Option<&str>) {
        let found = without_reasoning(item, "m").expect("it had reasoning");
        assert_eq!(found.kind, item.kind);
        assert_eq!(found.provider_data.as_ref().map(|data| data.value.as_str()), expected);
        assert_eq!(without_reasoning(&found, "m"), None, "nothing is left");
        assert_eq!(without_reasoning(item, "other"), None, "it is not that model's reasoning");
    }

    #[test]
    fn signed_and_encrypted_reasoning_is_removed_and_everything_else_is_kept() {
        check(&with_data(Item::reasoning("hm"), json!({ "signature": "s" })), None);
        let call = || Item::tool_call("c", "t", "{}");
        let data = json!({ "id": "c", "thoughtSignature": "s" });
        check(&with_data(call(), data), Some(r#"{"id":"c"}"#));
        let google = json!({ "google": { "thought_signature": "s" } });
        check(&with_data(call(), json!({ "extra_content": google })), Some("{}"));
        check(&with_data(call(), json!({ "thought": "s" })), Some("{}"));
        let text = with_data(Item::text("a"), json!({ "thoughtSignature": "s", "x": [1] }));
        check(&text, Some(r#"{"x":[1]}"#));
        for value in [json!({ "citations": [] }), json!({ "thought": true })] {
            let item = with_data(Item::text("a"), value);
            assert_eq!(without_reasoning(&item, "m"), None);
        }
    }
}
