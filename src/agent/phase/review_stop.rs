//! Runs the checks that are due once the model has stopped on its own.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::budget::TargetDecision;
use crate::agent::evidence::{EvidenceVerdict, RequireEvidence};
use crate::agent::hook::StopDecision;
use crate::agent::phase::external_facts::gather_facts;
use crate::agent::run::run_shared::RunShared;
use crate::agent::{self, NextAction, State, StopReview};
use crate::error::Error;
use crate::event::{BudgetExceeded, BudgetKind, StopAction, Transition};
use crate::item::Evidence;
use crate::turn::Turn;
use crate::world::EffectKind;

/// The recorded result of the checks that run once the model has stopped on its own.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct RecordedReview {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<ReviewKind>,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    /// Whether the model's claim to be done is rejected for lack of evidence, which happens only
    /// once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rejects_claim: bool,
    /// Whether an earlier rejection for lack of evidence still counts, so that no further claim is
    /// rejected for that reason.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    keeps_rejection: bool,
}

/// The result in a [`RecordedReview`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReviewKind {
    ValidationFailed,
    Continue,
    EndRun,
    Blocked,
    Unproven,
}

impl RecordedReview {
    fn new(kind: ReviewKind, text: String) -> Self {
        Self { kind: Some(kind), text, rejects_claim: false, keeps_rejection: true }
    }

    /// Converts a decision made by hooks into a review. `may_prove` indicates whether a claim may
    /// be rejected for lack of evidence.
    fn from_decision(decision: StopDecision, may_prove: bool) -> Self {
        match decision {
            StopDecision::Allow => Self::default(),
            StopDecision::Continue(text) => Self::new(ReviewKind::Continue, text),
            StopDecision::EndRun(text) => Self::new(ReviewKind::EndRun, text),
            StopDecision::Blocked(text) => Self::new(ReviewKind::Blocked, text),
            StopDecision::RequireEvidence { text, .. } if may_prove => {
                Self { rejects_claim: true, ..Self::new(ReviewKind::Continue, text) }
            }
            StopDecision::Unproven(why) | StopDecision::RequireEvidence { reason: why, .. } => {
                Self::new(ReviewKind::Unproven, why)
            }
        }
    }

    fn into_stop_review(self) -> Option<StopReview> {
        let text = self.text;
        Some(StopReview::HookDecision(match self.kind? {
            ReviewKind::ValidationFailed => return Some(StopReview::ValidationFailed(text)),
            ReviewKind::Continue => StopDecision::Continue(text),
            ReviewKind::EndRun => StopDecision::EndRun(text),
            ReviewKind::Blocked => StopDecision::Blocked(text),
            ReviewKind::Unproven => StopDecision::Unproven(text),
        }))
    }
}

/// Runs the validations and the stop hooks, checks the token target, and decides the next action.
pub(in crate::agent) async fn review_stop(
    run: &RunShared,
    state: State,
    turn: &Arc<Turn>,
) -> Result<(State, NextAction), Error> {
    let (state, known) = gather_facts(run, state);
    let next = agent::at_stop(&state, StopReview::Accept, &known);
    if next == NextAction::Continue(Transition::Steering) {
        // The run continues, so the stop hooks are not called.
        return Ok((state, next));
    }
    let (asking, now, turn) = (run.clone(), state.clone(), Arc::clone(turn));
    // `may_prove` is computed before the checks run. If a limit is reached during the checks, the
    // run ends with the reason for that limit.
    let may_prove = known.can_send_request(&state) && !state.evidence.claim_rejected;
    let ask = async move { run_checks(&asking, &now, &turn, may_prove).await };
    let objection: RecordedReview = run.perform_hooks(EffectKind::StopReview, ask).await?;
    let (rejects, keeps) = (objection.rejects_claim, objection.keeps_rejection);
    let (state, review) = match objection.into_stop_review() {
        None => check_target(run, state),
        Some(review) => (state, review),
    };
    let why = match &review {
        StopReview::HookDecision(
            decision @ (StopDecision::EndRun(_)
            | StopDecision::Blocked(_)
            | StopDecision::Unproven(_)),
        ) => decision.message().map(str::to_owned),
        StopReview::ValidationFailed(what) => Some(what.clone()),
        StopReview::HookDecision(_) | StopReview::Nudge(_) | StopReview::Accept => None,
    };
    let (state, known) = gather_facts(run, state);
    let next = agent::at_stop(&state, review, &known);
    let continues =
        matches!(next, NextAction::SendMessage { transition: Transition::StopHookBlocking, .. });
    let state = state.update(|it| {
        it.evidence.claim_rejected &= keeps;
        it.evidence.claim_rejected |= rejects && continues;
        // A message does not outlive the turn after which the run continues.
        it.end.message = match next {
            NextAction::Finish(_) | NextAction::WrapUp(_) => why.or(it.end.message.take()),
            NextAction::Continue(_) | NextAction::SendMessage { .. } | NextAction::Compact => None,
        };
    });
    Ok((state, next))
}

