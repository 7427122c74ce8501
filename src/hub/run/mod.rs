//! The runs of a hub: the task that drives a run and its parts (the run itself, the numbered
//! entries of its log, the state of the log, and the limit for runs without readers), and the
//! registry of runs.

pub(in crate::hub) mod blocking_tools;
mod driven_run;
mod log_entries;
mod log_state;
pub(in crate::hub) mod registry;
pub(in crate::hub) mod run_directory;
mod runner;
pub(in crate::hub) mod source;
mod unattended_limit;

pub(super) use driven_run::DrivenRun;
pub(super) use log_entries::LogEntries;
pub(super) use log_state::LogState;
pub(super) use runner::Runner;
pub(super) use unattended_limit::UnattendedLimit;
