//! Gathers the facts that a decision needs in addition to the state.

use serde::{Deserialize, Serialize};

use crate::agent::evidence::RequireEvidence;
use crate::agent::run::control::DeliveryPoint;
use crate::agent::run::run_shared::RunShared;
use crate::agent::{Facts, State};
use crate::context;
use crate::event::{BudgetExceeded, InterruptedPhase};
use crate::request::Output;
use crate::world::EffectKind;

/// Facts that come from outside the loop, such as which commands the run's owner and handles have
/// given and which limits have been reached.
#[expect(clippy::struct_excessive_bools, reason = "each is a separate field in a recording")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct ExternalFacts {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    has_steering: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    has_follow_up: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stop_requested: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_interrupted: Option<InterruptedPhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded_budget: Option<BudgetExceeded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_limit_exceeded: Option<BudgetExceeded>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    budget_exhausted: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    has_incomplete_turn: bool,
}

/// Gathers the facts for a decision, and stores the exceeded budget, if any, in the state.
/// Returns the number of consecutive fixes that have failed, by the agent's evidence policy or, if
/// it has none, by the default policy. If the number has no limit, returns 0.
pub(in crate::agent) fn failed_fixes(run: &RunShared, state: &State) -> u32 {
    let log = &state.evidence.log;
    match (run.settings.limits.limits.end_after_failed_fixes, run.hooks().evidence_policy()) {
        (0, _) => 0,
        (_, Some(policy)) => log.failed_fixes(policy),
        (_, None) => log.failed_fixes(&RequireEvidence::default()),
    }
}

pub(in crate::agent) fn gather_facts(run: &RunShared, state: State) -> (State, Facts) {
    let budget = &run.settings.limits.budget;
    let spent = run.budget_usage(&state);
    let outside = run.effects.draw(EffectKind::Facts, || {
        let spent = run.with_waiting_reports(&state, spent);
        ExternalFacts {
            has_steering: run.control().inbox.has_input(DeliveryPoint::BeforeNextRequest),
            has_follow_up: run.control().inbox.has_input(DeliveryPoint::AfterModelStops),
            stop_requested: run.control().signals.stop_requested.get(),
            turn_interrupted: (run.control().signals.turn_interrupted.get())
                .then(|| run.handle.journal.phase()),
            exceeded_budget: run.exceeded_limit(&state, &spent),
            call_limit_exceeded: budget
                .call_limit_exceeded()
                .filter(|_| state.counts.calls_over_limit > 0),
            budget_exhausted: budget.is_exhausted(&spent),
            has_incomplete_turn: run.control().work.has_incomplete_turn.get(),
        }
    });
    let mut limits = run.settings.limits.limits;
    if run.settings.prompt.options.output != Output::Text || !run.settings.validators.is_empty() {
        // A typed or validated answer must fit in a single turn, so it cannot be continued in
        // another turn.
        limits.max_continuations = 0;
    }
    let has_compactor = run.settings.has_compactor();
    let facts = Facts {
        limits,
        has_steering: outside.has_steering,
        has_follow_up: outside.has_follow_up,
        stop_requested: outside.stop_requested,
        turn_interrupted: outside.turn_interrupted,
        exceeded_budget: outside.exceeded_budget,
        call_limit_exceeded: outside.call_limit_exceeded,
        can_compact: has_compactor && !context::was_reactively_compacted(&state.history),
        fallback_count: run.settings.providers.fallbacks.len(),
        has_incomplete_turn: outside.has_incomplete_turn,
        budget_exhausted: outside.budget_exhausted,
        has_wrap_up: budget.has_wrap_up() && !outside.budget_exhausted,
        failed_fixes: failed_fixes(run, &state),
        tools: state.model_selection.offered_tools.clone().unwrap_or_else(|| run.toolkit().specs()),
    };
    let reached = facts.exceeded_budget.or(facts.call_limit_exceeded);
    let reached = reached.filter(|_| state.end.wrap_up_reason.is_none());
    match reached {
        Some(reached) => (state.update(|it| it.end.exceeded_budget = Some(reached)), facts),
        None => (state, facts),
    }
}
