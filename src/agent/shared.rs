//! What the parts of a run share.

use std::sync::Arc;

use crate::agent::budget::Spent;
use crate::agent::control::{Charged, Control};
use crate::agent::decide::answers_tools;
use crate::agent::hook::Hooks;
use crate::agent::settings::Settings;
use crate::agent::{RunHandle, State};
use crate::error::Error;
use crate::event::Exceeded;
use crate::item::History;
use crate::provider::Provider;
use crate::turn::Turn;
use crate::world::{Effects, Kind};

/// What the parts of a run share: the settings of its agent, its handle, and its world. Cheap to clone.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) settings: Arc<Settings>,
    /// The run's own handle, which does not count as one outside the run.
    pub(super) handle: Arc<RunHandle>,
    pub(super) effects: Effects,
}

impl Shared {
    pub(super) fn control(&self) -> &Control {
        &self.handle.control
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.settings.hooks
    }

    /// Draws an id.
    pub(super) fn id(&self) -> String {
        self.effects.draw(Kind::Id, || self.settings.ids.draw())
    }

    /// All that the events of the run tell so far.
    pub(super) fn history(&self) -> History {
        self.handle.history()
    }

    /// The provider that the state is at.
    pub(super) fn provider(&self, state: &State) -> &dyn Provider {
        let models = &self.settings.models;
        let at = state.asked.provider.checked_sub(1);
        let fallback = at.and_then(|at| models.fallbacks.get(at));
        &**fallback.unwrap_or(&models.provider)
    }

    /// The limit that is reached. Time that is kept for a last turn counts as used up where one can
    /// follow.
    pub(super) fn exceeded(&self, state: &State, spent: &Spent) -> Option<Exceeded> {
        let budget = &self.settings.bounds.budget;
        match self.can_wrap_up(state) {
            true => budget.exceeded(spent),
            false => budget.exceeded_without_last_turn(spent),
        }
    }

    /// What the run has used. What came on top since the last time is drawn from the pool.
    pub(super) fn spent(&self, state: &State) -> Spent {
        let charged = self.charge();
        Spent {
            usage: charged.usage,
            cost: charged.cost,
            elapsed: self.control().started().elapsed(),
            tool_calls: state.counts.tool_calls,
        }
    }

    fn charge(&self) -> Charged {
        self.control().charge(self.handle.usage(), |more| self.settings.bounds.budget.drain(more))
    }

    /// The request is answered, or has failed: what it used is counted, and the rest of what was
    /// reserved for it is given back.
    pub(super) fn request_is_over(&self) {
        self.control().request_is_closed();
        self.charge();
        self.control().admission().settle();
    }

    /// Counts what a turn used that is complete, at the price of the model that answered.
    pub(super) fn turn_is_complete(&self, turn: &Turn) {
        // Another model than the one that was asked may have answered, at a price of its own.
        if let Some(answered) = turn.model()
            && let Ok(Some(price)) = self.settings.bounds.budget.price_of(answered)
        {
            self.control().set_price(Some(price));
        }
        self.request_is_over();
    }

    /// Whether the time for requests of this kind is over, which the next poll acts on.
    pub(super) fn is_too_late(&self, state: &State) -> bool {
        let (budget, elapsed) = (&self.settings.bounds.budget, self.control().started().elapsed());
        let is_cut = || budget.time_before_wrap_up().is_some_and(|before| elapsed >= before);
        let may_be_cut = !self.control().has_all_of_the_time() && self.can_wrap_up(state);
        budget.is_time_up(elapsed) || may_be_cut && is_cut()
    }

    /// Whether a last turn can follow what runs now.
    pub(super) fn can_wrap_up(&self, state: &State) -> bool {
        let requests = self.handle.journal.requests().max(state.counts.model_calls);
        let was_asked = requests > 0 || state.approvals.resuming.is_some() || answers_tools(state);
        state.ending.wrapping_up.is_none()
            && !self.control().is_stopping()
            && was_asked
            && requests < self.settings.bounds.limits.max_turns
    }

    /// Counts what the last requests used, when the run is over. Gives what all of them cost, where
    /// money is limited.
    pub(super) fn over(&self, state: &State) -> Option<u64> {
        self.request_is_over();
        let spent = self.spent(state);
        self.settings.bounds.budget.limits_money().then_some(spent.cost)
    }

    /// Tells hooks of the error that ends the run, unless they were told that a request failed with it.
    pub(super) fn tell_ending(&self, state: &State, error: &Error) {
        if self.control().last_failure().as_ref() != Some(error) {
            self.hooks().failure(state, error);
        }
    }
}
