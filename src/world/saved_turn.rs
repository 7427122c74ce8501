//! The stored value of a turn.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::provider::{ReplayedEvent, ReplayedTurn, is_vetoed_event};
use crate::request::Request;
use crate::stream::{TurnStream, seal};
use crate::turn::TurnEvent;

/// The result of a request, for storage: the turn, or the partial turn and the error.
///
/// Call [`observe`](Self::observe) with each item of the stream of the turn.
/// [`into_stream`](Self::into_stream) returns the same turn again, without its deltas.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedTurn {
    /// The stored events: for a complete turn, its last event and the retractions before it; for a
    /// failed turn, all of its events.
    events: Vec<TurnEvent>,
    /// Whether the calls of the turn were not allowed to run when the turn arrived.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    vetoed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl SavedTurn {
    /// Adds the next item of the stream.
    pub fn observe(&mut self, item: &Result<TurnEvent, Error>) {
        match item {
            Ok(event) => {
                if let TurnEvent::TurnComplete { .. } = event {
                    // The retractions contain the usage of the void attempts.
                    self.events.retain(|event| matches!(event, TurnEvent::Retracted { .. }));
                    self.vetoed = is_vetoed_event(event);
                }
                self.events.push(event.clone());
            }
            Err(error) => self.error = Some(error.clone()),
        }
    }

    /// Returns whether the turn is complete or has failed, so that no item follows.
    pub fn is_complete(&self) -> bool {
        let last = self.events.last();
        self.error.is_some() || matches!(last, Some(TurnEvent::TurnComplete { .. }))
    }

    /// Converts the value into the last event of the turn, for a turn whose other events were
    /// already yielded.
    #[cfg(feature = "durable")]
    pub(crate) fn into_end(mut self) -> ReplayedTurn {
        self.events.retain(|event| matches!(event, TurnEvent::TurnComplete { .. }));
        self.into_replay()
    }

    /// Converts the value back into the turn, which is then to be sealed.
    pub(crate) fn into_replay(self) -> ReplayedTurn {
        let Self { events, vetoed, error } = self;
        let events = events.into_iter().map(|event| ReplayedEvent { event, is_vetoed: vetoed });
        ReplayedTurn::new(events.collect(), error)
    }

    /// Converts the value back into the turn, as the answer to its request.
    pub fn into_stream(self, request: &Request) -> TurnStream {
        seal(request, self.into_replay())
    }
}
