//! Waiting for the pool before a request is sent.

use std::sync::{Mutex, PoisonError};

use crate::agent::budget::{Reservation, Slot};
use crate::agent::{Parts, State};
use crate::context::{QuarterOfBytes, estimate_request};

/// What a run holds of its pool for the request that is due or open.
#[derive(Debug, Default)]
pub(super) struct Admission(Mutex<Option<Held>>);

#[derive(Debug)]
struct Held {
    /// `None` for a last turn that a spent pool does not hold up.
    _reservation: Option<Reservation>,
    _slot: Slot,
    /// Whether the request was handed to the provider.
    is_sent: bool,
}

impl Admission {
    /// The request is handed to the provider.
    pub(super) fn sent(&self) {
        if let Some(held) = &mut *self.lock() {
            held.is_sent = true;
        }
    }

    /// The turn is over, and what it used is counted: gives back what was held for it.
    pub(super) fn settle(&self) {
        let settled = self.lock().take_if(|held| held.is_sent);
        drop(settled);
    }

    /// The run is over.
    pub(super) fn clear(&self) {
        let held = self.lock().take();
        drop(held);
    }

    fn is_held(&self) -> bool {
        self.lock().is_some()
    }

    fn hold(&self, held: Held) {
        *self.lock() = Some(held);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Held>> {
        // Nothing of a user runs while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    /// Waits until the [pool](crate::agent::Pool) of the run has tokens and a slot for the next
    /// request, and takes them. They are given back when the turn is over, or the run is dropped.
    ///
    /// Returns whether it had to wait: then what is known may have changed, and is to be looked at
    /// again before the request is made. It never waits twice in a row.
    ///
    /// The tokens are those of the ledger, estimated, and of the longest answer that the agent's
    /// options allow; what hooks make of the request is not known yet.
    pub async fn admit(&self, state: &State) -> bool {
        let admission = self.control().admission();
        let Some(pool) = self.agent().budget.shared_pool() else { return false };
        if self.tape().is_playing() {
            return self.tape().waited(false);
        }
        if admission.is_held() {
            return false;
        }
        let request = self.agent().request(&state.history);
        let input = match &self.agent().window {
            Some(window) => window.estimate(&request),
            None => estimate_request(&request, &QuarterOfBytes),
        };
        let answer = request.options.max_output_tokens.map_or(pool.per_answer(), u64::from);
        let mut waited = false;
        let reservation = match now_or_later(&mut waited, pool.reserve(input + answer)).await {
            Ok(reservation) => Some(reservation),
            // The last turn is not held up.
            Err(_) if state.wrapping_up.is_some() => None,
            // The body finds that the pool is spent when it looks again.
            Err(_) => return self.tape().waited(true),
        };
        let slot = now_or_later(&mut waited, pool.slot()).await;
        admission.hold(Held { _reservation: reservation, _slot: slot, is_sent: false });
        self.tape().waited(waited)
    }
}

/// Waits for a future, and notes whether it was not ready at once.
async fn now_or_later<F: Future>(waited: &mut bool, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        *waited |= polled.is_pending();
        polled
    })
    .await
}
