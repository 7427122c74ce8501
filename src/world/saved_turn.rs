//! The value of a turn, to be kept.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::provider::{ReplayedEvent, ReplayedTurn, is_vetoed_event};
use crate::request::Request;
use crate::stream::{TurnStream, seal};
use crate::turn::TurnEvent;

/// What a request came to, to be kept: its turn, or what there was of it and why it failed.
///
/// [`observe`](Self::observe) each item of the stream; [`into_stream`](Self::into_stream) gives the same
/// turn again, without its deltas.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedTurn {
    /// The last event of a turn that is complete, after those that voided an attempt at it; all events of one that
    /// failed.
    events: Vec<TurnEvent>,
    /// The calls of the turn could not run when it came.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    vetoed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl SavedTurn {
    /// Takes the next item of the stream.
    pub fn observe(&mut self, item: &Result<TurnEvent, Error>) {
        match item {
            Ok(event) => {
                if let TurnEvent::TurnComplete { .. } = event {
                    // They have the tokens of those attempts.
                    self.events.retain(|event| matches!(event, TurnEvent::Retracted { .. }));
                    self.vetoed = is_vetoed_event(event);
                }
                self.events.push(event.clone());
            }
            Err(error) => self.error = Some(error.clone()),
        }
    }

    /// Whether the turn is complete or has failed, so that nothing comes after it.
    pub fn is_complete(&self) -> bool {
        let last = self.events.last();
        self.error.is_some() || matches!(last, Some(TurnEvent::TurnComplete { .. }))
    }

    /// The end of the turn, after its other events.
    #[cfg(feature = "durable")]
    pub(crate) fn into_end(mut self) -> ReplayedTurn {
        self.events.retain(|event| matches!(event, TurnEvent::TurnComplete { .. }));
        self.into_replay()
    }

    /// The turn again, to be sealed.
    pub(crate) fn into_replay(self) -> ReplayedTurn {
        let Self { events, vetoed, error } = self;
        let events = events.into_iter().map(|event| ReplayedEvent { event, is_vetoed: vetoed });
        ReplayedTurn::new(events.collect(), error)
    }

    /// The turn again, as the answer to its request.
    pub fn into_stream(self, request: &Request) -> TurnStream {
        seal(request, self.into_replay())
    }
}
