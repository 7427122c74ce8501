//! Limits what each principal uses at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use turnstream::{Error, ErrorKind};

use crate::authorize::Principal;

/// Counts what each principal uses at the same time, such as its runs. Clones share their counts.
#[derive(Clone, Default)]
pub(crate) struct Slots(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    of_principal: HashMap<Arc<str>, usize>,
    of_all: usize,
}

/// Is counted until it is dropped.
pub(crate) struct Slot {
    slots: Slots,
    principal: Arc<str>,
}

impl Slots {
    /// Takes a slot for a run of the principal.
    ///
    /// # Errors
    ///
    /// Returns a [`RateLimited`](ErrorKind::RateLimited) error if the principal has as many runs as
    /// it may have.
    pub(crate) fn start_run(&self, principal: &Principal) -> Result<Slot, Error> {
        let max_runs = principal.max_runs().unwrap_or(usize::MAX);
        self.take(principal, max_runs, usize::MAX).ok_or_else(|| {
            let message = "too many runs at the same time";
            Error::new(ErrorKind::RateLimited, message).with_status(429)
        })
    }

    /// Takes a slot, unless the principal has `max` of them, or all principals together `max_all`.
    pub(crate) fn take(&self, principal: &Principal, max: usize, max_all: usize) -> Option<Slot> {
        let mut counts = self.lock();
        let count = counts.of_principal.get(principal.id()).copied().unwrap_or_default();
        if count >= max || counts.of_all >= max_all {
            return None;
        }
        counts.of_all += 1;
        let principal = principal.shared_id();
        counts.of_principal.insert(Arc::clone(&principal), count + 1);
        Some(Slot { slots: self.clone(), principal })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.slots.lock();
        counts.of_all -= 1;
        if let Some(count) = counts.of_principal.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                counts.of_principal.remove(&self.principal);
            }
        }
    }
}
