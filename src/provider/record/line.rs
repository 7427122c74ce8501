//! The format of a recording, in which each line is a JSON object.
//!
//! ```text
//! {"type":"recording","version":1,"model":"…"}                  first
//! {"type":"request","turn":1,"request":{…}}                     a request was about to be sent
//! {"type":"event","turn":1,"event":{"type":"text_delta",…}}
//! {"type":"error","turn":1,"error":{"kind":"overloaded",…}}     the turn ended with it
//! ```
//!
//! A turn ends with a `turn_complete` event or an `error` line, unless the turn was dropped.
//! Readers skip lines with an unknown `type`.
//!
//! A request is written in full, except for the items that it shares with an earlier request. In
//! the request's history, `"shared_prefix":{"turn":1,"items":3}` stands for the first 3 entries in
//! the history of turn 1. A request's context refers to an earlier turn's context in the same way.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::item::{History, Item};
use crate::request::{Options, Request, System, ToolSpec, ToolSpecs};
use crate::turn::TurnEvent;

/// The current version of the recording format, which is incremented whenever a reader of the
/// previous version would misread a line.
pub(in crate::provider) const FORMAT_VERSION: u32 = 1;

/// A line in a recording.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::provider) enum RecordLine<'a> {
    Recording {
        version: u32,
        #[serde(default)]
        model: Cow<'a, str>,
    },
    Request {
        turn: u32,
        request: Box<RequestJson>,
    },
    Event {
        turn: u32,
        /// Whether the turn's tool calls were already forbidden to run when the event arrived.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_vetoed: bool,
        event: Cow<'a, TurnEvent>,
    },
    Error {
        turn: u32,
        error: Cow<'a, Error>,
    },
    #[serde(other)]
    Unknown,
}

/// A recorded request. `H` is [`History`], or [`HistoryJson`] in the serialized form.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::provider) struct RecordedRequest<H = History> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default)]
    system: System,
    #[serde(default)]
    tools: ToolSpecs,
    #[serde(default)]
    options: Options,
    history: H,
    /// The request's context, if different from the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<H>,
}

pub(in crate::provider) type RequestJson = RecordedRequest<HistoryJson>;

/// The serialized form of a history, without the prefix that it shares with an earlier history.
#[derive(Serialize, Deserialize)]
pub(in crate::provider) struct HistoryJson {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared_prefix: Option<SharedPrefix>,
    #[serde(default)]
    items: Vec<Item>,
}

/// The number of an earlier turn, and the number of entries that a history shares with that turn's
/// history.
#[derive(Serialize, Deserialize)]
struct SharedPrefix {
    turn: u32,
    items: usize,
}

/// The part of a request that the model receives. History ids are excluded, because each run
/// generates new history ids.
#[derive(Serialize)]
struct ModelInput<'a> {
    model: &'a Option<String>,
    system: &'a System,
    tools: &'a [ToolSpec],
    options: &'a Options,
    context: Vec<&'a Item>,
}

/// The parts of a model's input, in the order in which two inputs are compared.
pub(in crate::provider) const REQUEST_PARTS: [&str; 5] =
    ["model", "system", "tools", "options", "context"];

impl RecordedRequest {
    pub(in crate::provider) fn from_request(request: &Request) -> Self {
        let Request {
            history,
            context,
            system,
            tools,
            model,
            options,
            retries: _,
            max_turn_bytes: _,
        } = request.clone();
        let context = (context != history).then_some(context);
        Self { model, system, tools, options, history, context }
    }

    fn context_or_history(&self) -> &History {
        self.context.as_ref().unwrap_or(&self.history)
    }

    /// Converts the request to JSON, without the items that it shares with an earlier turn's
    /// request.
    pub(super) fn to_json_since(&self, before: Option<&(u32, Self)>) -> RequestJson {
        let Self { model, system, tools, options, history, context } = self.clone();
        let write = |history: &History, before: Option<(u32, &History)>| {
            let shared_prefix = before.and_then(|(turn, before)| {
                let alike = history.common_prefix_len(before);
                (alike > 0).then_some(SharedPrefix { turn, items: alike })
            });
            let known = shared_prefix.as_ref().map_or(0, |shared| shared.items);
            let items = history.entries_after(known).map(|(_, item)| item.clone()).collect();
            HistoryJson { id: history.id().to_owned(), shared_prefix, items }
        };
        let history = write(&history, before.map(|(turn, it)| (*turn, &it.history)));
        let context =
            context.map(|it| write(&it, before.map(|(turn, it)| (*turn, it.context_or_history()))));
        RecordedRequest { model, system, tools, options, history, context }
    }

    /// Reads a request from JSON. `find` returns the request of an earlier turn, given its number.
    ///
    /// # Errors
    ///
    /// Returns an error if the JSON refers to an earlier request that is missing, or to more items
    /// than that request contains.
    pub(in crate::provider) fn from_json<'a>(
        written: RequestJson,
        find: impl Fn(u32) -> Option<&'a Self>,
    ) -> Result<Self, String> {
        let RecordedRequest { model, system, tools, options, history, context } = written;
        let read = |written: HistoryJson, of: fn(&Self) -> &History| {
            let HistoryJson { id, shared_prefix, items } = written;
            let Some(SharedPrefix { turn, items: known }) = shared_prefix else {
                return Ok(History::from_items(id, items));
            };
            let before = find(turn).map(of).filter(|before| before.len() >= known);
            let before =
                before.ok_or_else(|| format!("it continues turn {turn}, which does not exist"))?;
            let mut history = before.truncated(known);
            history.extend(items);
            Ok::<_, String>(history)
        };
        let history = read(history, |asked| &asked.history)?;
        let context = context.map(|context| read(context, Self::context_or_history)).transpose()?;
        Ok(Self { model, system, tools, options, history, context })
    }

    /// Returns whether the request contains deferred tools, which the provider itself searches.
    pub(in crate::provider) fn has_deferred_tools(&self) -> bool {
        self.tools.iter().any(|tool| tool.deferred)
    }

    /// Returns the model's input as a JSON object with the fields [`REQUEST_PARTS`].
    pub(in crate::provider) fn model_input(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&ModelInput {
            model: &self.model,
            system: &self.system,
            tools: &self.tools,
            options: &self.options,
            context: self.context_or_history().iter().collect(),
        })
    }
}