/// Runs the validations and the stop hooks.
async fn run_checks(
    run: &RunShared,
    state: &State,
    turn: &Turn,
    may_prove: bool,
) -> Result<RecordedReview, Error> {
    // A model that gives up has no answer to validate.
    let is_blocked = blocked_by_action(state) != StopDecision::Allow
        || run.hooks().give_up_reason(state, turn)?.is_some();
    if !is_blocked {
        let answer = shown_answer(state, turn);
        if let Some(objection) = run.settings.validators.first_failure(&answer)? {
            return Ok(RecordedReview::new(ReviewKind::ValidationFailed, objection));
        }
    }
    let decision = match run.hooks().before_stop(state, turn).await? {
        StopDecision::Allow => blocked_by_action(state),
        decision => decision,
    };
    Ok(RecordedReview::from_decision(decision, may_prove))
}

/// Returns the turn with the text that the outcome will have: if the turn has no text, that is the
/// summary of the stop action.
fn shown_answer<'a>(state: &State, turn: &'a Turn) -> Cow<'a, Turn> {
    match state.stop_action.as_deref() {
        Some(action) if turn.answer().trim().is_empty() && !action.summary.is_empty() => {
            Cow::Owned(turn.with_answer(&action.summary))
        }
        Some(_) | None => Cow::Borrowed(turn),
    }
}

/// Returns the decision that a model's stop action requires, unless a hook decides otherwise.
fn blocked_by_action(state: &State) -> StopDecision {
    match state.stop_action.as_deref().and_then(StopAction::missing_if_blocked) {
        Some(missing) => StopDecision::Blocked(missing.to_owned()),
        None => StopDecision::Allow,
    }
}

/// Checks whether the token target has been reached.
fn check_target(run: &RunShared, state: State) -> (State, StopReview) {
    let Some(target) = run.settings.limits.budget.target() else {
        return (state, StopReview::Accept);
    };
    let used = run.budget_usage(&state).usage.output_tokens;
    let decided = target.decide(state.target_progress, used);
    let given_up = BudgetExceeded {
        kind: BudgetKind::Target,
        used,
        limit: target.tokens,
        diminishing_returns: true,
    };
    // A target that was abandoned earlier may have been reached since then.
    let before = state.end.exceeded_budget.filter(|it| it.kind != BudgetKind::Target);
    let (tracker, exceeded, review) = match decided {
        TargetDecision::Continue { text, progress: tracker } => {
            (tracker, before, StopReview::Nudge(text))
        }
        TargetDecision::Stop { diminishing_returns: true } => {
            (state.target_progress, Some(given_up), StopReview::Accept)
        }
        TargetDecision::Stop { diminishing_returns: false } => {
            (state.target_progress, before, StopReview::Accept)
        }
    };
    let nudged =
        state.update(|it| (it.target_progress, it.end.exceeded_budget) = (tracker, exceeded));
    (nudged, review)
}

/// Returns what has not been proven, if the agent requires evidence.
pub(in crate::agent) fn unproven_reason(run: &RunShared, state: &State) -> Option<String> {
    let verdict = run.hooks().judge_evidence(state).ok()??;
    let reason = match (run.hooks().evidence_policy(), verdict) {
        (Some(policy), verdict) => policy.objection_to(verdict, &state.evidence.log),
        (None, EvidenceVerdict::Unproven(reason)) => Some(reason),
        (None, EvidenceVerdict::Proven(_) | EvidenceVerdict::NothingChanged) => None,
    };
    reason.map(|reason| reason.to_string())
}

/// Returns the check that proves the model's claim in a completed run, if any.
pub(in crate::agent) fn completion_evidence(
    run: &RunShared,
    state: &State,
) -> Option<Box<Evidence>> {
    let standing = || RequireEvidence::default().verdict(&state.evidence.log);
    match run.hooks().judge_evidence(state).ok()?.unwrap_or_else(standing) {
        EvidenceVerdict::Proven(evidence) => Some(Box::new(evidence)),
        EvidenceVerdict::NothingChanged | EvidenceVerdict::Unproven(_) => None,
    }
}
