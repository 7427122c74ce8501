//! The settings of a hub.

use std::time::Duration;

/// How a run treats readers that do not keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowReaders {
    /// Slow readers are cut off with a [`TooSlow`](crate::hub::TooSlow) error. The run is not
    /// delayed.
    #[default]
    Cut,
    /// Whenever the log is full, the run waits for slow readers, but at most for this duration.
    /// Readers that have not caught up by the end of the wait are cut off.
    Wait(Duration),
}

/// How a hub treats a run that has no readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unattended {
    /// The run continues even without readers.
    #[default]
    Continue,
    /// The run is [interrupted](crate::RunHandle::interrupt) once it has had no reader for this
    /// duration. A run whose stream accepts no commands is dropped rather than interrupted. A hub
    /// counts only its own readers, so a run that is read only on another machine is interrupted.
    InterruptAfter(Duration),
}

/// How a hub treats a run while its log is [unavailable](crate::hub::LogUnavailable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogOutage {
    /// The run continues without appending to the log. Once the log is available again, the first
    /// entry written is a snapshot. If the run ended during the outage, its end is also written,
    /// unless the retention period for ended runs has expired. New runs can also start during the
    /// outage.
    #[default]
    Continue,
    /// The run is not polled until the log is available again, so an interrupt takes effect only
    /// after the outage. New runs cannot start during the outage.
    Pause,
}
