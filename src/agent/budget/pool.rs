//! A token pool that several runs share, with an optional limit on concurrency.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::event::{BudgetExceeded, BudgetKind};
use crate::lock::lock_ignoring_poison;
use crate::usage::Usage;

/// The default number of tokens to reserve for a response if `max_output_tokens` is not set.
const DEFAULT_TOKENS_PER_RESPONSE: u64 = 4_096;

/// Limits the combined tokens and concurrency of several runs, such as those of an agent and its
/// sub-agents. All clones refer to the same pool.
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
    token_limit: u64,
    state: Arc<Mutex<PoolState>>,
}

/// The counters and queues of a pool. The lock on this state is never held while user code runs.
#[derive(Debug)]
struct PoolState {
    tokens_per_response: u64,
    max_concurrency: usize,
    used_tokens: u64,
    reserved_tokens: u64,
    /// The number of reservations currently held.
    reservation_count: usize,
    token_queue: WaitQueue,
    /// The number of slots in use.
    slots_in_use: usize,
    slot_queue: WaitQueue,
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

/// The number of tokens or slots that a waiting future needs, along with its place in the queue.
#[derive(Clone, Copy, Debug)]
struct WaitRequest {
    amount: u64,
    /// The number of tokens that must remain in the pool after the requested tokens are reserved.
    min_remaining: u64,
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
    /// capacity that they need. If `ticket` is `None`, counts the waiters ahead of a new waiter.
    /// The capacity that a waiter needs is not available to later waiters, since a paused waiter
    /// may be polled at any time.
    fn waiters_ahead(&self, ticket: Option<u64>, wants: WaitRequest) -> (usize, u64) {
        if ticket.is_none() && wants.at_front {
            return (0, 0);
        }
        let before = self.waiters.iter().take_while(|it| Some(it.ticket) != ticket);
        before.fold((0, 0), |(count, sum), it| (count + 1, sum.saturating_add(it.request.amount)))
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
    fn collect_token_wakers(&self, limit: u64, wakers: &mut DeferredWakers) {
        let unused = limit.saturating_sub(self.used_tokens);
        let mut free = unused.saturating_sub(self.reserved_tokens);
        for (at, waiting) in self.token_queue.waiters.iter().enumerate() {
            let WaitRequest { amount, min_remaining: keeping, .. } = waiting.request;
            let is_alone = self.reservation_count == 0 && at == 0;
            if unused > keeping {
                if amount.saturating_add(keeping) > free && !is_alone {
                    break;
                }
                free = free.saturating_sub(amount);
            }
            wakers.to_wake.push(waiting.waker.clone());
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
    /// Creates a pool of `limit` tokens.
    pub fn new(limit: u64) -> Self {
        let shared = PoolState {
            tokens_per_response: DEFAULT_TOKENS_PER_RESPONSE,
            max_concurrency: usize::MAX,
            used_tokens: 0,
            reserved_tokens: 0,
            reservation_count: 0,
            token_queue: WaitQueue::default(),
            slots_in_use: 0,
            slot_queue: WaitQueue::default(),
        };
        Self { token_limit: limit, state: Arc::new(Mutex::new(shared)) }
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

    /// Charges the [total](Usage::total) of `usage_delta` to the pool. Pass only the tokens used
    /// since the previous call to this method. `charge` never waits, and may charge more tokens
    /// than are left in the pool.
    pub fn charge(&self, usage_delta: Usage) {
        let limit = self.token_limit;
        self.with_state_mut(|shared, wakers| {
            shared.used_tokens = shared.used_tokens.saturating_add(usage_delta.total());
            shared.collect_token_wakers(limit, wakers);
        });
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
    pub fn reserve(&self, tokens: u64) -> ReserveTokens {
        self.reserve_with_min_remaining(tokens, 0)
    }

    /// Like [`reserve`](Self::reserve), but leaves at least `keeping` tokens in the pool. The pool
    /// is treated as exhausted when only `keeping` tokens remain.
    pub(in crate::agent) fn reserve_with_min_remaining(
        &self,
        tokens: u64,
        keeping: u64,
    ) -> ReserveTokens {
        let wants = WaitRequest { amount: tokens, min_remaining: keeping, at_front: false };
        ReserveTokens { pool: self.clone(), request: wants, ticket: None }
    }

    /// Waits in queue order for a slot; [`with_max_concurrency`](Self::with_max_concurrency) sets
    /// the number of slots. Dropping the returned future gives up its position in the queue.
    /// Dropping the [`PoolSlot`] passes the slot to the next waiter. If you need both tokens and a
    /// slot, [reserve](Self::reserve) the tokens first.
    pub fn acquire_slot(&self) -> AcquireSlot {
        let wants = WaitRequest { amount: 1, min_remaining: 0, at_front: false };
        AcquireSlot { pool: self.clone(), request: wants, ticket: None }
    }

    /// Returns the number of tokens that have been charged to the pool.
    pub fn used_tokens(&self) -> u64 {
        self.with_state(|shared| shared.used_tokens)
    }

    /// Returns the number of tokens that are currently reserved for open requests.
    pub fn reserved_tokens(&self) -> u64 {
        self.with_state(|shared| shared.reserved_tokens)
    }

    /// Returns the pool's token limit.
    pub fn token_limit(&self) -> u64 {
        self.token_limit
    }

    /// Returns the number of tokens to reserve for a response if `max_output_tokens` is not set.
    pub fn tokens_per_response(&self) -> u64 {
        self.with_state(|shared| shared.tokens_per_response)
    }

    /// Returns whether all of the pool's tokens have been used.
    pub fn is_exhausted(&self) -> bool {
        self.used_tokens() >= self.token_limit()
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
        f.debug_struct("Pool")
            .field("token_limit", &self.token_limit)
            .field("used_tokens", &self.used_tokens())
            .field("reserved_tokens", &self.reserved_tokens())
            .finish_non_exhaustive()
    }
}

/// The future returned by [`Pool::reserve`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ReserveTokens {
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
        let (limit, WaitRequest { amount, min_remaining: keeping, .. }) =
            (pool.token_limit, *wants);
        pool.with_state_mut(|shared, wakers| {
            if shared.used_tokens >= limit.saturating_sub(keeping) {
                shared.token_queue.remove_ticket(ticket, wakers);
                shared.collect_token_wakers(limit, wakers);
                return Poll::Ready(Err(BudgetExceeded {
                    kind: BudgetKind::Pool,
                    used: shared.used_tokens,
                    limit,
                    diminishing_returns: false,
                }));
            }
            let (before, kept) = shared.token_queue.waiters_ahead(*ticket, *wants);
            let all = [shared.reserved_tokens, kept, amount, keeping];
            let all = all.iter().fold(shared.used_tokens, |sum, it| sum.saturating_add(*it));
            let is_alone = shared.reservation_count == 0 && before == 0;
            if all > limit && !is_alone {
                shared.token_queue.enqueue_or_update(ticket, *wants, cx.waker(), wakers);
                return Poll::Pending;
            }
            shared.token_queue.remove_ticket(ticket, wakers);
            shared.reserved_tokens = shared.reserved_tokens.saturating_add(amount);
            shared.reservation_count += 1;
            Poll::Ready(Ok(amount))
        })
        // The reservation is created after the pool is unlocked, since dropping a reservation locks
        // the pool.
        .map_ok(|tokens| TokenReservation { pool: pool.clone(), tokens })
    }
}

impl Drop for ReserveTokens {
    fn drop(&mut self) {
        let Self { pool, ticket, .. } = self;
        if ticket.is_some() {
            pool.with_state_mut(|shared, wakers| {
                shared.token_queue.remove_ticket(ticket, wakers);
                shared.collect_token_wakers(pool.token_limit, wakers);
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
    tokens: u64,
}

impl TokenReservation {
    /// Returns the number of reserved tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

impl Drop for TokenReservation {
    fn drop(&mut self) {
        let Self { pool, tokens } = self;
        pool.with_state_mut(|shared, wakers| {
            shared.reserved_tokens = shared.reserved_tokens.saturating_sub(*tokens);
            shared.reservation_count = shared.reservation_count.saturating_sub(1);
            shared.collect_token_wakers(pool.token_limit, wakers);
        });
    }
}

/// The future returned by [`Pool::acquire_slot`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct AcquireSlot {
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
