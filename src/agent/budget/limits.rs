//! Limits that end a run at a boundary.

use std::time::Duration;

use crate::agent::budget::{Pool, Target};
use crate::error::{Error, ErrorKind};
use crate::event::{BudgetExceeded, BudgetKind};
use crate::trace::RemainingBudget;
use crate::usage::{Price, Prices, Usage};

/// What a run may spend. Cheap to clone; without limits unless set.
///
/// Every limit is the run's own: what its sub-agents use is not counted against it, they have
/// budgets of their own. Only a [`Pool`] bounds a tree of agents together.
///
/// Limits are enforced between turns and before tools are started, never inside a turn: a
/// response that crosses one is kept, since it was paid for, its calls are answered without being
/// run, and the run ends. Only [`with_time_limit`](Self::with_time_limit) is kept by a timer. A limit of 0 is reached
/// before the first request, but for that of [tool calls](Self::with_tool_calls): a model may answer
/// without any.
///
/// ```
/// use std::time::Duration;
/// use turnstream::agent::{Budget, BudgetUsage};
/// use turnstream::event::BudgetKind;
/// use turnstream::usage::{Price, Prices, Usage};
///
/// // The prices are yours to give.
/// let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
/// let budget = Budget::new()
///     .with_output_tokens(50_000)
///     .with_cost_limit(0.25, Prices::new().with_price("claude-sonnet-4", price))
///     .with_time_limit(Duration::from_secs(600));
///
/// let usage = Usage { input_tokens: 60_000, output_tokens: 5_000, ..Usage::default() };
/// let spent = BudgetUsage { usage, cost: price.cost(&usage), ..BudgetUsage::default() };
/// let exceeded = budget.exceeded_limit(&spent).unwrap();
/// assert_eq!(exceeded.kind, BudgetKind::Money);
/// assert_eq!((exceeded.used, exceeded.limit), (255_000, 250_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Budget {
    max_output_tokens: Option<u64>,
    max_total_tokens: Option<u64>,
    pool: Option<Pool>,
    cost_limit: Option<CostLimit>,
    time_limit: Option<Duration>,
    max_tool_calls: Option<u32>,
    target: Option<Target>,
    has_wrap_up: bool,
    wrap_up_tokens: u64,
    wrap_up_time: Duration,
    /// No timer is made, and nothing is taken from the pool.
    is_offline: bool,
}

#[derive(Clone, Debug)]
struct CostLimit {
    /// In millionths.
    max_cost_millionths: u64,
    prices: Prices,
}

/// What a run has spent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BudgetUsage {
    /// All tokens, those of void attempts included.
    pub usage: Usage,
    /// What they cost, in millionths of the unit of the prices.
    pub cost: u64,
    /// The time since the first poll.
    pub elapsed: Duration,
    /// The calls of tools that were started.
    pub tool_calls: u32,
}

impl Budget {
    /// Makes a budget without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many tokens the answers may have, reasoned ones included.
    pub fn with_output_tokens(mut self, limit: u64) -> Self {
        self.max_output_tokens = Some(limit);
        self
    }

    /// Sets how many tokens requests and answers may have, cached ones included.
    pub fn with_total_tokens(mut self, limit: u64) -> Self {
        self.max_total_tokens = Some(limit);
        self
    }

