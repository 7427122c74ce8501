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
/// Detectors never end a run. To end a run, use budgets, limits, or your own hooks, which can read
/// the signals.
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
/// let detectors = Detectors::all();
/// let signals = detectors.signal_log();
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
    missing_termination: Option<MissingTermination>,
    ambiguous_failure: Option<AmbiguousFailure>,
    silent_side_effect: Option<SilentSideEffect>,
    non_idempotent_retry: Option<NonIdempotentRetry>,
    context_bloat: Option<ContextBloat>,
    planning_without_execution: Option<PlanningWithoutExecution>,
    sends_nudges: bool,
    signal_log: SignalLog,
}

impl Detectors {
    /// Creates a hook with all six detectors, each with its default thresholds.
    pub fn all() -> Self {
        Self::none()
            .with_missing_termination(MissingTermination::default())
            .with_ambiguous_failure(AmbiguousFailure::default())
            .with_silent_side_effect(SilentSideEffect::default())
            .with_non_idempotent_retry(NonIdempotentRetry::default())
            .with_context_bloat(ContextBloat::default())
            .with_planning_without_execution(PlanningWithoutExecution::default())
    }

    /// Creates a hook without detectors. Use the `with_` methods to add the detectors that you
    /// need.
    pub fn none() -> Self {
        Self::default()
    }

    /// Sets the detector for runs that fail to come to an end.
    pub fn with_missing_termination(mut self, detector: MissingTermination) -> Self {
        self.missing_termination = Some(detector);
        self
    }

    /// Sets the detector for failures that are treated as successes.
    pub fn with_ambiguous_failure(mut self, detector: AmbiguousFailure) -> Self {
        self.ambiguous_failure = Some(detector);
        self
    }

    /// Sets the detector for tool calls that make a change without reporting it.
    pub fn with_silent_side_effect(mut self, detector: SilentSideEffect) -> Self {
        self.silent_side_effect = Some(detector);
        self
    }

    /// Sets the detector for tool calls that repeat work that was already done.
    pub fn with_non_idempotent_retry(mut self, detector: NonIdempotentRetry) -> Self {
        self.non_idempotent_retry = Some(detector);
        self
    }

    /// Sets the detector for contexts that grow too large.
    pub fn with_context_bloat(mut self, detector: ContextBloat) -> Self {
        self.context_bloat = Some(detector);
        self
    }

    /// Sets the detector for models that plan but call no tools.
    pub fn with_planning_without_execution(mut self, detector: PlanningWithoutExecution) -> Self {
        self.planning_without_execution = Some(detector);
        self
    }

    /// Sends the model a message about each signal before the next request. The message is the
    /// [mitigation](FailureMode::mitigation) for the signal's failure mode. If the run ends after
    /// the turn in which the problem was detected, the message is not sent.
    pub fn with_nudges(mut self) -> Self {
        self.sends_nudges = true;
        self
    }

    /// Sets a function that is called with each signal. The function runs within the poll in which
    /// the problem is detected, so it must return quickly. The signals are also stored in the
    /// [`signal_log`](Self::signal_log).
    pub fn on_signal(mut self, f: impl Fn(&Signal) + Send + Sync + 'static) -> Self {
        self.signal_log.set_on_signal(Arc::new(f));
        self
    }

    /// Returns the signal log, which is shared by all clones of the detectors and therefore by all
    /// runs.
    pub fn signal_log(&self) -> SignalLog {
        self.signal_log.clone()
    }

    fn detect(&self, seen: &DetectionInput<'_>) -> Vec<(FailureMode, Finding)> {
        let Self { missing_termination, ambiguous_failure, silent_side_effect, .. } = self;
        let Self {
            non_idempotent_retry, context_bloat, planning_without_execution: planning, ..
        } = self;
        let found = [
            (
                FailureMode::MissingTermination,
                missing_termination.as_ref().and_then(|it| it.detect(seen)),
            ),
            (
                FailureMode::AmbiguousFailure,
                ambiguous_failure.as_ref().and_then(|it| it.detect(seen)),
            ),
            (
                FailureMode::SilentSideEffect,
                silent_side_effect.as_ref().and_then(|it| it.detect(seen)),
            ),
            (
                FailureMode::NonIdempotentRetry,
                non_idempotent_retry.as_ref().and_then(|it| it.detect(seen)),
            ),
            (FailureMode::ContextBloat, context_bloat.as_ref().and_then(|it| it.detect(seen))),
            (
                FailureMode::PlanningWithoutExecution,
                planning.as_ref().and_then(|it| it.detect(seen)),
            ),
        ];
        found.into_iter().filter_map(|(mode, found)| Some((mode, found?))).collect()
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
            if self.sends_nudges {
                notes.push(Item::user(mode.mitigation()));
            }
        }
        Box::pin(ready(Ok(notes)))
    }

    fn on_finished(&self, _: &State, outcome: &Outcome) {
        if let Some(detector) = &self.silent_side_effect {
            detector.forget_history(outcome.history.id());
        }
    }
}
