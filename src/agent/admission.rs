//! What a run holds of its pool.

use std::sync::{Mutex, MutexGuard};

use crate::agent::budget::{Reservation, Slot};
use crate::lock::lock_ignoring_poison;

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
pub(super) struct Held {
    pub(super) _reservation: Reservation,
    pub(super) _slot: Slot,
}

impl Admission {
    /// The request is over, and what it used is counted: gives back what was held for it.
    pub(super) fn settle(&self) {
        let settled = self.lock().held.take();
        drop(settled);
    }

    pub(super) fn hold(&self, held: Held) {
        let before = self.lock().held.replace(held);
        drop(before);
    }

    /// Whether the run gave way when it was its turn; notes whether it does now.
    pub(super) fn gives_way(&self, now: bool) -> bool {
        std::mem::replace(&mut self.lock().gave_way, now)
    }

    fn lock(&self) -> MutexGuard<'_, Waited> {
        // Nothing of a user runs while the lock is held.
        lock_ignoring_poison(&self.0)
    }
}
