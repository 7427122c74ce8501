//! The events that a turn streams.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::turn::{Text, Turn};
use crate::usage::Usage;

/// One event of a turn. The last one is always `TurnComplete`.
///
/// Folding the other events gives the turn, except for provider data and the provider's own items.
/// Deltas with the same `index` belong to one item; items are in the order of their first events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEvent {
    /// A piece of the model's text.
    TextDelta {
        /// The index of its text item.
        index: u32,
        /// The piece.
        text: Text,
    },
    /// A piece of the model's reasoning.
    ReasoningDelta {
        /// The index of its reasoning item.
        index: u32,
        /// The piece.
        text: Text,
        /// Whether this is the reasoning itself or a summary of it.
        kind: ReasoningKind,
    },
    /// A piece of a refusal. In the finished turn it is text.
    RefusalDelta {
        /// The index of its text item.
        index: u32,
        /// The piece.
        text: Text,
    },
    /// The model begins a tool call.
    ToolCallStart {
        /// The id of the call, unique within the history.
        call_id: String,
        /// The tool's name.
        name: String,
    },
    /// A piece of a call's arguments, as raw JSON text.
    ToolCallArgsDelta {
        /// The id of its call.
        call_id: String,
        /// The piece.
        delta: Text,
    },
    /// The call's arguments are complete. The call may run only after the turn is complete.
    ToolCallEnd {
        /// The call.
        call_id: String,
    },
    /// The tokens that this attempt used so far. Replaces the previous update.
    UsageUpdate {
        /// All tokens of this attempt so far.
        usage: Usage,
    },
    /// The request failed before any output, and is sent again after a delay that begins now.
    ///
    /// It is not part of the turn; folds ignore it.
    Retrying {
        /// The number of attempts that failed so far, from 1.
        attempt: u32,
        /// The length of the delay, in milliseconds.
        delay_ms: u64,
        /// Why the last attempt failed.
        error: Arc<Error>,
    },
    /// Everything of the open turn so far is void: a retry or a fallback starts over.
    Retracted {
        /// The reason, for a human reader.
        why: String,
        /// The tokens that the void attempt used; they count for the run.
        usage: Usage,
    },
    /// The turn is complete.
    TurnComplete {
        /// The whole turn.
        turn: Arc<Turn>,
    },
}

impl TurnEvent {
    /// The piece of text, if this is a text delta.
    pub fn text_delta(&self) -> Option<&Text> {
        match self {
            Self::TextDelta { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The finished turn, if this is `TurnComplete`.
    pub fn turn_complete(&self) -> Option<&Arc<Turn>> {
        match self {
            Self::TurnComplete { turn } => Some(turn),
            _ => None,
        }
    }
}

/// Whether reasoning is shown as it is or as a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningKind {
    /// A summary of the reasoning, made by the provider.
    Summary,
    /// The reasoning itself. Kinds added by later versions are deserialized as this.
    #[default]
    #[serde(other)]
    Trace,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_small() {
        assert!(size_of::<TurnEvent>() <= 64, "{}", size_of::<TurnEvent>());
    }
}
