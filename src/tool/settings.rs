//! A tool's settings.

use std::time::Duration;

/// The default time limit for a call, which applies to tools and toolkits that set no other limit.
///
/// By default, calls to sub-agents have no time limit. External calls and the time spent waiting
/// for an approval are not limited either.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// A tool's settings, that is, everything in the tool except its handler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ToolSettings {
    pub(super) timeout: Option<Duration>,
    /// Whether each flag is set, indexed by `ToolFlag`.
    flags: [bool; 7],
}

/// A property that a tool declares.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolFlag {
    /// Each call runs alone: no other call from the same turn runs at the same time.
    Exclusive,
    RequiresApproval,
    SupportsDryRun,
    /// The tool runs outside the toolkit.
    External,
    /// Each call runs agents. The agents' requests and calls are counted instead of the call
    /// itself.
    RunsSubAgents,
    /// An interrupted call to the tool may run again.
    Idempotent,
    /// Repeated calls with the same result do not mean that the run is stuck.
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
