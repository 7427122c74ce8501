//! A finished turn.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::item::{Item, ItemKind, ToolCall};
use crate::item::{StopReason, TurnInfo};
use crate::usage::Usage;

/// A turn that ended with its terminal marker.
///
/// It is read-only: whether its [`calls`](Self::calls) may run depends on how the turn was made. A
/// turn deserialized from JSON is equal to the turn that was serialized, but none of its calls can
/// run.
#[derive(Clone, Serialize, Deserialize)]
pub struct Turn {
    pub(super) items: Vec<Item>,
    pub(super) stop_reason: StopReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) raw_stop_reason: Option<String>,
    #[serde(default)]
    pub(super) usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response_id: Option<String>,
    /// Whether a builder made it. Never deserialized, so that no file can forge it.
    #[serde(skip)]
    pub(super) built: bool,
}

impl Turn {
    /// The items that the model produced, in order. To add them to a history, use
    /// [`to_history_items`](Self::to_history_items).
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Why the model stopped.
    pub fn stop_reason(&self) -> &StopReason {
        &self.stop_reason
    }

    /// The stop reason as the provider wrote it.
    pub fn raw_stop_reason(&self) -> Option<&str> {
        self.raw_stop_reason.as_deref()
    }

    /// The tokens that the turn used.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The model that answered, by the name that the provider reports.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The provider's id of the response.
    pub fn response_id(&self) -> Option<&str> {
        self.response_id.as_deref()
    }

    /// The model's text: all text items, concatenated.
    pub fn text(&self) -> String {
        self.items.iter().filter_map(Item::as_text).collect()
    }

    /// The model's answer: its text without the items that the provider marks as commentary, or all
    /// of its text if every text item is commentary.
    pub fn answer(&self) -> String {
        let answer_items = self.items.iter().filter(|item| !item.commentary);
        let answer: String = answer_items.filter_map(Item::as_text).collect();
        if answer.is_empty() { self.text() } else { answer }
    }

    /// The reasoning that the provider shows, concatenated.
    pub fn reasoning(&self) -> String {
        let thought = |item: &Item| match &item.kind {
            ItemKind::Reasoning { text } => Some(text.clone()),
            _ => None,
        };
        self.items.iter().filter_map(thought).collect()
    }

    /// The tool calls as plain data, for display. To run them, pass the turn to a toolkit.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.items.iter().filter_map(Item::as_tool_call)
    }

    /// The items as they are added to a history: the last one carries the turn's metadata.
    pub fn to_history_items(&self) -> Vec<Item> {
        let mut items = self.items.clone();
        if let Some(last) = items.last_mut() {
            last.turn = Some(std::sync::Arc::new(TurnInfo {
                usage: self.usage,
                model: self.model.clone(),
                response_id: self.response_id.clone(),
                stop_reason: self.stop_reason.clone(),
            }));
        }
        items
    }
}

/// Turns are equal if their contents are; whether the calls may run is not compared.
impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
            && self.stop_reason == other.stop_reason
            && self.raw_stop_reason == other.raw_stop_reason
            && self.usage == other.usage
            && self.model == other.model
            && self.response_id == other.response_id
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("items", &self.items)
            .field("stop_reason", &self.stop_reason)
            .field("usage", &self.usage)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}
