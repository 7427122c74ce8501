//! Settings of a hub.

use std::time::Duration;

/// How to treat readers that do not keep up with their run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowReaders {
    /// Slow readers are cut off, with [`TooSlow`](crate::hub::TooSlow). The run is not delayed.
    #[default]
    Cut,
    /// Whenever the log is full, the run waits for slow readers, for at most this duration. After
    /// this duration, slow readers are cut off.
    Wait(Duration),
}

/// How to treat a run without readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unattended {
    /// The run continues without readers.
    #[default]
    Continue,
    /// The run is [interrupted](crate::RunHandle::interrupt) after this time without a reader. A
    /// stream that accepts no commands is dropped instead.
    InterruptAfter(Duration),
}

/// How to treat a run while its log is [unavailable](crate::hub::LogUnavailable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogOutage {
    /// The run continues without appending to the log. When the log is available again, the first
    /// entry written is a snapshot. If the run has ended by then, its end is also written, unless
    /// the retention time for ended runs is over. Runs can also start during the outage.
    #[default]
    Continue,
    /// The run is not polled until the log is available again. An interrupt takes effect only then.
    /// Runs cannot start during the outage.
    Pause,
}
