//! Selects the values that are sent to a client before they have ended.

use serde_json::{Map, Value};

use crate::event::Event;
use crate::partial::{Partial, PartialState, PartialValues};
use crate::turn::TurnEvent;

/// Reads the values in a run's events, and returns those that are due to be sent.
///
/// A growing value is sent again only if its text has grown by an eighth since, so that all states
/// of a value together are at most about nine times as long as its text. It is due only when no
/// event is ready. The end of a value is always sent.
#[derive(Clone, Debug)]
pub(super) struct PartialSender {
    values: PartialValues<Value>,
    /// The turn's text, and the arguments of each of its calls.
    texts: Vec<TextProgress>,
    /// The number of answers that have ended.
    ended_answers: usize,
    origin: RunOrigin,
}

/// How a run began.
#[derive(Clone, Debug)]
enum RunOrigin {
    /// No event has shown it.
    Unknown,
    /// With a turn.
    Input,
    /// With this call, which an earlier run has left pending.
    PendingCall(String),
}

/// How much of a text has arrived.
#[derive(Clone, Debug)]
struct TextProgress {
    /// The id of the call, for arguments.
    call_id: Option<String>,
    /// The number of bytes so far, and when values were last sent.
    read_bytes: usize,
    sent_bytes: usize,
}

/// A value, as it is sent to the client.
#[derive(Debug)]
pub(super) struct SentPartial {
    /// The id of the call, for arguments.
    pub(super) call_id: Option<String>,
    /// The number of the answer in the run, counted from 1. For arguments, it means nothing.
    answer: usize,
    /// The pending call with which the run began, if it continues an earlier run.
    pending_call: Option<String>,
    state: &'static str,
    value: Option<Value>,
}

impl PartialSender {
    pub(super) fn new(values: PartialValues<Value>) -> Self {
        Self { values, texts: Vec::new(), ended_answers: 0, origin: RunOrigin::Unknown }
    }

    /// Applies an event, and returns the values that it ends.
    pub(super) fn observe(&mut self, event: &Event) -> Vec<SentPartial> {
        if let RunOrigin::Unknown = self.origin {
            self.origin = match event {
                Event::TurnStarted { .. } => RunOrigin::Input,
                Event::Tool(tool) if !tool.call_id().is_empty() => {
                    RunOrigin::PendingCall(tool.call_id().to_owned())
                }
                _ => RunOrigin::Unknown,
            };
        }
        match event {
            Event::Turn(TurnEvent::TextDelta { text, .. }) => self.add_bytes(None, text.len()),
            Event::Turn(TurnEvent::ToolCallArgsDelta { call_id, delta }) => {
                self.add_bytes(Some(call_id), delta.len());
            }
            Event::TurnStarted { .. }
            | Event::Turn(TurnEvent::Retracted { .. } | TurnEvent::TurnComplete { .. }) => {
                self.texts.clear();
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
        self.texts.clear();
        for event in events {
            drop(self.observe(event));
        }
    }

    /// Returns the values that have grown and are due.
    pub(super) fn growing(&mut self) -> Vec<SentPartial> {
        if !self.texts.iter().any(TextProgress::is_due) {
            return Vec::new();
        }
        let growing = self.take(PartialValues::next_partial);
        // Texts without values stay due, but cost nothing.
        for text in &mut self.texts {
            if growing.iter().any(|sent| sent.call_id == text.call_id) {
                text.sent_bytes = text.read_bytes;
            }
        }
        growing
    }

    fn add_bytes(&mut self, call_id: Option<&String>, bytes: usize) {
        // Calls arrive one after another, so the newest text is the one that grows.
        let found = self.texts.iter_mut().rev().find(|text| text.call_id.as_ref() == call_id);
        match found {
            Some(text) => text.read_bytes += bytes,
            None => self.texts.push(TextProgress {
                call_id: call_id.cloned(),
                read_bytes: bytes,
                sent_bytes: 0,
            }),
        }
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
            let pending_call = match &self.origin {
                RunOrigin::PendingCall(call_id) => Some(call_id.clone()),
                RunOrigin::Unknown | RunOrigin::Input => None,
            };
            taken.push(SentPartial { call_id, answer, pending_call, state, value });
        }
        taken
    }
}

impl TextProgress {
    fn is_due(&self) -> bool {
        let new_bytes = self.read_bytes - self.sent_bytes;
        new_bytes > 0 && new_bytes >= self.sent_bytes / 8
    }
}

impl SentPartial {
    /// Returns an id that all states of the value share, and that no other value has, neither of
    /// the run nor of the runs that it continues.
    pub(super) fn id(&self) -> String {
        match (&self.call_id, &self.pending_call) {
            (Some(call_id), _) => format!("call-{call_id}"),
            (None, Some(pending)) => format!("answer-{pending}-{}", self.answer),
            (None, None) => format!("answer-{}", self.answer),
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
