//! The lines of a record: one JSON object each.
//!
//! ```text
//! {"type":"recording","version":1,"model":"…"}                  first
//! {"type":"asked","turn":1,"request":{…}}                       a request was about to be sent
//! {"type":"event","turn":1,"event":{"type":"text_delta",…}}
//! {"type":"error","turn":1,"error":{"kind":"overloaded",…}}     the turn ended with it
//! ```
//!
//! A turn ends with its `turn_complete`, with an `error`, or, if it was dropped, with neither.
//! Readers skip a `type` they do not know.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::item::{History, Item};
use crate::request::{Options, Request, System, ToolSpec};
use crate::turn::TurnEvent;

/// Raised when a reader of the version before would misread a line.
pub(in crate::provider) const VERSION: u32 = 1;

/// A line as it is written.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Written<'a> {
    Recording {
        version: u32,
        model: &'a str,
    },
    Asked {
        turn: u32,
        request: &'a Asked,
    },
    Event {
        turn: u32,
        /// The calls of the turn could not run when it came.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        vetoed: bool,
        event: &'a TurnEvent,
    },
    Error {
        turn: u32,
        error: &'a Error,
    },
}

/// A line as it is read.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::provider) enum Line {
    Recording {
        version: u32,
        #[serde(default)]
        model: String,
    },
    Asked {
        turn: u32,
        request: Box<Asked>,
    },
    Event {
        turn: u32,
        #[serde(default)]
        vetoed: bool,
        event: TurnEvent,
    },
    Error {
        turn: u32,
        error: Error,
    },
    #[serde(other)]
    Unknown,
}

/// What was asked.
#[derive(Serialize, Deserialize)]
pub(in crate::provider) struct Asked {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default)]
    system: System,
    #[serde(default)]
    tools: Arc<[ToolSpec]>,
    #[serde(default)]
    options: Options,
    history: History,
    /// Only where it is not the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<History>,
}

/// The part of it that a model is told. Ids of histories are drawn anew in each run.
#[derive(Serialize)]
struct Told<'a> {
    model: &'a Option<String>,
    system: &'a System,
    tools: &'a [ToolSpec],
    options: &'a Options,
    context: Vec<&'a Item>,
}

/// The parts of what a model is told, in the order in which they are compared.
pub(in crate::provider) const PARTS: [&str; 5] = ["model", "system", "tools", "options", "context"];

impl Asked {
    pub(in crate::provider) fn of(request: &Request) -> Self {
        let Request { history, context, system, tools, model, options } = request.clone();
        let context = (context != history).then_some(context);
        Self { model, system, tools, options, history, context }
    }

    /// What a model is told by it, as an object of [`PARTS`].
    pub(in crate::provider) fn told(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Told {
            model: &self.model,
            system: &self.system,
            tools: &self.tools,
            options: &self.options,
            context: self.context.as_ref().unwrap_or(&self.history).iter().collect(),
        })
    }
}
