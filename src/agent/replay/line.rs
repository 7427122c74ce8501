//! The lines of a recording: one JSON object each.
//!
//! ```text
//! {"type":"run","run":1,"version":1,"history":{…},"resuming":false}      first
//! {"type":"event","run":1,"event":{"type":"turn_started",…}}
//! {"type":"asked","run":1,"request":{…}}                  the fingerprint of a request
//! {"type":"noted","run":1,"noted":{"of":"facts",…}}       what no event tells
//! {"type":"failed","run":1,"error":{…}}                   the turn that streams has failed
//! {"type":"ended","run":1,"polled":true,"error":null}     the loop was ended from outside: by an
//!                                                         interrupt, an error, or `time_up`
//! ```
//!
//! Readers skip a `type` they do not know.

use serde::{Deserialize, Serialize};

use crate::agent::replay::print::Print;
use crate::context::{Compaction, CompactionFailure};
use crate::error::Error;
use crate::event::{Event, Exceeded};
use crate::item::{History, Item};
use crate::request::{Options, System, ToolSpec};
use crate::usage::Usage;

/// Raised when a reader of the version before would misread a line.
pub(super) const VERSION: u32 = 1;

/// A line as it is written.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Written<'a> {
    Run {
        run: u32,
        version: u32,
        history: &'a History,
        resuming: bool,
    },
    Event {
        run: u32,
        /// The calls of the turn could not run when it came.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        vetoed: bool,
        event: &'a Event,
    },
    Asked {
        run: u32,
        request: &'a Print,
    },
    Noted {
        run: u32,
        noted: &'a Noted,
    },
    Failed {
        run: u32,
        error: &'a Error,
    },
    Ended {
        run: u32,
        polled: bool,
        error: Option<&'a Error>,
        #[serde(skip_serializing_if = "Option::is_none")]
        time_up: Option<TimeUp>,
    },
}

/// A line as it is read.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Line {
    Run {
        run: u32,
        version: u32,
        history: History,
        #[serde(default)]
        resuming: bool,
    },
    Event {
        run: u32,
        #[serde(default)]
        vetoed: bool,
        event: Box<Event>,
    },
    Asked {
        run: u32,
        request: Print,
    },
    Noted {
        run: u32,
        noted: Box<Noted>,
    },
    Failed {
        run: u32,
        error: Error,
    },
    Ended {
        run: u32,
        #[serde(default)]
        polled: bool,
        #[serde(default)]
        error: Option<Error>,
        #[serde(default)]
        time_up: Option<TimeUp>,
    },
    #[serde(other)]
    Unknown,
}

/// What the end of the time of a run did to its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::agent) enum TimeUp {
    /// It began its last turn.
    WrapUp(Exceeded),
    /// It was ended.
    End(Exceeded),
}

/// What the world outside answered, where no event tells it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub(super) enum Noted {
    /// What is known besides the state, the `nth` time that it is asked for between two events.
    Facts {
        nth: u32,
        #[serde(flatten)]
        outside: Outside,
    },
    /// What hooks made of a request.
    Prepared(Box<Prepared>),
    /// What hooks want said in the next request. It stands before the event that says it; recordings
    /// of earlier versions have it after the turn that hooks were told of.
    Notes { items: Vec<Item> },
    /// A hook wants the run to stop here.
    ShouldStop,
    /// The last request that was prepared was not sent: something else came up while it waited.
    GaveWay,
    /// Somebody objects to the end, or a hook ends the run its own way.
    AtStop { said: Said, text: String },
    /// How the history was made shorter.
    Compacted {
        from: usize,
        to: usize,
        items: Vec<Item>,
        #[serde(default)]
        usage: Usage,
        #[serde(default)]
        model: Option<String>,
    },
    /// The history could not be made shorter.
    NotCompacted {
        error: Error,
        #[serde(default)]
        usage: Usage,
    },
    #[serde(other)]
    Unknown,
}

/// Who says what when the model has stopped by itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    Objection,
    Block,
    Prevent,
    Blocked,
    Unproven,
}

/// The flags and budgets of a moment.
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own in a recording")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::agent) struct Outside {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agent) steered: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agent) follow_up: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agent) stopping: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::agent) exceeded: Option<Exceeded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::agent) too_many_calls: Option<Exceeded>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agent) nothing_left: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::agent) broke_off: bool,
}

/// The parts of a request that hooks changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Prepared {
    /// A list of at most one, since no model is a choice as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system: Option<System>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Vec<ToolSpec>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) options: Option<Options>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<Changed>,
}

/// A context, by the ends that it has in common with the history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Changed {
    pub(super) id: String,
    /// How many entries it begins with that the history begins with.
    pub(super) before: usize,
    pub(super) items: Vec<Item>,
    /// How many entries it ends with that the history ends with.
    pub(super) behind: usize,
}

impl Noted {
    pub(super) fn compacted(made: &Result<Option<Compaction>, Error>) -> Option<Self> {
        Some(match made.clone() {
            Ok(compaction) => {
                let Compaction { from, to, items, usage, model } = compaction?;
                Self::Compacted { from, to, items, usage, model }
            }
            Err(error) => {
                let usage = CompactionFailure::usage_of(&error);
                Self::NotCompacted { error, usage }
            }
        })
    }

    /// What a compactor made, where this tells it.
    pub(super) fn made(&self) -> Option<Result<Compaction, Error>> {
        match self.clone() {
            Self::Compacted { from, to, items, usage, model } => {
                Some(Ok(Compaction { from, to, items, usage, model }))
            }
            Self::NotCompacted { error, usage } => Some(Err(CompactionFailure::wrap(error, usage))),
            Self::Facts { .. }
            | Self::Prepared(_)
            | Self::Notes { .. }
            | Self::ShouldStop
            | Self::GaveWay
            | Self::AtStop { .. }
            | Self::Unknown => None,
        }
    }
}
