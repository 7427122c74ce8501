//! What several runs share: tokens, and how much goes on at once.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::event::{BudgetExceeded, BudgetKind};
use crate::lock::lock_ignoring_poison;
use crate::usage::Usage;

/// How many tokens an answer is expected to have at most, unless a limit is set.
const DEFAULT_TOKENS_PER_RESPONSE: u64 = 4_096;

/// Tokens, and a limit on concurrency, that a tree of agents shares. A clone is the same pool.
///
/// # Tokens
///
/// - Before a run sends a request, it reserves the estimated tokens of the request and the longest
///   answer that its options allow: `max_output_tokens`, or 4,096 if that is not set
///   ([`with_tokens_per_response`](Self::with_tokens_per_response)).
/// - A request that does not fit beside the others waits until it is its turn. One that is alone is sent
///   while anything is left, so a pool that is smaller than a reservation sends one request at a time.
/// - At the end of the turn the tokens that were used are taken out, and the rest is given back. A drop
///   gives the reservation back, too.
/// - A run whose pool is spent ends as `budget`. A last turn to
///   [wrap up](crate::agent::Budget::with_wrap_up) reserves its tokens like any other, so there is none on a
///   spent pool.
/// - With `max_output_tokens` set, a pool is exceeded by at most one request and its answer, as far as
///   the estimates of requests are right. Without it, also by the part of each answer that is longer
///   than the reservation.
/// - Requests of a compactor do not wait, and are counted afterwards.
///
/// # Concurrency
///
/// [`with_max_concurrency`](Self::with_max_concurrency) limits how many requests are open and tool calls
/// are running at once. Only leaves count: a call that runs a sub-agent takes no slot, so that parents
/// cannot starve their children. A tool that runs an agent of the same pool itself has to be marked as
/// [`running_sub_agents`](crate::Tool::running_sub_agents); otherwise that agent waits for ever for the slot of
/// the tool.
///
/// Every agent of the tree gets the pool in its [`Budget`](crate::agent::Budget::with_pool). Waiting costs
/// no task: a run that waits is pending, and is woken.
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

/// The counts, and who waits. The lock is never held while anything of a user runs.
#[derive(Debug)]
struct PoolState {
    tokens_per_response: u64,
    max_concurrency: usize,
    used_tokens: u64,
    reserved_tokens: u64,
    /// How many reservations are held.
    reservation_count: usize,
    token_queue: WaitQueue,
    /// How many slots are taken.
    slots_in_use: usize,
    slot_queue: WaitQueue,
}

/// Those that wait, in order.
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

/// What a waiting run asks for.
#[derive(Clone, Copy, Debug)]
struct WaitRequest {
    amount: u64,
    /// How much has to be left after it.
    min_remaining: u64,
    /// Goes before all others: it was its turn before, and it had to look at something else first.
    at_front: bool,
}

/// The wakers to drop or to wake after the pool is unlocked: both run code of a user.
#[derive(Default)]
struct DeferredWakers {
    to_wake: Vec<Waker>,
    to_drop: Vec<Waker>,
}

impl WaitQueue {
    /// How many are before the holder of this ticket, or before a newcomer, and how much they want.
    /// That is kept for them, since they may be paused and come any time.
    fn waiters_ahead(&self, ticket: Option<u64>, wants: WaitRequest) -> (usize, u64) {
        if ticket.is_none() && wants.at_front {
            return (0, 0);
        }
        let before = self.waiters.iter().take_while(|it| Some(it.ticket) != ticket);
        before.fold((0, 0), |(count, sum), it| (count + 1, sum.saturating_add(it.request.amount)))
    }

    /// Waits with this ticket, or takes one.
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

    /// Waits no longer.
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
    /// Those whose turn it is to reserve tokens, or to hear that there are none.
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

    /// Those whose turn it is to take a slot.
    fn collect_slot_wakers(&self, wakers: &mut DeferredWakers) {
        let free = self.max_concurrency.saturating_sub(self.slots_in_use);
        let waiting = self.slot_queue.waiters.iter().take(free);
        wakers.to_wake.extend(waiting.map(|waiting| waiting.waker.clone()));
    }
}

impl Pool {
    /// Makes a pool of so many tokens.
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

    /// Makes a pool that counts tokens and does not limit them.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Sets how many tokens are reserved for an answer whose length no `max_output_tokens` limits;
    /// 4,096 unless set.
    pub fn with_tokens_per_response(self, tokens: u64) -> Self {
        self.with_state_mut(|shared, _| shared.tokens_per_response = tokens);
        self
    }

