//! Waiting for the pool before a request is sent.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard};

use crate::agent::budget::{Reservation, Slot};
use crate::agent::control::When;
use crate::agent::room::COUNTER;
use crate::agent::within::caught;
use crate::agent::{RunContext, State};
use crate::context::{QuarterOfBytes, estimate_request};
use crate::error::Error;
use crate::lock::lock;
use crate::request::Request;
use crate::world::Kind;

/// What a run holds of its pool for the request that is due or open.
#[derive(Debug, Default)]
pub(super) struct Admission(Mutex<Waited>);

#[derive(Debug, Default)]
struct Waited {
    held: Option<Held>,
    /// It was the run's turn, and it had something else to do first.
    gave_way: bool,
}

#[derive(Debug)]
struct Held {
    _reservation: Reservation,
    _slot: Slot,
}

impl Admission {
    /// The request is over, and what it used is counted: gives back what was held for it.
    pub(super) fn settle(&self) {
        let settled = self.lock().held.take();
        drop(settled);
    }

    fn hold(&self, held: Held) {
        let before = self.lock().held.replace(held);
        drop(before);
    }

    /// Whether the run gave way when it was its turn; notes whether it does now.
    fn gives_way(&self, now: bool) -> bool {
        std::mem::replace(&mut self.lock().gave_way, now)
    }

    fn lock(&self) -> MutexGuard<'_, Waited> {
        // Nothing of a user runs while the lock is held.
        lock(&self.0)
    }
}

impl RunContext {
    /// Waits until the pool of the run has tokens and a slot for a request, and takes them. They are
    /// given back when the turn is over, or the run is dropped.
    ///
    /// Returns whether the request is to be sent. It is not if the pool is spent, or if something has
    /// come up while the run waited that is to be looked at first, such as words of a holder; then the
    /// run keeps its place in the order. Dropping the future gives the place up.
    pub(super) async fn admit(&self, state: &State, request: &Request) -> Result<bool, Error> {
        if self.agent().budget.shared_pool().is_none() {
            return Ok(true);
        }
        let (cx, state, request) = (self.clone(), state.clone(), request.clone());
        let admit = async move { Ok(!cx.is_admitted(&state, &request).await) };
        let gave_way = self.effects().perform(Kind::GaveWay, admit).await?;
        Ok(!gave_way)
    }

    async fn is_admitted(&self, state: &State, request: &Request) -> bool {
        let Some(pool) = self.agent().budget.shared_pool() else { return true };
        let admission = self.control().admission();
        // Of a request before this one, in a body that does not say when it is over.
        self.request_is_over();
        let answer = request.options.max_output_tokens.map_or(pool.per_answer(), u64::from);
        let tokens = self.estimate(request).saturating_add(answer);
        let keeping = match state.wrapping_up {
            Some(_) => 0,
            None => self.agent().budget.reserve_tokens(),
        };
        let first = admission.gives_way(false);
        let mut waited = false;
        let reservation = pool.reserve_keeping(tokens, keeping).first(first);
        let Ok(reservation) = now_or_later(&mut waited, reservation).await else {
            return false;
        };
        let slot = now_or_later(&mut waited, pool.slot().first(first)).await;
        if waited && self.has_news(state) {
            drop((slot, reservation));
            admission.gives_way(true);
            return false;
        }
        admission.hold(Held { _slot: slot, _reservation: reservation });
        true
    }

    /// Whether something is known now that decides on the request.
    fn has_news(&self, state: &State) -> bool {
        let (control, budget) = (self.control(), &self.agent().budget);
        let spent = self.spent(state);
        let exceeded = state.wrapping_up.is_none() && self.exceeded(state, &spent).is_some();
        control.is_waiting(When::NextRequest)
            || !control.tombstones().is_empty()
            || control.is_stopping()
            || exceeded
            || budget.has_nothing_left(&spent)
    }

    /// How many tokens a request is estimated at. A counter that panics is replaced.
    fn estimate(&self, request: &Request) -> u64 {
        let counted = self
            .agent()
            .window
            .as_ref()
            .and_then(|window| caught(COUNTER, || window.estimate(request)).ok());
        counted.unwrap_or_else(|| estimate_request(request, &QuarterOfBytes))
    }
}

/// Waits for a future, and notes whether it was not ready at once.
async fn now_or_later<F: Future>(waited: &mut bool, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        *waited |= polled.is_pending();
        polled
    })
    .await
}
