//! Locks mutexes that a panic may have poisoned.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a panic has poisoned it. Ignoring the poisoning is safe, because no code
/// that may panic runs while the data in one of this crate's mutexes is in an inconsistent state.
pub(crate) fn lock_ignoring_poison<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_poisoned_mutex_can_still_be_locked() {
        let mutex = Mutex::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = mutex.lock();
            panic!("while it is held");
        }));
        assert!(panicked.is_err() && mutex.is_poisoned());
        *lock_ignoring_poison(&mutex) += 1;
        assert_eq!(*lock_ignoring_poison(&mutex), 2);
    }
}
