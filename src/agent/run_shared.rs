//! What the parts of a run share.

use std::borrow::Cow;
use std::sync::Arc;

use crate::agent::budget::BudgetUsage;
use crate::agent::control::{ChargedUsage, Control};
use crate::agent::decide::ends_with_tool_result;
use crate::agent::hook::Hooks;
use crate::agent::settings::AgentSettings;
use crate::agent::{RunHandle, State};
use crate::error::Error;
use crate::event::BudgetExceeded;
use crate::item::History;
use crate::provider::Provider;
use crate::tool::Toolkit;
use crate::turn::Turn;
use crate::world::{EffectKind, Effects};

/// What the parts of a run share: the settings of its agent, its handle, and its world. Cheap to clone.
#[derive(Clone)]
pub(super) struct RunShared {
    pub(super) settings: Arc<AgentSettings>,
    /// The run's own handle, which does not count as one outside the run.
    pub(super) handle: Arc<RunHandle>,
    pub(super) effects: Effects,
}

impl RunShared {
    pub(super) fn control(&self) -> &Control {
        &self.handle.control
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.settings.hooks
    }

    /// The tools of the agent, and those of its sources as they were listed last.
    pub(super) fn toolkit(&self) -> Cow<'_, Toolkit> {
        let tools = &self.settings.tools;
        let listed = match tools.sources.is_empty() {
            true => None,
            false => self.control().listed_tools().toolkit(),
        };
        listed.map_or(Cow::Borrowed(&tools.toolkit), Cow::Owned)
    }

    /// Draws an id.
    pub(super) fn new_id(&self) -> String {
        self.effects.draw(EffectKind::Id, || self.settings.ids.next_id())
    }

    /// All that the events of the run tell so far.
    pub(super) fn history(&self) -> History {
        self.handle.history()
    }

    /// The provider that the state is at.
    pub(super) fn provider(&self, state: &State) -> &dyn Provider {
        let models = &self.settings.providers;
        let at = state.model_selection.provider_index.checked_sub(1);
        let fallback = at.and_then(|at| models.fallbacks.get(at));
        &**fallback.unwrap_or(&models.provider)
    }

    /// The limit that is reached. Time that is kept for a last turn counts as used up where one can
    /// follow.
    pub(super) fn exceeded_limit(
        &self,
        state: &State,
        spent: &BudgetUsage,
    ) -> Option<BudgetExceeded> {
        let budget = &self.settings.limits.budget;
        match self.can_wrap_up(state) {
            true => budget.exceeded_limit(spent),
            false => budget.exceeded_limit_ignoring_reserve(spent),
        }
    }

    /// What the run has used. What came on top since the last time is drawn from the pool.
    pub(super) fn budget_usage(&self, state: &State) -> BudgetUsage {
        let charged = self.charge_usage();
        BudgetUsage {
            usage: charged.usage,
            cost: charged.cost,
            elapsed: self.control().started_at().elapsed(),
            tool_calls: state.counts.tool_calls,
        }
    }

    fn charge_usage(&self) -> ChargedUsage {
        self.control()
            .charge_usage(self.handle.usage(), |more| self.settings.limits.budget.charge(more))
    }

    /// The request is answered, or has failed: what it used is counted, and the rest of what was
    /// reserved for it is given back.
    pub(super) fn finish_request(&self) {
        self.control().end_request();
        self.charge_usage();
        self.control().pool_claim().release();
    }

    /// Counts what a turn used that is complete, at the price of the model that answered.
    pub(super) fn finish_turn(&self, turn: &Turn) {
        // Another model than the one that was asked may have answered, at a price of its own.
        if let Some(answered) = turn.model()
            && let Ok(Some(price)) = self.settings.limits.budget.price_of(answered)
        {
            self.control().set_price(Some(price));
        }
        self.finish_request();
    }

    /// Whether the time for requests of this kind is over, which the next poll acts on.
    pub(super) fn is_time_over(&self, state: &State) -> bool {
        let (budget, elapsed) =
            (&self.settings.limits.budget, self.control().started_at().elapsed());
        let is_cut = || budget.time_before_wrap_up().is_some_and(|before| elapsed >= before);
        let may_be_cut = !self.control().is_wrap_up_time_released() && self.can_wrap_up(state);
        budget.is_time_up(elapsed) || may_be_cut && is_cut()
    }

    /// Whether a last turn can follow what runs now.
    pub(super) fn can_wrap_up(&self, state: &State) -> bool {
        let requests = self.handle.journal.requests().max(state.counts.model_calls);
        let was_asked = requests > 0
            || state.approvals.resume_verdicts.is_some()
            || ends_with_tool_result(state);
        state.end.wrap_up_reason.is_none()
            && !self.control().is_stop_requested()
            && was_asked
            && requests < self.settings.limits.limits.max_turns
    }

    /// Counts what the last requests used, when the run is over. Gives what all of them cost, where
    /// money is limited.
    pub(super) fn charge_final_usage(&self, state: &State) -> Option<u64> {
        self.finish_request();
        let spent = self.budget_usage(state);
        self.settings.limits.budget.has_cost_limit().then_some(spent.cost)
    }

    /// Tells hooks of the error that ends the run, unless they were told that a request failed with it.
    pub(super) fn report_final_error(&self, state: &State, error: &Error) {
        if self.control().last_failure().as_ref() != Some(error) {
            self.hooks().on_failure(state, error);
        }
    }
}
