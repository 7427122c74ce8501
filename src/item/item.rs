//! One entry of the ledger.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::item::{Content, RawJson, ToolCall, ToolResult, TurnInfo};

/// One entry of the ledger: what was said, and what is known about it.
///
/// Serialised, it is one flat object with a `type`.
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
    reason = "each is a mark of its own, and one field of the JSON"
)]
pub struct Item {
    /// What was said.
    #[serde(flatten)]
    pub kind: ItemKind,
    /// What the provider wants to see again, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_data: Option<Arc<ProviderData>>,
    /// It belongs to a turn that did not complete.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupted: bool,
    /// It was shortened, or stands in for what was folded away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub compacted: bool,
    /// It is void: kept in the ledger, never sent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tombstone: bool,
    /// The model said it on its way to the answer, and the provider says so: it is not part of the
    /// answer.
    #[serde(default, skip_serializing_if = "is_false")]
    pub commentary: bool,
    /// On the last item of a completed turn: what is known of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Arc<TurnInfo>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(mark: &bool) -> bool {
    !mark
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ItemKind {
    /// An instruction. Leading ones join the request's system prompt, later ones stay in place.
    System {
        /// The instruction.
        text: String,
    },
    /// What the user said.
    User {
        /// Text, or parts with images and files.
        content: Content,
    },
    /// What the model said.
    Text {
        /// The words.
        text: String,
    },
    /// What the model thought.
    Reasoning {
        /// The words; empty where a provider shows none.
        text: String,
    },
    /// What the model wants to run.
    ToolCall(ToolCall),
    /// What running it gave.
    ToolResult(ToolResult),
    /// A provider's own item; all of it is in the provider data.
    Other,
}

/// What a provider wants to see again, verbatim: signatures, encrypted reasoning, its own items.
///
/// It is sent back to the provider and model that wrote it and to nobody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderData {
    /// The wire it came over, for example `anthropic`.
    pub provider: String,
    /// The model that wrote it.
    #[serde(default)]
    pub model: String,
    /// The provider's own value.
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
    /// It was shortened, or stands in for what was folded away.
    Compacted,
    /// It is void: kept in the ledger, never sent.
    Tombstone,
}

impl Item {
    /// Makes an item without marks and provider data.
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

    /// What the user said.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(ItemKind::User { content: content.into() })
    }

    /// An instruction.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(ItemKind::System { text: text.into() })
    }

    /// What the model said.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(ItemKind::Text { text: text.into() })
    }

    /// What the model thought.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::new(ItemKind::Reasoning { text: text.into() })
    }

    /// What the model wants to run.
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

    /// What running a call gave.
    pub fn tool_result(result: ToolResult) -> Self {
        Self::new(ItemKind::ToolResult(result))
    }

    /// The same as the last item of a completed turn.
    pub fn with_turn_info(mut self, info: TurnInfo) -> Self {
        self.turn = Some(Arc::new(info));
        self
    }

    /// Whether the model wrote it: text, reasoning, a call, or an item of the provider's own.
    pub fn is_model_output(&self) -> bool {
        match self.kind {
            ItemKind::Text { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::ToolCall(_)
            | ItemKind::Other => true,
            ItemKind::System { .. } | ItemKind::User { .. } | ItemKind::ToolResult(_) => false,
        }
    }

    /// A provider's own item.
    pub fn provider_item(data: ProviderData) -> Self {
        Self { provider_data: Some(Arc::new(data)), ..Self::new(ItemKind::Other) }
    }

    /// The same with a mark.
    pub fn with_mark(mut self, mark: Mark) -> Self {
        match mark {
            Mark::Interrupted => self.interrupted = true,
            Mark::Compacted => self.compacted = true,
            Mark::Tombstone => self.tombstone = true,
        }
        self
    }

    /// What the user said, where this is it.
    pub fn as_user(&self) -> Option<&Content> {
        match &self.kind {
            ItemKind::User { content } => Some(content),
            _ => None,
        }
    }

    /// Whether the user said it, and it is not void and does not stand in for what was folded away.
    pub(crate) fn is_prompt(&self) -> bool {
        self.as_user().is_some() && !self.compacted && !self.tombstone
    }

    /// The call, where this is one.
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match &self.kind {
            ItemKind::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// The result, where this is one.
    pub fn as_tool_result(&self) -> Option<&ToolResult> {
        match &self.kind {
            ItemKind::ToolResult(result) => Some(result),
            _ => None,
        }
    }

    /// The model's words, where this is text.
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
