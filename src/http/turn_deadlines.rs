//! Enforces a turn's deadlines. This is the only module that measures the [`Timeouts`].

#[cfg(feature = "http")]
use std::future::poll_fn;
use std::mem;
#[cfg(feature = "http")]
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::env::instant_after;
use crate::error::{Error, ErrorKind};
use crate::http::Timeouts;
use crate::http::deadline::ResettableTimer;

/// Enforces a turn's deadlines, each with its own limit.
///
/// The turn's consumer reports received bytes and output to the `TurnDeadlines`, and polls the
/// `TurnDeadlines` while there is nothing to read. Without limits, which is the default, a turn
/// never times out.
#[derive(Debug, Default)]
pub(crate) struct TurnDeadlines {
    timeouts: Option<Timeouts>,
    /// The server's host, for error messages.
    host: String,
    /// The deadline for the whole turn.
    turn_deadline: Option<Instant>,
    bytes_wait: EventWait,
    output_wait: EventWait,
    timer: ResettableTimer,
}

/// Tracks the wait for the first event of a kind, and then for each subsequent event.
#[derive(Clone, Copy, Debug)]
enum EventWait {
    /// The consumer is waiting for the first event, until this deadline.
    UntilFirst(Option<Instant>),
    /// The consumer is not waiting, because an event has arrived and the wait for the next event
    /// has not started.
    NotWaiting,
    /// The consumer is waiting for the next event, until this deadline.
    UntilNext(Option<Instant>),
}

impl Default for EventWait {
    fn default() -> Self {
        Self::UntilFirst(None)
    }
}

impl EventWait {
    /// Starts the wait for the next event, unless it has already started.
    fn start_waiting(&mut self, now: Instant, limit: Duration) {
        if let Self::NotWaiting = self {
            *self = Self::UntilNext(instant_after(now, limit));
        }
    }

    fn deadline(self) -> Option<Instant> {
        match self {
            Self::UntilFirst(at) | Self::UntilNext(at) => at,
            Self::NotWaiting => None,
        }
    }
}

impl TurnDeadlines {
    /// Starts enforcing the deadlines of a request that is being sent to `host`.
    #[cfg(feature = "http")]
    pub(crate) fn start(timeouts: Timeouts, host: String) -> Self {
        let began = Instant::now();
        Self {
            timeouts: Some(timeouts),
            host,
            turn_deadline: instant_after(began, timeouts.turn),
            bytes_wait: EventWait::UntilFirst(instant_after(began, timeouts.first_byte)),
            output_wait: EventWait::UntilFirst(instant_after(began, timeouts.first_output)),
            timer: ResettableTimer::default(),
        }
    }

    /// Records that a chunk of the response body has arrived.
    pub(crate) fn on_bytes(&mut self) {
        self.bytes_wait = EventWait::NotWaiting;
    }

    /// Records that the model has produced output.
    pub(crate) fn on_output(&mut self) {
        self.output_wait = EventWait::NotWaiting;
    }

    /// Waits for `future`, and returns an error if one of the turn's limits is exceeded.
    #[cfg(feature = "http")]
    pub(crate) async fn await_within_limits<F: Future>(
        &mut self,
        future: F,
    ) -> Result<F::Output, Error> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll(cx).map(Err),
        })
        .await
    }

    /// Polls the deadlines, and returns an error once a deadline has passed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(timeouts) = self.timeouts else { return Poll::Pending };
        // The clock is read only in this method.
        let now = Instant::now();
        self.bytes_wait.start_waiting(now, timeouts.idle);
        self.output_wait.start_waiting(now, timeouts.idle_output);
        let all = [self.turn_deadline, self.bytes_wait.deadline(), self.output_wait.deadline()];
        let until = all.into_iter().flatten().min();
        ready!(self.timer.poll(until, now, cx));
        Poll::Ready(self.timeout_error(until, timeouts))
    }

    fn timeout_error(&mut self, until: Option<Instant>, timeouts: Timeouts) -> Error {
        let host = mem::take(&mut self.host);
        let is_output = until == self.output_wait.deadline();
        let message = match (self.output_wait, self.bytes_wait) {
            _ if until == self.turn_deadline => {
                format!("the turn was not complete within {:?}", timeouts.turn)
            }
            (EventWait::UntilFirst(_), _) if is_output => {
                format!("the model sent no output within {:?}", timeouts.first_output)
            }
            (EventWait::NotWaiting | EventWait::UntilNext(_), _) if is_output => {
                format!("the model sent no further output for {:?}", timeouts.idle_output)
            }
            (_, EventWait::UntilFirst(_)) => {
                format!("{host} did not start its response within {:?}", timeouts.first_byte)
            }
            (_, EventWait::NotWaiting | EventWait::UntilNext(_)) => {
                format!("{host} sent nothing for {:?} in the middle of its response", timeouts.idle)
            }
        };
        Error::new(ErrorKind::Timeout, message)
    }
}
