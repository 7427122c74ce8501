//! The value of a turn, to be kept.

use std::pin::Pin;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::provider::{is_vetoed, rebuild};
use crate::request::Request;
use crate::stream::{TurnSource, TurnStream, seal};
use crate::turn::{TurnBuilder, TurnEvent};

/// What a request came to, to be kept: its turn, or what there was of it and why it failed.
///
/// [`observe`](Self::observe) each item of the stream; [`into_stream`](Self::into_stream) gives the same
/// turn again, without its deltas.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptTurn {
    /// The last event of a turn that is complete; all events of one that failed.
    events: Vec<TurnEvent>,
    /// The calls of the turn could not run when it came.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    vetoed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl KeptTurn {
    /// Takes the next item of the stream.
    pub fn observe(&mut self, item: &Result<TurnEvent, Error>) {
        match item {
            Ok(event) => {
                if let TurnEvent::TurnComplete { .. } = event {
                    self.events.clear();
                    self.vetoed = is_vetoed(event);
                }
                self.events.push(event.clone());
            }
            Err(error) => self.error = Some(error.clone()),
        }
    }

    /// Whether the turn is complete or has failed, so that nothing comes after it.
    pub fn is_over(&self) -> bool {
        let last = self.events.last();
        self.error.is_some() || matches!(last, Some(TurnEvent::TurnComplete { .. }))
    }

    /// The turn again, as the answer to its request.
    pub fn into_stream(self, request: &Request) -> TurnStream {
        seal(
            request,
            Kept { events: self.events.into_iter(), vetoed: self.vetoed, error: self.error },
        )
    }
}

struct Kept {
    events: std::vec::IntoIter<TurnEvent>,
    vetoed: bool,
    error: Option<Error>,
}

impl TurnSource for Kept {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        let vetoed = self.vetoed;
        let item = match self.events.next() {
            Some(event) => Some(absorb(turn, event, vetoed)),
            None => self.error.take().map(|error| Err(with_partial(turn, error))),
        };
        Poll::Ready(item)
    }
}

/// Takes an event that was kept as JSON, which does not tell whether the calls of a turn may run.
pub(crate) fn absorb(turn: &mut TurnBuilder, event: TurnEvent, vetoed: bool) -> Result<(), Error> {
    let event = match event {
        TurnEvent::TurnComplete { turn } if !vetoed => {
            TurnEvent::TurnComplete { turn: rebuild(&turn)? }
        }
        event => event,
    };
    turn.absorb(event);
    Ok(())
}

/// The error of a turn that failed, with what there was of it.
pub(crate) fn with_partial(turn: &mut TurnBuilder, error: Error) -> Error {
    match error.kind() == ErrorKind::IncompleteTurn {
        true => error.with_source(turn.incomplete(None)),
        false => error,
    }
}
