//! The reasons why a run continues, and why items are appended or replaced.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a run sends another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Transition {
    /// The model receives the results of its tool calls.
    NextTurn,
    /// The output limit cut the model off, and the model is asked to continue or to repeat its
    /// calls.
    MaxOutputTokensRecovery,
    /// A stop hook prevented the run from ending.
    StopHookBlocking,
    /// The context was too long and was compacted.
    ReactiveCompactRetry,
    /// The provider rejected reasoning from earlier turns, which is no longer sent.
    ReasoningRefused,
    /// The reply could not be used. The model learns the reason from a message or from the results
    /// of its calls.
    Corrective,
    /// The run starts its last turn, in which no tools are available.
    WrapUp,
    /// The provider paused the turn, and the turn is now resumed.
    PauseResumed,
    /// Steering input was waiting when the model stopped.
    Steering,
    /// Follow-up input was waiting when the model stopped.
    FollowUp,
    /// The turn failed before it was complete, was retracted, and is requested again.
    Retry,
    /// The next provider in the fallback list takes over.
    Fallback,
    /// The model stopped before reaching its token target.
    Nudge,
    /// A reason that was added in a later version.
    #[serde(other)]
    Other,
}

/// The source of appended items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AppendReason {
    /// The run's input.
    Input,
    /// Steering input that was sent while the run was active.
    Steer,
    /// Follow-up input, which is added when the model stops on its own.
    FollowUp,
    /// A [message of another agent](crate::Tool::send_message) of the same run, or such a message
    /// that was not delivered.
    Message,
    /// The message that tells the model that its reply could not be used.
    Corrective,
    /// The request to continue after the model was cut off.
    Continuation,
    /// The request to continue because the token target has not been reached yet.
    Nudge,
    /// The message from a stop hook that prevented the run from ending.
    StopHook,
    /// The message from a hook that is not a stop hook.
    Hook,
    /// The announcement that the next turn is the last one.
    WrapUp,
    /// The notice that the run was interrupted, with the reason. It is added only if no result of a
    /// call contains the reason.
    Interrupt,
    /// A source that was added in a later version.
    #[serde(other)]
    Other,
}

/// The reason why entries in the history were replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RewriteReason {
    /// The entries were shortened by a compaction.
    Compacted,
    /// The entries were marked as tombstones.
    Tombstoned,
    /// The provider rejected reasoning in the entries, which now contain only its text. The number
    /// of entries is unchanged.
    ReasoningRefused,
    /// A reason that was added in a later version.
    #[serde(other)]
    Other,
}

impl RewriteReason {
    /// Returns whether each entry is replaced by an entry at the same position, so that no entry
    /// moves.
    pub(crate) fn keeps_positions(self) -> bool {
        match self {
            Self::Tombstoned | Self::ReasoningRefused => true,
            Self::Compacted | Self::Other => false,
        }
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A variant without fields serializes as the string that `Display` prints.
        self.serialize(f)
    }
}

impl fmt::Display for RewriteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for AppendReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
