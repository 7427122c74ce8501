//! The state that a run shares with its tools.

use std::sync::{Arc, Mutex, OnceLock};

use crate::agent::sources::tool_listing::ListedTools;
use crate::lock::lock_ignoring_poison;
use crate::tool::{CurrentPoll, RunData, ToolContext};

/// The tools of a run, the data that is available to them, and the calls that have started.
#[derive(Default)]
pub(in crate::agent) struct ToolState {
    data: Mutex<RunData>,
    /// The tools that the agent's sources returned when they were last listed.
    pub(in crate::agent) listed: ListedTools,
    /// The contexts of the calls that have started in this turn, in the order in which they
    /// started.
    started_calls: Mutex<Vec<ToolContext>>,
    /// The poll of a tool that has not returned yet; set if it is observed.
    pub(in crate::agent) current_poll: OnceLock<Arc<CurrentPoll>>,
}

impl ToolState {
    pub(in crate::agent) fn add_started_call(&self, context: &ToolContext) {
        lock_ignoring_poison(&self.started_calls).push(context.clone());
    }

    /// Removes and returns the contexts of the tool calls that have started since this method was
    /// last called.
    pub(in crate::agent) fn take_started_calls(&self) -> Vec<ToolContext> {
        std::mem::take(&mut *lock_ignoring_poison(&self.started_calls))
    }

    /// Updates the data that is available to the run's tools.
    pub(in crate::agent) fn update_data(&self, change: impl FnOnce(RunData) -> RunData) {
        let data = self.data();
        *lock_ignoring_poison(&self.data) = change(data);
    }

    pub(in crate::agent) fn data(&self) -> RunData {
        lock_ignoring_poison(&self.data).clone()
    }
}
