//! What several runs share: tokens, and how much goes on at once.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::event::{BudgetKind, Exceeded};
use crate::usage::Usage;

/// How many tokens an answer is expected to have at most, unless a limit is set.
const PER_ANSWER: u64 = 4_096;

/// Tokens, and a limit on concurrency, that a tree of agents shares. A clone is the same pool.
///
/// **Tokens.** Before a run sends a request, it reserves the estimated tokens of the request and the
/// longest answer that its options allow: `max_output_tokens`, or what
/// [`with_per_answer`](Self::with_per_answer) says. A reservation that does not fit beside the others
/// waits until it is its turn; one that is alone is granted while anything is left. What was really
/// used is taken out at the end of the turn, and the rest is given back; a drop gives it back, too. A
/// run whose pool is spent ends as `budget`. So with `max_output_tokens` set, a pool is overdrawn by
/// at most one request and its answer, as far as the estimates of requests are right; without it, also
/// by what answers are longer than `per_answer`. Requests of a compactor, and a last turn to
/// [wrap up](crate::agent::Budget::wrap_up) with a pool that is spent, do not wait and are counted
/// afterwards.
///
/// **Concurrency.** [`with_max_concurrency`](Self::with_max_concurrency) limits how many requests are
/// open and tool calls are running at once. Only leaves count: a call that runs a sub-agent takes no
/// slot, so that parents cannot starve their children.
///
/// Every agent of the tree gets the pool in its [`Budget`](crate::agent::Budget::pool). Waiting costs
/// no task: a run that waits is pending, and is woken.
///
/// ```
/// use turnstream::Usage;
/// use turnstream::agent::Pool;
///
/// let pool = Pool::tokens(1_000);
/// let child = pool.clone();
/// child.drain(Usage { input_tokens: 900, output_tokens: 150, ..Usage::default() });
/// assert_eq!(pool.used(), 1_050);
/// assert!(pool.is_spent());
/// ```
#[derive(Clone)]
pub struct Pool {
    limit: u64,
    per_answer: u64,
    max_concurrency: usize,
    shared: Arc<Mutex<Shared>>,
}

/// The counts, and who waits. The lock is never held while anything of a user runs.
#[derive(Debug, Default)]
struct Shared {
    used: u64,
    reserved: u64,
    /// How many reservations are held.
    reservations: usize,
    tokens: Queue,
    /// How many slots are taken.
    slots: usize,
    for_slots: Queue,
}

/// Those that wait, in order.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    last_ticket: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    /// How much it waits for.
    wants: u64,
    waker: Waker,
}

impl Queue {
    /// How many are before the holder of this ticket, or before a newcomer, and how much they want.
    /// That is kept for them, since they may be paused and come any time.
    fn before(&self, ticket: Option<u64>) -> (usize, u64) {
        let before = self.waiting.iter().take_while(|it| Some(it.ticket) != ticket);
        before.fold((0, 0), |(count, sum), it| (count + 1, sum.saturating_add(it.wants)))
    }

    /// Waits with this ticket, or after all others.
    fn wait(&mut self, ticket: &mut Option<u64>, wants: u64, waker: &Waker) {
        let known = ticket.and_then(|id| self.waiting.iter_mut().find(|it| it.ticket == id));
        match known {
            Some(known) => known.waker.clone_from(waker),
            None => {
                self.last_ticket += 1;
                *ticket = Some(self.last_ticket);
                let waker = waker.clone();
                self.waiting.push_back(Waiting { ticket: self.last_ticket, wants, waker });
            }
        }
    }

    /// Waits no longer.
    fn leave(&mut self, ticket: &mut Option<u64>) {
        if let Some(ticket) = ticket.take() {
            self.waiting.retain(|it| it.ticket != ticket);
        }
    }

    /// Those who may get what they want when so much is left.
    fn ready(&self, mut left: u64, is_first_ready: bool) -> Vec<Waker> {
        let mut woken = Vec::new();
        for (at, waiting) in self.waiting.iter().enumerate() {
            if waiting.wants > left && !(at == 0 && is_first_ready) {
                break;
            }
            left = left.saturating_sub(waiting.wants);
            woken.push(waiting.waker.clone());
        }
        woken
    }
}