    /// Takes all tokens out of a pool that other runs may share, and waits for it before each request;
    /// see [`Pool`].
    pub fn with_pool(mut self, pool: &Pool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Sets what the tokens may cost, in units of the prices' currency. A limit that is negative
    /// or not a number is 0.
    ///
    /// A turn costs what the model costs that answered, if it has a price, else the one that was
    /// asked. If that has none, the run ends, see [`price_of`](Self::price_of).
    pub fn with_cost_limit(mut self, limit: f64, prices: Prices) -> Self {
        self.cost_limit = Some(CostLimit { max_cost_millionths: Prices::to_micros(limit), prices });
        self
    }

    /// Sets how long the run may take: by the clock on the wall, from its first poll, waits for a
    /// person and pauses of the consumer included.
    ///
    /// When the time is over, the open turn is dropped: its tokens count, and its text stays, marked
    /// as interrupted. Tools that run are dropped and answered as
    /// [`Timeout`](crate::item::ResultKind::Timeout), calls that have not begun as
    /// [`Budget`](crate::item::ResultKind::Budget). The run ends as `budget`; no request is sent
    /// afterwards, a [`with_wrap_up`](Self::with_wrap_up) included, unless
    /// [time is kept](Self::with_wrap_up_time) for it. It bounds all attempts of a request
    /// together; [`Timeouts`](crate::http::Timeouts) bound each.
    ///
    /// The timer is tokio's: outside of a tokio runtime, or in one whose time is not enabled, a run
    /// that has to wait for anything ends with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets how many calls of tools may be started. Of a turn with more calls the first ones run, in
    /// call order; the others are answered as [`Budget`](crate::item::ResultKind::Budget), and the run
    /// ends. A call that is denied, or cannot run for another reason, does not count; one that waits
    /// for a verdict holds back those after it that may not all run. Calls that are answered from
    /// [outside](crate::Tool::external) are not started here, and do not count.
    pub fn with_tool_calls(mut self, limit: u32) -> Self {
        self.max_tool_calls = Some(limit);
        self
    }

    /// Sets how many output tokens the model is to spend before the run ends.
    pub fn with_target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Asks for one more turn with tools disabled when a limit, or the cap of turns, is reached
    /// and the model wants more, so that the run ends with words. None follows when a [pool](Self::pool)
    /// is spent or the [time](Self::with_time_limit) is over: for these,
    /// [tokens](Self::with_wrap_up_tokens) or [time](Self::with_wrap_up_time) are kept.
    pub fn with_wrap_up(mut self) -> Self {
        self.has_wrap_up = true;
        self
    }

    /// As [`with_wrap_up`](Self::with_wrap_up), and keeps tokens for that turn: the limits of tokens (of
    /// answers, of all, of the pool) count as reached so many tokens earlier. With a reserve as
    /// large as a limit that limit is reached at once.
    pub fn with_wrap_up_tokens(mut self, tokens: u64) -> Self {
        self.wrap_up_tokens = tokens;
        self.with_wrap_up()
    }

    /// As [`with_wrap_up`](Self::with_wrap_up), and keeps time for that turn: what runs when only this much of
    /// the [`with_time_limit`](Self::with_time_limit) is left is dropped, and the last turn begins. It is dropped, too, if
    /// it is not complete when the time is over. With a reserve as long as the limit nothing but the
    /// limit counts.
    pub fn with_wrap_up_time(mut self, time: Duration) -> Self {
        self.wrap_up_time = time;
        self.with_wrap_up()
    }

    /// The first limit that is reached, in the order of [`BudgetKind`]: output tokens, total
    /// tokens, the pool, money, time. Calls of tools are [`remaining_calls`](Self::remaining_calls)'s: after
    /// the last one the model may still answer.
    ///
    /// [`BudgetExceeded::limit`] is the limit as it was set, also where it counts as reached earlier.
    pub fn exceeded_limit(&self, spent: &BudgetUsage) -> Option<BudgetExceeded> {
        self.exceeded_limit_with_time(spent, self.time_before_wrap_up().or(self.time_limit))
    }

    /// The same where no last turn can follow: what runs may use the time that was kept for one.
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
        let pool = self.pool.as_ref();
        let (pool_used, pool_limit) =
            (pool.map_or(0, Pool::used_tokens), pool.map(Pool::token_limit));
        let money = self.cost_limit.as_ref().map(|money| money.max_cost_millionths);
        tokens(BudgetKind::OutputTokens, spent.usage.output_tokens, self.max_output_tokens)
            .or_else(|| tokens(BudgetKind::TotalTokens, spent.usage.total(), self.max_total_tokens))
            .or_else(|| tokens(BudgetKind::Pool, pool_used, pool_limit))
            .or_else(|| plain(BudgetKind::Money, spent.cost, money))
            .or_else(|| {
                self.time_limit_exceeded(spent.elapsed)
                    .filter(|_| time.is_some_and(|it| spent.elapsed >= it))
            })
    }

    /// What is left of each limit of the run's own; the pool belongs to others, too. Requests are
    /// no budget but [`Limits::max_turns`](crate::agent::Limits::max_turns).
    pub fn remaining(&self, spent: &BudgetUsage) -> RemainingBudget {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let tool_calls = left(self.max_tool_calls.map(u64::from), u64::from(spent.tool_calls));
        RemainingBudget {
            steps_remaining: None,
            tokens_remaining: left(self.max_total_tokens, spent.usage.total()),
            output_tokens_remaining: left(self.max_output_tokens, spent.usage.output_tokens),
            tool_calls_remaining: tool_calls,
            cost_remaining: left(
                self.cost_limit.as_ref().map(|money| money.max_cost_millionths),
                spent.cost,
            ),
            time_remaining_ms: left(
                self.time_limit.map(duration_millis),
                duration_millis(spent.elapsed),
            ),
        }
    }

