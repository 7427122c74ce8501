//! Reasons: why a run continues, and why items were appended or rewritten.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a run sends another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Transition {
    /// The tools returned their results.
    NextTurn,
    /// The output limit cut the model off; the model is asked to continue, or to write its calls
    /// again.
    MaxOutputTokensRecovery,
    /// A stop hook blocked the end of the run.
    StopHookBlocking,
    /// The context was too long and was compacted.
    ReactiveCompactRetry,
    /// The reply could not be used; a message or the results of its calls tell the model why.
    Corrective,
    /// The last turn begins, without tools.
    WrapUp,
    /// The provider paused the turn.
    PauseResumed,
    /// The user sent steering input while the model was stopping.
    Steering,
    /// A follow-up was waiting.
    FollowUp,
    /// The turn failed before its end, was retracted, and is requested again.
    Retry,
    /// The next provider of the fallback list takes over.
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
    /// Steering input that was sent while the run was active.
    Steer,
    /// A follow-up, which was sent for the moment when the model stops on its own.
    FollowUp,
    /// The message that the model's reply could not be used.
    Corrective,
    /// The request to continue after the model was cut off.
    Continuation,
    /// The request to continue because budget is left below the token target.
    Nudge,
    /// The message of a stop hook that blocked the end of the run.
    StopHook,
    /// The message of another hook.
    Hook,
    /// The announcement of the last turn.
    WrapUp,
    /// A source of a later version.
    #[serde(other)]
    Other,
}

/// Why entries were replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RewriteReason {
    /// Shortened by a compaction.
    Compacted,
    /// Marked as void.
    Tombstoned,
    /// A reason of a later version.
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