impl Shared {
    /// Whose turn it is to reserve tokens.
    fn ready_for_tokens(&self, limit: u64) -> Vec<Waker> {
        let left = limit.saturating_sub(self.used).saturating_sub(self.reserved);
        self.tokens.ready(left, self.reservations == 0 || self.used >= limit)
    }

    /// Whose turn it is to take a slot.
    fn ready_for_slots(&self, limit: usize) -> Vec<Waker> {
        let left = limit.saturating_sub(self.slots);
        self.for_slots.ready(u64::try_from(left).unwrap_or(u64::MAX), false)
    }
}

impl Pool {
    /// Makes a pool of so many tokens.
    pub fn tokens(limit: u64) -> Self {
        Self { limit, per_answer: PER_ANSWER, max_concurrency: usize::MAX, shared: Arc::default() }
    }

    /// Makes a pool that counts tokens and does not limit them.
    pub fn unlimited() -> Self {
        Self::tokens(u64::MAX)
    }

    /// Sets how many tokens are reserved for an answer whose length no `max_output_tokens` limits;
    /// 4,096 unless set. Clones made before keep what they had.
    pub fn with_per_answer(mut self, tokens: u64) -> Self {
        self.per_answer = tokens;
        self
    }

    /// Sets how many requests may be open and tool calls running at once, together; any number
    /// unless set. Clones made before keep what they had.
    ///
    /// Whoever waits is served in order. A consumer that pauses in the middle of a turn or a call
    /// keeps its slot.
    pub fn with_max_concurrency(mut self, leaves: NonZeroUsize) -> Self {
        self.max_concurrency = leaves.get();
        self
    }

    /// Takes the [total](Usage::total) of what was used since the last time out of it. It never
    /// waits, and takes more than there is.
    pub fn drain(&self, usage_delta: Usage) {
        let limit = self.limit;
        self.with(|shared| {
            shared.used = shared.used.saturating_add(usage_delta.total());
            // If nothing is left, each that waits tells the next one.
            shared.ready_for_tokens(limit)
        });
    }

    /// Reserves tokens for a request and its answer, when it is its turn. Dropping the future gives
    /// the place in the order up, and dropping the [`Reservation`] gives the tokens back.
    ///
    /// The agent does this by itself; a hand-written loop does it before each request, and
    /// [drains](Self::drain) what was used before it drops the reservation.
    ///
    /// ```
    /// use futures::FutureExt;
    /// use turnstream::Usage;
    /// use turnstream::agent::Pool;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let pool = Pool::tokens(1_000);
    /// let first = pool.reserve(800).await.unwrap();
    /// let mut second = pool.reserve(800);
    /// assert!((&mut second).now_or_never().is_none(), "it does not fit beside the first");
    ///
    /// pool.drain(Usage { input_tokens: 400, output_tokens: 100, ..Usage::default() });
    /// drop(first);
    /// // Alone it is granted, though it may not fit.
    /// assert!(second.await.is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What is used and how much there was, if the pool is spent.
    pub fn reserve(&self, tokens: u64) -> Reserve {
        Reserve { pool: self.clone(), tokens, ticket: None }
    }

    /// Waits for a slot of [`with_max_concurrency`](Self::with_max_concurrency), when it is its turn.
    /// Dropping the future gives the place in the order up, and dropping the [`Slot`] gives it to the
    /// next in order.
    pub fn slot(&self) -> WaitForSlot {
        WaitForSlot { pool: self.clone(), ticket: None }
    }

    /// How many tokens were taken out.
    pub fn used(&self) -> u64 {
        self.read(|shared| shared.used)
    }

    /// How many tokens are reserved for what is under way.
    pub fn reserved(&self) -> u64 {
        self.read(|shared| shared.reserved)
    }

    /// How many tokens there were.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How many tokens are reserved for an answer without a limit of its own.
    pub fn per_answer(&self) -> u64 {
        self.per_answer
    }

    /// Whether all of it was used.
    pub fn is_spent(&self) -> bool {
        self.used() >= self.limit()
    }

