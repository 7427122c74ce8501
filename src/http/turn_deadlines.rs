//! How long a turn is waited for: the one place where the [`Timeouts`] are measured.

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

/// When the waits of a turn are over, each by its own limit.
///
/// Whoever reads the turn tells it what came and polls it while there is nothing to read. Without
/// limits, which is the default, the wait never ends.
#[derive(Debug, Default)]
pub(crate) struct TurnDeadlines {
    timeouts: Option<Timeouts>,
    /// Who is waited for, for the words of an error.
    host: String,
    /// When the whole turn is over.
    turn_deadline: Option<Instant>,
    bytes_wait: EventWait,
    output_wait: EventWait,
    timer: ResettableTimer,
}

/// A wait for the first of several things, and then for each next one.
#[derive(Clone, Copy, Debug)]
enum EventWait {
    /// For the first, until then.
    UntilFirst(Option<Instant>),
    /// For nothing: one came, and the reader has not waited for the next one yet.
    NotWaiting,
    /// For the next, until then.
    UntilNext(Option<Instant>),
}

impl Default for EventWait {
    fn default() -> Self {
        Self::UntilFirst(None)
    }
}

impl EventWait {
    /// Begins to wait for the next one, if it does not wait yet.
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
    /// The limits of a request to `host` that is sent now.
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

    /// A piece of the body came.
    pub(crate) fn on_bytes(&mut self) {
        self.bytes_wait = EventWait::NotWaiting;
    }

    /// The model said something.
    pub(crate) fn on_output(&mut self) {
        self.output_wait = EventWait::NotWaiting;
    }

    /// Waits for `future` as long as the limits allow.
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

    /// Ready with the error when a wait is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(timeouts) = self.timeouts else { return Poll::Pending };
        // The only look at the clock in a wait.
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
                format!("the model said nothing within {:?}", timeouts.first_output)
            }
            (EventWait::NotWaiting | EventWait::UntilNext(_), _) if is_output => {
                format!("the model went silent in its answer, for {:?}", timeouts.idle_output)
            }
            (_, EventWait::UntilFirst(_)) => {
                format!("{host} did not begin its answer within {:?}", timeouts.first_byte)
            }
            (_, EventWait::NotWaiting | EventWait::UntilNext(_)) => {
                format!("{host} went silent in the middle of its answer, for {:?}", timeouts.idle)
            }
        };
        Error::new(ErrorKind::Timeout, message)
    }
}
