//! Defines the data shared by all parts of a run.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::budget::{BudgetUsage, Rate};
use crate::agent::decide::ends_with_tool_result;
use crate::agent::helper_reports::Reported;
use crate::agent::hook::Hooks;
use crate::agent::run::control::{ChargedUsage, Control};
use crate::agent::settings::AgentSettings;
use crate::agent::{RunHandle, State};
use crate::error::Error;
use crate::event::BudgetExceeded;
use crate::item::{History, StopReason};
use crate::propagation::{TraceContext, TraceContexts};
use crate::provider::Provider;
use crate::tool::Toolkit;
use crate::turn::Turn;
use crate::usage::{CostGap, CostGapKind, Usage};
use crate::world::{EffectKind, Effects};

/// The data shared by all parts of a run: the agent's settings, the run's handle, and the run's
/// world. This type is cheap to clone.
#[derive(Clone)]
pub(in crate::agent) struct RunShared {
    pub(in crate::agent) settings: Arc<AgentSettings>,
    /// The run's own handle, which is not counted as an external handle.
    pub(in crate::agent) handle: Arc<RunHandle>,
    pub(in crate::agent) effects: Effects,
}

impl RunShared {
    pub(in crate::agent) fn control(&self) -> &Control {
        &self.handle.control
    }

    pub(in crate::agent) fn hooks(&self) -> &Hooks {
        &self.settings.hooks
    }

    /// Returns the trace contexts in the run's data, if telemetry code has added them.
    pub(in crate::agent) fn trace_contexts(&self) -> Option<Arc<TraceContexts>> {
        self.control().tools.data().get()
    }

    /// Returns the trace context of the run, for a request that is not a turn.
    pub(in crate::agent) fn trace_context(&self) -> Option<TraceContext> {
        self.trace_contexts()?.current()
    }

    /// Performs an effect in which hooks decide. The effect's value also contains the usage that
    /// the hooks report.
    pub(in crate::agent) async fn perform_hooks<T, F>(
        &self,
        kind: EffectKind,
        effect: F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
        T: Default + Serialize + DeserializeOwned + Send + 'static,
    {
        let helpers = self.control().helpers.clone();
        let effect = async move {
            let value = effect.await?;
            Ok(Reported { value, reports: helpers.take_fresh() })
        };
        let Reported { value, reports } = self.effects.perform(kind, effect).await?;
        self.control().helpers.extend(reports);
        Ok(value)
    }

    /// Returns the agent's own tools and the tools from its sources, as of the last listing.
    pub(in crate::agent) fn toolkit(&self) -> Cow<'_, Toolkit> {
        let tools = &self.settings.tools;
        let listed = match tools.sources.is_empty() {
            true => None,
            false => self.control().tools.listed.toolkit(),
        };
        listed.map_or(Cow::Borrowed(&tools.toolkit), Cow::Owned)
    }

    /// Returns the name of the source of the tool with this name, or an empty string if the tool is
    /// one of the agent's own tools.
    pub(in crate::agent) fn tool_source(&self, tool: &str) -> String {
        let tools = &self.settings.tools;
        let listed = match tools.toolkit.get(tool) {
            Some(_) => None,
            None => self.control().tools.listed.current(),
        };
        let at = listed.and_then(|listed| {
            listed.sources.iter().position(|it| it.tools.iter().any(|it| it.name() == tool))
        });
        at.and_then(|at| tools.sources.names().get(at))
            .map_or_else(String::new, ToString::to_string)
    }

    /// Creates an id with the agent's id generator.
    pub(in crate::agent) fn new_id(&self) -> String {
        self.effects.draw(EffectKind::Id, || self.settings.ids.next_id())
    }

    /// Returns the history, including all events that the run has yielded so far.
    pub(in crate::agent) fn history(&self) -> History {
        self.handle.history()
    }

