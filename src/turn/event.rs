//! What a turn consists of while it streams.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::turn::{Text, Turn};
use crate::usage::Usage;

/// One event of a turn. The last one is always `TurnComplete`.
///
/// Folding the others gives the turn, up to provider data and the provider's own items.
/// Deltas with one `index` belong to one item; items stand in the order in which their first
/// event came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEvent {
    /// A piece of the model's words.
    TextDelta {
        /// Which text item it belongs to.
        index: u32,
        /// The piece.
        text: Text,
    },
    /// A piece of the model's reasoning.
    ReasoningDelta {
        /// Which reasoning item it belongs to.
        index: u32,
        /// The piece.
        text: Text,
        /// The reasoning itself, or a summary of it.
        kind: ReasoningKind,
    },
    /// A piece of a refusal. In the turn it is text.
    RefusalDelta {
        /// Which text item it belongs to.
        index: u32,
        /// The piece.
        text: Text,
    },
    /// The model begins to write a call.
    ToolCallStart {
        /// Unique in the history.
        call_id: String,
        /// The tool's name.
        name: String,
    },
    /// A piece of a call's arguments, raw JSON text.
    ToolCallArgsDelta {
        /// Which call it belongs to.
        call_id: String,
        /// The piece.
        delta: Text,
    },
    /// The call is written to its end. It may run only when the turn is complete.
    ToolCallEnd {
        /// Which call it was.
        call_id: String,
    },
    /// What the attempt has cost so far. It replaces what was said before.
    UsageUpdate {
        /// All tokens of this attempt up to now.
        usage: Usage,
    },
    /// The request failed before anything was said, and is sent again after a wait that begins now.
    ///
    /// It belongs to no part of the turn, and no fold counts it.
    Retrying {
        /// How many attempts have failed so far, from 1.
        attempt: u32,
        /// How long the wait is, in milliseconds.
        delay_ms: u64,
        /// Why the last attempt failed.
        error: Arc<Error>,
    },
    /// All of this open turn is void: a retry or a fallback starts over.
    Retracted {
        /// Why, for a person.
        why: String,
        /// What the void attempt cost; it counts for the run.
        usage: Usage,
    },
    /// The turn is complete.
    TurnComplete {
        /// The whole turn.
        turn: Arc<Turn>,
    },
}

impl TurnEvent {
    /// The piece of text, where this is one.
    pub fn text_delta(&self) -> Option<&Text> {
        match self {
            Self::TextDelta { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The finished turn, where this is its end.
    pub fn turn_complete(&self) -> Option<&Arc<Turn>> {
        match self {
            Self::TurnComplete { turn } => Some(turn),
            _ => None,
        }
    }
}

/// Whether a model's thoughts are shown as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningKind {
    /// A summary that the provider makes of it.
    Summary,
    /// The reasoning itself. What a later version adds is read as this.
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
