//! A turn from a recording.

use std::pin::Pin;
use std::task::Context;

use crate::error::Error;
use crate::event::Event;
use crate::replay::playing::Playing;
use crate::replay::recording::Entry;
use crate::stream::{PollTurn, TurnSource};
use crate::turn::{TurnBuilder, TurnEvent};
use crate::world::{absorb, with_partial};

/// The turn that the recording is at.
pub(super) struct PlayedTurn {
    pub(super) playing: Playing,
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
    ) -> PollTurn {
        let this = &mut *self;
        let heard = this.playing.poll_entry(&mut this.at, |entry| match entry {
            Entry::Event { event: Event::Turn(event), vetoed } => {
                Some(Heard::Event(event.clone(), *vetoed))
            }
            Entry::Failed(error) => Some(Heard::Failed(error.clone())),
            Entry::Event { .. }
            | Entry::Asked(_)
            | Entry::Value { .. }
            | Entry::Dropped { .. }
            | Entry::Ended(_) => None,
        });
        heard.map(|heard| {
            Some(match heard? {
                Heard::Event(event, vetoed) => absorb(turn, event, vetoed),
                Heard::Failed(error) => Err(with_partial(turn, error)),
            })
        })
    }
}
