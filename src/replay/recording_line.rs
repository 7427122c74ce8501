//! The lines in a recording, each of which is a JSON object.
//!
//! ```text
//! {"type":"run","run":1,"version":1,"history":{…},"is_resuming":false}     first
//! {"type":"recording","version":1,"model":"…"}      first, if a provider's turns are recorded
//! {"type":"event","run":1,"event":{"type":"turn_started",…}}
//! {"type":"request","run":1,"request":{…}}          a request is about to be sent
//! {"type":"value","run":1,"kind":"facts","nth":2,"value":{…}}  a value that no event contains: the
//!                                                   `nth` of its kind since the last event
//! {"type":"turn_failed","run":1,"error":{…}}        the turn that is being streamed has failed
//! {"type":"loop_ended","run":1,"polled_since_last_event":true,"error":null}
//!                                                   the loop was ended from outside: by an
//!                                                   interrupt, an error, or `time_limit_reached`
//! ```
//!
//! In the recording of a provider, the lines for a turn contain the number of the turn instead of
//! the number of a run: `"turn":1`. A turn ends with a `turn_complete` event or a `turn_failed`
//! line, unless it was dropped.
//!
//! A request is written without what it shares with the previous request in the same run, or from
//! the same provider: `"shared_prefix":3` stands for the first 3 items in the context of that
//! request, and a missing part is the same as there.
//!
//! Default values are omitted. The line for a value from a step of a custom body contains a `name`.
//! The line for a failed effect contains an `error` instead of a `value`. Readers skip lines with
//! an unknown `type`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::event::Event;
use crate::item::{History, RawJson};
use crate::replay::recorded_request::RequestLine;
use crate::world::{EffectKind, TimeLimitReached};

/// The version of the format, which is incremented whenever a reader of the previous version would
/// misread a line.
pub(super) const FORMAT_VERSION: u32 = 1;

/// A line in a recording.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum RecordingLine<'a> {
    Run {
        run: u32,
        version: u32,
        history: Cow<'a, History>,
        #[serde(default)]
        is_resuming: bool,
    },
    /// The start of the recording of a provider.
    Recording {
        version: u32,
        #[serde(default)]
        model: Cow<'a, str>,
    },
    Event {
        #[serde(flatten)]
        owner: LineOwner,
        /// Whether the turn's calls were prevented from running when the event was emitted.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_vetoed: bool,
        event: Cow<'a, Event>,
    },
    Request {
        #[serde(flatten)]
        owner: LineOwner,
        request: Box<RequestLine>,
    },
    Value {
        run: u32,
        #[serde(flatten)]
        value: ValueLine,
    },
    TurnFailed {
        #[serde(flatten)]
        owner: LineOwner,
        error: Cow<'a, Error>,
    },
    LoopEnded {
        run: u32,
        #[serde(default)]
        polled_since_last_event: bool,
        #[serde(default)]
        error: Option<Cow<'a, Error>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time_limit_reached: Option<TimeLimitReached>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interrupt_reason: Option<Cow<'a, str>>,
    },
    #[serde(other)]
    Unknown,
}

/// The run to which a line belongs, or the turn, in the recording of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LineOwner {
    Run(u32),
    Turn(u32),
}

/// The value of an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ValueLine {
    pub(super) kind: EffectKind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    pub(super) nth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Error>,
}
