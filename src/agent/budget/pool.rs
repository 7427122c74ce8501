//! A pool of tokens and money that several runs share, with an optional limit on concurrency.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::agent::budget::Rate;
use crate::event::{BudgetExceeded, BudgetKind};
use crate::lock::lock_ignoring_poison;
use crate::usage::{Prices, Usage, units_to_micros};

/// The default number of tokens to reserve for a response if `max_output_tokens` is not set.
const DEFAULT_TOKENS_PER_RESPONSE: u64 = 4_096;

/// Limits the combined tokens, cost and concurrency of several runs, such as those of an agent and
/// its sub-agents. All clones refer to the same pool.
///
/// # Tokens
///
/// - Before a run sends a request, it reserves the estimated number of tokens in the request, plus
///   tokens for the longest response that the options allow. For the response, it reserves
///   `max_output_tokens` tokens or, if that option is not set, 4,096 tokens (see
///   [`with_tokens_per_response`](Self::with_tokens_per_response)).
/// - If too few unreserved tokens are left for a request, it waits in a queue. While no reservation
///   is held, the first request in the queue is sent as long as any tokens are left. Therefore,
///   even if a pool has fewer tokens than a single request needs to reserve, it allows one request
///   at a time.
/// - At the end of a turn, the used tokens are charged to the pool, and the unused part of the
///   reservation is returned to the pool. If a turn is dropped, its reservation is returned as
///   well.
/// - A run ends with the reason `budget` if its pool is exhausted. A [wrap-up
///   turn](crate::agent::Budget::with_wrap_up) must reserve tokens like any other turn, so no
///   wrap-up turn follows when the pool is exhausted.
/// - If `max_output_tokens` is set and the estimates are accurate, the pool's limit is exceeded by
///   at most the tokens of one request and its response. If `max_output_tokens` is not set,
///   responses may use more tokens than were reserved for them, and each such response may increase
///   the excess by the difference.
/// - Requests from a compactor do not wait for the pool; their tokens are charged afterwards.
///
/// # Cost
///
/// [`with_cost_limit`](Self::with_cost_limit) limits the combined cost. A pool that limits only the
/// cost is `Pool::unlimited().with_cost_limit(…)`. The rules for tokens apply to the cost as well:
/// before a run sends a request, it reserves the highest cost that is expected for the reserved
/// tokens at the price of the requested model. The request waits until both its tokens and its cost
/// fit. At the end of the turn, the cost is charged at the price of the model that answered, and
/// the rest of the reservation is returned. A run whose pool has no money left ends with the reason
/// `budget`, and [`Outcome::budget`](crate::Outcome::budget) contains the pool's cost and limit,
/// with the kind [`Money`](BudgetKind::Money).
///
/// # Concurrency
///
/// [`with_max_concurrency`](Self::with_max_concurrency) limits the number of requests and tool
/// calls that run at the same time. Each request and each call occupies a slot. A call that runs a
/// sub-agent occupies no slot, so a parent cannot prevent its sub-agents from running. A tool whose
/// own code runs an agent with the same pool must be marked as
/// [`running_sub_agents`](crate::Tool::running_sub_agents). Without this mark, the agent may wait
/// forever for the slot that the tool occupies.
///
/// Set the pool in the [`Budget`](crate::agent::Budget::with_pool) of every agent that shares it.
/// Waiting does not require a spawned task: polling a waiting run returns `Poll::Pending`, and the
/// run is woken once it can continue.
///
/// ```
/// use turnstream::Usage;
/// use turnstream::agent::Pool;
///
/// let pool = Pool::new(1_000);
/// let child = pool.clone();
/// child.charge(Usage { input_tokens: 900, output_tokens: 150, ..Usage::default() });
/// assert_eq!(pool.used_tokens(), 1_050);
/// assert!(pool.is_exhausted());
/// ```
#[derive(Clone)]
pub struct Pool {
    state: Arc<Mutex<PoolState>>,
}

/// The counters and queues of a pool. The lock on this state is never held while user code runs.
#[derive(Debug)]
struct PoolState {
    tokens_per_response: u64,
    max_concurrency: usize,
    limit: PoolAmount,
    used: PoolAmount,
    reserved: PoolAmount,
    /// The prices, if the cost is limited.
    prices: Option<Prices>,
    /// The number of reservations currently held.
    reservation_count: usize,
    token_queue: WaitQueue,
    /// The number of slots in use.
    slots_in_use: usize,
    slot_queue: WaitQueue,
}

