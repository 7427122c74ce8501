//! Settings of a hub.

use std::time::Duration;

/// The treatment of readers that do not keep up with their run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowReaders {
    /// They are cut off, with [`TooSlow`](crate::hub::TooSlow). The run is not delayed.
    #[default]
    Cut,
    /// The run waits for them whenever the log is full, for at most this duration; then they are
    /// cut off.
    Wait(Duration),
}

/// The treatment of a run without readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unattended {
    /// It continues.
    #[default]
    Continue,
    /// It is [interrupted](crate::RunHandle::interrupt) after this time without a reader. A stream
    /// that accepts no commands is dropped instead.
    InterruptAfter(Duration),
}

/// The treatment of a run while its log is [unavailable](crate::hub::LogUnavailable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogOutage {
    /// It continues without appending to the log. When the log is available again, a snapshot is
    /// written first. If the run has ended by then, its end is written, unless the retention time
    /// for ended runs is over. Runs can also begin during the outage.
    #[default]
    Continue,
    /// It is not polled until the log is available again; an interrupt also takes effect only then.
    /// Runs cannot begin during the outage.
    Pause,
}
