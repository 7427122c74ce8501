//! The signals that detectors record, and the log of these signals.

use std::mem;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::lock::lock_ignoring_poison;

/// A way in which a run can go wrong. [`Detectors`](crate::agent::detect::Detectors) detect each of
/// them, except for those in [`ignored_modes`](crate::agent::detect::Detectors::ignored_modes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureMode {
    /// The run continues while the results of its checks do not change.
    MissingTermination,
    /// The run treats a failure as a success.
    AmbiguousFailure,
    /// A tool call makes a change without reporting it.
    SilentSideEffect,
    /// A tool call repeats work that was already done.
    NonIdempotentRetry,
    /// The context grows without progress.
    ContextBloat,
    /// The model plans, but calls no tools.
    PlanningWithoutExecution,
}

/// A problem that a detector has found in a run. Each problem is recorded in a [`SignalLog`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Signal {
    /// The kind of problem that was detected.
    pub mode: FailureMode,
    /// The id of the history in which the problem was detected.
    pub history_id: String,
    /// The number of the turn after which the problem was detected. Turns are numbered in the order
    /// of the run's requests, starting at 1.
    pub turn: u32,
    /// The id of the tool call in which the problem was detected, if it concerns a single call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// A human-readable description of the problem.
    pub what: String,
}

/// Collects signals, oldest first, from all runs that share the log. Cheap to clone.
///
/// The log grows until the signals are [drained](Self::drain).
#[derive(Clone, Debug, Default)]
pub struct SignalLog {
    signals: Arc<Mutex<Vec<Signal>>>,
}

impl SignalLog {
    /// Returns a copy of all signals in the log, oldest first, and leaves them there.
    pub fn signals(&self) -> Vec<Signal> {
        self.with_locked_signals(|list| list.clone())
    }

    /// Removes all signals from the log and returns them, oldest first. A program that runs for a
    /// long time calls this method regularly, so that the log does not grow.
    pub fn drain(&self) -> Vec<Signal> {
        self.with_locked_signals(mem::take)
    }

    pub(super) fn push(&self, signal: Signal) {
        self.with_locked_signals(|list| list.push(signal));
    }

    fn with_locked_signals<T>(&self, f: impl FnOnce(&mut Vec<Signal>) -> T) -> T {
        f(&mut lock_ignoring_poison(&self.signals))
    }
}

impl FailureMode {
    /// Returns the message that tells the model how to handle this kind of problem.
    pub(crate) fn mitigation(self) -> &'static str {
        match self {
            Self::MissingTermination => {
                "You keep working, but the results of your checks do not change. Name the check \
                 that would show that you are done. If it passes, stop; if it keeps failing in the \
                 same way, try \
                 something else or say what you are missing."
            }
            Self::AmbiguousFailure => {
                "A call failed, and you continue as if it had succeeded. Look at its result \
                 again: find out what happened, and fix it or report the failure."
            }
            Self::SilentSideEffect => {
                "A call may have changed something without reporting it. Check what is different \
                 before you rely on it, and name it in your answer."
            }
            Self::NonIdempotentRetry => {
                "You repeated a call, and it took effect twice. Check whether a call took effect \
                 before you repeat it, and clean up the duplicates."
            }
            Self::ContextBloat => {
                "The conversation is growing fast. Read only what the next step needs, say why \
                 you need it, and continue from what you know."
            }
            Self::PlanningWithoutExecution => {
                "You have planned for several turns without doing anything. Take the next step: \
                 call one tool."
            }
        }
    }
}
