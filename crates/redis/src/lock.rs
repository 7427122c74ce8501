//! Locks mutexes that a panic may have poisoned.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a panic has poisoned it. Ignoring the poisoning is safe, because no code
/// that may panic runs while the data in one of this crate's mutexes is in an inconsistent state.
pub(crate) fn lock_ignoring_poison<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
