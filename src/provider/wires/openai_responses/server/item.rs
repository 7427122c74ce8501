//! The output items of a response that the server writes.

use serde::Serialize;
use serde_json::{Value, json};

use crate::turn::ReasoningKind;

/// An unfinished output item.
pub(super) struct OpenItem {
    kind: OutputItemKind,
    /// The item's text or arguments so far.
    pub(super) text: String,
    pub(super) signature: Option<String>,
}

pub(super) enum OutputItemKind {
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

impl OutputItemKind {
    pub(super) fn into_open_item(self) -> OpenItem {
        OpenItem { kind: self, text: String::new(), signature: None }
    }
}

impl OpenItem {
    pub(super) fn id(&self, answer: &str, index: u32) -> String {
        let prefix = match self.kind {
            OutputItemKind::Text | OutputItemKind::Refusal => "msg",
            OutputItemKind::Reasoning(_) => "rs",
            OutputItemKind::Call { .. } => "fc",
        };
        format!("{prefix}_{answer}_{index}")
    }

    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind, OutputItemKind::Call { .. })
    }

    pub(super) fn is_reasoning(&self) -> bool {
        matches!(self.kind, OutputItemKind::Reasoning(_))
    }

    /// Returns the common prefix of the names of the item's text events, to which `.delta` or
    /// `.done` is appended.
    pub(super) fn text_event_prefix(&self) -> &'static str {
        match self.kind {
            OutputItemKind::Text => "response.output_text",
            OutputItemKind::Refusal => "response.refusal",
            OutputItemKind::Reasoning(ReasoningKind::Trace) => "response.reasoning_text",
            OutputItemKind::Reasoning(ReasoningKind::Summary) => "response.reasoning_summary_text",
            OutputItemKind::Call { .. } => "response.function_call_arguments",
        }
    }

    /// Returns the name of the field that contains the text.
    pub(super) fn text_field(&self) -> &'static str {
        match self.kind {
            OutputItemKind::Text | OutputItemKind::Reasoning(_) => "text",
            OutputItemKind::Refusal => "refusal",
            OutputItemKind::Call { .. } => "arguments",
        }
    }

    /// Returns the name prefix of the events for the item's only part, and the name of the field
    /// for the part's index. `.added` or `.done` is appended to the prefix. Returns `None` for a
    /// call, which has no parts.
    pub(super) fn part_event_and_index_field(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            OutputItemKind::Text
            | OutputItemKind::Refusal
            | OutputItemKind::Reasoning(ReasoningKind::Trace) => {
                Some(("response.content_part", "content_index"))
            }
            OutputItemKind::Reasoning(ReasoningKind::Summary) => {
                Some(("response.reasoning_summary_part", "summary_index"))
            }
            OutputItemKind::Call { .. } => None,
        }
    }

    /// Returns the item's only part as JSON, with the given text.
    pub(super) fn part_json(&self, text: &str) -> Value {
        let kind = match self.kind {
            OutputItemKind::Text => {
                return json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
            }
            OutputItemKind::Refusal => "refusal",
            OutputItemKind::Reasoning(ReasoningKind::Trace) => "reasoning_text",
            OutputItemKind::Reasoning(ReasoningKind::Summary) => "summary_text",
            OutputItemKind::Call { .. } => return Value::Null,
        };
        json!({ "type": kind, self.text_field(): text })
    }

    /// Returns the item's current state as JSON.
    pub(super) fn item_json(&self, answer: &str, index: u32, status: ItemStatus) -> Value {
        let part = (!self.text.is_empty()).then(|| self.part_json(&self.text));
        let parts: Vec<Value> = part.into_iter().collect();
        let id = self.id(answer, index);
        match &self.kind {
            OutputItemKind::Text | OutputItemKind::Refusal => json!({
                "id": id, "type": "message", "status": status, "role": "assistant",
                "content": parts,
            }),
            OutputItemKind::Reasoning(ReasoningKind::Summary) => {
                json!({ "id": id, "type": "reasoning", "summary": parts })
            }
            OutputItemKind::Reasoning(ReasoningKind::Trace) => {
                let mut item = json!({ "id": id, "type": "reasoning", "summary": [] });
                if !parts.is_empty() {
                    item["content"] = parts.into();
                }
                item
            }
            OutputItemKind::Call { call_id, name } => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id,
                "name": name, "arguments": self.text,
            }),
        }
    }
}
