//! A tool's settings.

use std::time::Duration;

/// The default time limit for a tool call, used unless the tool or the toolkit sets another limit.
///
/// By default, calls to sub-agents have no time limit. External calls also have no time limit, and
/// the time spent waiting for an approval does not count towards a call's time limit.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// A tool's settings: its time limit and its flags.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ToolSettings {
    pub(super) timeout: Option<Duration>,
    /// Whether each flag is set, indexed by `ToolFlag`.
    flags: [bool; 8],
}

/// A property that a tool declares.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolFlag {
    /// Each call to the tool runs alone: no other call from the same turn runs at the same time.
    Exclusive,
    RequiresApproval,
    SupportsDryRun,
    /// The tool runs outside the toolkit.
    External,
    /// Each call to the tool runs agents. The requests and calls of these agents occupy concurrency
    /// slots, whereas the call itself does not.
    RunsSubAgents,
    /// An interrupted call to the tool may run again.
    Idempotent,
    /// Repeated calls to the tool do not mean that the run is stuck, even if they return the same
    /// result.
    Pollable,
    /// A valid call to the tool ends the run.
    EndsRun,
}

impl ToolSettings {
    pub(super) fn set_flag(&mut self, mark: ToolFlag) {
        self.flags[mark as usize] = true;
    }

    pub(super) fn has_flag(&self, mark: ToolFlag) -> bool {
        self.flags[mark as usize]
    }
}