/// An amount of a pool's resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::agent) struct PoolAmount {
    pub(in crate::agent) tokens: u64,
    /// The cost, in millionths of the prices' currency unit.
    pub(in crate::agent) cost: u64,
}

impl PoolAmount {
    fn from_tokens(tokens: u64) -> Self {
        Self { tokens, cost: 0 }
    }

    /// Returns the amount to reserve for a request of `input_tokens` tokens and its response of
    /// `output_tokens` tokens. Any input token may have to be written to the cache.
    pub(in crate::agent) fn for_request(
        input_tokens: u64,
        output_tokens: u64,
        rate: &Rate,
    ) -> Self {
        let uncached = Usage { input_tokens, output_tokens, ..Usage::default() };
        let written = Usage { cache_write_input_tokens: input_tokens, ..uncached };
        let cost = |usage| rate.cost(usage, None).micros;
        Self {
            tokens: input_tokens.saturating_add(output_tokens),
            cost: cost(uncached).max(cost(written)),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost: self.cost.saturating_add(other.cost),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            cost: self.cost.saturating_sub(other.cost),
        }
    }

    /// Returns whether each quantity is at most that of `other`.
    fn fits_in(self, other: Self) -> bool {
        self.tokens <= other.tokens && self.cost <= other.cost
    }
}

/// The waiting futures, in queue order.
#[derive(Debug, Default)]
struct WaitQueue {
    waiters: VecDeque<Waiter>,
    last_ticket: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    request: WaitRequest,
    waker: Waker,
}

/// The amount that a waiting future needs, along with its place in the queue.
#[derive(Clone, Copy, Debug)]
struct WaitRequest {
    /// The tokens and the cost to reserve; zero for a slot.
    amount: PoolAmount,
    /// The number of tokens that must remain in the pool after the requested tokens are reserved.
    min_remaining_tokens: u64,
    /// Whether the future is placed at the front of the queue, because its run has already reached
    /// the front once and given up that position.
    at_front: bool,
}

/// Collects wakers while the pool is locked. Each waker is invoked or dropped once the pool is
/// unlocked, since invoking or dropping a waker runs user code.
#[derive(Default)]
struct DeferredWakers {
    to_wake: Vec<Waker>,
    to_drop: Vec<Waker>,
}

impl WaitQueue {
    /// Returns the number of waiters ahead of the waiter with this ticket, along with the total
    /// amount that they need. If `ticket` is `None`, counts the waiters ahead of a new waiter.
    /// The amount that a waiter needs is not available to later waiters, since a paused waiter
    /// may be polled at any time.
    fn waiters_ahead(&self, ticket: Option<u64>, wants: WaitRequest) -> (usize, PoolAmount) {
        if ticket.is_none() && wants.at_front {
            return (0, PoolAmount::default());
        }
        let before = self.waiters.iter().take_while(|it| Some(it.ticket) != ticket);
        before.fold((0, PoolAmount::default()), |(count, sum), it| {
            (count + 1, sum.plus(it.request.amount))
        })
    }

    /// Updates the waker of the waiter with this ticket, or adds the waiter if the queue does not
    /// contain it.
    fn enqueue_or_update(
        &mut self,
        ticket: &mut Option<u64>,
        wants: WaitRequest,
        waker: &Waker,
        wakers: &mut DeferredWakers,
    ) {
        let known = ticket.and_then(|id| self.waiters.iter_mut().find(|it| it.ticket == id));
        match known {
            Some(known) if known.waker.will_wake(waker) => {}
            Some(known) => wakers.to_drop.push(std::mem::replace(&mut known.waker, waker.clone())),
            None => {
                self.last_ticket += 1;
                *ticket = Some(self.last_ticket);
                let waker = waker.clone();
                let waiting = Waiter { ticket: self.last_ticket, request: wants, waker };
                match wants.at_front {
                    true => self.waiters.push_front(waiting),
                    false => self.waiters.push_back(waiting),
                }
            }
        }
    }

