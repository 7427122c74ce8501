//! What stands in a recording.

use crate::error::Error;
use crate::event::Event;
use crate::item::{History, Json};
use crate::replay::print::Print;
use crate::world::{Ending, Kind};

/// A run that was read.
pub(super) struct Read {
    pub(super) run: u32,
    pub(super) version: u32,
    pub(super) history: History,
    pub(super) resuming: bool,
    pub(super) entries: Vec<Entry>,
}

/// What stands in a recording, in its order.
pub(super) enum Entry {
    Event {
        event: Event,
        vetoed: bool,
    },
    Asked(Print),
    /// What the outside answered, the `nth` time since the last event; in version 1 the first time that
    /// is left.
    Value {
        kind: Kind,
        name: String,
        nth: Option<u32>,
        made: Result<Json, Error>,
    },
    Failed(Error),
    Ended(Ending),
}

impl Entry {
    pub(super) fn event(&self) -> Option<&Event> {
        match self {
            Self::Event { event, .. } => Some(event),
            Self::Asked(_) | Self::Value { .. } | Self::Failed(_) | Self::Ended(_) => None,
        }
    }

    /// What a request was.
    pub(super) fn asked(&self) -> Option<&Print> {
        match self {
            Self::Asked(print) => Some(print),
            Self::Event { .. } | Self::Value { .. } | Self::Failed(_) | Self::Ended(_) => None,
        }
    }

    /// How the agent ended the run.
    pub(super) fn ended(&self) -> Option<&Ending> {
        match self {
            Self::Ended(ending) => Some(ending),
            Self::Event { .. } | Self::Asked(_) | Self::Value { .. } | Self::Failed(_) => None,
        }
    }
}

/// Whether an event is the end of a step.
pub(super) fn is_step(event: &Event) -> bool {
    event.turn_complete().is_some() || event.tool_output().is_some()
}
