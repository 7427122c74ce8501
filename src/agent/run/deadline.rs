//! Implements the timers that enforce a run's time limit.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::Budget;
use crate::env::{Deadline, DeadlineOutcome, TimeLimit};

/// The deadlines of a run: when its time limit expires, and when its wrap-up turn must start.
#[derive(Debug)]
pub(in crate::agent) struct RunDeadline {
    has_started: bool,
    /// Whether the running work may be dropped for a wrap-up turn.
    can_wrap_up: bool,
    /// The timers; `None` before the first poll or if there is no time limit.
    deadlines: Option<Box<Deadlines>>,
}

#[derive(Debug)]
struct Deadlines {
    /// The timer for the wrap-up turn; `None` if no time is reserved for a wrap-up turn, or if the
    /// wrap-up turn is already due.
    wrap_up: Option<Deadline>,
    end: Deadline,
}

/// The action to take when a timer has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) enum DeadlineEvent {
    /// Drop the running work and start the wrap-up turn.
    WrapUp,
    /// End the run.
    TimeUp,
    /// End the run with an error, since no timer is available to enforce the time limit.
    TimerUnavailable,
}

impl RunDeadline {
    pub(in crate::agent) fn new() -> Self {
        Self { has_started: false, can_wrap_up: false, deadlines: None }
    }

    /// Returns whether the timers have been started.
    pub(in crate::agent) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Starts the timers. The run calls this method when it is first polled.
    pub(in crate::agent) fn start(&mut self, budget: &Budget, started: Instant) {
        self.has_started = true;
        self.can_wrap_up = budget.time_before_wrap_up().is_some();
        let Some(limit) = budget.effective_time_limit() else { return };
        let deadline = |limit: Duration| Deadline::starting_at(started, TimeLimit::Explicit(limit));
        let wrap_up = budget.time_before_wrap_up().map(deadline);
        self.deadlines = Some(Box::new(Deadlines { wrap_up, end: deadline(limit) }));
    }

    /// Returns whether the running work may be dropped for a wrap-up turn.
    pub(in crate::agent) fn can_wrap_up(&self) -> bool {
        self.can_wrap_up
    }

    /// Returns whether a timer has expired.
    pub(in crate::agent) fn is_over(&self) -> bool {
        self.deadlines.as_ref().is_some_and(|it| {
            it.end.is_over() || it.wrap_up.as_ref().is_some_and(Deadline::is_over)
        })
    }

    /// Polls the timers, and returns `Poll::Ready` once a timer has expired.
    pub(in crate::agent) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<DeadlineEvent> {
        let Some(Deadlines { wrap_up, end }) = self.deadlines.as_deref_mut() else {
            return Poll::Pending;
        };
        let due = |ring, due| match ring {
            DeadlineOutcome::TimeUp => due,
            DeadlineOutcome::NoTimer => DeadlineEvent::TimerUnavailable,
        };
        if let Poll::Ready(ring) = end.poll(cx) {
            return Poll::Ready(due(ring, DeadlineEvent::TimeUp));
        }
        match wrap_up {
            Some(deadline) => deadline.poll(cx).map(|ring| due(ring, DeadlineEvent::WrapUp)),
            None => Poll::Pending,
        }
    }

    /// Records that the wrap-up turn is due, or has started for another reason.
    pub(in crate::agent) fn begin_wrap_up(&mut self) {
        self.can_wrap_up = false;
        if let Some(deadlines) = &mut self.deadlines {
            deadlines.wrap_up = None;
        }
    }
}
