//! The items of a response while they are written.

use serde_json::{Value, json};

use crate::turn::ReasoningKind;

/// An item that is open.
pub(super) enum Open {
    Text(String),
    Refusal(String),
    Reasoning { kind: ReasoningKind, text: String, signature: Option<String> },
    Call { call_id: String, name: String, arguments: String },
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Status {
    InProgress,
    Completed,
    Incomplete,
}

/// Part and place of what has parts by number.
const CONTENT: &str = "content_index";
const SUMMARY: &str = "summary_index";

impl Open {
    pub(super) fn id(&self, n: usize, index: u32) -> String {
        let prefix = match self {
            Self::Text(_) | Self::Refusal(_) => "msg",
            Self::Reasoning { .. } => "rs",
            Self::Call { .. } => "fc",
        };
        format!("{prefix}_{n:04}_{index}")
    }

    /// What is written so far.
    pub(super) fn written(&self) -> &str {
        match self {
            Self::Text(text) | Self::Refusal(text) | Self::Reasoning { text, .. } => text,
            Self::Call { arguments, .. } => arguments,
        }
    }

    pub(super) fn write(&mut self, piece: &str) {
        match self {
            Self::Text(text) | Self::Refusal(text) | Self::Reasoning { text, .. } => {
                text.push_str(piece);
            }
            Self::Call { arguments, .. } => arguments.push_str(piece),
        }
    }

    /// The event of a piece, and how it says which part the piece is of.
    pub(super) fn delta(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Text(_) => ("response.output_text.delta", Some(CONTENT)),
            Self::Refusal(_) => ("response.refusal.delta", Some(CONTENT)),
            Self::Reasoning { kind: ReasoningKind::Trace, .. } => {
                ("response.reasoning_text.delta", Some(CONTENT))
            }
            Self::Reasoning { kind: ReasoningKind::Summary, .. } => {
                ("response.reasoning_summary_text.delta", Some(SUMMARY))
            }
            Self::Call { .. } => ("response.function_call_arguments.delta", None),
        }
    }

    /// The event with which its only part begins; a call has none.
    pub(super) fn part_added(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Text(_)
            | Self::Refusal(_)
            | Self::Reasoning { kind: ReasoningKind::Trace, .. } => {
                Some(("response.content_part.added", CONTENT))
            }
            Self::Reasoning { kind: ReasoningKind::Summary, .. } => {
                Some(("response.reasoning_summary_part.added", SUMMARY))
            }
            Self::Call { .. } => None,
        }
    }

    /// The events with which the words of its only part, and the part, end.
    pub(super) fn part_done(&self) -> Option<[(&'static str, &'static str); 2]> {
        let content = ("response.content_part.done", CONTENT);
        match self {
            Self::Text(_) => Some([("response.output_text.done", "text"), content]),
            Self::Refusal(_) => Some([("response.refusal.done", "refusal"), content]),
            Self::Reasoning { kind: ReasoningKind::Trace, .. } => {
                Some([("response.reasoning_text.done", "text"), content])
            }
            Self::Reasoning { kind: ReasoningKind::Summary, .. } => Some([
                ("response.reasoning_summary_text.done", "text"),
                ("response.reasoning_summary_part.done", SUMMARY),
            ]),
            Self::Call { .. } => None,
        }
    }

    /// Its only part with these words.
    pub(super) fn part(&self, text: &str) -> Value {
        match self {
            Self::Text(_) => {
                json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
            }
            Self::Refusal(_) => json!({ "type": "refusal", "refusal": text }),
            Self::Reasoning { kind: ReasoningKind::Trace, .. } => {
                json!({ "type": "reasoning_text", "text": text })
            }
            Self::Reasoning { kind: ReasoningKind::Summary, .. } => {
                json!({ "type": "summary_text", "text": text })
            }
            Self::Call { .. } => Value::Null,
        }
    }

    /// The item as it is so far. Its parts stand in it when it is complete.
    pub(super) fn item(&self, n: usize, index: u32, status: Status) -> Value {
        let parts = match status {
            Status::InProgress => Vec::new(),
            Status::Completed | Status::Incomplete if self.written().is_empty() => Vec::new(),
            Status::Completed | Status::Incomplete => vec![self.part(self.written())],
        };
        let status = match status {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete => "incomplete",
        };
        let id = self.id(n, index);
        match self {
            Self::Text(_) | Self::Refusal(_) => json!({
                "id": id, "type": "message", "status": status, "role": "assistant",
                "content": parts,
            }),
            Self::Reasoning { kind: ReasoningKind::Summary, .. } => {
                json!({ "id": id, "type": "reasoning", "summary": parts })
            }
            Self::Reasoning { kind: ReasoningKind::Trace, .. } => {
                let mut item = json!({ "id": id, "type": "reasoning", "summary": [] });
                if !parts.is_empty() {
                    item["content"] = parts.into();
                }
                item
            }
            Self::Call { call_id, name, arguments } => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id,
                "name": name, "arguments": arguments,
            }),
        }
    }
}
