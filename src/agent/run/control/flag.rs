//! A flag that several threads read and set.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that a run shares with its handles.
#[derive(Default)]
pub(in crate::agent) struct Flag(AtomicBool);

impl Flag {
    pub(in crate::agent) fn set(&self, value: bool) {
        self.0.store(value, Ordering::Release);
    }

    pub(in crate::agent) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
