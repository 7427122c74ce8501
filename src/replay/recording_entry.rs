//! What stands in a recording.

use crate::error::Error;
use crate::event::Event;
use crate::item::{History, RawJson};
use crate::replay::fingerprint::RequestFingerprint;
use crate::world::{EffectKind, LoopEnd};

/// A run that was read.
pub(super) struct ParsedRun {
    pub(super) run_number: u32,
    pub(super) format_version: u32,
    pub(super) history: History,
    pub(super) is_resuming: bool,
    pub(super) entries: Vec<RecordingEntry>,
}

/// What stands in a recording, in its order.
pub(super) enum RecordingEntry {
    Event {
        event: Event,
        vetoed: bool,
    },
    Request(RequestFingerprint),
    /// What the outside answered, the `nth` time since the last event; in version 1 the first time that
    /// is left.
    Value {
        kind: EffectKind,
        name: String,
        occurrence: Option<u32>,
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

    /// What a request was.
    pub(super) fn request(&self) -> Option<&RequestFingerprint> {
        match self {
            Self::Request(print) => Some(print),
            Self::Event { .. } | Self::Value { .. } | Self::TurnError(_) | Self::LoopEnd(_) => None,
        }
    }

    /// How the agent ended the run.
    pub(super) fn loop_end(&self) -> Option<&LoopEnd> {
        match self {
            Self::LoopEnd(ending) => Some(ending),
            Self::Event { .. } | Self::Request(_) | Self::Value { .. } | Self::TurnError(_) => None,
        }
    }
}

/// Whether an event is the end of a step.
pub(super) fn ends_step(event: &Event) -> bool {
    event.turn_complete().is_some() || event.tool_output().is_some()
}
