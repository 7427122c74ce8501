//! How a tool wants to be run.

use std::time::Duration;

/// How long a call may take, unless its tool or its toolkit says otherwise.
///
/// A sub-agent has no limit by default, and neither have external calls and waits for an approval.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// What is known of a tool besides its handler.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    pub(super) class: Class,
    pub(super) timeout: Option<Duration>,
    pub(super) needs_approval: bool,
    pub(super) knows_dry_runs: bool,
    pub(super) external: bool,
    pub(super) inside: Inside,
    pub(super) rerun: Rerun,
    pub(super) repeats: Repeats,
}

/// What a call runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Inside {
    /// Work of its own.
    #[default]
    Work,
    /// Agents, whose requests and calls count in its place.
    Agents,
}

/// What may run beside a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Class {
    /// Others of this class.
    #[default]
    Safe,
    /// Nothing.
    Exclusive,
}

/// Whether a call that was broken off may run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rerun {
    #[default]
    Never,
    Allowed,
}

/// Whether the same call with the same result, again and again, says that a run gets nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Repeats {
    #[default]
    Count,
    /// It is a poll.
    Expected,
}
