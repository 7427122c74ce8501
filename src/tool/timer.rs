//! The time that a call may take.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::env::{Alarm, Ring, TimeLimit};

/// Rings when a call has taken too long. Pauses of the consumer do not count.
#[derive(Debug)]
pub(super) struct Timer {
    limit: TimeLimit,
    /// `None` until the call is first polled.
    alarm: Option<Alarm>,
    rung: bool,
}

impl Timer {
    pub(super) fn new(limit: TimeLimit) -> Self {
        Self { limit, alarm: None, rung: false }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit.duration()
    }

    /// Begins to count, if it does not yet.
    pub(super) fn arm(&mut self) {
        let limit = self.limit;
        self.alarm.get_or_insert_with(|| Alarm::new(limit));
    }

    /// Does not count a pause.
    pub(super) fn shift(&mut self, pause: Duration) {
        if let Some(alarm) = &mut self.alarm {
            alarm.shift(pause);
        }
    }

    /// Looks at the time.
    pub(super) fn look(&mut self) {
        self.rung = self.alarm.as_ref().is_some_and(Alarm::is_over);
    }

    /// Whether the time was over when it was last looked at.
    pub(super) fn has_rung(&self) -> bool {
        self.rung
    }

    /// Waits for the end of the time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ring> {
        match &mut self.alarm {
            Some(alarm) => alarm.poll(cx),
            None => Poll::Pending,
        }
    }
}
