//! A run: its stages, and the state that it shares with its handles.

pub(in crate::agent) mod checked_input;
pub(in crate::agent) mod control;
pub(in crate::agent) mod deadline;
pub(in crate::agent) mod handle;
pub(in crate::agent) mod input;
pub(in crate::agent) mod observation;
pub(in crate::agent) mod observers;
pub(in crate::agent) mod pool_claim;
pub(in crate::agent) mod run;
pub(in crate::agent) mod run_context;
pub(in crate::agent) mod run_observer;
pub(in crate::agent) mod run_policy;
pub(in crate::agent) mod run_shared;
pub(in crate::agent) mod run_stage;
pub(in crate::agent) mod run_start;
pub(in crate::agent) mod tombstone_queue;
