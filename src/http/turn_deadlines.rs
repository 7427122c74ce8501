//! How long a turn is waited for: the one place where the [`Timeouts`] are measured.

#[cfg(feature = "http")]
use std::future::poll_fn;
use std::mem;
#[cfg(feature = "http")]
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::env::after;
use crate::error::{Error, ErrorKind};
use crate::http::Timeouts;
use crate::http::deadline::Deadline;

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
    turn: Option<Instant>,
    bytes: Wait,
    output: Wait,
    timer: Deadline,
}

/// A wait for the first of several things, and then for each next one.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// For the first, until then.
    First(Option<Instant>),
    /// For nothing: one came, and the reader has not waited for the next one yet.
    Moving,
    /// For the next, until then.
    Next(Option<Instant>),
}

impl Default for Wait {
    fn default() -> Self {
        Self::First(None)
    }
}

impl Wait {
    /// Begins to wait for the next one, if it does not wait yet.
    fn begin(&mut self, limit: Duration) {
        if let Self::Moving = self {
            *self = Self::Next(after(Instant::now(), limit));
        }
    }

    fn until(self) -> Option<Instant> {
        match self {
            Self::First(at) | Self::Next(at) => at,
            Self::Moving => None,
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
            turn: after(began, timeouts.turn),
            bytes: Wait::First(after(began, timeouts.first_byte)),
            output: Wait::First(after(began, timeouts.first_output)),
            timer: Deadline::default(),
        }
    }

    /// A piece of the body came.
    pub(crate) fn heard_bytes(&mut self) {
        self.bytes = Wait::Moving;
    }

    /// The model said something.
    pub(crate) fn heard_output(&mut self) {
        self.output = Wait::Moving;
    }

    /// Waits for `future` as long as the limits allow.
    #[cfg(feature = "http")]
    pub(crate) async fn within<F: Future>(&mut self, future: F) -> Result<F::Output, Error> {
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
        self.bytes.begin(timeouts.idle);
        self.output.begin(timeouts.idle_output);
        let all = [self.turn, self.bytes.until(), self.output.until()];
        let until = all.into_iter().flatten().min();
        ready!(self.timer.poll(until, cx));
        Poll::Ready(self.over(until, timeouts))
    }

    fn over(&mut self, until: Option<Instant>, timeouts: Timeouts) -> Error {
        let host = mem::take(&mut self.host);
        let is_output = until == self.output.until();
        let message = match (self.output, self.bytes) {
            _ if until == self.turn => {
                format!("the turn was not complete within {:?}", timeouts.turn)
            }
            (Wait::First(_), _) if is_output => {
                format!("the model said nothing within {:?}", timeouts.first_output)
            }
            (Wait::Moving | Wait::Next(_), _) if is_output => {
                format!("the model went silent in its answer, for {:?}", timeouts.idle_output)
            }
            (_, Wait::First(_)) => {
                format!("{host} did not begin its answer within {:?}", timeouts.first_byte)
            }
            (_, Wait::Moving | Wait::Next(_)) => {
                format!("{host} went silent in the middle of its answer, for {:?}", timeouts.idle)
            }
        };
        Error::new(ErrorKind::Timeout, message)
    }
}
