//! What is known besides the state.

use serde::{Deserialize, Serialize};

use crate::agent::control::When;
use crate::agent::shared::Shared;
use crate::agent::{Facts, State};
use crate::context;
use crate::event::Exceeded;
use crate::request::Output;
use crate::world::Kind;

/// What holders of a run want, and which limits are reached.
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own in a recording")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Outside {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    steered: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    follow_up: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopping: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded: Option<Exceeded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    too_many_calls: Option<Exceeded>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nothing_left: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    broke_off: bool,
}

/// What is known besides the state, which keeps the budget that is spent.
pub(super) fn facts(run: &Shared, state: State) -> (State, Facts) {
    let budget = &run.settings.bounds.budget;
    let spent = run.spent(&state);
    let outside = run.effects.draw(Kind::Facts, || Outside {
        steered: run.control().is_waiting(When::NextRequest),
        follow_up: run.control().is_waiting(When::ModelStops),
        stopping: run.control().is_stopping(),
        exceeded: run.exceeded(&state, &spent),
        too_many_calls: budget.too_many_calls().filter(|_| state.counts.limited_calls > 0),
        nothing_left: budget.has_nothing_left(&spent),
        broke_off: run.control().broke_off(),
    });
    let mut limits = run.settings.bounds.limits;
    if run.settings.prompt.options.output != Output::Text || !run.settings.checks.is_empty() {
        // What is checked is one turn: half an answer and its other half are none.
        limits.continuations = 0;
    }
    let has_compactor = run.settings.memory.compactor.is_some();
    let facts = Facts {
        limits,
        steered: outside.steered,
        follow_up: outside.follow_up,
        stopping: outside.stopping,
        exceeded: outside.exceeded,
        too_many_calls: outside.too_many_calls,
        can_compact: has_compactor && !context::was_reactively_compacted(&state.history),
        fallbacks: run.settings.models.fallbacks.len(),
        broke_off: outside.broke_off,
        nothing_left: outside.nothing_left,
        wrap_up: budget.wants_wrap_up() && !outside.nothing_left,
    };
    let reached = facts.exceeded.or(facts.too_many_calls);
    let reached = reached.filter(|_| state.ending.wrapping_up.is_none());
    match reached {
        Some(reached) => (state.with(|it| it.ending.exceeded = Some(reached)), facts),
        None => (state, facts),
    }
}