    /// What the tokens cost, where money is limited.
    pub fn prices(&self) -> Option<&Prices> {
        self.cost_limit.as_ref().map(|money| &money.prices)
    }

    /// How many more calls of tools may be started; `None` for any number.
    pub fn remaining_calls(&self, spent: &BudgetUsage) -> Option<u32> {
        Some(self.max_tool_calls?.saturating_sub(spent.tool_calls))
    }

    /// What is exceeded by a call when no more may be started.
    pub(in crate::agent) fn call_limit_exceeded(&self) -> Option<BudgetExceeded> {
        let limit = u64::from(self.max_tool_calls?);
        Some(budget_exceeded(BudgetKind::ToolCalls, limit, limit))
    }

    /// How many tokens of a pool are kept for a last turn.
    pub(in crate::agent) fn wrap_up_tokens(&self) -> u64 {
        self.wrap_up_tokens
    }

    /// Whether no request may be sent, not even a last one.
    pub(in crate::agent) fn is_exhausted(&self, spent: &BudgetUsage) -> bool {
        self.is_time_up(spent.elapsed) || self.pool.as_ref().is_some_and(Pool::is_exhausted)
    }

    /// The price of a model; `None` if money is not limited.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) when money is limited and there is no price
    /// for the model, or one that is negative or not a number: a limit that cannot be kept is not
    /// ignored.
    pub fn price_of(&self, model: &str) -> Result<Option<Price>, Error> {
        let Some(money) = &self.cost_limit else { return Ok(None) };
        let refused = |what: &str| {
            Error::new(ErrorKind::InvalidRequest, format!("{what} for the model `{model}`"))
        };
        match money.prices.get(model) {
            None => Err(refused("no price")),
            Some(price) if !price.is_valid() => Err(refused("no usable price")),
            Some(price) => Ok(Some(*price)),
        }
    }

    /// Takes tokens out of the pool, if there is one.
    pub fn charge(&self, usage_delta: Usage) {
        if let (Some(pool), false) = (&self.pool, self.is_offline) {
            pool.charge(usage_delta);
        }
    }

    /// Whether money is limited.
    pub fn has_cost_limit(&self) -> bool {
        self.cost_limit.is_some()
    }

    /// The pool that the run takes its tokens from.
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// How many output tokens the model is to spend, and how it is nudged on.
    pub fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    /// The same limits for a run that performs nothing: no timer is made, and nothing is taken from the
    /// pool.
    pub(in crate::agent) fn into_offline(mut self) -> Self {
        self.is_offline = true;
        self
    }

    /// How long the timer of the run takes, if it has one.
    pub(in crate::agent) fn effective_time_limit(&self) -> Option<Duration> {
        self.time_limit.filter(|_| !self.is_offline)
    }

    /// How long the run may take.
    pub fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// When the run has to wrap up, where time is kept for that.
    pub(in crate::agent) fn time_before_wrap_up(&self) -> Option<Duration> {
        let before = self.time_limit?.saturating_sub(self.wrap_up_time);
        (self.has_wrap_up && !self.wrap_up_time.is_zero() && !before.is_zero()).then_some(before)
    }

    /// Whether all of the time was used, the part included that is kept for a last turn.
    pub(in crate::agent) fn is_time_up(&self, elapsed: Duration) -> bool {
        self.time_limit.is_some_and(|limit| elapsed >= limit)
    }

    /// What the time is exceeded by now, whatever the clock says: its timer has rung.
    pub(in crate::agent) fn time_limit_exceeded(
        &self,
        elapsed: Duration,
    ) -> Option<BudgetExceeded> {
        let limit = self.time_limit?;
        Some(budget_exceeded(BudgetKind::Time, duration_millis(elapsed), duration_millis(limit)))
    }

    /// Whether a run that reached a limit gets one more turn with tools disabled.
    pub fn has_wrap_up(&self) -> bool {
        self.has_wrap_up
    }
}

fn budget_exceeded(kind: BudgetKind, used: u64, limit: u64) -> BudgetExceeded {
    BudgetExceeded { kind, used, limit, diminishing_returns: false }
}

fn duration_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
