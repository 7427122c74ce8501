//! How many calls may run beside each other.

use crate::tool::Tool;

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

    /// Whether there is a place for a call of this tool; of one that does not exist, as for any.
    pub(super) fn are_left(&self, tool: Option<&Tool>) -> bool {
        match tool.is_some_and(Tool::is_exclusive) {
            true => self.taken == 0,
            false => !self.alone && self.taken < self.limit,
        }
    }

    pub(super) fn take(&mut self, tool: &Tool) {
        self.taken += 1;
        self.alone = tool.is_exclusive();
    }

    pub(super) fn give_back(&mut self) {
        self.taken = self.taken.saturating_sub(1);
        self.alone = false;
    }
}