    /// Removes the waiter with this ticket from the queue.
    fn remove_ticket(&mut self, ticket: &mut Option<u64>, wakers: &mut DeferredWakers) {
        let Some(ticket) = ticket.take() else { return };
        if let Some(at) = self.waiters.iter().position(|it| it.ticket == ticket)
            && let Some(gone) = self.waiters.remove(at)
        {
            wakers.to_drop.push(gone.waker);
        }
    }
}

impl PoolState {
    /// Collects the wakers for all waiters that can now reserve tokens, or that must be notified
    /// that the pool is exhausted.
    fn collect_token_wakers(&self, wakers: &mut DeferredWakers) {
        let mut free = self.limit.minus(self.used).minus(self.reserved);
        for (at, waiting) in self.token_queue.waiters.iter().enumerate() {
            let WaitRequest { amount, min_remaining_tokens: keeping, .. } = waiting.request;
            let is_alone = self.reservation_count == 0 && at == 0;
            if self.exceeded_limit(keeping).is_none() {
                let needed = amount.plus(PoolAmount::from_tokens(keeping));
                if !needed.fits_in(free) && !is_alone {
                    break;
                }
                free = free.minus(amount);
            }
            wakers.to_wake.push(waiting.waker.clone());
        }
    }

    /// Returns the limit that has been reached, if any. The limit on tokens counts as reached when
    /// only `min_remaining_tokens` tokens are left.
    fn exceeded_limit(&self, min_remaining_tokens: u64) -> Option<BudgetExceeded> {
        let (used, limit) = (self.used, self.limit);
        let reached = |kind, used, limit| {
            Some(BudgetExceeded { kind, used, limit, diminishing_returns: false })
        };
        if used.tokens >= limit.tokens.saturating_sub(min_remaining_tokens) {
            reached(BudgetKind::Pool, used.tokens, limit.tokens)
        } else if self.prices.is_some() && used.cost >= limit.cost {
            reached(BudgetKind::Money, used.cost, limit.cost)
        } else {
            None
        }
    }

    /// Collects the wakers for all waiters that can now take a slot.
    fn collect_slot_wakers(&self, wakers: &mut DeferredWakers) {
        let free = self.max_concurrency.saturating_sub(self.slots_in_use);
        let waiting = self.slot_queue.waiters.iter().take(free);
        wakers.to_wake.extend(waiting.map(|waiting| waiting.waker.clone()));
    }
}

impl Pool {
    /// Creates a pool of `limit` tokens, input and output together.
    pub fn new(limit: u64) -> Self {
        let shared = PoolState {
            tokens_per_response: DEFAULT_TOKENS_PER_RESPONSE,
            max_concurrency: usize::MAX,
            limit: PoolAmount { tokens: limit, cost: u64::MAX },
            used: PoolAmount::default(),
            reserved: PoolAmount::default(),
            prices: None,
            reservation_count: 0,
            token_queue: WaitQueue::default(),
            slots_in_use: 0,
            slot_queue: WaitQueue::default(),
        };
        Self { state: Arc::new(Mutex::new(shared)) }
    }

    /// Creates a pool that counts tokens but does not limit their number.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Sets the number of tokens to reserve for a response if `max_output_tokens` is not set. The
    /// default is 4,096.
    pub fn with_tokens_per_response(self, tokens: u64) -> Self {
        self.with_state_mut(|shared, _| shared.tokens_per_response = tokens);
        self
    }

    /// Sets the maximum combined number of requests and tool calls that may run at the same time.
    /// By default, the number is unlimited.
    ///
    /// Slots are granted in queue order. A run that is not polled during a turn or a call keeps its
    /// slot. A run that is not polled while waiting for a slot keeps its position in the queue, and
    /// later runs wait until it is polled again or dropped. A request waiting to be retried keeps
    /// its slot.
    pub fn with_max_concurrency(self, leaves: NonZeroUsize) -> Self {
        self.with_state_mut(|shared, wakers| {
            shared.max_concurrency = leaves.get();
            shared.collect_slot_wakers(wakers);
        });
        self
    }

