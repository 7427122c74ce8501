//! A turn from a recording.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::agent::replay::playing::Playing;
use crate::agent::replay::recording::Entry;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::provider::rebuild;
use crate::stream::TurnSource;
use crate::turn::{TurnBuilder, TurnEvent};

/// The turn that the recording is at.
pub(super) struct PlayedTurn {
    pub(super) playing: Arc<Playing>,
    pub(super) at: usize,
}

enum Heard {
    Event(TurnEvent, bool),
    Failed(Error),
}

impl TurnSource for PlayedTurn {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        let this = &mut *self;
        let heard = this.playing.poll_entry(&mut this.at, |entry| match entry {
            Entry::Event { event: Event::Turn(event), vetoed } => {
                Some(Heard::Event(event.clone(), *vetoed))
            }
            Entry::Failed(error) => Some(Heard::Failed(error.clone())),
            Entry::Event { .. } | Entry::Asked(_) | Entry::Noted(_) | Entry::Ended { .. } => None,
        });
        heard.map(|heard| {
            Some(match heard? {
                Heard::Event(TurnEvent::TurnComplete { turn: recorded }, false) => {
                    rebuild(&recorded)
                        .map(|recorded| turn.absorb(TurnEvent::TurnComplete { turn: recorded }))
                }
                Heard::Event(event, _) => {
                    turn.absorb(event);
                    Ok(())
                }
                Heard::Failed(error) if error.kind() == ErrorKind::IncompleteTurn => {
                    Err(error.with_source(turn.incomplete(None)))
                }
                Heard::Failed(error) => Err(error),
            })
        })
    }
}
