//! Defines a run's claim to pool capacity.

use std::sync::{Mutex, MutexGuard};

use crate::agent::budget::{PoolSlot, TokenReservation};
use crate::lock::lock_ignoring_poison;

/// The pool capacity that a run holds for its next request or its open request.
#[derive(Debug, Default)]
pub(in crate::agent) struct PoolClaim(Mutex<ClaimState>);

#[derive(Debug, Default)]
struct ClaimState {
    capacity: Option<HeldCapacity>,
    /// Whether the run reached the front of the pool's queue, but gave up its place because it had
    /// to handle something else first.
    yielded_queue_position: bool,
}

#[derive(Debug)]
pub(in crate::agent) struct HeldCapacity {
    pub(in crate::agent) _reservation: TokenReservation,
    pub(in crate::agent) _slot: PoolSlot,
}

impl PoolClaim {
    /// Releases the capacity that the run holds. Call this method after the request's usage has
    /// been charged.
    pub(in crate::agent) fn release(&self) {
        let settled = self.lock().capacity.take();
        drop(settled);
    }

    pub(in crate::agent) fn hold_capacity(&self, held: HeldCapacity) {
        let before = self.lock().capacity.replace(held);
        drop(before);
    }

    /// Sets whether the run has given up its place at the front of the pool's queue to handle
    /// something else, and returns the previous value.
    pub(in crate::agent) fn replace_yielded_queue_position(&self, now: bool) -> bool {
        std::mem::replace(&mut self.lock().yielded_queue_position, now)
    }

    fn lock(&self) -> MutexGuard<'_, ClaimState> {
        // No user code runs while the lock is held.
        lock_ignoring_poison(&self.0)
    }
}
