//! The slots that limit the number of concurrent calls.

use crate::tool::Tool;

/// The slots for a turn's concurrent calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConcurrencySlots {
    limit: usize,
    in_use: usize,
    /// Whether an exclusive call is currently running.
    is_exclusive: bool,
    is_unlimited: bool,
}

impl ConcurrencySlots {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, in_use: 0, is_exclusive: false, is_unlimited: false }
    }

    /// Creates slots for any number of concurrent calls, including exclusive calls. These slots are
    /// used for calls with a journal, because the journal decides when calls start.
    pub(super) fn unlimited() -> Self {
        Self { is_unlimited: true, ..Self::new(usize::MAX) }
    }

    /// Returns whether a call to this tool could start now. If the tool is unknown (`None`), the
    /// call needs only a free slot.
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
