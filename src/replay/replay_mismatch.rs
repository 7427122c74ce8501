//! The difference between a replay and a recording.

use std::fmt;

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::item::RawJson;
use crate::replay::recorded_request::RequestDifference;

/// The first difference between a replay and a recording.
///
/// If a [`ReplayRun`](super::ReplayRun) differs from the recorded run, or a request matches no turn
/// of a [`Replay`](super::Replay), the replay fails with an error whose source is a
/// `ReplayMismatch`. The differing values may be private, so the error's message and its
/// [`parameter`](crate::Error::parameter) contain only the location of the difference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayMismatch {
    /// The number of the turn in the recording, counted from 1, or 0 if the difference occurred
    /// before the first turn.
    pub turn: usize,
    /// In the replay of a run, the number of events before the difference, all of which are equal
    /// in both runs. In the replay of a provider, 0.
    pub matched_events: usize,
    /// The part that differs: `event`, or the path to a value in a request, for example
    /// `request.context[2].content`.
    pub part: String,
    /// The recorded value, or `null` if the recording contains no value at this position.
    pub recorded: RawJson,
    /// The replayed value, or `null` if the replay produced no value at this position.
    pub replayed: RawJson,
}

impl fmt::Display for ReplayMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turn, matched_events, part, .. } = self;
        write!(f, "the replay differs from turn {turn} of the recording in `{part}`")?;
        match matched_events {
            0 => Ok(()),
            events => write!(f, ", after {events} events"),
        }
    }
}

impl std::error::Error for ReplayMismatch {}

impl ReplayMismatch {
    pub(super) fn new(
        turn: usize,
        matched_events: usize,
        part: impl Into<String>,
        recorded: &(impl Serialize + ?Sized),
        replayed: &(impl Serialize + ?Sized),
    ) -> Self {
        Self {
            turn,
            matched_events,
            part: part.into(),
            recorded: json_or_null(recorded),
            replayed: json_or_null(replayed),
        }
    }

    pub(super) fn from_request(
        turn: usize,
        matched_events: usize,
        difference: &RequestDifference,
    ) -> Self {
        let RequestDifference { path, recorded, replayed } = difference;
        Self::new(turn, matched_events, format!("request.{path}"), recorded, replayed)
    }

    pub(super) fn into_error(self) -> Error {
        Error::new(ErrorKind::ReplayMismatch, self.to_string())
            .with_parameter(self.part.clone())
            .with_source(self)
    }
}

fn json_or_null(value: &(impl Serialize + ?Sized)) -> RawJson {
    RawJson::new(value).unwrap_or_else(|_| serde_json::Value::Null.into())
}
