//! Judges a model's claim by the evidence policy.

use std::borrow::Cow;

use futures::{FutureExt, future};

use crate::agent::State;
use crate::agent::evidence::{EvidenceLog, EvidenceVerdict, RequireEvidence, UnprovenReason};
use crate::agent::hook::{Hook, HookFuture, StopDecision};
use crate::turn::Turn;

impl RequireEvidence {
    /// Decides what the results in the log prove under this policy.
    ///
    /// - A *change* is a result with side effects, even if its call failed. A call that was
    ///   interrupted, timed out or panicked also counts as a change, since it may have changed
    ///   something.
    /// - A *check* is an [`Evidence`](crate::item::Evidence) value. A check passes if its exit code
    ///   is 0 and the result that contains the check is not an error.
    /// - A passing check counts only if it was recorded after the last change, either in a later
    ///   batch of calls or in the same result. The order of calls within a batch is unknown.
    /// - After a failed check, nothing is proven until the same command passes, either in a later
    ///   batch or later in the same result. A failed check is not resolved by a passing check with
    ///   a different command.
    pub fn verdict(&self, standing: &EvidenceLog) -> EvidenceVerdict {
        standing.verdict_under(self)
    }

    /// If the model's stop action or the turn's text says that the model is blocked, returns a
    /// description of what is missing. The description is empty if the text does not say what is
    /// missing. Returns `None` if the model is not blocked.
    fn blocked_reason(&self, state: &State, turn: &Turn) -> Option<String> {
        match &state.stop_action {
            Some(action) => action.missing_if_blocked().map(str::to_owned),
            None => (self.blocked_detector)(turn).map(|missing| missing.trim().to_owned()),
        }
    }

    /// Returns why the claim in a stop action is not proven, or `None` if it is proven.
    fn reject_reason(&self, state: &State) -> Option<String> {
        let log = &state.evidence.log;
        if let Some(missing) = self.unproven_reason(log) {
            return Some(missing.to_string());
        }
        let cited = state.stop_action.as_deref()?.evidence.as_deref()?;
        (!log.proves(cited, self)).then(|| {
            format!("the cited check `{cited}` was not recorded as passed since the last change")
        })
    }

    fn unproven_reason(&self, standing: &EvidenceLog) -> Option<UnprovenReason> {
        self.objection_to(self.verdict(standing), standing)
    }

    /// Returns why a verdict is not sufficient to complete a run, or `None` if it is.
    pub(in crate::agent) fn objection_to(
        &self,
        verdict: EvidenceVerdict,
        standing: &EvidenceLog,
    ) -> Option<UnprovenReason> {
        let changed = standing.has_changes(self);
        match verdict {
            EvidenceVerdict::Proven(_) => None,
            EvidenceVerdict::NothingChanged | EvidenceVerdict::Unproven(_)
                if self.only_after_changes && !changed =>
            {
                None
            }
            EvidenceVerdict::NothingChanged => Some(UnprovenReason::default()),
            EvidenceVerdict::Unproven(missing) => Some(missing),
        }
    }
}

/// Judges the model's claim each time the model stops.
impl Hook for RequireEvidence {
    fn name(&self) -> Cow<'_, str> {
        "the evidence policy".into()
    }

    fn give_up_reason(&self, state: &State, turn: &Turn) -> Option<String> {
        self.blocked_reason(state, turn).filter(|missing| !missing.is_empty())
    }

    fn judge_evidence(&self, state: &State) -> Option<EvidenceVerdict> {
        Some(self.verdict(&state.evidence.log))
    }

    fn before_stop<'a>(&'a self, state: &'a State, turn: &'a Turn) -> HookFuture<'a, StopDecision> {
        let decision = match self.blocked_reason(state, turn) {
            Some(missing) if !missing.is_empty() => StopDecision::Blocked(missing),
            Some(_) => StopDecision::RequireEvidence {
                text: blocked_prompt(),
                reason: NO_MISSING_ITEM_NAMED.to_owned(),
            },
            None => match self.reject_reason(state) {
                None => StopDecision::Allow,
                Some(reason) => {
                    StopDecision::RequireEvidence { text: unproven_prompt(&reason), reason }
                }
            },
        };
        future::ready(Ok(decision)).boxed()
    }
}

const NO_MISSING_ITEM_NAMED: &str = "it says that it is blocked without naming what is missing";

fn unproven_prompt(missing: &str) -> String {
    format!(
        "You have stopped, but nothing proves that you are done: {missing}. Run a check that passes \
         and name it in your answer. If you cannot, answer with a first line `BLOCKED: ` and the \
         smallest thing that is missing."
    )
}

fn blocked_prompt() -> String {
    "You say that you are blocked, but not by what. Answer with a first line `BLOCKED: ` and the \
     smallest thing that is missing, or continue and end with a check that passes."
        .to_owned()
}
