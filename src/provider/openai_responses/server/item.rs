//! The items of a response while they are written.

use serde::Serialize;
use serde_json::{Value, json};

use crate::turn::ReasoningKind;

/// An item that is open.
pub(super) struct Open {
    kind: Kind,
    /// The text or the arguments so far.
    pub(super) text: String,
    pub(super) signature: Option<String>,
}

pub(super) enum Kind {
    Text,
    Refusal,
    Reasoning(ReasoningKind),
    Call { call_id: String, name: String },
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    InProgress,
    Completed,
    Incomplete,
}

impl Kind {
    pub(super) fn open(self) -> Open {
        Open { kind: self, text: String::new(), signature: None }
    }
}

impl Open {
    pub(super) fn id(&self, answer: &str, index: u32) -> String {
        let prefix = match self.kind {
            Kind::Text | Kind::Refusal => "msg",
            Kind::Reasoning(_) => "rs",
            Kind::Call { .. } => "fc",
        };
        format!("{prefix}_{answer}_{index}")
    }

    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind, Kind::Call { .. })
    }

    pub(super) fn is_reasoning(&self) -> bool {
        matches!(self.kind, Kind::Reasoning(_))
    }

    /// The events of its text: this and `.delta` or `.done`.
    pub(super) fn text_event(&self) -> &'static str {
        match self.kind {
            Kind::Text => "response.output_text",
            Kind::Refusal => "response.refusal",
            Kind::Reasoning(ReasoningKind::Trace) => "response.reasoning_text",
            Kind::Reasoning(ReasoningKind::Summary) => "response.reasoning_summary_text",
            Kind::Call { .. } => "response.function_call_arguments",
        }
    }

    /// The field that holds its text.
    pub(super) fn field(&self) -> &'static str {
        match self.kind {
            Kind::Text | Kind::Reasoning(_) => "text",
            Kind::Refusal => "refusal",
            Kind::Call { .. } => "arguments",
        }
    }

    /// The events of its only part (this and `.added` or `.done`), and the field that tells parts
    /// apart; a call has no parts.
    pub(super) fn part_names(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            Kind::Text | Kind::Refusal | Kind::Reasoning(ReasoningKind::Trace) => {
                Some(("response.content_part", "content_index"))
            }
            Kind::Reasoning(ReasoningKind::Summary) => {
                Some(("response.reasoning_summary_part", "summary_index"))
            }
            Kind::Call { .. } => None,
        }
    }

    /// Its only part with these words.
    pub(super) fn part(&self, text: &str) -> Value {
        let kind = match self.kind {
            Kind::Text => {
                return json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
            }
            Kind::Refusal => "refusal",
            Kind::Reasoning(ReasoningKind::Trace) => "reasoning_text",
            Kind::Reasoning(ReasoningKind::Summary) => "summary_text",
            Kind::Call { .. } => return Value::Null,
        };
        json!({ "type": kind, self.field(): text })
    }

    /// The item as it is so far.
    pub(super) fn item(&self, answer: &str, index: u32, status: Status) -> Value {
        let part = (!self.text.is_empty()).then(|| self.part(&self.text));
        let parts: Vec<Value> = part.into_iter().collect();
        let id = self.id(answer, index);
        match &self.kind {
            Kind::Text | Kind::Refusal => json!({
                "id": id, "type": "message", "status": status, "role": "assistant",
                "content": parts,
            }),
            Kind::Reasoning(ReasoningKind::Summary) => {
                json!({ "id": id, "type": "reasoning", "summary": parts })
            }
            Kind::Reasoning(ReasoningKind::Trace) => {
                let mut item = json!({ "id": id, "type": "reasoning", "summary": [] });
                if !parts.is_empty() {
                    item["content"] = parts.into();
                }
                item
            }
            Kind::Call { call_id, name } => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id,
                "name": name, "arguments": self.text,
            }),
        }
    }
}
