//! The log of a run: its entries and their numbers, and what a log keeps of them.

pub(in crate::hub) mod compact_events;
pub(in crate::hub) mod delta;
pub(in crate::hub) mod entry_queue;
pub(in crate::hub) mod event_log;
pub(in crate::hub) mod event_number;
pub(in crate::hub) mod logs;
pub(in crate::hub) mod memory_log;
pub(in crate::hub) mod packed_entries;
pub(in crate::hub) mod snapshot;
pub(in crate::hub) mod snapshot_events;
