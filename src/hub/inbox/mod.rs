//! The commands that are sent to runs.

pub(in crate::hub) mod command_inbox;
pub(in crate::hub) mod memory_inbox;
