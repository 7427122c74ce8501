//! The time that a call may take.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Rings when a call has taken too long. Pauses of the consumer do not count.
#[derive(Debug)]
pub(super) struct Timer {
    limit: Duration,
    /// `None` until the call is first polled.
    armed: Option<Armed>,
    rung: bool,
}

#[derive(Debug)]
struct Armed {
    /// `None` if it is further away than time goes.
    deadline: Option<Instant>,
    /// May ring too early: pauses move the deadline only.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, armed: None, rung: false }
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Begins to count, if it does not yet.
    pub(super) fn arm(&mut self) {
        let limit = self.limit;
        self.armed.get_or_insert_with(|| Armed {
            deadline: Instant::now().checked_add(limit),
            sleep: None,
        });
    }

    /// Does not count a pause.
    pub(super) fn shift(&mut self, pause: Duration) {
        if let Some(armed) = &mut self.armed {
            armed.deadline = armed.deadline.and_then(|deadline| deadline.checked_add(pause));
        }
    }

    /// Looks whether the time is over, without waiting for it.
    pub(super) fn look(&mut self) {
        let deadline = self.armed.as_ref().and_then(|armed| armed.deadline);
        self.rung = deadline.is_some_and(|deadline| deadline <= Instant::now());
    }

    /// Whether the time was over when it was last looked at.
    pub(super) fn has_rung(&self) -> bool {
        self.rung
    }

    /// Waits for the end of the time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(Armed { deadline: Some(deadline), sleep }) = &mut self.armed else {
            return Poll::Pending;
        };
        let sleep = sleep.get_or_insert_with(|| Box::pin(sleep_until(*deadline)));
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= *deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(*deadline);
        }
        Poll::Pending
    }
}
