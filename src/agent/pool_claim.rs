//! What a run holds of its pool.

use std::sync::{Mutex, MutexGuard};

use crate::agent::budget::{PoolSlot, TokenReservation};
use crate::lock::lock_ignoring_poison;

/// What a run holds of its pool for the request that is due or open.
#[derive(Debug, Default)]
pub(super) struct PoolClaim(Mutex<ClaimState>);

#[derive(Debug, Default)]
struct ClaimState {
    capacity: Option<HeldCapacity>,
    /// It was the run's turn, and it had something else to do first.
    yielded_queue_position: bool,
}

#[derive(Debug)]
pub(super) struct HeldCapacity {
    pub(super) _reservation: TokenReservation,
    pub(super) _slot: PoolSlot,
}

impl PoolClaim {
    /// The request is over, and what it used is counted: gives back what was held for it.
    pub(super) fn release(&self) {
        let settled = self.lock().capacity.take();
        drop(settled);
    }

    pub(super) fn hold_capacity(&self, held: HeldCapacity) {
        let before = self.lock().capacity.replace(held);
        drop(before);
    }

    /// Whether the run gave way when it was its turn; notes whether it does now.
    pub(super) fn replace_yielded_queue_position(&self, now: bool) -> bool {
        std::mem::replace(&mut self.lock().yielded_queue_position, now)
    }

    fn lock(&self) -> MutexGuard<'_, ClaimState> {
        // Nothing of a user runs while the lock is held.
        lock_ignoring_poison(&self.0)
    }
}