    /// Limits the combined cost of all runs that share the pool, in the currency unit of `prices`.
    /// A negative or NaN limit counts as 0.
    ///
    /// The prices apply to every run whose budget contains the pool, so
    /// [`Outcome::cost`](crate::Outcome::cost) is set. If a run's [`Budget`] has prices of its own,
    /// they must be in the same currency; a model's price in the budget is used instead of the
    /// price in the pool. If the price of a requested model is missing, the run ends with an error,
    /// as with [`Budget::with_cost_limit`].
    ///
    /// ```
    /// use turnstream::agent::{Agent, Budget, Pool};
    /// use turnstream::event::EndReason;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::usage::{Price, Prices, Usage};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
    /// let prices = Prices::new().with_price("scripted", price);
    /// let pool = Pool::unlimited().with_cost_limit(0.05, prices);
    ///
    /// let usage = Usage { input_tokens: 10_000, output_tokens: 2_000, ..Usage::default() };
    /// let model = Scripted::from_fn(move |_, _| Reply::text("Hello!").usage(usage));
    /// let agent = Agent::new(model).with_budget(Budget::new().with_pool(pool.clone()));
    /// assert_eq!(agent.run("Hi").outcome().await.cost, Some(60_000));
    /// assert_eq!(pool.used_cost(), 60_000);
    /// assert_eq!(agent.run("Hi").outcome().await.reason, EndReason::Budget);
    /// # }
    /// ```
    ///
    /// [`Budget`]: crate::agent::Budget
    /// [`Budget::with_cost_limit`]: crate::agent::Budget::with_cost_limit
    pub fn with_cost_limit(self, limit: f64, prices: Prices) -> Self {
        self.with_state_mut(|shared, wakers| {
            shared.limit.cost = units_to_micros(limit);
            shared.prices = Some(prices);
            shared.collect_token_wakers(wakers);
        });
        self
    }

    /// Charges the [total](Usage::total) of `usage_delta` to the pool. Pass only the tokens used
    /// since the previous call to this method. `charge` never waits, and may charge more tokens
    /// than are left in the pool. To charge the cost as well, call
    /// [`charge_cost`](Self::charge_cost).
    pub fn charge(&self, usage_delta: Usage) {
        self.charge_amount(PoolAmount::from_tokens(usage_delta.total()));
    }

    /// Charges a cost to the pool, in millionths of the currency unit, for example the
    /// [cost](crate::usage::Price::cost) of a request in a hand-written loop, or the price of a
    /// tool call. A run whose budget contains the pool charges the cost of its requests
    /// automatically. `charge_cost` never waits, and may charge more than is left in the pool.
    pub fn charge_cost(&self, cost: u64) {
        self.charge_amount(PoolAmount { tokens: 0, cost });
    }

    pub(in crate::agent) fn charge_amount(&self, amount: PoolAmount) {
        self.with_state_mut(|shared, wakers| {
            shared.used = shared.used.plus(amount);
            shared.collect_token_wakers(wakers);
        });
    }

    /// Returns the limit that has been reached, if any; see [`PoolState::exceeded_limit`].
    pub(in crate::agent) fn exceeded_limit(
        &self,
        min_remaining_tokens: u64,
    ) -> Option<BudgetExceeded> {
        self.with_state(|shared| shared.exceeded_limit(min_remaining_tokens))
    }

    /// Returns whether the pool limits the cost.
    pub(in crate::agent) fn has_prices(&self) -> bool {
        self.with_state(|shared| shared.prices.is_some())
    }

    /// Returns the pool's prices, if the pool limits the cost.
    pub(in crate::agent) fn prices(&self) -> Option<Prices> {
        self.with_state(|shared| shared.prices.clone())
    }

    /// Reserves `tokens` tokens for a request and its response, after waiting in queue order until
    /// enough tokens are available. Dropping the returned future gives up its position in the
    /// queue. Dropping the [`TokenReservation`] returns the tokens to the pool.
    ///
    /// An agent whose budget contains this pool reserves tokens automatically. A hand-written loop
    /// must call this method before each request and before waiting for a
    /// [slot](Self::acquire_slot). The loop must [charge](Self::charge) the used tokens before
    /// dropping the reservation.
    ///
    /// ```
    /// use futures::FutureExt;
    /// use turnstream::Usage;
    /// use turnstream::agent::Pool;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let pool = Pool::new(1_000);
    /// let first = pool.reserve(800).await.unwrap();
    /// let mut second = pool.reserve(800);
    /// assert!((&mut second).now_or_never().is_none(), "it does not fit beside the first");
    ///
    /// pool.charge(Usage { input_tokens: 400, output_tokens: 100, ..Usage::default() });
    /// drop(first);
    /// // It may not fit, but is granted since no other reservation is held.
    /// assert!(second.await.is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the pool is exhausted, the returned future resolves to an error that contains the number
    /// of used tokens and the limit.
    pub fn reserve(
        &self,
        tokens: u64,
    ) -> impl Future<Output = Result<TokenReservation, BudgetExceeded>> + Unpin + use<> {
        self.reserve_amount(PoolAmount::from_tokens(tokens), 0)
    }

