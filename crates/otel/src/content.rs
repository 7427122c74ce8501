//! The content of messages and calls, which is recorded only if it is asked for.

use std::sync::Arc;

use serde_json::{Value, json};
use turnstream::item::{Item, ItemKind, ToolResult};

/// The environment variable that enables the recording of content in many instrumentations.
pub(crate) const CONTENT_VARIABLE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// The kinds of content that can be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContentKind {
    /// The messages of a request, as JSON.
    InputMessages,
    /// The message that the model returned, as JSON.
    OutputMessages,
    /// The arguments of a tool call, as JSON.
    ToolArguments,
    /// The result of a tool call, as JSON.
    ToolResult,
}

/// Whether content is recorded, and the hook that may edit it.
#[derive(Clone, Default)]
pub(crate) enum ContentSetting {
    #[default]
    Off,
    On(Option<Arc<ContentHook>>),
}

/// A function that edits content, or drops it by returning `None`.
pub(crate) type ContentHook = dyn Fn(ContentKind, String) -> Option<String> + Send + Sync;

impl ContentSetting {
    /// Returns the setting for a value of [`CONTENT_VARIABLE`].
    pub(crate) fn from_variable(value: Option<&str>) -> Self {
        let value = value.unwrap_or_default().trim().to_ascii_lowercase();
        match value.as_str() {
            "true" | "1" | "span_only" | "span_and_event" => Self::On(None),
            _ => Self::Off,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        matches!(self, Self::On(_))
    }

    /// Returns the content to record, if any. `content` is called only if content is recorded.
    pub(crate) fn record(
        &self,
        kind: ContentKind,
        content: impl FnOnce() -> String,
    ) -> Option<String> {
        match self {
            Self::Off => None,
            Self::On(None) => Some(content()),
            Self::On(Some(hook)) => hook(kind, content()),
        }
    }
}

/// Returns items as messages in the JSON format of the conventions.
pub(crate) fn messages<'a>(items: impl IntoIterator<Item = &'a Item>) -> String {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for item in items.into_iter().filter(|item| !item.tombstone) {
        let Some((role, part)) = message_part(item) else { continue };
        match messages.last_mut() {
            Some((last, parts)) if *last == role => parts.push(part),
            _ => messages.push((role, vec![part])),
        }
    }
    let messages =
        messages.into_iter().map(|(role, parts)| json!({ "role": role, "parts": parts }));
    messages.collect::<Value>().to_string()
}

/// Returns the role of an item's message, and the item as a part of that message.
fn message_part(item: &Item) -> Option<(&'static str, Value)> {
    let text = |text: &str| json!({ "type": "text", "content": text });
    Some(match &item.kind {
        ItemKind::System { text: system } => ("system", text(system)),
        ItemKind::User { content } => ("user", text(&content.text())),
        ItemKind::Text { text: written } => ("assistant", text(written)),
        ItemKind::Reasoning { text } => {
            ("assistant", json!({ "type": "reasoning", "content": text }))
        }
        ItemKind::ToolCall(call) => {
            let arguments = parse_or_text(&call.arguments);
            let part = json!({
                "type": "tool_call", "id": call.call_id, "name": call.name, "arguments": arguments,
            });
            ("assistant", part)
        }
        ItemKind::ToolResult(result) => {
            let response = result.content.text();
            let part = json!({
                "type": "tool_call_response", "id": result.call_id, "response": response,
            });
            ("tool", part)
        }
        _ => return None,
    })
}

/// Returns a result's content as JSON.
pub(crate) fn result_json(result: &ToolResult) -> String {
    parse_or_text(&result.content.text()).to_string()
}

fn parse_or_text(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| Value::from(json))
}

#[cfg(test)]
mod tests {
    use turnstream::item::{ResultKind, ToolCall};

    use super::*;

    #[test]
    fn only_values_that_mean_spans_enable_content() {
        for (value, is_on) in [
            (Some("true"), true),
            (Some("TRUE"), true),
            (Some("1"), true),
            (Some("span_only"), true),
            (Some("SPAN_AND_EVENT"), true),
            (Some("event_only"), false),
            (Some("no_content"), false),
            (Some("false"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(ContentSetting::from_variable(value).is_on(), is_on, "{value:?}");
        }
    }

    #[test]
    fn a_conversation_becomes_messages_of_four_roles() {
        let call =
            ToolCall { call_id: "c1".into(), name: "add".into(), arguments: r#"{"a":1}"#.into() };
        let result = ToolResult::for_call(&call, ResultKind::Ok, "3");
        let items = [
            Item::system("Be brief."),
            Item::user("1 + 2?"),
            Item::new(ItemKind::Reasoning { text: "A sum.".into() }),
            Item::new(ItemKind::ToolCall(call)),
            Item::new(ItemKind::ToolResult(result)),
        ];
        let messages: Value = serde_json::from_str(&messages(&items)).unwrap();
        assert_eq!(
            messages,
            json!([
                { "role": "system", "parts": [{ "type": "text", "content": "Be brief." }] },
                { "role": "user", "parts": [{ "type": "text", "content": "1 + 2?" }] },
                { "role": "assistant", "parts": [
                    { "type": "reasoning", "content": "A sum." },
                    { "type": "tool_call", "id": "c1", "name": "add", "arguments": { "a": 1 } },
                ] },
                { "role": "tool", "parts": [
                    { "type": "tool_call_response", "id": "c1", "response": "3" },
                ] },
            ])
        );
    }
}
