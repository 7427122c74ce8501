//! The events that are streamed during a turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::turn::{Text, Turn};
use crate::usage::Usage;

/// An event from a turn. The last event from a complete turn is always `TurnComplete`.
///
/// The turn can also be assembled from the events before `TurnComplete`, but then lacks provider
/// data and provider-specific items. Deltas with the same `index` belong to the same item. Items
/// are ordered by their first events.
///
/// ```
/// use futures::TryStreamExt;
/// use turnstream::provider::{Provider, Reply, Scripted};
/// use turnstream::{History, Request, TurnEvent};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let reply = Reply::text("It is Ber").retract("the connection was lost").say("It is Oslo.");
/// let mut events = Scripted::new([reply]).stream_turn(Request::new(History::empty("h")));
/// let mut shown = String::new();
/// while let Some(event) = events.try_next().await? {
///     match event {
///         TurnEvent::TextDelta { text, .. } => shown.push_str(&text),
///         TurnEvent::Retracted { .. } => shown.clear(),
///         TurnEvent::TurnComplete { turn } => assert_eq!(shown, turn.text()),
///         _ => {}
///     }
/// }
/// assert_eq!(shown, "It is Oslo.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEvent {
    /// A piece of the model's text.
    TextDelta {
        /// The index of the text item to which the piece belongs.
        index: u32,
        /// The piece of text.
        text: Text,
    },
    /// A piece of the model's reasoning.
    ReasoningDelta {
        /// The index of the reasoning item to which the piece belongs.
        index: u32,
        /// The piece of reasoning.
        text: Text,
        /// Whether the piece is part of the reasoning itself or of a summary.
        kind: ReasoningKind,
    },
    /// A piece of a refusal, which becomes text in the finished turn.
    RefusalDelta {
        /// The index of the text item to which the piece belongs.
        index: u32,
        /// The piece of the refusal.
        text: Text,
    },
    /// The model has started a tool call.
    ToolCallStart {
        /// The id of the call, which is unique within the history.
        call_id: String,
        /// The name of the called tool.
        name: String,
    },
    /// A piece of a tool call's arguments, as raw JSON text.
    ToolCallArgsDelta {
        /// The id of the call to which the piece belongs.
        call_id: String,
        /// The piece of the arguments.
        delta: Text,
    },
    /// A tool call has ended, and its arguments are complete. The call may run only after the turn
    /// is complete.
    ToolCallEnd {
        /// The id of the call.
        call_id: String,
    },
    /// An update to the token usage of this attempt, which replaces the previous update.
    UsageUpdate {
        /// The token usage of this attempt so far.
        usage: Usage,
    },
    /// The request failed before it produced any output, and will be sent again after a delay. The
    /// delay starts with this event.
    ///
    /// This event is not part of the turn and is ignored when the turn is assembled from its
    /// events.
    Retrying {
        /// The number of failed attempts so far, starting at 1.
        attempt: u32,
        /// The length of the delay, in milliseconds.
        delay_ms: u64,
        /// The error from the latest failed attempt.
        error: Arc<Error>,
    },
    /// Everything received so far for the current turn is void, because a retry or a fallback
    /// starts the turn again.
    Retracted {
        /// A human-readable reason for the retraction.
        why: String,
        /// The token usage of the voided attempt. These tokens still count towards the run's usage.
        usage: Box<Usage>,
    },
    /// The turn is complete, and no more events follow.
    TurnComplete {
        /// The complete turn.
        turn: Arc<Turn>,
    },
}

impl TurnEvent {
    /// Returns the piece of text, if this event is a text delta.
    pub fn text_delta(&self) -> Option<&Text> {
        match self {
            Self::TextDelta { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns the finished turn, if this event is `TurnComplete`.
    pub fn turn_complete(&self) -> Option<&Arc<Turn>> {
        match self {
            Self::TurnComplete { turn } => Some(turn),
            _ => None,
        }
    }
}

/// Specifies whether a piece of text is the reasoning itself or a summary of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningKind {
    /// A summary of the reasoning, written by the provider.
    Summary,
    /// The reasoning itself. Kinds added in later versions are deserialized as `Trace`.
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