    /// Returns the provider selected in the state.
    pub(in crate::agent) fn provider(&self, state: &State) -> &dyn Provider {
        let models = &self.settings.providers;
        let at = state.model_selection.provider_index.checked_sub(1);
        let fallback = at.and_then(|at| models.fallbacks.get(at));
        &**fallback.unwrap_or(&models.provider)
    }

    /// Returns the limit that has been reached, if any. If a wrap-up turn can follow, the time that
    /// is reserved for the wrap-up turn counts as used.
    pub(in crate::agent) fn exceeded_limit(
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

    /// Returns the run's usage, and charges the usage since the last call to this method to the
    /// pool.
    pub(in crate::agent) fn budget_usage(&self, state: &State) -> BudgetUsage {
        let charged = self.charge_usage();
        BudgetUsage {
            usage: charged.usage,
            cost: charged.cost,
            elapsed: self.control().usage.started_at().elapsed(),
            tool_calls: state.counts.tool_calls,
        }
    }

    fn charge_usage(&self) -> ChargedUsage {
        let budget = &self.settings.limits.budget;
        self.control().usage.charge(self.handle.usage(), |more, cost| budget.charge(more, cost))
    }

    /// Returns the time of a request that is sent now, if its price may depend on the time. A run
    /// that is replayed or continued elsewhere uses the recorded time, so that it arrives at the
    /// same cost.
    pub(in crate::agent) fn request_time(&self) -> SystemTime {
        if !self.settings.limits.budget.depends_on_time() {
            return SystemTime::UNIX_EPOCH;
        }
        let now_ms = || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
        };
        let ms = self.effects.draw(EffectKind::RequestTime, now_ms);
        let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Charges the usage of a request that was answered or has failed, and returns the unused part
    /// of its reservation to the pool.
    pub(in crate::agent) fn finish_request(&self) {
        self.control().work.request_in_flight.set(false);
        self.charge_usage();
        self.control().usage.pool_claim.release();
    }

    /// Charges a complete turn's usage at the price of the model and the service tier that
    /// answered.
    pub(in crate::agent) fn finish_turn(&self, turn: &Turn) {
        let (budget, account) = (&self.settings.limits.budget, &self.control().usage);
        if !budget.has_prices() {
            return self.finish_request();
        }
        // The model that answered may differ from the requested model, and may have a different
        // price.
        let answered = |requested: &Rate| {
            let model = turn.model().filter(|model| Some(*model) != requested.model())?;
            Some(budget.rate(&Arc::from(model), requested.sent_at()))
        };
        account.set_final_price(|rate| answered(rate).filter(Rate::is_known), turn.billing());
        account.add_gap(|rate| {
            let answered = turn.model().filter(|model| Some(*model) != rate.model())?;
            let gap = CostGap::new(CostGapKind::PricedAsRequested, answered);
            rate.is_known().then_some(gap)
        });
        if *turn.stop_reason() == StopReason::Interrupted && turn.usage() != Usage::default() {
            self.add_cut_off_gap();
        }
        self.finish_request();
        account.close_request();
    }

    /// Charges the usage of an attempt that was retracted. The next attempt is a request of its
    /// own.
    pub(in crate::agent) fn finish_retracted_attempt(&self) {
        if self.settings.limits.budget.has_prices() {
            self.charge_usage();
            self.add_cut_off_gap();
            self.control().usage.close_request();
        }
    }

    /// Charges the tokens of a request that was sent for another purpose than a turn, such as a
    /// summary or the request of a hook, as one request. Its price is that of its model or, if that
    /// price is unknown, that of the agent's model. If both prices are unknown, the price of the
    /// last request is used if there is a cost limit, and the cost becomes unknown otherwise. The
    /// tokens themselves are charged once the run has yielded the event that reports them.
    pub(in crate::agent) fn charge_helper(&self, state: &State, usage: Usage, model: Option<&str>) {
        let budget = &self.settings.limits.budget;
        if usage == Usage::default() || !budget.has_prices() {
            return;
        }
        // The usage so far belongs to the previous request.
        self.budget_usage(state);
        let sent_at = self.request_time();
        let model: Option<Arc<str>> = model.map(Arc::from);
        let account = &self.control().usage;
        let requested = budget.rate(&Arc::from(self.provider(state).model()), sent_at);
        let used = model.as_ref().map(|model| budget.rate(model, sent_at));
        if let Some(used) = &used
            && used.is_known()
        {
            return account.begin_request(used.clone());
        }
        match requested.is_known() {
            true => account.begin_request(requested),
            false if budget.requires_prices() => account.close_request(),
            false => account.begin_request(used.unwrap_or(requested)),
        }
        let gap = |model: &Arc<str>| CostGap::new(CostGapKind::PricedAsRequested, &**model);
        account.add_gap(|rate| model.as_ref().filter(|_| rate.is_known()).map(gap));
    }

    /// Returns the run's usage after the usage that hooks have reported and the run has not yielded
    /// yet.
    pub(in crate::agent) fn with_waiting_reports(
        &self,
        state: &State,
        mut spent: BudgetUsage,
    ) -> BudgetUsage {
        let budget = &self.settings.limits.budget;
        for report in self.control().helpers.all() {
            spent.usage += report.usage;
            let rate = |model: &str| budget.rate(&Arc::from(model), SystemTime::now());
            let used = report.model.as_deref().map(rate).filter(Rate::is_known);
            let rate = used.unwrap_or_else(|| rate(self.provider(state).model()));
            spent.cost = spent.cost.saturating_add(rate.cost(report.usage, None).micros);
        }
        spent
    }

    fn add_cut_off_gap(&self) {
        self.control().usage.add_gap(|rate| {
            let model = rate.model().filter(|_| rate.is_known())?;
            Some(CostGap::new(CostGapKind::CutOffTurn, model))
        });
    }

    /// Returns whether the run's time limit has expired or, if a wrap-up turn can follow, whether
    /// only the time reserved for the wrap-up turn is left. In either case, the next poll of the
    /// run ends the work in progress.
    pub(in crate::agent) fn is_time_over(&self, state: &State) -> bool {
        let (budget, elapsed) =
            (&self.settings.limits.budget, self.control().usage.started_at().elapsed());
        let is_cut = || budget.time_before_wrap_up().is_some_and(|before| elapsed >= before);
        let may_be_cut =
            !self.control().work.wrap_up_time_released.get() && self.can_wrap_up(state);
        budget.is_time_up(elapsed) || may_be_cut && is_cut()
    }

    /// Returns whether a wrap-up turn can follow the work in progress.
    pub(in crate::agent) fn can_wrap_up(&self, state: &State) -> bool {
        let requests = self.handle.journal.requests().max(state.counts.model_calls);
        let was_asked = requests > 0
            || state.approvals.resume_verdicts.is_some()
            || ends_with_tool_result(state);
        state.end.wrap_up_reason.is_none()
            && !self.control().signals.stop_requested.get()
            && was_asked
            && requests < self.settings.limits.limits.max_turns_or_default()
    }

    /// Charges the usage of the last requests once the run is over. Returns the total cost, if the
    /// price of each token is known, and what the cost does not include.
    pub(in crate::agent) fn charge_final_usage(&self) -> (Option<u64>, Vec<CostGap>) {
        self.finish_request();
        let charged = self.charge_usage();
        if !self.settings.limits.budget.has_prices() {
            return (None, Vec::new());
        }
        if self.handle.journal.has_cut_off_turn() {
            self.add_cut_off_gap();
        }
        let gaps = self.control().usage.gaps();
        let is_known = gaps.iter().all(|gap| gap.kind != CostGapKind::UnknownModel);
        (is_known.then_some(charged.cost), gaps)
    }

    /// Reports the error that ends the run to hooks, unless it has already been reported as a
    /// request error.
    pub(in crate::agent) fn report_final_error(&self, state: &State, error: &Error) {
        if self.control().last_failure().as_ref() != Some(error) {
            self.hooks().on_failure(state, error);
        }
    }
}
