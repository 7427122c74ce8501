//! One item of a response, and where it stands.

use super::call::Call;
use super::wire::WireItem;
use super::words::{Voice, Words};
use crate::item::Json;

/// Where an event says that its item stands. Ids of items may change from event to event, so the
/// place counts first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) index: Option<u64>,
    pub(super) id: String,
    pub(super) kind: Kind,
    /// It was told as a whole.
    pub(super) done: bool,
    /// What goes back verbatim.
    pub(super) data: Option<Json>,
    /// The terminal event told of it.
    pub(super) matched: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    Message(Words),
    Reasoning(Words),
    Call(Box<Call>),
    /// The provider's own, with its type: kept as it is when it is done.
    Own(String),
}

impl Kind {
    pub(super) fn of(item: &WireItem<'_>) -> Self {
        match item.r#type.or_empty() {
            "message" => Self::Message(Words::default()),
            "reasoning" => Self::Reasoning(Words::default()),
            "function_call" => Self::Call(Box::default()),
            own => Self::Own(own.to_owned()),
        }
    }

    pub(super) fn speaking(voice: Voice) -> Self {
        match voice {
            Voice::Text | Voice::Refusal => Self::Message(Words::default()),
            Voice::Summary | Voice::Trace => Self::Reasoning(Words::default()),
        }
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Message(_), Self::Message(_))
            | (Self::Reasoning(_), Self::Reasoning(_))
            | (Self::Call(_), Self::Call(_)) => true,
            (Self::Own(one), Self::Own(other)) => one == other,
            (Self::Message(_) | Self::Reasoning(_) | Self::Call(_) | Self::Own(_), _) => false,
        }
    }
}

impl Slot {
    pub(super) fn new(place: Place<'_>, kind: Kind) -> Self {
        let id = place.id.to_owned();
        Self { index: place.index, id, kind, done: false, data: None, matched: false }
    }

    /// Whether it stands there.
    pub(super) fn stands_at(&self, place: Place<'_>) -> bool {
        match (self.index, place.index) {
            (Some(own), Some(index)) => own == index,
            (None, _) | (_, None) => self.has_id(place.id),
        }
    }

    pub(super) fn has_id(&self, id: &str) -> bool {
        !id.is_empty() && self.id == id
    }

    /// Whether an item may be this one. Another one may stand at the place of one that is done.
    pub(super) fn may_be(&self, item: &WireItem<'_>) -> bool {
        let other = Kind::of(item);
        match &self.kind {
            Kind::Call(call) => {
                let id = item.call_id.or_empty();
                let fits = |own: &str, told: &str| own.is_empty() || told.is_empty() || own == told;
                let name = item.name.or_empty();
                self.kind.is_like(&other) && fits(&call.id, id) && fits(&call.name, name)
            }
            Kind::Message(_) | Kind::Reasoning(_) | Kind::Own(_) => {
                self.kind.is_like(&other) && (!self.done || self.has_id(item.id.or_empty()))
            }
        }
    }
}
