//! Why things happen: why a run goes on, why items were appended or rewritten.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a run sends another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Transition {
    /// The tools have answered.
    NextTurn,
    /// The output limit cut the model off; it is asked to go on, or again for calls.
    MaxOutputTokensRecovery,
    /// A stop hook has something to say.
    StopHookBlocking,
    /// The context was too long and was compacted.
    ReactiveCompactRetry,
    /// The reply could not be used; the model was told why, in words or by its calls' results.
    Corrective,
    /// A last turn without tools.
    WrapUp,
    /// The provider paused the turn.
    PauseResumed,
    /// Somebody steered while the model was stopping.
    Steering,
    /// Somebody had a follow-up waiting.
    FollowUp,
    /// The turn broke off, was taken back, and is asked for again.
    Retry,
    /// Another model takes over.
    Fallback,
    /// The model stopped below its token target.
    Nudge,
    /// A reason of a later version.
    #[serde(other)]
    Other,
}

/// Where appended items come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AppendReason {
    /// The run's input.
    Input,
    /// Handed in while the run was going on.
    Steer,
    /// Handed in for when the model stops by itself.
    FollowUp,
    /// The model's reply could not be used.
    Corrective,
    /// The model was cut off and goes on.
    Continuation,
    /// The model has budget left.
    Nudge,
    /// A stop hook blocked the end.
    StopHook,
    /// Another hook.
    Hook,
    /// The last turn was announced.
    WrapUp,
    /// A source of a later version.
    #[serde(other)]
    Other,
}

/// What entries were replaced for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RewriteReason {
    /// To make them shorter.
    Compacted,
    /// To make them void.
    Tombstoned,
    /// A purpose of a later version.
    #[serde(other)]
    Other,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A unit variant serialises as the string that it is shown as.
        self.serialize(f)
    }
}

impl fmt::Display for AppendReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
