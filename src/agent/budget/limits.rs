//! Limits on the tokens, cost, time and tool calls of a run.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::agent::budget::{Pool, PoolAmount, Rate, Target};
use crate::error::{Error, ErrorKind};
use crate::event::{BudgetExceeded, BudgetKind};
use crate::trace::RemainingBudget;
use crate::usage::{KnownPrice, Prices, Usage, units_to_micros};

/// Limits a run's tokens, cost, time and tool calls. Cheap to clone. By default, a budget has no
/// limits.
///
/// All limits apply to a single run. Usage by sub-agents does not count toward the limits, since
/// sub-agents have their own budgets. Only a [`Pool`] limits the combined usage of an agent and all
/// of its sub-agents.
///
/// The [time limit](Self::with_time_limit) is enforced by a timer. All other limits are enforced
/// between turns and before tools are started, never within a turn. A response that exceeds a limit
/// is kept, since it has been paid for. The tool calls in such a response are not executed, but
/// each call gets a result, and the run ends. Except for the limit on [tool
/// calls](Self::with_tool_calls), a limit of 0 ends the run before its first request. With a limit
/// of 0 tool calls, the first request is still sent, since a model may answer without calling a
/// tool.
///
/// ```
/// use std::time::Duration;
/// use turnstream::agent::Budget;
/// use turnstream::usage::{Price, Prices};
///
/// // Prices are not built in.
/// let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
/// let budget = Budget::new()
///     .with_output_tokens(50_000)
///     .with_cost_limit(0.25, Prices::new().with_price("claude-sonnet-4", price))
///     .with_time_limit(Duration::from_secs(600));
/// # drop(budget);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Budget {
    max_output_tokens: Option<u64>,
    max_total_tokens: Option<u64>,
    /// The tokens that earlier runs have used.
    earlier_usage: Usage,
    pool: Option<Pool>,
    /// The maximum cost, in millionths of the prices' currency unit.
    max_cost_millionths: Option<u64>,
    prices: Option<Prices>,
    time_limit: Option<Duration>,
    max_tool_calls: Option<u32>,
    target: Option<Target>,
    has_wrap_up: bool,
    wrap_up_tokens: u64,
    wrap_up_time: Duration,
    /// If true, no timer is created, and nothing is charged to the pool.
    is_offline: bool,
}

/// A run's usage so far: tokens, cost, time and tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BudgetUsage {
    /// All tokens used by the run, including those used for discarded attempts.
    pub usage: Usage,
    /// The cost of the tokens used, in millionths of the prices' currency unit. Tokens whose price
    /// is unknown cost nothing here.
    pub cost: u64,
    /// The time elapsed since the run was first polled.
    pub elapsed: Duration,
    /// The number of tool calls that the run has started.
    pub tool_calls: u32,
}

impl Budget {
    /// Creates a budget without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of output tokens for a run, including reasoning tokens.
    pub fn with_output_tokens(mut self, limit: u64) -> Self {
        self.max_output_tokens = Some(limit);
        self
    }

    /// Sets the maximum total number of input and output tokens for a run, including cached tokens.
    pub fn with_total_tokens(mut self, limit: u64) -> Self {
        self.max_total_tokens = Some(limit);
        self
    }

