//! The items of a response while they are written.

use serde::Serialize;
use serde_json::{Value, json};

use crate::turn::ReasoningKind;

/// An item that is open.
pub(super) struct OpenItem {
    kind: ItemKind,
    /// The text or the arguments so far.
    pub(super) text: String,
    pub(super) signature: Option<String>,
}

pub(super) enum ItemKind {
    Text,
    Refusal,
    Reasoning(ReasoningKind),
    Call { call_id: String, name: String },
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
}

impl ItemKind {
    pub(super) fn open_item(self) -> OpenItem {
        OpenItem { kind: self, text: String::new(), signature: None }
    }
}

impl OpenItem {
    pub(super) fn id(&self, answer: &str, index: u32) -> String {
        let prefix = match self.kind {
            ItemKind::Text | ItemKind::Refusal => "msg",
            ItemKind::Reasoning(_) => "rs",
            ItemKind::Call { .. } => "fc",
        };
        format!("{prefix}_{answer}_{index}")
    }

    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind, ItemKind::Call { .. })
    }

    pub(super) fn is_reasoning(&self) -> bool {
        matches!(self.kind, ItemKind::Reasoning(_))
    }

    /// The events of its text: this and `.delta` or `.done`.
    pub(super) fn text_event(&self) -> &'static str {
        match self.kind {
            ItemKind::Text => "response.output_text",
            ItemKind::Refusal => "response.refusal",
            ItemKind::Reasoning(ReasoningKind::Trace) => "response.reasoning_text",
            ItemKind::Reasoning(ReasoningKind::Summary) => "response.reasoning_summary_text",
            ItemKind::Call { .. } => "response.function_call_arguments",
        }
    }

    /// The field that holds its text.
    pub(super) fn part_field(&self) -> &'static str {
        match self.kind {
            ItemKind::Text | ItemKind::Reasoning(_) => "text",
            ItemKind::Refusal => "refusal",
            ItemKind::Call { .. } => "arguments",
        }
    }

    /// The events of its only part (this and `.added` or `.done`), and the field that tells parts
    /// apart; a call has no parts.
    pub(super) fn part_names(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            ItemKind::Text | ItemKind::Refusal | ItemKind::Reasoning(ReasoningKind::Trace) => {
                Some(("response.content_part", "content_index"))
            }
            ItemKind::Reasoning(ReasoningKind::Summary) => {
                Some(("response.reasoning_summary_part", "summary_index"))
            }
            ItemKind::Call { .. } => None,
        }
    }

    /// Its only part with these words.
    pub(super) fn part_json(&self, text: &str) -> Value {
        let kind = match self.kind {
            ItemKind::Text => {
                return json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
            }
            ItemKind::Refusal => "refusal",
            ItemKind::Reasoning(ReasoningKind::Trace) => "reasoning_text",
            ItemKind::Reasoning(ReasoningKind::Summary) => "summary_text",
            ItemKind::Call { .. } => return Value::Null,
        };
        json!({ "type": kind, self.part_field(): text })
    }

    /// The item as it is so far.
    pub(super) fn item_json(&self, answer: &str, index: u32, status: ItemStatus) -> Value {
        let part = (!self.text.is_empty()).then(|| self.part_json(&self.text));
        let parts: Vec<Value> = part.into_iter().collect();
        let id = self.id(answer, index);
        match &self.kind {
            ItemKind::Text | ItemKind::Refusal => json!({
                "id": id, "type": "message", "status": status, "role": "assistant",
                "content": parts,
            }),
            ItemKind::Reasoning(ReasoningKind::Summary) => {
                json!({ "id": id, "type": "reasoning", "summary": parts })
            }
            ItemKind::Reasoning(ReasoningKind::Trace) => {
                let mut item = json!({ "id": id, "type": "reasoning", "summary": [] });
                if !parts.is_empty() {
                    item["content"] = parts.into();
                }
                item
            }
            ItemKind::Call { call_id, name } => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id,
                "name": name, "arguments": self.text,
            }),
        }
    }
}
