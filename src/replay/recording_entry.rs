//! The entries in a recording.

use crate::error::Error;
use crate::event::Event;
use crate::item::{History, RawJson};
use crate::replay::recorded_request::RecordedRequest;
use crate::world::{EffectKind, LoopEnd};

/// A parsed run.
pub(super) struct ParsedRun {
    pub(super) run_number: u32,
    pub(super) history: History,
    pub(super) is_resuming: bool,
    pub(super) entries: Vec<RecordingEntry>,
}

/// An entry in a recording.
pub(super) enum RecordingEntry {
    Event {
        event: Event,
        is_vetoed: bool,
    },
    Request(Box<RecordedRequest>),
    /// The value of an effect, and the effect's number among the effects of the same kind since the
    /// last event.
    Value {
        kind: EffectKind,
        name: String,
        nth: u32,
        result: Result<RawJson, Error>,
    },
    TurnError(Error),
    LoopEnd(LoopEnd),
}

impl RecordingEntry {
    pub(super) fn event(&self) -> Option<&Event> {
        match self {
            Self::Event { event, .. } => Some(event),
            Self::Request(_) | Self::Value { .. } | Self::TurnError(_) | Self::LoopEnd(_) => None,
        }
    }

    /// Returns the request, if the entry is a request.
    pub(super) fn request(&self) -> Option<&RecordedRequest> {
        match self {
            Self::Request(request) => Some(&**request),
            Self::Event { .. } | Self::Value { .. } | Self::TurnError(_) | Self::LoopEnd(_) => None,
        }
    }

    /// Returns how the loop ended, if the entry is the end of a loop.
    pub(super) fn loop_end(&self) -> Option<&LoopEnd> {
        match self {
            Self::LoopEnd(ending) => Some(ending),
            Self::Event { .. } | Self::Request(_) | Self::Value { .. } | Self::TurnError(_) => None,
        }
    }
}

/// Returns whether an event ends a step: it completes a turn or contains a tool's output.
pub(super) fn ends_step(event: &Event) -> bool {
    event.turn_complete().is_some() || event.tool_output().is_some()
}
