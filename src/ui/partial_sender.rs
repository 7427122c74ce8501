//! Selects the values that are sent to a client before they have ended.

use serde_json::{Map, Value};

use crate::event::Event;
use crate::partial::{Partial, PartialState, PartialValues};
use crate::turn::TurnEvent;

/// Reads the values in a run's events, and returns those that are due to be sent.
///
/// A growing value is sent again only if the text has grown by an eighth since, so that all values
/// together are at most about nine times as long as the text. It is due only when no event is
/// ready. The end of a value is always sent.
#[derive(Clone, Debug)]
pub(super) struct PartialSender {
    values: PartialValues<Value>,
    /// The number of bytes of the turn's text and arguments, so far and when values were last sent.
    read_bytes: usize,
    sent_bytes: usize,
    /// The number of answers that have ended.
    ended_answers: usize,
}

/// A value, as it is sent to the client.
#[derive(Debug)]
pub(super) struct SentPartial {
    /// The id of the call, for arguments.
    pub(super) call_id: Option<String>,
    /// The number of the answer in the run, counted from 1. For arguments, it means nothing.
    answer: usize,
    state: &'static str,
    value: Option<Value>,
}

impl PartialSender {
    pub(super) fn new(values: PartialValues<Value>) -> Self {
        Self { values, read_bytes: 0, sent_bytes: 0, ended_answers: 0 }
    }

    /// Applies an event, and returns the values that it ends.
    pub(super) fn observe(&mut self, event: &Event) -> Vec<SentPartial> {
        match event {
            Event::Turn(
                TurnEvent::TextDelta { text: delta, .. }
                | TurnEvent::ToolCallArgsDelta { delta, .. },
            ) => self.read_bytes += delta.len(),
            Event::TurnStarted { .. }
            | Event::Turn(TurnEvent::Retracted { .. } | TurnEvent::TurnComplete { .. }) => {
                (self.read_bytes, self.sent_bytes) = (0, 0);
            }
            _ => {}
        }
        self.values.observe(event);
        self.take(PartialValues::next_ended)
    }

    /// Starts with the events that a client has received in another form. Of their values, only
    /// those that grow further are sent.
    pub(super) fn restart<'a>(&mut self, events: impl Iterator<Item = &'a Event>) {
        self.values.clear();
        (self.read_bytes, self.sent_bytes) = (0, 0);
        for event in events {
            drop(self.observe(event));
        }
    }

    /// Returns the values that have grown and are due.
    pub(super) fn growing(&mut self) -> Vec<SentPartial> {
        let new_bytes = self.read_bytes - self.sent_bytes;
        if new_bytes == 0 || new_bytes < self.sent_bytes / 8 {
            return Vec::new();
        }
        let growing = self.take(PartialValues::next_partial);
        if !growing.is_empty() {
            self.sent_bytes = self.read_bytes;
        }
        growing
    }

    /// Ends the values of a stream that has failed.
    pub(super) fn end_early(&mut self) -> Vec<SentPartial> {
        self.values.end_early("incomplete");
        self.take(PartialValues::next_ended)
    }

    fn take(
        &mut self,
        next: impl Fn(&mut PartialValues<Value>) -> Option<Partial<Value>>,
    ) -> Vec<SentPartial> {
        let mut taken = Vec::new();
        while let Some(Partial { call_id, state }) = next(&mut self.values) {
            let answer = self.ended_answers + 1;
            let (state, value) = match state {
                PartialState::Growing(value) => ("growing", Some(value)),
                PartialState::Complete(value) => ("complete", Some(value)),
                PartialState::Retracted => ("retracted", None),
                // The reason contains the model's text.
                PartialState::Failed(_) => ("failed", None),
            };
            if state != "growing" {
                self.ended_answers += 1;
            }
            taken.push(SentPartial { call_id, answer, state, value });
        }
        taken
    }
}

impl SentPartial {
    /// Returns an id that all states of the value share, and that no other value of the run has.
    pub(super) fn id(&self) -> String {
        match &self.call_id {
            Some(call_id) => format!("call-{call_id}"),
            None => format!("answer-{}", self.answer),
        }
    }

    /// Returns the state, the value and the call's id, which has this name.
    pub(super) fn to_json(&self, call_id_name: &str) -> Value {
        let call_id = self.call_id.as_ref().map(|id| (call_id_name.to_owned(), id.clone().into()));
        let state = ("state".to_owned(), self.state.into());
        let value = self.value.clone().map(|value| ("value".to_owned(), value));
        Value::Object(call_id.into_iter().chain([state]).chain(value).collect::<Map<_, _>>())
    }
}
