//! How a hub treats readers.

use std::time::Duration;

/// The treatment of readers that do not keep up with their run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowReaders {
    /// They are cut, with [`TooSlow`](crate::hub::TooSlow). The run does not notice.
    #[default]
    Cut,
    /// The run waits for them whenever the log is full, for at most this long; then they are cut.
    Wait(Duration),
}

/// The treatment of a run without readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unattended {
    /// It continues.
    #[default]
    Continue,
    /// It is [interrupted](crate::RunHandle::interrupt) after this time without a reader. A stream that takes no
    /// commands is dropped.
    InterruptAfter(Duration),
}

/// The treatment of a run while its log is [unavailable](crate::hub::LogUnavailable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogOutage {
    /// It continues, without an entry in the log. When the log is back, a snapshot is written first. If the run
    /// has ended by then, its end is written, unless the time for which ended runs are kept is over. A run can begin,
    /// too.
    #[default]
    Continue,
    /// It is not polled until the log is back, so that an interrupt takes effect then. It cannot begin before.
    Pause,
}
