//! One entry of a history.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::item::{Content, RawJson, ToolCall, ToolResult, TurnInfo};

/// One entry of a history: a message, a tool call or a tool result, with its metadata.
///
/// It is serialized as one flat JSON object with a `type` field.
///
/// ```
/// use turnstream::Item;
///
/// let item = Item::user("How many files?");
/// let json = serde_json::to_string(&item)?;
/// assert_eq!(json, r#"{"type":"user","content":"How many files?"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent mark and one field of the JSON"
)]
pub struct Item {
    /// The kind of the item, with its content.
    #[serde(flatten)]
    pub kind: ItemKind,
    /// Data that the provider needs back verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_data: Option<Arc<ProviderData>>,
    /// It belongs to a turn that did not complete.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupted: bool,
    /// It was shortened, or it replaces items that were compacted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub compacted: bool,
    /// A tombstone: the item stays in the history but is never sent to a provider.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tombstone: bool,
    /// The provider marks it as commentary: text that the model wrote before its answer, and which
    /// is not part of the answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub commentary: bool,
    /// Set on the last item of a completed turn: the metadata of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Arc<TurnInfo>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(mark: &bool) -> bool {
    !mark
}

/// The kind of an item, with its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ItemKind {
    /// A system instruction. Leading ones join the request's system prompt; later ones keep their
    /// position.
    System {
        /// The instruction.
        text: String,
    },
    /// A message of the user.
    User {
        /// Text, or parts with images and files.
        content: Content,
    },
    /// Text that the model wrote.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning of the model.
    Reasoning {
        /// The text; empty if the provider does not show it.
        text: String,
    },
    /// A tool call that the model requests.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// A provider-specific item; all of its content is in `provider_data`.
    Other,
}

/// Data that a provider needs back verbatim: signatures, encrypted reasoning, provider-specific
/// items.
///
/// It is sent only to the provider and model that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderData {
    /// The wire that it was received over, for example `anthropic`.
    pub provider: String,
    /// The model that wrote it.
    #[serde(default)]
    pub model: String,
    /// The value, in the provider's own format.
    pub value: RawJson,
}

impl ProviderData {
    pub(crate) fn new(provider: &str, model: &str, value: impl Into<RawJson>) -> Self {
        Self { provider: provider.to_owned(), model: model.to_owned(), value: value.into() }
    }
}

/// A mark on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mark {
    /// It belongs to a turn that did not complete.
    Interrupted,
    /// It was shortened, or it replaces items that were compacted.
    Compacted,
    /// A tombstone: the item stays in the history but is never sent to a provider.
    Tombstone,
}

impl Item {
    /// Creates an item without marks or provider data.
    pub fn new(kind: ItemKind) -> Self {
        Self {
            kind,
            provider_data: None,
            interrupted: false,
            compacted: false,
            tombstone: false,
            commentary: false,
            turn: None,
        }
    }

    /// Creates a user message.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(ItemKind::User { content: content.into() })
    }

    /// Creates a system instruction.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(ItemKind::System { text: text.into() })
    }

    /// Creates a text of the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(ItemKind::Text { text: text.into() })
    }

    /// Creates a reasoning item of the model.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::new(ItemKind::Reasoning { text: text.into() })
    }

    /// Creates a tool call. `arguments` is JSON text.
    pub fn tool_call(
        call_id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self::new(ItemKind::ToolCall(ToolCall {
            call_id: call_id.into(),
            name: name.into(),
            arguments: arguments.into(),
        }))
    }

    /// Creates the item for a tool result.
    pub fn tool_result(result: ToolResult) -> Self {
        Self::new(ItemKind::ToolResult(result))
    }

    /// Makes this the last item of a completed turn, with the given info.
    pub fn with_turn_info(mut self, info: TurnInfo) -> Self {
        self.turn = Some(Arc::new(info));
        self
    }

    /// Whether the model wrote it: text, reasoning, a call, or a provider-specific item.
    pub fn is_model_output(&self) -> bool {
        match self.kind {
            ItemKind::Text { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::ToolCall(_)
            | ItemKind::Other => true,
            ItemKind::System { .. } | ItemKind::User { .. } | ItemKind::ToolResult(_) => false,
        }
    }

    /// Creates a provider-specific item.
    pub fn provider_item(data: ProviderData) -> Self {
        Self { provider_data: Some(Arc::new(data)), ..Self::new(ItemKind::Other) }
    }

    /// Adds a mark.
    pub fn with_mark(mut self, mark: Mark) -> Self {
        match mark {
            Mark::Interrupted => self.interrupted = true,
            Mark::Compacted => self.compacted = true,
            Mark::Tombstone => self.tombstone = true,
        }
        self
    }

    /// The content, if this is a user item.
    pub fn as_user(&self) -> Option<&Content> {
        match &self.kind {
            ItemKind::User { content } => Some(content),
            _ => None,
        }
    }

    /// Whether this is a message of the user: neither a tombstone nor a replacement for compacted
    /// items.
    pub(crate) fn is_prompt(&self) -> bool {
        self.as_user().is_some() && !self.compacted && !self.tombstone
    }

    /// The tool call, if this is one.
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match &self.kind {
            ItemKind::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// The tool result, if this is one.
    pub fn as_tool_result(&self) -> Option<&ToolResult> {
        match &self.kind {
            ItemKind::ToolResult(result) => Some(result),
            _ => None,
        }
    }

    /// The text, if this is a text of the model.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            ItemKind::Text { text } => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for Item {
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Item {
    fn from(text: String) -> Self {
        Self::user(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Part, ResultKind};

    fn round_trip(item: &Item, json: &str) {
        assert_eq!(serde_json::to_string(item).unwrap(), json);
        assert_eq!(&serde_json::from_str::<Item>(json).unwrap(), item);
    }

    #[test]
    fn an_item_is_one_flat_object() {
        round_trip(
            &Item::tool_call("c1", "add", "{\"a\":1}"),
            r#"{"type":"tool_call","call_id":"c1","name":"add","arguments":"{\"a\":1}"}"#,
        );
        round_trip(
            &Item::tool_result(ToolResult {
                call_id: "c1".into(),
                name: "add".into(),
                content: vec![Part::from("3")].into(),
                kind: ResultKind::Ok,
                report: None,
            }),
            r#"{"type":"tool_result","call_id":"c1","name":"add","is_error":false,"kind":"ok","content":[{"type":"text","text":"3"}]}"#,
        );
        round_trip(
            &Item::text("hal").with_mark(Mark::Interrupted),
            r#"{"type":"text","text":"hal","interrupted":true}"#,
        );
    }

    #[test]
    fn provider_data_keeps_the_order_of_its_keys() {
        let value = RawJson::parse(r#"{"type":"x","a":1}"#).unwrap();
        let data = ProviderData { provider: "p".into(), model: "m".into(), value };
        round_trip(
            &Item::provider_item(data),
            r#"{"type":"other","provider_data":{"provider":"p","model":"m","value":{"type":"x","a":1}}}"#,
        );
    }
}
