//! The input of a run, its id, and what else it starts with.

use turnstream::Agent;
use turnstream::item::{Item, PendingCall};
use turnstream::propagation::TraceContext;
use turnstream::tool::Verdict;

use crate::slots::Slot;

/// A run that has started, or that waits for the end of another.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Started {
    pub(super) run: String,
    pub(super) is_queued: bool,
}

/// A run that is about to start.
pub(super) struct NewRun {
    pub(super) agent: Agent,
    pub(super) start: Start,
    pub(super) run_id: String,
    /// Is free again when the run has ended.
    pub(super) slot: Option<Slot>,
    /// The span in whose trace the run is recorded.
    pub(super) trace_parent: Option<TraceContext>,
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