    /// Like [`reserve`](Self::reserve), but also reserves a cost, and leaves at least
    /// `min_remaining_tokens` tokens in the pool. The pool is treated as exhausted when only that
    /// many tokens remain.
    pub(in crate::agent) fn reserve_amount(
        &self,
        amount: PoolAmount,
        min_remaining_tokens: u64,
    ) -> ReserveTokens {
        let wants = WaitRequest { amount, min_remaining_tokens, at_front: false };
        ReserveTokens { pool: self.clone(), request: wants, ticket: None }
    }

    /// Waits in queue order for a slot; [`with_max_concurrency`](Self::with_max_concurrency) sets
    /// the number of slots. Dropping the returned future gives up its position in the queue.
    /// Dropping the [`PoolSlot`] passes the slot to the next waiter. If you need both tokens and a
    /// slot, [reserve](Self::reserve) the tokens first.
    pub fn acquire_slot(&self) -> impl Future<Output = PoolSlot> + Unpin + use<> {
        self.queue_for_slot()
    }

    pub(in crate::agent) fn queue_for_slot(&self) -> AcquireSlot {
        let amount = PoolAmount::default();
        let wants = WaitRequest { amount, min_remaining_tokens: 0, at_front: false };
        AcquireSlot { pool: self.clone(), request: wants, ticket: None }
    }

    /// Returns the number of input and output tokens that have been charged to the pool.
    pub fn used_tokens(&self) -> u64 {
        self.with_state(|shared| shared.used.tokens)
    }

    /// Returns the cost that has been charged to the pool, in millionths of the currency unit.
    pub fn used_cost(&self) -> u64 {
        self.with_state(|shared| shared.used.cost)
    }

    /// Returns the number of tokens that are currently reserved for open requests.
    pub fn reserved_tokens(&self) -> u64 {
        self.with_state(|shared| shared.reserved.tokens)
    }

    /// Returns the pool's token limit, which is `u64::MAX` for an [unlimited](Self::unlimited)
    /// pool.
    pub fn token_limit(&self) -> u64 {
        self.with_state(|shared| shared.limit.tokens)
    }

    /// Returns the number of tokens to reserve for a response if `max_output_tokens` is not set.
    pub fn tokens_per_response(&self) -> u64 {
        self.with_state(|shared| shared.tokens_per_response)
    }

    /// Returns whether all of the pool's tokens or all of its money have been used. A run that
    /// shares an exhausted pool ends before its next request, with the reason `budget`.
    pub fn is_exhausted(&self) -> bool {
        self.exceeded_limit(0).is_some()
    }

    fn with_state<T>(&self, f: impl FnOnce(&PoolState) -> T) -> T {
        f(&lock_ignoring_poison(&self.state))
    }

    /// Calls `f` to change the pool's state, and then wakes the waiters that can continue.
    fn with_state_mut<T>(&self, f: impl FnOnce(&mut PoolState, &mut DeferredWakers) -> T) -> T {
        let mut wakers = DeferredWakers::default();
        let value = f(&mut lock_ignoring_poison(&self.state), &mut wakers);
        drop(wakers.to_drop);
        wakers.to_wake.into_iter().for_each(Waker::wake);
        value
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, used, reserved) =
            self.with_state(|shared| (shared.limit, shared.used, shared.reserved));
        f.debug_struct("Pool")
            .field("limit", &limit)
            .field("used", &used)
            .field("reserved", &reserved)
            .finish_non_exhaustive()
    }
}

/// The future returned by [`Pool::reserve`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct ReserveTokens {
    pool: Pool,
    request: WaitRequest,
    ticket: Option<u64>,
}

impl ReserveTokens {
    /// Sets whether the future is placed at the front of the queue.
    pub(in crate::agent) fn at_front(mut self, first: bool) -> Self {
        self.request.at_front = first;
        self
    }
}