    /// Counts tokens that were used before the run towards the limits on tokens, so that the limits
    /// hold for several runs, such as all runs of a session.
    /// [`Session::usage`](crate::session::Session::usage) returns the usage that a session has
    /// stored. The cost of these tokens does not count towards the cost limit.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::agent::Budget;
    /// use turnstream::event::EndReason;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::session::{MemoryStore, Session};
    /// use turnstream::usage::Usage;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let usage = Usage { input_tokens: 900, output_tokens: 100, ..Usage::default() };
    /// let agent = Agent::new(Scripted::new([Reply::text("Hello!").usage(usage)]));
    /// let session = Session::open(MemoryStore::new(), "s1").await?;
    /// session.run(&agent, "Hi").await?.outcome().await?;
    ///
    /// let used = session.usage().await?;
    /// let budget = Budget::new().with_total_tokens(1_000).with_earlier_usage(used);
    /// let outcome = session.run(&agent.with_budget(budget), "Again").await?.outcome().await?;
    /// assert_eq!(outcome.reason, EndReason::Budget);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_earlier_usage(mut self, usage: Usage) -> Self {
        self.earlier_usage = usage;
        self
    }

    /// Sets the pool to which all of a run's tokens are charged, and their cost, if the pool limits
    /// the cost. Several runs may share a pool.
    /// Before each request, a run waits until the pool lets it proceed; see [`Pool`].
    pub fn with_pool(mut self, pool: Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Sets the prices from which [`Outcome::cost`](crate::Outcome::cost) is calculated, without
    /// limiting the cost. The prices replace the budget's earlier prices.
    ///
    /// Each request is charged separately, at the price of the model that answered or, if `prices`
    /// has no price for that model, at the price of the requested model. If both prices are missing
    /// and there is no cost limit, the run continues, and the outcome reports no cost.
    /// [`Outcome::cost_gaps`](crate::Outcome::cost_gaps) names every model without a price, and
    /// everything else that the cost does not include.
    pub fn with_prices(mut self, prices: Prices) -> Self {
        self.prices = Some(prices);
        self
    }

    /// Sets the maximum cost of a run's tokens, in the currency unit of `prices`, and the
    /// [prices](Self::with_prices). A negative or NaN limit counts as 0.
    ///
    /// If the price of a requested model is missing, negative or NaN, the run ends with an error.
    pub fn with_cost_limit(mut self, limit: f64, prices: Prices) -> Self {
        self.max_cost_millionths = Some(units_to_micros(limit));
        self.with_prices(prices)
    }

    /// Sets the time limit for a run. The limit applies to the wall-clock time since the run was
    /// first polled, including any time that the run spends waiting for approvals or not being
    /// polled.
    ///
    /// When the limit is reached, the turn in progress is dropped. The dropped turn's tokens still
    /// count toward the limits, and its text is kept and marked as interrupted. Running tools are
    /// dropped, and their calls get a [`Timeout`](crate::item::ResultKind::Timeout) result. Calls
    /// that have not started get a [`Budget`](crate::item::ResultKind::Budget) result. The run ends
    /// with the reason `budget`, and no further request is sent. A [wrap-up
    /// turn](Self::with_wrap_up) follows only if [time is reserved](Self::with_wrap_up_time) for
    /// it. The time limit covers all attempts at a request combined, whereas
    /// [`Timeouts`](crate::http::Timeouts) limit each attempt separately.
    ///
    /// The time limit uses tokio's timer. In a tokio runtime without a time driver, or outside of a
    /// tokio runtime, any run that has to wait ends with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error.
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets the maximum number of tool calls that a run may start. If a turn contains more calls
    /// than the limit still allows, only the first calls, up to the limit, are run. The remaining
    /// calls get a [`Budget`](crate::item::ResultKind::Budget) result, and the run ends. A call
    /// that is denied, or that cannot run for another reason, does not count toward the limit.
    /// While a call waits for the decision on whether it may run, later calls that might exceed the
    /// limit also wait. Calls to [external](crate::Tool::external) tools do not count toward the
    /// limit, since they are not started in this process.
    pub fn with_tool_calls(mut self, limit: u32) -> Self {
        self.max_tool_calls = Some(limit);
        self
    }

    /// Sets a target: the number of output tokens that the model should use before the run ends.
    pub fn with_target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Enables a wrap-up turn, which is a final turn without tools. The wrap-up turn follows if a
    /// limit or the maximum number of requests is reached before the model has stopped on its own,
    /// so that the run ends with text. If the [pool](Self::with_pool) is exhausted or the [time
    /// limit](Self::with_time_limit) is reached, the run ends without a wrap-up turn, unless
    /// [tokens](Self::with_wrap_up_tokens) or [time](Self::with_wrap_up_time) are reserved for it.
    pub fn with_wrap_up(mut self) -> Self {
        self.has_wrap_up = true;
        self
    }

    /// Enables a [wrap-up turn](Self::with_wrap_up) and reserves tokens for it. The limits on
    /// output tokens and total tokens, as well as the pool's limit, count as reached when only
    /// `tokens` tokens are left. If `tokens` is at least as large as a limit, that limit counts as
    /// reached before the first request.
    pub fn with_wrap_up_tokens(mut self, tokens: u64) -> Self {
        self.wrap_up_tokens = tokens;
        self.with_wrap_up()
    }

    /// Enables a [wrap-up turn](Self::with_wrap_up) and reserves time for it. When only `time`
    /// remains before the [time limit](Self::with_time_limit), all running work is dropped and the
    /// wrap-up turn starts. If the time limit is reached before the wrap-up turn is complete, that
    /// turn is dropped as well. If `time` is at least as long as the time limit, no time is
    /// reserved.
    pub fn with_wrap_up_time(mut self, time: Duration) -> Self {
        self.wrap_up_time = time;
        self.with_wrap_up()
    }

    /// Returns the first limit that has been reached, checking the limits in the order of
    /// [`BudgetKind`]: output tokens, total tokens, pool, cost, time. The limit on tool calls is
    /// not checked, since the model may still answer after the last call; see
    /// [`remaining_calls`](Self::remaining_calls).
    ///
    /// The `limit` field of the returned [`BudgetExceeded`] is the configured limit, even if tokens
    /// or time reserved for a wrap-up turn cause the limit to be reached earlier.
    pub(crate) fn exceeded_limit(&self, spent: &BudgetUsage) -> Option<BudgetExceeded> {
        self.exceeded_limit_with_time(spent, self.time_before_wrap_up().or(self.time_limit))
    }

    /// Returns the first limit that has been reached, ignoring any time reserved for a wrap-up
    /// turn. For use with runs that cannot have a wrap-up turn.
    pub(in crate::agent) fn exceeded_limit_ignoring_reserve(
        &self,
        spent: &BudgetUsage,
    ) -> Option<BudgetExceeded> {
        self.exceeded_limit_with_time(spent, self.time_limit)
    }

    fn exceeded_limit_with_time(
        &self,
        spent: &BudgetUsage,
        time: Option<Duration>,
    ) -> Option<BudgetExceeded> {
        let tokens = |kind, used, limit: Option<u64>| {
            let limit = limit?;
            (used >= limit.saturating_sub(self.wrap_up_tokens))
                .then(|| budget_exceeded(kind, used, limit))
        };
        let plain = |kind, used, limit: Option<u64>| {
            limit.filter(|limit| used >= *limit).map(|limit| budget_exceeded(kind, used, limit))
        };
        let used = spent.usage + self.earlier_usage;
        tokens(BudgetKind::OutputTokens, used.output_tokens, self.max_output_tokens)
            .or_else(|| tokens(BudgetKind::TotalTokens, used.total(), self.max_total_tokens))
            .or_else(|| self.pool.as_ref()?.exceeded_limit(self.wrap_up_tokens))
            .or_else(|| plain(BudgetKind::Money, spent.cost, self.max_cost_millionths))
            .or_else(|| {
                self.time_limit_exceeded(spent.elapsed)
                    .filter(|_| time.is_some_and(|it| spent.elapsed >= it))
            })
    }

    /// Returns how much remains of each of the run's own limits. The pool is not included, since
    /// other runs share it. The number of requests is not included either, since
    /// [`Limits::max_turns`](crate::agent::Limits::max_turns) limits it.
    pub(crate) fn remaining(&self, spent: &BudgetUsage) -> RemainingBudget {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let tool_calls = left(self.max_tool_calls.map(u64::from), u64::from(spent.tool_calls));
        let used = spent.usage + self.earlier_usage;
        RemainingBudget {
            steps_remaining: None,
            tokens_remaining: left(self.max_total_tokens, used.total()),
            output_tokens_remaining: left(self.max_output_tokens, used.output_tokens),
            tool_calls_remaining: tool_calls,
            cost_remaining: left(self.max_cost_millionths, spent.cost),
            time_remaining_ms: left(
                self.time_limit.map(duration_millis),
                duration_millis(spent.elapsed),
            ),
        }
    }

    /// Returns the budget's own prices, if any.
    pub(crate) fn prices(&self) -> Option<&Prices> {
        self.prices.as_ref()
    }

    /// Returns the number of tool calls that the run may still start, or `None` if there is no
    /// limit on tool calls.
    pub(crate) fn remaining_calls(&self, spent: &BudgetUsage) -> Option<u32> {
        Some(self.max_tool_calls?.saturating_sub(spent.tool_calls))
    }

    /// Returns a [`BudgetExceeded`] for the limit on tool calls, for use when that limit prevents a
    /// call from starting.
    pub(in crate::agent) fn call_limit_exceeded(&self) -> Option<BudgetExceeded> {
        let limit = u64::from(self.max_tool_calls?);
        Some(budget_exceeded(BudgetKind::ToolCalls, limit, limit))
    }

    /// Returns the number of tokens that are reserved for a wrap-up turn.
    pub(in crate::agent) fn wrap_up_tokens(&self) -> u64 {
        self.wrap_up_tokens
    }

    /// Returns whether no further request may be sent, not even for a wrap-up turn.
    pub(in crate::agent) fn is_exhausted(&self, spent: &BudgetUsage) -> bool {
        self.is_time_up(spent.elapsed) || self.pool.as_ref().is_some_and(Pool::is_exhausted)
    }

    /// Returns the price of a request to a model, sent at the given time. If the model's price is
    /// missing or invalid, the price is unknown. The prices are those of the budget and, for the
    /// models that have no price in the budget, those of its [pool](Pool::with_cost_limit).
    pub(in crate::agent) fn rate(&self, model: &Arc<str>, sent_at: SystemTime) -> Rate {
        if !self.has_prices() {
            return Rate::NoPrices;
        }
        let model = Arc::clone(model);
        match self.find_price(&model).filter(KnownPrice::is_valid) {
            Some(price) => Rate::Known { model, price, sent_at },
            None => Rate::Unknown { model, sent_at },
        }
    }

    /// Checks that a cost limit can be enforced for requests at this price.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if a cost limit is set but
    /// cannot be enforced because the model's price is missing, negative or NaN.
    pub(in crate::agent) fn check_rate(&self, rate: &Rate) -> Result<(), Error> {
        match rate {
            Rate::Unknown { model, .. } if self.requires_prices() => {
                let problem = match self.find_price(model) {
                    Some(_) => "no usable price",
                    None => "no price",
                };
                let message = format!("{problem} for the model `{model}`");
                Err(Error::new(ErrorKind::InvalidRequest, message))
            }
            Rate::NoPrices | Rate::Unknown { .. } | Rate::Known { .. } => Ok(()),
        }
    }

    fn find_price(&self, model: &str) -> Option<KnownPrice> {
        let own = self.prices.as_ref().and_then(|prices| prices.find(model));
        own.or_else(|| self.pool.as_ref()?.prices()?.find(model))
    }

    /// Returns whether the price of a request may depend on its time.
    pub(in crate::agent) fn depends_on_time(&self) -> bool {
        let shared = || self.pool.as_ref().and_then(Pool::prices);
        self.prices.as_ref().is_some_and(Prices::depends_on_time)
            || shared().is_some_and(|prices| prices.depends_on_time())
    }

    /// Charges tokens and their cost to the budget's pool, if any.
    pub(in crate::agent) fn charge(&self, usage_delta: Usage, cost: u64) {
        if let (Some(pool), false) = (&self.pool, self.is_offline) {
            pool.charge_amount(PoolAmount { tokens: usage_delta.total(), cost });
        }
    }

    /// Returns whether the price of every requested model must be known, because a cost limit is
    /// set.
    pub(in crate::agent) fn requires_prices(&self) -> bool {
        self.max_cost_millionths.is_some() || self.has_pool_prices()
    }

    fn has_pool_prices(&self) -> bool {
        self.pool.as_ref().is_some_and(Pool::has_prices)
    }

    /// Returns whether any prices are set, so that a run's cost can be calculated.
    pub(in crate::agent) fn has_prices(&self) -> bool {
        self.prices.is_some() || self.has_pool_prices()
    }

    /// Returns the pool to which the run's tokens are charged, if any.
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// Returns the target for output tokens, if any.
    pub(in crate::agent) fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    /// Converts the budget for use in a run without side effects: the limits stay the same, but no
    /// timer is created, and nothing is charged to the pool.
    pub(in crate::agent) fn into_offline(mut self) -> Self {
        self.is_offline = true;
        self
    }

    /// Returns the duration of the run's timer, or `None` if the run needs no timer.
    pub(in crate::agent) fn effective_time_limit(&self) -> Option<Duration> {
        self.time_limit.filter(|_| !self.is_offline)
    }

    /// Returns the elapsed time at which the wrap-up turn must start, if time is reserved for it.
    pub(in crate::agent) fn time_before_wrap_up(&self) -> Option<Duration> {
        let before = self.time_limit?.saturating_sub(self.wrap_up_time);
        (self.has_wrap_up && !self.wrap_up_time.is_zero() && !before.is_zero()).then_some(before)
    }

    /// Returns whether the whole time limit has been used, including any time reserved for a
    /// wrap-up turn.
    pub(in crate::agent) fn is_time_up(&self, elapsed: Duration) -> bool {
        self.time_limit.is_some_and(|limit| elapsed >= limit)
    }

    /// Returns a [`BudgetExceeded`] for the time limit, without checking whether the elapsed time
    /// exceeds the limit. For use after the timer has fired.
    pub(in crate::agent) fn time_limit_exceeded(
        &self,
        elapsed: Duration,
    ) -> Option<BudgetExceeded> {
        let limit = self.time_limit?;
        Some(budget_exceeded(BudgetKind::Time, duration_millis(elapsed), duration_millis(limit)))
    }

    /// Returns whether a run that has reached a limit gets a wrap-up turn.
    pub(crate) fn has_wrap_up(&self) -> bool {
        self.has_wrap_up
    }
}

fn budget_exceeded(kind: BudgetKind, used: u64, limit: u64) -> BudgetExceeded {
    BudgetExceeded { kind, used, limit, diminishing_returns: false }
}

fn duration_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
