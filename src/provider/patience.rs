//! How long a model is waited for, in the middle of its answer.

use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::http::{Deadline, Timeouts, after, earlier};

/// The limits on waiting that only the reader of an answer can hold: it knows what is output.
/// Without any it waits for ever.
#[derive(Debug, Default)]
pub(super) struct Patience {
    timeouts: Option<Timeouts>,
    /// When the whole turn is over.
    turn: Option<Instant>,
    stage: Stage,
    deadline: Deadline,
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The first output, until then.
    First(Option<Instant>),
    /// Nothing: there was output, and nobody had to wait for more yet.
    Moving,
    /// The next output, until then.
    Next(Option<Instant>),
}

impl Default for Stage {
    fn default() -> Self {
        Self::First(None)
    }
}

impl Patience {
    /// The limits of a request. `began` is when the request was sent.
    #[cfg(feature = "http")]
    pub(super) fn new(timeouts: Timeouts, began: Instant) -> Self {
        Self {
            turn: after(began, timeouts.turn),
            stage: Stage::First(after(began, timeouts.first_output)),
            timeouts: Some(timeouts),
            deadline: Deadline::default(),
        }
    }

    /// There was output.
    pub(super) fn heard(&mut self) {
        self.stage = Stage::Moving;
    }

    /// When the wait for what is missing is over, and for the first output before anything came.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.stage {
            Stage::First(at) | Stage::Next(at) => earlier(at, self.turn),
            Stage::Moving => self.turn,
        }
    }

    /// Ready with the error when the wait is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(timeouts) = self.timeouts else { return Poll::Pending };
        if let Stage::Moving = self.stage {
            self.stage = Stage::Next(after(Instant::now(), timeouts.idle_output));
        }
        ready!(self.deadline.poll(self.until(), cx));
        Poll::Ready(self.over())
    }

    /// The error of a wait that is over.
    pub(super) fn over(&self) -> Error {
        let timeouts = self.timeouts.unwrap_or_default();
        let until = self.until();
        let message = match self.stage {
            _ if until == self.turn => {
                format!("the turn was not complete within {:?}", timeouts.turn)
            }
            Stage::First(_) => {
                format!("the model said nothing within {:?}", timeouts.first_output)
            }
            Stage::Moving | Stage::Next(_) => {
                format!("the model went silent in its answer, for {:?}", timeouts.idle_output)
            }
        };
        Error::new(ErrorKind::Timeout, message)
    }
}
