//! The reports of a supervisor.

use std::time::Duration;

use crate::error::Error;
use crate::event::Event;

/// A report of a [supervisor](crate::supervise::Supervisor) about a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Supervised {
    /// The run has yielded an event.
    Event(Event),
    /// The run has been silent for the configured time. The silence is reported once; the next
    /// event of the run ends it.
    Silent {
        /// How long the run has been silent.
        waited: Duration,
    },
    /// The run has failed, was dropped, and will be started again after `delay`.
    Restarting {
        /// The number of times that the run was started again since it was last healthy, including
        /// this time.
        restarts: u32,
        /// The time before the run is started again.
        delay: Duration,
        /// The error with which the run has failed.
        error: Error,
    },
    /// The run has ended, and is no longer supervised. This is the last report about the run.
    Ended(SupervisedEnd),
}

/// How a supervised run has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SupervisedEnd {
    /// The run's stream has ended without an error. The run's
    /// [outcome](crate::Event::Finished), if it has one, was reported before.
    Finished,
    /// The run has failed, and its policy does not start it again.
    Failed(Error),
    /// The run has failed more often in a row than its policy allows.
    GaveUp {
        /// The number of times that the run was started again.
        restarts: u32,
        /// The error with which the run failed last.
        error: Error,
    },
}
