//! A turn that was kept as JSON, as the answer to a request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::{Error, ErrorKind};
use crate::provider::replay::rebuild::{rebuild, refusal};
use crate::stream::{PollTurn, TurnSource};
use crate::turn::{TurnBuilder, TurnEvent};

/// An event that was kept.
pub(crate) struct PlayedEvent {
    pub(crate) event: TurnEvent,
    /// The calls of the turn that it ends could not run when it came.
    pub(crate) vetoed: bool,
}

/// The events of a turn, and how it ended.
pub(crate) struct Played {
    pub(super) events: VecDeque<PlayedEvent>,
    pub(super) ending: Ending,
}

pub(super) enum Ending {
    /// `TurnComplete` is the last of the events.
    Complete,
    /// It failed.
    Failed(Error),
    /// It goes no further: it was dropped.
    Dropped,
    /// Its next line may be the one that is cut off.
    Torn,
}

impl PlayedEvent {
    /// Gives the event again. Its JSON does not tell whether the calls of a turn may run.
    pub(crate) fn play(self, turn: &mut TurnBuilder) -> Result<(), Error> {
        turn.absorb(match self.event {
            TurnEvent::TurnComplete { turn } if !self.vetoed => {
                TurnEvent::TurnComplete { turn: rebuild(&turn)? }
            }
            event => event,
        });
        Ok(())
    }
}

/// The error of a turn that failed, with what there was of it.
pub(crate) fn with_partial(turn: &mut TurnBuilder, error: Error) -> Error {
    match error.kind() == ErrorKind::IncompleteTurn {
        true => error.with_source(turn.incomplete(None)),
        false => error,
    }
}

impl Played {
    /// A turn that failed with this error, if with any.
    pub(crate) fn new(events: VecDeque<PlayedEvent>, error: Option<Error>) -> Self {
        Self { events, ending: error.map_or(Ending::Complete, Ending::Failed) }
    }
}

impl TurnSource for Played {
    fn poll_turn(self: Pin<&mut Self>, _cx: &mut Context<'_>, turn: &mut TurnBuilder) -> PollTurn {
        let Self { events, ending } = self.get_mut();
        Poll::Ready(match (events.pop_front(), ending) {
            (Some(event), _) => Some(event.play(turn)),
            (None, Ending::Complete | Ending::Dropped) => None,
            (None, Ending::Failed(error)) => Some(Err(with_partial(turn, error.clone()))),
            (None, Ending::Torn) => {
                let cause = refusal("its last line, of this turn, is cut off");
                Some(Err(turn.incomplete(Some(cause))))
            }
        })
    }
}
