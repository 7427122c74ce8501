//! The hook that contains the detectors.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::ready;

use crate::agent::State;
use crate::agent::detect::detection_input::{DetectionInput, Finding};
use crate::agent::detect::{
    AmbiguousFailure, ContextBloat, FailureMode, MissingTermination, NonIdempotentRetry,
    PlanningWithoutExecution, Signal, SignalLog, SilentSideEffect,
};
use crate::agent::hook::{Hook, HookFuture};
use crate::event::Outcome;
use crate::item::Item;
use crate::turn::Turn;

/// Detects six ways in which a run can go wrong, and records a [`Signal`] for each problem found.
///
/// The detectors run after each complete turn, and examine the results of the earlier tool calls. A
/// problem is reported once when it first appears, and is not reported again while it persists.
/// Detectors never end a run. To end a run, use budgets, limits, or your own hooks. A hook that was
/// added after the detectors can read each signal as soon as it is recorded.
///
/// The default thresholds are chosen so that an ordinary run produces no signals.
/// [`SilentSideEffect`] detects nothing until it is configured.
///
/// ```
/// use serde_json::json;
/// use turnstream::agent::detect::{Detectors, FailureMode};
/// use turnstream::item::Evidence;
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::{Tool, ToolContext, ToolSpec};
/// use turnstream::Agent;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let test = || Reply::new().call("test", json!({}));
/// let model = Scripted::new([test(), test(), test(), "I give up: they fail.".into()]);
/// # let spec = ToolSpec::new("test", "", json!({ "type": "object", "properties": {} }));
/// let tool = Tool::raw(spec, |_, cx: ToolContext| async move {
///     cx.record_evidence(Evidence::from_command("cargo test", 101));
///     Err::<(), _>("1 failed")
/// })?;
///
/// let detectors = Detectors::default();
/// let signals = detectors.signal_log.clone();
/// Agent::new(model).with_tools([tool]).with_hook(detectors).run("Mend it").outcome().await;
///
/// let signal = &signals.signals()[0];
/// assert_eq!((signal.mode, signal.turn), (FailureMode::MissingTermination, 4));
/// assert_eq!(signal.what, "`cargo test` has failed 3 times in the same way");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Detectors {
    /// The detector for runs that fail to come to an end.
    pub missing_termination: MissingTermination,
    /// The detector for failures that are treated as successes.
    pub ambiguous_failure: AmbiguousFailure,
    /// The detector for tool calls that make a change without reporting it.
    pub silent_side_effect: SilentSideEffect,
    /// The detector for tool calls that repeat work that was already done.
    pub non_idempotent_retry: NonIdempotentRetry,
    /// The detector for contexts that grow too large.
    pub context_bloat: ContextBloat,
    /// The detector for models that plan but call no tools.
    pub planning_without_execution: PlanningWithoutExecution,
    /// The failure modes that are not reported; none by default.
    pub ignored_modes: Vec<FailureMode>,
    /// Whether the model is sent a message about each signal before the next request; `false` by
    /// default. The message tells the model how to handle the signal's failure
    /// mode. If the run ends after the turn in which the problem was detected, the message is not
    /// sent.
    pub nudges: bool,
    /// The log that the signals are added to. Clones of the detectors share their log, and so do
    /// all runs.
    pub signal_log: SignalLog,
}

impl Detectors {
    fn detect(&self, seen: &DetectionInput<'_>) -> impl Iterator<Item = (FailureMode, Finding)> {
        let found = [
            (FailureMode::MissingTermination, self.missing_termination.detect(seen)),
            (FailureMode::AmbiguousFailure, self.ambiguous_failure.detect(seen)),
            (FailureMode::SilentSideEffect, self.silent_side_effect.detect(seen)),
            (FailureMode::NonIdempotentRetry, self.non_idempotent_retry.detect(seen)),
            (FailureMode::ContextBloat, self.context_bloat.detect(seen)),
            (FailureMode::PlanningWithoutExecution, self.planning_without_execution.detect(seen)),
        ];
        let reported = found.into_iter().filter(|(mode, _)| !self.ignored_modes.contains(mode));
        reported.filter_map(|(mode, found)| Some((mode, found?)))
    }
}

impl Hook for Detectors {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed("detectors")
    }

    fn after_sampling(&self, state: &State, turn: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
        let mut notes = Vec::new();
        for (mode, Finding { call_id, message: what }) in
            self.detect(&DetectionInput::new(state, turn))
        {
            let history_id = state.history.id().to_owned();
            self.signal_log.push(Signal {
                mode,
                history_id,
                turn: state.counts.model_calls,
                call_id,
                what,
            });
            if self.nudges {
                notes.push(Item::user(mode.mitigation()));
            }
        }
        Box::pin(ready(Ok(notes)))
    }

    fn on_finished(&self, _: &State, outcome: &Outcome) {
        self.silent_side_effect.forget_history(outcome.history.id());
    }
}