    fn read<T>(&self, f: impl FnOnce(&Shared) -> T) -> T {
        f(&self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the counts, and then wakes those whose turn it is.
    fn with(&self, f: impl FnOnce(&mut Shared) -> Vec<Waker>) {
        let woken = f(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
        woken.into_iter().for_each(Waker::wake);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("limit", &self.limit)
            .field("used", &self.used())
            .field("reserved", &self.reserved())
            .finish_non_exhaustive()
    }
}

/// Future for the [`reserve`](Pool::reserve) method.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Reserve {
    pool: Pool,
    tokens: u64,
    ticket: Option<u64>,
}

impl Future for Reserve {
    type Output = Result<Reservation, Exceeded>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pool, tokens, ticket } = self.get_mut();
        let (limit, tokens) = (pool.limit, *tokens);
        let mut polled = Poll::Pending;
        pool.with(|shared| {
            let Shared { used, reserved, reservations, .. } = *shared;
            if used >= limit {
                shared.tokens.leave(ticket);
                polled = Poll::Ready(Err(Exceeded {
                    kind: BudgetKind::Pool,
                    used,
                    limit,
                    diminishing_returns: false,
                }));
                return shared.ready_for_tokens(limit);
            }
            let (before, kept) = shared.tokens.before(*ticket);
            let all = [reserved, kept, tokens].iter().fold(used, |sum, it| sum.saturating_add(*it));
            let is_alone = reservations == 0 && before == 0;
            if all > limit && !is_alone {
                shared.tokens.wait(ticket, tokens, cx.waker());
                return Vec::new();
            }
            shared.tokens.leave(ticket);
            shared.reserved = reserved.saturating_add(tokens);
            shared.reservations += 1;
            polled = Poll::Ready(Ok(Reservation { pool: pool.clone(), tokens }));
            Vec::new()
        });
        polled
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        let Self { pool, ticket, .. } = self;
        if ticket.is_some() {
            pool.with(|shared| {
                shared.tokens.leave(ticket);
                shared.ready_for_tokens(pool.limit)
            });
        }
    }
}

/// Tokens of a [`Pool`] that are kept for a request and its answer. Dropping it gives them back.
#[derive(Debug)]
#[must_use = "dropping it gives the tokens back"]
pub struct Reservation {
    pool: Pool,
    tokens: u64,
}

impl Reservation {
    /// How many tokens are kept.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Self { pool, tokens } = self;
        pool.with(|shared| {
            shared.reserved = shared.reserved.saturating_sub(*tokens);
            shared.reservations = shared.reservations.saturating_sub(1);
            shared.ready_for_tokens(pool.limit)
        });
    }
}

/// Future for the [`slot`](Pool::slot) method.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct WaitForSlot {
    pool: Pool,
    ticket: Option<u64>,
}

impl Future for WaitForSlot {
    type Output = Slot;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Slot> {
        let Self { pool, ticket } = self.get_mut();
        let limit = pool.max_concurrency;
        let mut polled = Poll::Pending;
        pool.with(|shared| {
            let (before, _) = shared.for_slots.before(*ticket);
            if shared.slots.saturating_add(before) >= limit {
                shared.for_slots.wait(ticket, 1, cx.waker());
            } else {
                shared.for_slots.leave(ticket);
                shared.slots += 1;
                polled = Poll::Ready(Slot { pool: pool.clone() });
            }
            Vec::new()
        });
        polled
    }
}

impl Drop for WaitForSlot {
    fn drop(&mut self) {
        let Self { pool, ticket } = self;
        if ticket.is_some() {
            pool.with(|shared| {
                shared.for_slots.leave(ticket);
                shared.ready_for_slots(pool.max_concurrency)
            });
        }
    }
}

/// One of the slots of a [`Pool`]. Dropping it gives it to the next in order.
#[derive(Debug)]
#[must_use = "dropping it gives the slot away"]
pub struct Slot {
    pool: Pool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let pool = &self.pool;
        pool.with(|shared| {
            shared.slots = shared.slots.saturating_sub(1);
            shared.ready_for_slots(pool.max_concurrency)
        });
    }
}
