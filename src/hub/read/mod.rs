//! Readers of the logs of runs.

pub(in crate::hub) mod all_hubs_reader;
pub(in crate::hub) mod one_hub_reader;
pub(in crate::hub) mod reader;
pub(in crate::hub) mod session_reader;
