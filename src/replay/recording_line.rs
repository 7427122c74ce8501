//! The lines in a recording, each of which is a JSON object.
//!
//! ```text
//! {"type":"run","run":1,"version":2,"history":{…},"resuming":false}      first
//! {"type":"event","run":1,"event":{"type":"turn_started",…}}
//! {"type":"asked","run":1,"request":{…}}                  the fingerprint of a request
//! {"type":"value","run":1,"of":"facts","nth":2,"value":{…}}   a value that no event contains: the
//!                                                         `nth` of its kind since the last event
//! {"type":"failed","run":1,"error":{…}}                   the turn that is being streamed has failed
//! {"type":"ended","run":1,"polled":true,"error":null}     the loop was ended from outside: by an
//!                                                         interrupt, an error, or `time_up`
//! ```
//!
//! Default values are omitted. The line for a value from a step of a custom body contains a `name`.
//! The line for a failed effect contains an `error` instead of a `value`. Readers skip lines with
//! an unknown `type`. Version 1 used `noted` lines instead of `value` lines.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::event::Event;
use crate::item::{History, RawJson};
use crate::replay::fingerprint::RequestFingerprint;
use crate::replay::version1::ValueV1;
use crate::world::{EffectKind, TimeLimitReached};

/// The version of the format, which is incremented whenever a reader of the previous version would
/// misread a line.
pub(super) const FORMAT_VERSION: u32 = 2;

/// A line in a recording.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum RecordingLine<'a> {
    Run {
        run: u32,
        version: u32,
        history: Cow<'a, History>,
        #[serde(default)]
        resuming: bool,
    },
    Event {
        run: u32,
        /// Whether the turn's calls were prevented from running when the event was emitted.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        vetoed: bool,
        event: Cow<'a, Event>,
    },
    Asked {
        run: u32,
        request: RequestFingerprint,
    },
    Value {
        run: u32,
        #[serde(flatten)]
        value: ValueLine,
    },
    /// A value in version 1 of the format.
    #[serde(skip_serializing)]
    Noted {
        run: u32,
        noted: ValueV1,
    },
    Failed {
        run: u32,
        error: Cow<'a, Error>,
    },
    Ended {
        run: u32,
        #[serde(default)]
        polled: bool,
        #[serde(default)]
        error: Option<Cow<'a, Error>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time_up: Option<TimeLimitReached>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interrupt_reason: Option<Cow<'a, str>>,
    },
    #[serde(other)]
    Unknown,
}

/// The value of an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ValueLine {
    pub(super) of: EffectKind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    pub(super) nth: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Error>,
}
