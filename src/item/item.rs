//! An entry in a history.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::item::{Content, RawJson, ToolCall, ToolResult, TurnInfo};

/// An entry in a history, such as a message, a tool call or a tool result, with its metadata.
///
/// An item serializes to a single flat JSON object with a `type` field.
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
    /// The item's kind and content.
    #[serde(flatten)]
    pub kind: ItemKind,
    /// Data that must be sent back to the provider verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_data: Option<Arc<ProviderData>>,
    /// Whether the item belongs to a turn that did not complete. On a user message: whether the
    /// message tells the model why a run was interrupted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupted: bool,
    /// Whether the item was shortened or replaces compacted items.
    #[serde(default, skip_serializing_if = "is_false")]
    pub compacted: bool,
    /// Whether the item is a tombstone, which stays in the history but is never sent to a provider.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tombstone: bool,
    /// Whether the provider marked the item as commentary. Commentary is text that the model writes
    /// before its answer and that is not part of the answer itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub commentary: bool,
    /// Whether the tool of this call was [idempotent](crate::Tool::idempotent) when the model made
    /// the call. This field is set only in the entries of a [session](crate::session).
    #[serde(default, skip_serializing_if = "is_false")]
    pub idempotent: bool,
    /// The turn's metadata, which is set only on the last item of a completed turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Arc<TurnInfo>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(mark: &bool) -> bool {
    !mark
}

/// The kind of an item, including the item's content.
///
/// Later versions may add kinds, so a `match` needs a wildcard arm:
///
/// ```
/// use turnstream::History;
/// use turnstream::item::ItemKind;
///
/// fn print(history: &History) {
///     for item in history.iter() {
///         match &item.kind {
///             ItemKind::User { content } => println!("user: {}", content.text()),
///             ItemKind::Text { text } => println!("model: {text}"),
///             ItemKind::ToolCall(call) => println!("call: {} {}", call.name, call.arguments),
///             ItemKind::ToolResult(result) => println!("result: {}", result.content.text()),
///             _ => {} // System messages, reasoning, and items of a provider.
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ItemKind {
    /// A system instruction. System instructions at the start of a history become part of the
    /// request's system prompt; later system instructions keep their positions.
    System {
        /// The instruction's text.
        text: String,
    },
    /// A message from the user.
    User {
        /// The message's content: plain text, or a list of parts that can include images and files.
        content: Content,
    },
    /// Text that the model wrote.
    Text {
        /// The text that the model wrote.
        text: String,
    },
    /// The model's reasoning.
    Reasoning {
        /// The reasoning text; empty if the provider does not reveal it.
        text: String,
    },
    /// A tool call requested by the model.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// A provider-specific item, whose content is stored entirely in `provider_data`.
    Other,
}

/// Data that must be sent back to a provider verbatim, such as signatures, encrypted reasoning and
/// provider-specific items.
///
/// Provider data is sent only to the provider and model that produced it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderData {
    /// The wire protocol over which the data was received, for example `anthropic`.
    pub provider: String,
    /// The model that produced the data.
    #[serde(default)]
    pub model: String,
    /// The data, in the provider's own format.
    pub value: RawJson,
}

impl ProviderData {
    pub(crate) fn new(provider: &str, model: &str, value: impl Into<RawJson>) -> Self {
        Self { provider: provider.to_owned(), model: model.to_owned(), value: value.into() }
    }
}

/// A flag that can be set on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ItemFlag {
    /// The item belongs to a turn that did not complete. On a user message: the message tells the
    /// model why a run was interrupted.
    Interrupted,
    /// The item was shortened or replaces compacted items.
    Compacted,
    /// The item is a tombstone, which stays in the history but is never sent to a provider.
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
            idempotent: false,
            turn: None,
        }
    }

    /// Creates an item for a user message.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(ItemKind::User { content: content.into() })
    }

    /// Creates an item for a system instruction within the conversation. The instructions of a
    /// whole agent belong in its [system prompt](crate::Agent::with_system).
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(ItemKind::System { text: text.into() })
    }

    /// Creates an item for text written by the model, for example for a conversation that another
    /// program has stored. If it ends a turn, add [`with_turn_info`](Self::with_turn_info).
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(ItemKind::Text { text: text.into() })
    }

    /// Creates an item for the model's reasoning.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::new(ItemKind::Reasoning { text: text.into() })
    }

    /// Creates an item for a tool call. `arguments` is a JSON string.
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

    /// Creates an item for a tool result. In a history, it follows the turn that contains its call.
    pub fn tool_result(result: ToolResult) -> Self {
        Self::new(ItemKind::ToolResult(result))
    }

    /// Marks the item as the last item of a completed turn, with the given turn metadata.
    pub fn with_turn_info(mut self, info: TurnInfo) -> Self {
        self.turn = Some(Arc::new(info));
        self
    }

    /// Returns whether the model produced the item, that is, whether the item is text, reasoning, a
    /// tool call or a provider-specific item.
    pub(crate) fn is_model_output(&self) -> bool {
        match self.kind {
            ItemKind::Text { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::ToolCall(_)
            | ItemKind::Other => true,
            ItemKind::System { .. } | ItemKind::User { .. } | ItemKind::ToolResult(_) => false,
        }
    }

    /// Creates a provider-specific item, which is sent back unchanged to the model that produced
    /// it, and left out for any other.
    pub fn provider_item(data: ProviderData) -> Self {
        Self { provider_data: Some(Arc::new(data)), ..Self::new(ItemKind::Other) }
    }

    /// Sets a flag of the item, in addition to those that are set already.
    pub fn with_flag(mut self, flag: ItemFlag) -> Self {
        match flag {
            ItemFlag::Interrupted => self.interrupted = true,
            ItemFlag::Compacted => self.compacted = true,
            ItemFlag::Tombstone => self.tombstone = true,
        }
        self
    }

    /// Returns the message's content if this item is a user message, and `None` otherwise.
    pub fn as_user(&self) -> Option<&Content> {
        match &self.kind {
            ItemKind::User { content } => Some(content),
            _ => None,
        }
    }

    /// Returns the length of the item's text and data, in bytes.
    pub(crate) fn byte_len(&self) -> usize {
        let data = self.provider_data.as_ref().map_or(0, |data| data.value.as_str().len());
        data + match &self.kind {
            ItemKind::System { text } | ItemKind::Text { text } | ItemKind::Reasoning { text } => {
                text.len()
            }
            ItemKind::User { content } => content.byte_len(),
            ItemKind::ToolCall(call) => call.name.len() + call.arguments.len(),
            ItemKind::ToolResult(result) => result.content.byte_len(),
            ItemKind::Other => 0,
        }
    }

    /// Returns whether this item is a user prompt: a user message that is neither a tombstone, nor
    /// a replacement for compacted items, nor the notice of an interrupt.
    pub(crate) fn is_prompt(&self) -> bool {
        self.as_user().is_some() && !self.compacted && !self.tombstone && !self.interrupted
    }

    /// Returns the tool call if this item is a tool call, and `None` otherwise.
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match &self.kind {
            ItemKind::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the tool result if this item is a tool result, and `None` otherwise.
    pub fn as_tool_result(&self) -> Option<&ToolResult> {
        match &self.kind {
            ItemKind::ToolResult(result) => Some(result),
            _ => None,
        }
    }

    /// Returns the text if this item is text written by the model, and `None` otherwise.
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
            &Item::text("hal").with_flag(ItemFlag::Interrupted),
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
