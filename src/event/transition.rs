//! The reasons why a run continues, and why items were appended or replaced.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a run sends another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Transition {
    /// The tools returned their results.
    NextTurn,
    /// The model was cut off by the output limit, and is asked to continue or to write its calls
    /// again.
    MaxOutputTokensRecovery,
    /// A stop hook blocked the end of the run.
    StopHookBlocking,
    /// The context was too long and was compacted.
    ReactiveCompactRetry,
    /// The reply could not be used; a message or the results of its calls tell the model the
    /// reason.
    Corrective,
    /// The last turn, which has no tools, starts.
    WrapUp,
    /// The provider paused the turn, which is now resumed.
    PauseResumed,
    /// The user sent steering input while the model was stopping.
    Steering,
    /// Follow-up input was waiting when the model stopped.
    FollowUp,
    /// The turn failed before its end, was retracted, and is requested again.
    Retry,
    /// The next provider of the fallback list takes over.
    Fallback,
    /// The model stopped before it reached its token target.
    Nudge,
    /// A reason added in a later version.
    #[serde(other)]
    Other,
}

/// The origin of appended items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AppendReason {
    /// The run's input.
    Input,
    /// Steering input that was sent while the run was active.
    Steer,
    /// Follow-up input, which was sent for the moment when the model stops on its own.
    FollowUp,
    /// The message that tells the model that its reply could not be used.
    Corrective,
    /// The request to continue after the model was cut off.
    Continuation,
    /// The request to continue because the token target is not reached yet.
    Nudge,
    /// The message of a stop hook that blocked the end of the run.
    StopHook,
    /// The message of a hook that is not a stop hook.
    Hook,
    /// The announcement that the next turn is the last turn.
    WrapUp,
    /// An origin added in a later version.
    #[serde(other)]
    Other,
}

/// The reason why entries of the history were replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RewriteReason {
    /// The entries were shortened by a compaction.
    Compacted,
    /// The entries were marked as void.
    Tombstoned,
    /// A reason added in a later version.
    #[serde(other)]
    Other,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A unit variant serializes as the string that `Display` prints.
        self.serialize(f)
    }
}

impl fmt::Display for AppendReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
