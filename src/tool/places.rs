//! How many calls may run beside each other.

use crate::tool::settings::Class;

/// The places of the calls that run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    limit: usize,
    taken: usize,
    /// The one that runs wants to be alone.
    alone: bool,
}

impl Places {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, taken: 0, alone: false }
    }

    /// Whether there is a place for a call of this class.
    pub(super) fn are_left(&self, class: Class) -> bool {
        match class {
            Class::Safe => !self.alone && self.taken < self.limit,
            Class::Exclusive => self.taken == 0,
        }
    }

    pub(super) fn take(&mut self, class: Class) {
        self.taken += 1;
        self.alone = class == Class::Exclusive;
    }

    pub(super) fn give_back(&mut self) {
        self.taken = self.taken.saturating_sub(1);
        self.alone = false;
    }
}
