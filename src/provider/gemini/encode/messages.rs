//! From items to contents: roles that alternate, results together and in the order of their calls.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::blocks::{Call, Content, Part, Response, answer, parts, plain};
use super::generation::Generation;
use crate::error::Error;
use crate::item::{Item, ItemKind, ProviderData, ToolCall, ToolResult};
use crate::provider::encode_context::JsonArray;
use crate::provider::gemini::passthrough::{Bound, NAME};
use crate::provider::handoff;
use crate::provider::portable_values::{NOT_SHOWN, object_or_wrapped, wire_name};

/// The signature of a call that nobody signed, as the guide on thought signatures has it:
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const UNSIGNED: &str = "skip_thought_signature_validator";

/// A call that waits for its result, or had it.
struct Called<'a> {
    order: usize,
    id: Option<&'a str>,
    name: &'a str,
}

/// The contents so far.
pub(super) struct Contents<'a> {
    model: &'a str,
    generation: Generation,
    /// Contents are encoded, the last of them of the user.
    begun: bool,
    done: Vec<Content<'a>>,
    /// The place before the item that is added.
    at: usize,
    /// The place where the model began to speak last, and how many contents were there: no item
    /// changes them any more.
    closed: Option<(usize, usize)>,
    calls: HashMap<&'a str, Called<'a>>,
    /// Results of the calls of one turn, with the places of the calls.
    results: Vec<(usize, Part<'a>)>,
    /// Files of these results that the wire takes behind them only.
    media: Vec<Part<'a>>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(model: &'a str, begun: bool) -> Self {
        let (done, results, media) = (Vec::new(), Vec::new(), Vec::new());
        let (generation, calls) = (Generation::of(model), HashMap::new());
        Self { model, generation, begun, done, at: 0, closed: None, calls, results, media }
    }

    /// Adds an item, behind which is the place `at`.
    pub(super) fn push(&mut self, item: &'a Item, at: usize) {
        self.add(item);
        self.at = at;
    }

    fn add(&mut self, item: &'a Item) {
        let data = handoff(item, NAME, self.model).data();
        let bound =
            data.and_then(|data| data.value.deserialize_as::<Bound>().ok()).unwrap_or_default();
        match &item.kind {
            ItemKind::User { content } => self.say("user", parts(content)),
            // The wire has no system role between contents.
            ItemKind::System { text } => self.say("user", plain(text)),
            ItemKind::Text { text } => {
                if !text.trim().is_empty() || bound.thought_signature.is_some() {
                    let thought_signature = bound.thought_signature;
                    self.say("model", [Part::Text { text, thought: false, thought_signature }]);
                }
            }
            // A thought that nobody signed proves nothing.
            ItemKind::Reasoning { text } => {
                if bound.thought_signature.is_some() {
                    let thought = bound.text.is_none();
                    let thought_signature = bound.thought_signature;
                    self.say("model", [Part::Text { text, thought, thought_signature }]);
                }
            }
            ItemKind::ToolCall(call) => self.call(call, bound),
            ItemKind::ToolResult(result) => self.result(result),
            ItemKind::Other => {
                let raw = |data: &ProviderData| RawValue::from_string(data.value.to_string()).ok();
                self.say("model", data.and_then(raw).map(Part::Verbatim));
            }
        }
    }

    /// An id goes back where the wire gave one: Vertex has no such field, and refuses it.
    fn call(&mut self, call: &'a ToolCall, bound: Bound) {
        let id = bound.id.map(|_| call.call_id.as_str());
        let order = self.calls.len();
        self.calls.insert(&call.call_id, Called { order, id, name: &call.name });
        let args = RawValue::from_string(object_or_wrapped(call).into_owned()).ok();
        let function_call = Call { id, name: wire_name(&call.name), args };
        // Only the first of several calls is signed.
        let parts = &self.open("model").parts;
        let is_first = !parts.iter().any(|part| matches!(part, Part::Call { .. }));
        let unsigned = is_first && self.generation == Generation::Third;
        let thought_signature = match bound.thought_signature {
            Some(signature) => Some(signature.into()),
            None => unsigned.then_some(UNSIGNED.into()),
        };
        self.say("model", [Part::Call { function_call, thought_signature }]);
    }

    fn result(&mut self, result: &'a ToolResult) {
        let called = self.calls.get(result.call_id.as_str());
        let order = called.map_or(usize::MAX, |called| called.order);
        let name = called.map_or(result.name.as_str(), |called| called.name);
        let mut response = Response {
            id: called.and_then(|called| called.id),
            name: wire_name(name),
            response: answer(result),
            parts: Vec::new(),
        };
        for part in parts(&result.content) {
            match part {
                Part::Text { .. } => {}
                // A file by its address "is not supported in Gemini API" there.
                Part::Inline { .. } if self.generation == Generation::Third => {
                    response.parts.push(part);
                }
                part => self.media.push(part),
            }
        }
        self.results.push((order, Part::Response { function_response: response }));
    }

    fn say(&mut self, role: &'static str, parts: impl IntoIterator<Item = Part<'a>>) {
        let mut parts = parts.into_iter().peekable();
        if parts.peek().is_some() {
            self.open(role).parts.extend(parts);
        }
    }

    /// The content that is being written. What answers the calls before it is written first.
    fn open(&mut self, role: &'static str) -> &mut Content<'a> {
        if !self.results.is_empty() {
            self.results.sort_by_key(|(order, _)| *order);
            let results = std::mem::take(&mut self.results).into_iter().map(|(_, part)| part);
            let media = std::mem::take(&mut self.media);
            self.turn_to("user").parts.extend(results.chain(media));
        }
        self.turn_to(role)
    }

    fn turn_to(&mut self, role: &'static str) -> &mut Content<'a> {
        if self.done.last().is_none_or(|content| content.role != role) {
            if role == "model" {
                if self.done.is_empty() && !self.begun {
                    self.done.push(Content { role: "user", parts: plain(NOT_SHOWN).collect() });
                }
                self.closed = Some((self.at, self.done.len()));
            }
            self.done.push(Content { role, parts: Vec::new() });
        }
        let last = self.done.len() - 1;
        &mut self.done[last]
    }

    pub(super) fn finish(mut self) -> Result<JsonArray<()>, Error> {
        if !self.results.is_empty() {
            self.open("user");
        }
        let closed = self.closed.map(|(at, count)| (at, count, ()));
        JsonArray::of("contents", &self.done, closed)
    }
}

/// Whether the model is the first to speak in these items, as far as they tell it by themselves.
pub(super) fn opens_model<'a>(items: impl Iterator<Item = &'a Item>) -> bool {
    for item in items {
        match &item.kind {
            ItemKind::ToolCall(_) => return true,
            ItemKind::Text { text } if !text.trim().is_empty() => return true,
            ItemKind::Text { .. } | ItemKind::Reasoning { .. } | ItemKind::Other => {}
            ItemKind::User { .. } | ItemKind::System { .. } | ItemKind::ToolResult(_) => {
                return false;
            }
        }
    }
    false
}