impl Future for ReserveTokens {
    type Output = Result<TokenReservation, BudgetExceeded>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pool, request: wants, ticket } = self.get_mut();
        let WaitRequest { amount, min_remaining_tokens: keeping, .. } = *wants;
        pool.with_state_mut(|shared, wakers| {
            if let Some(exceeded) = shared.exceeded_limit(keeping) {
                shared.token_queue.remove_ticket(ticket, wakers);
                shared.collect_token_wakers(wakers);
                return Poll::Ready(Err(exceeded));
            }
            let (before, reserved) = shared.token_queue.waiters_ahead(*ticket, *wants);
            let all = [shared.reserved, reserved, amount, PoolAmount::from_tokens(keeping)];
            let all = all.into_iter().fold(shared.used, PoolAmount::plus);
            let is_alone = shared.reservation_count == 0 && before == 0;
            if !all.fits_in(shared.limit) && !is_alone {
                shared.token_queue.enqueue_or_update(ticket, *wants, cx.waker(), wakers);
                return Poll::Pending;
            }
            shared.token_queue.remove_ticket(ticket, wakers);
            shared.reserved = shared.reserved.plus(amount);
            shared.reservation_count += 1;
            Poll::Ready(Ok(amount))
        })
        // The reservation is created after the pool is unlocked, since dropping a reservation locks
        // the pool.
        .map_ok(|amount| TokenReservation { pool: pool.clone(), amount })
    }
}

impl Drop for ReserveTokens {
    fn drop(&mut self) {
        let Self { pool, ticket, .. } = self;
        if ticket.is_some() {
            pool.with_state_mut(|shared, wakers| {
                shared.token_queue.remove_ticket(ticket, wakers);
                shared.collect_token_wakers(wakers);
            });
        }
    }
}

/// Holds tokens reserved in a [`Pool`] for a request and its response. Dropping the reservation
/// returns the tokens to the pool.
#[derive(Debug)]
#[must_use = "dropping it returns the tokens"]
pub struct TokenReservation {
    pool: Pool,
    amount: PoolAmount,
}

impl Drop for TokenReservation {
    fn drop(&mut self) {
        let Self { pool, amount } = self;
        pool.with_state_mut(|shared, wakers| {
            shared.reserved = shared.reserved.minus(*amount);
            shared.reservation_count = shared.reservation_count.saturating_sub(1);
            shared.collect_token_wakers(wakers);
        });
    }
}

/// The future returned by [`Pool::acquire_slot`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct AcquireSlot {
    pool: Pool,
    request: WaitRequest,
    ticket: Option<u64>,
}

impl AcquireSlot {
    /// Sets whether the future is placed at the front of the queue.
    pub(in crate::agent) fn at_front(mut self, first: bool) -> Self {
        self.request.at_front = first;
        self
    }
}

impl Future for AcquireSlot {
    type Output = PoolSlot;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PoolSlot> {
        let Self { pool, request: wants, ticket } = self.get_mut();
        pool.with_state_mut(|shared, wakers| {
            let (before, _) = shared.slot_queue.waiters_ahead(*ticket, *wants);
            if shared.slots_in_use.saturating_add(before) >= shared.max_concurrency {
                shared.slot_queue.enqueue_or_update(ticket, *wants, cx.waker(), wakers);
                return Poll::Pending;
            }
            shared.slot_queue.remove_ticket(ticket, wakers);
            shared.slots_in_use += 1;
            Poll::Ready(())
        })
        .map(|()| PoolSlot { pool: pool.clone() })
    }
}

impl Drop for AcquireSlot {
    fn drop(&mut self) {
        let Self { pool, ticket, .. } = self;
        if ticket.is_some() {
            pool.with_state_mut(|shared, wakers| {
                shared.slot_queue.remove_ticket(ticket, wakers);
                shared.collect_slot_wakers(wakers);
            });
        }
    }
}

/// Holds a slot in a [`Pool`] for one open request or one running tool call. Dropping a `PoolSlot`
/// passes the slot to the next waiter.
#[derive(Debug)]
#[must_use = "dropping it releases the slot"]
pub struct PoolSlot {
    pool: Pool,
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        self.pool.with_state_mut(|shared, wakers| {
            shared.slots_in_use = shared.slots_in_use.saturating_sub(1);
            shared.collect_slot_wakers(wakers);
        });
    }
}
