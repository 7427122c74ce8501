//! How many calls may run beside each other.

use crate::tool::Tool;

/// The places of the calls that run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConcurrencySlots {
    limit: usize,
    in_use: usize,
    /// The one that runs wants to be alone.
    is_exclusive: bool,
    is_unlimited: bool,
}

impl ConcurrencySlots {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, in_use: 0, is_exclusive: false, is_unlimited: false }
    }

    /// Places for all calls at once, also for those that want to be alone: something else decides.
    #[cfg(feature = "durable")]
    pub(super) fn unlimited() -> Self {
        Self { is_unlimited: true, ..Self::new(usize::MAX) }
    }

    /// Whether there is a place for a call of this tool; of one that does not exist, as for any.
    pub(super) fn has_slot_for(&self, tool: Option<&Tool>) -> bool {
        match tool.is_some_and(Tool::is_exclusive) {
            _ if self.is_unlimited => true,
            true => self.in_use == 0,
            false => !self.is_exclusive && self.in_use < self.limit,
        }
    }

    pub(super) fn acquire(&mut self, tool: &Tool) {
        self.in_use += 1;
        self.is_exclusive = tool.is_exclusive();
    }

    pub(super) fn release(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
        self.is_exclusive = false;
    }
}
