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

/// The maximum that one principal uses, and that all principals use together.
#[derive(Clone, Copy)]
pub(crate) struct Maximum {
    pub(crate) of_principal: usize,
    pub(crate) of_all: usize,
}

/// The maximum that has been reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Principal,
    All,
}

/// Is counted until it is dropped.
pub(crate) struct Slot {
    slots: Slots,
    principal: Arc<str>,
    amount: usize,
}

impl Slots {
    /// Takes a slot for a run of the principal.
    ///
    /// # Errors
    ///
    /// Returns a [`RateLimited`](ErrorKind::RateLimited) error if the principal has as many runs as
    /// it may have.
    pub(crate) fn start_run(&self, principal: &Principal) -> Result<Slot, Error> {
        let of_principal = principal.max_runs().unwrap_or(usize::MAX);
        let slot = self.take(principal, 1, Maximum { of_principal, of_all: usize::MAX });
        slot.map_err(|_| {
            let message = "too many runs at the same time";
            Error::new(ErrorKind::RateLimited, message).with_status(429)
        })
    }

    /// Takes a slot of this amount, unless it exceeds a maximum.
    pub(crate) fn take(
        &self,
        principal: &Principal,
        amount: usize,
        max: Maximum,
    ) -> Result<Slot, Full> {
        let mut slot = Slot { slots: self.clone(), principal: principal.shared_id(), amount: 0 };
        slot.grow(amount, max)?;
        Ok(slot)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Adds an amount to the slot, unless it exceeds a maximum.
    pub(crate) fn grow(&mut self, amount: usize, max: Maximum) -> Result<(), Full> {
        let mut counts = self.slots.lock();
        let own = counts.of_principal.get(&self.principal).copied().unwrap_or_default();
        let (own, all) = (own.saturating_add(amount), counts.of_all.saturating_add(amount));
        if own > max.of_principal {
            return Err(Full::Principal);
        }
        if all > max.of_all {
            return Err(Full::All);
        }
        counts.of_all = all;
        counts.of_principal.insert(Arc::clone(&self.principal), own);
        self.amount += amount;
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.slots.lock();
        counts.of_all -= self.amount;
        if let Some(count) = counts.of_principal.get_mut(&self.principal) {
            *count -= self.amount;
            if *count == 0 {
                counts.of_principal.remove(&self.principal);
            }
        }
    }
}
