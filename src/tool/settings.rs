//! Settings of a tool.

use std::time::Duration;

/// The default time limit of a call, for tools and toolkits that set no other limit.
///
/// Sub-agents have no limit by default. External calls and waits for an approval have no limit
/// either.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// The settings of a tool, which are all parts of the tool except its handler.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ToolSettings {
    pub(super) timeout: Option<Duration>,
    /// Whether each flag is set, indexed by `ToolFlag`.
    flags: [bool; 7],
}

/// A property that a tool declares.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolFlag {
    /// Each call runs while no other call of the turn is running.
    Exclusive,
    RequiresApproval,
    SupportsDryRun,
    /// The tool runs outside of the toolkit.
    External,
    /// Each call runs agents, whose requests and calls are counted instead of the call itself.
    RunsSubAgents,
    /// An interrupted call of the tool may run again.
    Idempotent,
    /// Repeating the same call with the same result does not mean that the run is stuck.
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
