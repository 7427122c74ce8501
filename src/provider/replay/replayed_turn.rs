//! A turn that was kept as JSON, as the answer to a request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::{Error, ErrorKind};
use crate::provider::replay::rebuild_turn::{rebuild, refusal};
use crate::stream::{TurnPoll, TurnSource};
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

impl Played {
    /// A turn that failed with this error, if with any.
    pub(crate) fn new(events: VecDeque<PlayedEvent>, error: Option<Error>) -> Self {
        Self { events, ending: error.map_or(Ending::Complete, Ending::Failed) }
    }
}

/// Gives an event again, or the error that the turn failed with, with what there was of it.
pub(crate) fn play(item: Result<PlayedEvent, Error>, turn: &mut TurnBuilder) -> Result<(), Error> {
    turn.absorb(match item {
        // The JSON of a turn does not tell whether its calls may run.
        Ok(PlayedEvent { event: TurnEvent::TurnComplete { turn }, vetoed: false }) => {
            TurnEvent::TurnComplete { turn: rebuild(&turn)? }
        }
        Ok(PlayedEvent { event, .. }) => event,
        Err(error) if error.kind() == ErrorKind::IncompleteTurn => {
            return Err(error.with_source(turn.into_incomplete(None)));
        }
        Err(error) => return Err(error),
    });
    Ok(())
}

impl TurnSource for Played {
    fn poll_turn(self: Pin<&mut Self>, _cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let Self { events, ending } = self.get_mut();
        Poll::Ready(match (events.pop_front(), ending) {
            (Some(event), _) => Some(play(Ok(event), turn)),
            (None, Ending::Complete | Ending::Dropped) => None,
            (None, Ending::Failed(error)) => Some(play(Err(error.clone()), turn)),
            (None, Ending::Torn) => {
                let cause = refusal("its last line, of this turn, is cut off");
                Some(Err(turn.into_incomplete(Some(cause))))
            }
        })
    }
}
