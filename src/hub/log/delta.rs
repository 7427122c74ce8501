//! Deltas, taken apart into their source and their text.

use std::iter::successors;
use std::sync::Arc;

use crate::event::Event;
use crate::fnv::fnv1a_64;
use crate::turn::{ReasoningKind, Text, TurnEvent};

/// The ids and names of the calls that lead to a sub-agent, starting with the outermost call.
pub(in crate::hub) type Parents = Arc<[(String, String)]>;

/// The part of a turn that a delta extends. `Id` is the type of a call's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::hub) enum DeltaKey<Id = String> {
    Text(u32),
    Refusal(u32),
    Reasoning(u32, ReasoningKind),
    Arguments(Id),
}

/// The part of a turn that deltas extend, and the run or sub-agent whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::hub) struct DeltaSource {
    /// Empty for the run itself.
    pub(in crate::hub) parents: Parents,
    pub(in crate::hub) key: DeltaKey,
}

/// An event that is a delta.
pub(in crate::hub) struct Delta<'a> {
    event: &'a Event,
    key: DeltaKey<&'a str>,
    pub(in crate::hub) text: &'a Text,
}

impl<'a> DeltaKey<&'a str> {
    /// Returns the key and the text of a delta, or `None` if the event is not a delta.
    pub(in crate::hub) fn of(event: &'a TurnEvent) -> Option<(Self, &'a Text)> {
        match event {
            TurnEvent::TextDelta { index, text } => Some((Self::Text(*index), text)),
            TurnEvent::RefusalDelta { index, text } => Some((Self::Refusal(*index), text)),
            TurnEvent::ReasoningDelta { index, text, kind } => {
                Some((Self::Reasoning(*index, *kind), text))
            }
            TurnEvent::ToolCallArgsDelta { call_id, delta } => {
                Some((Self::Arguments(call_id), delta))
            }
            TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallEnd { .. }
            | TurnEvent::UsageUpdate { .. }
            | TurnEvent::Retrying { .. }
            | TurnEvent::Retracted { .. }
            | TurnEvent::TurnComplete { .. } => None,
        }
    }

    pub(in crate::hub) fn to_owned_key(&self) -> DeltaKey {
        match self {
            Self::Text(index) => DeltaKey::Text(*index),
            Self::Refusal(index) => DeltaKey::Refusal(*index),
            Self::Reasoning(index, kind) => DeltaKey::Reasoning(*index, *kind),
            Self::Arguments(id) => DeltaKey::Arguments((*id).to_owned()),
        }
    }
}

impl DeltaKey {
    pub(in crate::hub) fn as_borrowed(&self) -> DeltaKey<&str> {
        match self {
            Self::Text(index) => DeltaKey::Text(*index),
            Self::Refusal(index) => DeltaKey::Refusal(*index),
            Self::Reasoning(index, kind) => DeltaKey::Reasoning(*index, *kind),
            Self::Arguments(id) => DeltaKey::Arguments(id),
        }
    }
}

impl DeltaSource {
    /// Creates the event that adds this text.
    pub(in crate::hub) fn to_event(&self, text: Text) -> Event {
        let event = Event::Turn(match &self.key {
            DeltaKey::Text(index) => TurnEvent::TextDelta { index: *index, text },
            DeltaKey::Refusal(index) => TurnEvent::RefusalDelta { index: *index, text },
            DeltaKey::Reasoning(index, kind) => {
                TurnEvent::ReasoningDelta { index: *index, text, kind: *kind }
            }
            DeltaKey::Arguments(id) => {
                TurnEvent::ToolCallArgsDelta { call_id: id.clone(), delta: text }
            }
        });
        let wrap = |event, (call_id, name): &(String, String)| Event::Nested {
            call_id: call_id.clone(),
            name: name.clone(),
            event: Box::new(event),
        };
        self.parents.iter().rev().fold(event, wrap)
    }
}

impl<'a> Delta<'a> {
    /// Returns `None` if the event is not a delta. `DeltaSource::to_event` creates the same event
    /// from the source and the text of a delta.
    pub(in crate::hub) fn of(event: &'a Event) -> Option<Self> {
        let Event::Turn(inner) = with_nested(event).last()? else { return None };
        let (key, text) = DeltaKey::of(inner)?;
        Some(Self { event, key, text })
    }

    pub(in crate::hub) fn is_of(&self, source: &DeltaSource) -> bool {
        let parents = source.parents.iter().map(|(id, name)| (id.as_str(), name.as_str()));
        source.key.as_borrowed() == self.key && parents.eq(self.parents())
    }

    pub(in crate::hub) fn to_source(&self) -> DeltaSource {
        let parents = self.parents().map(|(id, name)| (id.to_owned(), name.to_owned()));
        DeltaSource { parents: parents.collect(), key: self.key.to_owned_key() }
    }

    /// Returns the ids and names of the calls that lead to the sub-agent.
    fn parents(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        with_nested(self.event).map_while(|event| match event {
            Event::Nested { call_id, name, .. } => Some((call_id.as_str(), name.as_str())),
            _ => None,
        })
    }

    /// Returns a hash of the ids of the calls and of the key.
    pub(in crate::hub) fn hash(&self) -> u64 {
        let (tag, index, id) = match self.key {
            DeltaKey::Text(index) => (0, index, ""),
            DeltaKey::Refusal(index) => (1, index, ""),
            DeltaKey::Reasoning(index, ReasoningKind::Trace) => (2, index, ""),
            DeltaKey::Reasoning(index, ReasoningKind::Summary) => (3, index, ""),
            DeltaKey::Arguments(id) => (4, 0, id),
        };
        let parents = self.parents().flat_map(|(id, _)| id.bytes().chain([0]));
        let key = [tag].into_iter().chain(index.to_le_bytes()).chain(id.bytes());
        fnv1a_64(parents.chain(key))
    }
}

/// Returns the event, followed by the event nested in it, and so on.
fn with_nested(event: &Event) -> impl Iterator<Item = &Event> {
    successors(Some(event), |event| match event {
        Event::Nested { event, .. } => Some(&**event),
        _ => None,
    })
}
