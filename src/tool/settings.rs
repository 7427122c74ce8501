//! How a tool wants to be run.

use std::time::Duration;

/// How long a call may take, unless its tool or its toolkit says otherwise.
///
/// A sub-agent has no limit by default, and neither have external calls and waits for an approval.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// What is known of a tool besides its handler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ToolSettings {
    pub(super) timeout: Option<Duration>,
    /// Those that are set, by their numbers.
    flags: [bool; 7],
}

/// What a tool says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolFlag {
    /// Nothing runs beside a call.
    Exclusive,
    RequiresApproval,
    SupportsDryRun,
    /// Somebody outside runs it.
    External,
    /// A call runs agents, whose requests and calls count in its place.
    RunsSubAgents,
    /// A call that was broken off may run again.
    Idempotent,
    /// The same call with the same result, again and again, does not say that a run gets nowhere.
    Pollable,
}

impl ToolSettings {
    pub(super) fn set_flag(&mut self, mark: ToolFlag) {
        self.flags[mark as usize] = true;
    }

    pub(super) fn has_flag(&self, mark: ToolFlag) -> bool {
        self.flags[mark as usize]
    }
}
