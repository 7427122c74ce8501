//! The stored form of a turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::request::Request;
use crate::stream::{TurnStream, seal};
use crate::turn::TurnEvent;
use crate::world::rebuild_turn::can_certainly_be_rebuilt;
use crate::world::replayed_turn::{ReplayedEvent, ReplayedTurn, is_vetoed_event};

/// The result of a request, in a form that can be stored: either the complete turn, or the partial
/// turn and the error.
///
/// To save a turn, call [`observe`](Self::observe) with each item from its stream. Later,
/// [`into_stream`](Self::into_stream) returns a stream that yields the same turn again. The deltas
/// of a complete turn are omitted, and so are its [log probabilities](crate::Turn::logprobs), which
/// are many times as large as the turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedTurn {
    /// The stored events. A complete turn is stored as its last event and any earlier retractions,
    /// whereas a failed turn is stored with all of its events.
    events: Vec<TurnEvent>,
    /// Whether the turn's tool calls were already forbidden to run when the turn arrived.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_vetoed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl SavedTurn {
    /// Records the next item from the turn's stream: an event, or the error with which the turn
    /// fails.
    pub fn observe(&mut self, item: &Result<TurnEvent, Error>) {
        match item {
            Ok(event) => {
                if let TurnEvent::TurnComplete { .. } = event {
                    // The retractions contain the usage of the voided attempts.
                    self.events.retain(|event| matches!(event, TurnEvent::Retracted { .. }));
                    self.is_vetoed = is_vetoed_event(event);
                }
                self.events.push(match event {
                    TurnEvent::TurnComplete { turn } if !turn.logprobs().is_empty() => {
                        TurnEvent::TurnComplete { turn: Arc::new(turn.without_logprobs()) }
                    }
                    event => event.clone(),
                });
            }
            Err(error) => self.error = Some(error.clone()),
        }
    }

    /// Returns whether the turn is complete or has failed. If so, no more items follow.
    pub fn is_complete(&self) -> bool {
        let last = self.events.last();
        self.error.is_some() || matches!(last, Some(TurnEvent::TurnComplete { .. }))
    }

    /// Returns whether parsing the turn's JSON certainly returns the same turn: it is complete, was
    /// neither retried nor failed, and its provider data is written as it was received.
    pub(crate) fn is_kept_by_json(&self) -> bool {
        let [TurnEvent::TurnComplete { turn }] = &self.events[..] else { return false };
        // All other numbers are integers of at most 64 bits.
        let mut data = turn.items().iter().filter_map(|item| item.provider_data.as_deref());
        self.error.is_none()
            && turn.logprobs().is_empty()
            && data.all(|data| data.value.is_normalized())
    }

    /// Returns the event that completed the turn, if the turn has not been stored as JSON since it
    /// was received, and [`into_stream`](Self::into_stream) certainly returns the same turn. A turn
    /// that cannot be replayed must fail before its tools run.
    pub(crate) fn received_end(&self) -> Option<&TurnEvent> {
        let last = self.events.last().filter(|_| self.error.is_none())?;
        last.turn_complete().filter(|turn| can_certainly_be_rebuilt(turn)).map(|_| last)
    }

    /// Converts the stored turn to a stream that answers `request`. It yields the stored events,
    /// and then the stored error, if any, without waiting.
    pub fn into_stream(self, request: &Request) -> TurnStream {
        let Self { events, is_vetoed, error } = self;
        let events = events.into_iter().map(|event| ReplayedEvent { event, is_vetoed });
        seal(request, ReplayedTurn::new(events.collect(), error))
    }
}
