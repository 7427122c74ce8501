//! Why a run ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The model was done.
    Completed,
    /// The cap on model calls was reached.
    MaxTurns,
    /// Somebody interrupted it.
    Interrupted(InterruptedPhase),
    /// A holder or a hook stopped it at a boundary.
    Stopped,
    /// A stop hook ended it; [`Outcome::why`](crate::Outcome::why) has its words.
    StopHookPrevented,
    /// The context window is full, and the history is compacted already or cannot be.
    ContextWindow,
    /// The output limit cut the model off.
    Truncated,
    /// The model refused.
    Refused,
    /// A content filter cut the model off.
    Filtered,
    /// The model's replies could not be used.
    Malformed,
    /// The model made the same calls again and again, with the same results; see
    /// [`Limits::end_after_repeats`](crate::agent::Limits::end_after_repeats).
    Repeating,
    /// A budget was spent.
    Budget,
    /// A turn ended without its terminal marker.
    Incomplete,
    /// Calls wait for somebody outside.
    Pending,
    /// The model, where it is [asked for evidence](crate::Agent::with_evidence), or a stop hook says
    /// that something is missing.
    Blocked,
    /// The model claims success without [evidence](crate::Agent::with_evidence), or a stop hook says
    /// that it does.
    Unproven,
    /// The provider failed or refused the request, or none could be made.
    ProviderError,
    /// A hook that decides, or a validation, failed.
    HookError,
    /// A reason of a later version. No run of this one ends for it.
    Other,
}

/// Where a run was interrupted.
///
/// | the run was | phase |
/// |---|---|
/// | before its first request, its input appended or not | `Streaming` |
/// | waiting for a turn or receiving it, a retry, a retracted attempt and the time until the next attempt included | `Streaming` |
/// | after a complete turn, none of whose calls has begun: no tool has started, no approval was requested and no result is in | `Streaming` |
/// | after a complete turn without calls, with whatever is appended then | `Streaming` |
/// | running the calls of a turn, or waiting for an approval of one | `Tools` |
/// | after the results, before the next request is begun: a hook, a compaction, input that was steered | `Tools` |
/// | resuming calls of an earlier run, from its first event on | `Tools` |
///
/// [`TurnStarted`](crate::Event::TurnStarted) begins a request. In either phase every call that has no
/// result gets one before the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InterruptedPhase {
    /// From the first tool of a turn until the next request.
    Tools,
    /// Before a turn, during it, and after it until its first tool. A phase of a later version is read
    /// as this.
    #[serde(other)]
    Streaming,
}

/// Writes both directions between the reasons and their names in one place.
macro_rules! reason_names {
    ($($Reason:ident = $name:literal),* $(,)?) => {
        impl EndReason {
            /// The reason as it is written, for example `max_turns`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Reason => $name,)*
                    Self::Interrupted(_) => "interrupted",
                    Self::Other => "other",
                }
            }

            /// The reason of this name; `phase` is that of an interrupted run.
            pub(super) fn named(name: &str, phase: Option<InterruptedPhase>) -> Self {
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
    /// The reason of a run that an error ended.
    pub fn from_error(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::IncompleteTurn => Self::Incomplete,
            ErrorKind::ContextWindow => Self::ContextWindow,
            ErrorKind::Hook => Self::HookError,
            _ => Self::ProviderError,
        }
    }

    /// Whether the model still wanted more when a run ended for this reason.
    pub fn is_partial(self) -> bool {
        match self {
            Self::Completed | Self::Refused | Self::Filtered | Self::Blocked | Self::Unproven => {
                false
            }
            Self::MaxTurns
            | Self::Interrupted(_)
            | Self::Stopped
            | Self::StopHookPrevented
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
