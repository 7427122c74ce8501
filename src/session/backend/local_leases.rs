//! Leases that exclude other runs only within one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::lock::lock_ignoring_poison;
use crate::session::{AlreadyLeased, Lease, LeaseLost};

/// The leases that this process holds on the sessions of a store that only this process uses.
/// Clones share the leases.
#[derive(Clone, Debug, Default)]
pub struct LocalLeases(Arc<Mutex<LeaseTable>>);

#[derive(Debug, Default)]
struct LeaseTable {
    last_epoch: u64,
    /// The epochs of the leases that are currently held, by session id.
    held: HashMap<String, u64>,
}

/// The value that a local [`Lease`] keeps until it is dropped. Dropping this value releases the
/// lease.
struct LocalHold {
    leases: LocalLeases,
    id: String,
}

impl LocalLeases {
    /// Acquires the lease on a session.
    ///
    /// # Errors
    ///
    /// Returns an error with [`AlreadyLeased`] as its source if a run holds the lease.
    pub fn take(&self, id: &str) -> Result<Lease, Error> {
        let mut table = lock_ignoring_poison(&self.0);
        if table.held.contains_key(id) {
            return Err(AlreadyLeased { id: id.to_owned() }.into());
        }
        table.last_epoch += 1;
        let epoch = table.last_epoch;
        table.held.insert(id.to_owned(), epoch);
        Ok(Lease::new(epoch, LocalHold { leases: self.clone(), id: id.to_owned() }))
    }

    /// Checks that `lease` is the latest lease on the session.
    ///
    /// # Errors
    ///
    /// Returns an error with [`LeaseLost`] as its source if it is not.
    pub fn check(&self, id: &str, lease: &Lease) -> Result<(), Error> {
        let epoch = lease.epoch();
        match lock_ignoring_poison(&self.0).held.get(id) == Some(&epoch) {
            true => Ok(()),
            false => Err(LeaseLost { id: id.to_owned(), epoch }.into()),
        }
    }
}

impl Drop for LocalHold {
    fn drop(&mut self) {
        lock_ignoring_poison(&self.leases.0).held.remove(&self.id);
    }
}
