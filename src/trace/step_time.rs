//! The time of a step.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// When a step began and ended, in milliseconds since 1970, and how long it took.
///
/// A step ends with the event that completes it. The step of a call begins when its tool starts or,
/// if the tool did not run, when the turn of the call ends. The step of a message begins with its
/// request, that of a compaction with the event before it, and that of the run's end with the run's
/// first event. If the beginning is unknown, as for a request that a hook has reported, the step
/// has no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTime {
    /// When the step began, by the trace's clock, in milliseconds since 1970 (UTC).
    pub began_at_ms: u64,
    /// When the step ended, by the trace's clock, in milliseconds since 1970 (UTC).
    pub ended_at_ms: u64,
    /// How long the step took, in milliseconds, by the clock of the tokio runtime. Setting the date
    /// does not affect this clock.
    pub duration_ms: u64,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    /// The time since the run's first event, or zero if the run's time is not needed.
    pub(super) elapsed: Duration,
    /// The date and time, if the trace has a clock.
    pub(super) date: Option<SystemTime>,
}

impl Moment {
    /// Returns the time of a step from this moment to `end`, if the trace has a clock.
    pub(super) fn until(self, end: Self) -> Option<StepTime> {
        Some(StepTime {
            began_at_ms: to_unix_ms(self.date?),
            ended_at_ms: to_unix_ms(end.date?),
            duration_ms: to_ms(end.elapsed.saturating_sub(self.elapsed)),
        })
    }
}

fn to_unix_ms(date: SystemTime) -> u64 {
    to_ms(date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

pub(super) fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
