//! The reasons why a run ends.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The model finished its work.
    Completed,
    /// The limit on the number of model calls was reached.
    MaxTurns,
    /// The run was interrupted during this phase.
    Interrupted(InterruptedPhase),
    /// The run's owner or a hook stopped the run between two iterations.
    Stopped,
    /// A stop hook ended the run; [`Outcome::why`](crate::Outcome::why) contains the hook's
    /// message.
    StopHookPrevented,
    /// The context window is full, and the history cannot be compacted or has already been
    /// compacted.
    ContextWindow,
    /// The model was cut off by its output limit.
    Truncated,
    /// The model refused the request.
    Refused,
    /// The model was cut off by a content filter.
    Filtered,
    /// The model's replies could not be used.
    Malformed,
    /// The model kept making the same calls, which returned the same results; see
    /// [`Limits::end_after_repeats`](crate::agent::Limits::end_after_repeats). Or too many fixes in
    /// a row have failed; see
    /// [`Limits::end_after_failed_fixes`](crate::agent::Limits::end_after_failed_fixes).
    Repeating,
    /// A budget of the run was exhausted.
    Budget,
    /// A turn ended without the end marker that the provider sends after a complete turn.
    Incomplete,
    /// Tool calls are waiting for a verdict or an external result.
    Pending,
    /// The model or a stop hook reported that the model cannot continue because something is
    /// missing. The model may report this if the agent [requires
    /// evidence](crate::Agent::with_evidence).
    Blocked,
    /// The model claimed success without the required [evidence](crate::Agent::with_evidence), or a
    /// stop hook reported that the model did so.
    Unproven,
    /// The provider failed or rejected the request, or no request could be created.
    ProviderError,
    /// A validation or a decision-making hook failed.
    HookError,
    /// A reason that was added in a later version. Runs in this version of the crate never end with
    /// this reason.
    Other,
}

/// The phase in which a run was interrupted.
///
/// | the run was | phase |
/// |---|---|
/// | before its first request, whether or not its input was appended | `Streaming` |
/// | waiting for a turn or receiving it, including retries, retracted attempts and delays | `Streaming` |
/// | after a complete turn, before a tool starts, an approval is requested or a result arrives | `Streaming` |
/// | after a complete turn without calls, including any items appended after the turn | `Streaming` |
/// | running a turn's calls, or waiting for the approval of such a call | `Tools` |
/// | after the results, before the next request begins: a hook, a compaction, steering input | `Tools` |
/// | resuming an earlier run's calls, from the current run's first event | `Tools` |
///
/// [`TurnStarted`](crate::Event::TurnStarted) starts a request. In both phases, every call without
/// a result gets a result before the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InterruptedPhase {
    /// The phase from a turn's first tool until the next request.
    Tools,
    /// The phase before and during a turn, and from the turn's end until the turn's first tool
    /// starts. Phases that were added in later versions are deserialized as `Streaming`.
    #[serde(other)]
    Streaming,
}

/// Defines the conversions from reasons to their names and from names to reasons.
macro_rules! reason_names {
    ($($Reason:ident = $name:literal),* $(,)?) => {
        impl EndReason {
            /// Returns the reason's serialized name, for example `max_turns`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Reason => $name,)*
                    Self::Interrupted(_) => "interrupted",
                    Self::Other => "other",
                }
            }

            /// Returns the reason with the given name. `phase` is used only if the name is
            /// `interrupted`.
            pub(crate) fn named(name: &str, phase: Option<InterruptedPhase>) -> Self {
                match name {
                    $($name => Self::$Reason,)*
                    "interrupted" => Self::Interrupted(phase.unwrap_or(InterruptedPhase::Streaming)),
                    _ => Self::Other,
                }
            }
        }
    };
}

reason_names! {
    Completed = "completed",
    MaxTurns = "max_turns",
    Stopped = "stopped",
    StopHookPrevented = "stop_hook_prevented",
    ContextWindow = "context_window",
    Truncated = "truncated",
    Refused = "refused",
    Filtered = "filtered",
    Malformed = "malformed",
    Repeating = "repeating",
    Budget = "budget",
    Incomplete = "incomplete",
    Pending = "pending",
    Blocked = "blocked",
    Unproven = "unproven",
    ProviderError = "provider_error",
    HookError = "hook_error",
}

impl EndReason {
    /// Returns the end reason of a run that failed with this error.
    pub(crate) fn from_error(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::IncompleteTurn => Self::Incomplete,
            ErrorKind::ContextWindow => Self::ContextWindow,
            ErrorKind::Hook => Self::HookError,
            _ => Self::ProviderError,
        }
    }

    /// Returns whether a run with this end reason ended before the model finished its work. To
    /// check a run, read [`Outcome::partial`](crate::Outcome::partial) instead, which is also
    /// `true` for a completed run whose stop reason is unknown.
    pub fn is_partial(self) -> bool {
        match self {
            // Stop hooks are called only once the model has stopped on its own.
            Self::Completed
            | Self::Refused
            | Self::Filtered
            | Self::StopHookPrevented
            | Self::Blocked
            | Self::Unproven => false,
            Self::MaxTurns
            | Self::Interrupted(_)
            | Self::Stopped
            | Self::ContextWindow
            | Self::Truncated
            | Self::Malformed
            | Self::Repeating
            | Self::Budget
            | Self::Incomplete
            | Self::Pending
            | Self::ProviderError
            | Self::HookError
            | Self::Other => true,
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
