//! The input of a run, and its id.

use turnstream::item::{Item, PendingCall};
use turnstream::tool::Verdict;

/// A run that has started, or that waits for the end of another.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Started {
    pub(super) run: String,
    pub(super) is_queued: bool,
}

/// The input that a run starts with.
pub(super) enum Start {
    Say(Vec<Item>),
    Resume(Vec<(PendingCall, Verdict)>),
    /// Tombstones this entry and all after it. Then the items are added, or the model answers
    /// again.
    Replace {
        from: u64,
        items: Vec<Item>,
    },
}