    /// Sets how many requests may be open and tool calls running at once, together; any number
    /// unless set.
    ///
    /// Slots are given in order. A consumer that pauses in the middle of a turn or a call keeps its
    /// slot, and one that pauses while its run waits keeps its place in the order: those after it
    /// wait until it is polled again or dropped. A request that is retried keeps its slot while it
    /// waits.
    pub fn with_max_concurrency(self, leaves: NonZeroUsize) -> Self {
        self.with_state_mut(|shared, wakers| {
            shared.max_concurrency = leaves.get();
            shared.collect_slot_wakers(wakers);
        });
        self
    }

    /// Takes the [total](Usage::total) of what was used since the last time out of it. It never
    /// waits, and takes more than there is.
    pub fn charge(&self, usage_delta: Usage) {
        let limit = self.token_limit;
        self.with_state_mut(|shared, wakers| {
            shared.used_tokens = shared.used_tokens.saturating_add(usage_delta.total());
            shared.collect_token_wakers(limit, wakers);
        });
    }

    /// Reserves tokens for a request and its answer, when it is its turn. Dropping the future gives
    /// the place in the order up, and dropping the [`TokenReservation`] gives the tokens back.
    ///
    /// The agent does this by itself; a hand-written loop does it before each request, before it
    /// waits for a [slot](Self::acquire_slot), and [drains](Self::charge) what was used before it drops the
    /// reservation.
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
    /// // Alone it is granted, though it may not fit.
    /// assert!(second.await.is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What is used and how much there was, if the pool is spent.
    pub fn reserve(&self, tokens: u64) -> ReserveTokens {
        self.reserve_with_min_remaining(tokens, 0)
    }

    /// The same, where this number of tokens has to be left: the pool counts as spent that much earlier.
    pub(in crate::agent) fn reserve_with_min_remaining(
        &self,
        tokens: u64,
        keeping: u64,
    ) -> ReserveTokens {
        let wants = WaitRequest { amount: tokens, min_remaining: keeping, at_front: false };
        ReserveTokens { pool: self.clone(), request: wants, ticket: None }
    }

    /// Waits for a slot of [`with_max_concurrency`](Self::with_max_concurrency), when it is its turn.
    /// Dropping the future gives the place in the order up, and dropping the [`PoolSlot`] gives it to the
    /// next in order. If you need tokens as well, [reserve](Self::reserve) them first.
    pub fn acquire_slot(&self) -> AcquireSlot {
        let wants = WaitRequest { amount: 1, min_remaining: 0, at_front: false };
        AcquireSlot { pool: self.clone(), request: wants, ticket: None }
    }

    /// How many tokens were taken out.
    pub fn used_tokens(&self) -> u64 {
        self.with_state(|shared| shared.used_tokens)
    }

    /// How many tokens are reserved for what is under way.
    pub fn reserved_tokens(&self) -> u64 {
        self.with_state(|shared| shared.reserved_tokens)
    }

    /// How many tokens there were.
    pub fn token_limit(&self) -> u64 {
        self.token_limit
    }

    /// How many tokens are reserved for an answer without a limit of its own.
    pub fn tokens_per_response(&self) -> u64 {
        self.with_state(|shared| shared.tokens_per_response)
    }

    /// Whether all of it was used.
    pub fn is_exhausted(&self) -> bool {
        self.used_tokens() >= self.token_limit()
    }

    fn with_state<T>(&self, f: impl FnOnce(&PoolState) -> T) -> T {
        f(&lock_ignoring_poison(&self.state))
    }

    /// Changes the counts, and then wakes those whose turn it is.
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
            .field("limit", &self.token_limit)
            .field("used", &self.used_tokens())
            .field("reserved", &self.reserved_tokens())
            .finish_non_exhaustive()
    }
}

/// Future for the [`reserve`](Pool::reserve) method.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ReserveTokens {
    pool: Pool,
    request: WaitRequest,
    ticket: Option<u64>,
}

impl ReserveTokens {
    /// Goes before all others.
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
        // Made after the pool is unlocked: dropping it locks the pool.
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

/// Tokens of a [`Pool`] that are kept for a request and its answer. Dropping it gives them back.
#[derive(Debug)]
#[must_use = "dropping it gives the tokens back"]
pub struct TokenReservation {
    pool: Pool,
    tokens: u64,
}

impl TokenReservation {
    /// How many tokens are kept.
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

/// Future for the [`acquire_slot`](Pool::acquire_slot) method.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct AcquireSlot {
    pool: Pool,
    request: WaitRequest,
    ticket: Option<u64>,
}

impl AcquireSlot {
    /// Goes before all others.
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

/// One of the slots of a [`Pool`]. Dropping it gives it to the next in order.
#[derive(Debug)]
#[must_use = "dropping it gives the slot away"]
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
