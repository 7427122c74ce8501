//! Converts items to contents, the API's messages, whose roles alternate. A turn's tool results are
//! grouped together, in the order of their calls.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::blocks::{
    Content, FunctionCall, FunctionResponse, Part, content_parts, response_value, text_part,
};
use super::generation::ModelGeneration;
use crate::error::Error;
use crate::item::{Item, ItemKind, ProviderData, StopReason, ToolCall, ToolResult, TurnInfo};
use crate::provider::codec::encode_context::JsonArray;
use crate::provider::codec::portable_values::{USER_TEXT_PLACEHOLDER, arguments_as_object};
use crate::provider::codec::unsupported_part::UnsupportedPart;
use crate::provider::handoff;
use crate::provider::wires::gemini::passthrough::{
    Continuation, PROVIDER_NAME, PassthroughFields, is_metadata,
};
use crate::request::ToolNames;

/// The placeholder for the missing signature of a call, as specified in the guide on thought
/// signatures, <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const SIGNATURE_PLACEHOLDER: &str = "skip_thought_signature_validator";

/// A tool call, which may or may not have a result yet.
struct CalledFunction<'a> {
    order: usize,
    id: Option<Cow<'a, str>>,
    name: &'a str,
}

/// Accumulates the encoded contents, which are the API's messages.
pub(super) struct Contents<'a> {
    model: &'a str,
    tool_names: &'a ToolNames,
    generation: ModelGeneration,
    /// Whether a cached prefix precedes these contents. The last content in the cached prefix has
    /// the role `user`.
    has_encoded_prefix: bool,
    written: Vec<Content<'a>>,
    /// The history index at which the current item starts.
    item_index: usize,
    /// The last boundary between contents that can no longer change and contents that still can,
    /// which is always at the start of a content with the role `model`. The tuple contains the item
    /// index at the boundary and the number of contents before it.
    closed_elements: Option<(usize, usize)>,
    calls: HashMap<&'a str, CalledFunction<'a>>,
    /// The results of the current turn's calls, each with the position of its call.
    results: Vec<(usize, Part<'a>)>,
    /// Files that belong to the pending results but that the API accepts only after the results.
    result_media: Vec<Part<'a>>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(model: &'a str, tool_names: &'a ToolNames, begun: bool) -> Self {
        let (done, results, media) = (Vec::new(), Vec::new(), Vec::new());
        let (generation, calls) = (ModelGeneration::from_model_name(model), HashMap::new());
        Self {
            model,
            tool_names,
            generation,
            has_encoded_prefix: begun,
            written: done,
            item_index: 0,
            closed_elements: None,
            calls,
            results,
            result_media: media,
        }
    }

    /// Adds an item to the contents. `at` is the history index immediately after the item.
    pub(super) fn push(
        &mut self,
        item: &'a Item,
        at: usize,
        unsupported: UnsupportedPart,
    ) -> Result<(), Error> {
        self.push_item(item, unsupported)?;
        self.item_index = at;
        Ok(())
    }

    fn push_item(&mut self, item: &'a Item, unsupported: UnsupportedPart) -> Result<(), Error> {
        let data = handoff(item, PROVIDER_NAME, self.model).data();
        let bound = data
            .and_then(|data| data.value.deserialize_as::<PassthroughFields>().ok())
            .unwrap_or_default();
        match &item.kind {
            ItemKind::User { content } => {
                let parts = content_parts(content, self.generation, unsupported)?;
                self.push_parts("user", parts);
            }
            // The API has no system role for contents.
            ItemKind::System { text } => self.push_parts("user", text_part(text)),
            ItemKind::Text { text } => {
                if !text.trim().is_empty() || bound.thought_signature.is_some() {
                    let thought_signature = bound.thought_signature;
                    self.push_parts(
                        "model",
                        [Part::Text { text: text.into(), thought: false, thought_signature }],
                    );
                }
            }
            // Unsigned thoughts are omitted because the API has no use for them.
            ItemKind::Reasoning { text } => {
                if bound.thought_signature.is_some() {
                    let thought = bound.text.is_none();
                    let thought_signature = bound.thought_signature;
                    let text = text.into();
                    self.push_parts("model", [Part::Text { text, thought, thought_signature }]);
                }
            }
            ItemKind::ToolCall(call) => self.push_call(call, bound),
            ItemKind::ToolResult(result) => self.push_result(result)?,
            // The token is sent outside of the contents.
            ItemKind::Other if data.is_some_and(is_metadata) => {}
            ItemKind::Other => {
                let raw = |data: &ProviderData| RawValue::from_string(data.value.to_string()).ok();
                self.push_parts("model", data.and_then(raw).map(Part::Verbatim));
            }
        }
        Ok(())
    }

    /// Adds a tool call. The call's id is sent only if the API assigned it, and as the API assigned
    /// it. Other ids are not sent, because Vertex AI rejects calls with an `id` field.
    fn push_call(&mut self, call: &'a ToolCall, bound: PassthroughFields) {
        let order = self.calls.len();
        let parts = &self.open_content("model").parts;
        let is_free = |id: &String| !parts.iter().any(|part| part.is_call_with_id(id));
        let id = bound.id.map(|id| match is_free(&id) {
            true => Cow::Owned(id),
            // Another call in this turn has the same id.
            false => Cow::Borrowed(call.call_id.as_str()),
        });
        let name = self.tool_names.sent_name(&call.name);
        let called = CalledFunction { order, id: id.clone(), name: &call.name };
        self.calls.insert(&call.call_id, called);
        let args = RawValue::from_string(arguments_as_object(call).into_owned()).ok();
        let function_call = FunctionCall { id, name, args };
        // Only the first of several calls has a signature.
        let parts = &self.open_content("model").parts;
        let is_first = !parts.iter().any(|part| matches!(part, Part::Call { .. }));
        let unsigned = is_first && self.generation == ModelGeneration::Gemini3OrLater;
        let thought_signature = match bound.thought_signature {
            Some(signature) => Some(signature.into()),
            None => unsigned.then_some(SIGNATURE_PLACEHOLDER.into()),
        };
        self.push_parts("model", [Part::Call { function_call, thought_signature }]);
    }

    fn push_result(&mut self, result: &'a ToolResult) -> Result<(), Error> {
        let called = self.calls.get(result.call_id.as_str());
        let order = called.map_or(usize::MAX, |called| called.order);
        let name = called.map_or(result.name.as_str(), |called| called.name);
        let mut response = FunctionResponse {
            id: called.and_then(|called| called.id.clone()),
            name: self.tool_names.sent_name(name),
            response: response_value(result),
            parts: Vec::new(),
        };
        let unsupported = UnsupportedPart::IN_TOOL_RESULTS;
        for part in content_parts(&result.content, self.generation, unsupported)? {
            match part {
                // The response has the text of the result, but not that of an omitted file.
                Part::Text { text: Cow::Owned(text), .. } => response.response.append(&text),
                Part::Text { .. } => {}
                // A file specified by URL "is not supported in Gemini API" in a result.
                Part::Inline { .. } if self.generation == ModelGeneration::Gemini3OrLater => {
                    response.parts.push(part);
                }
                part => self.result_media.push(part),
            }
        }
        self.results.push((order, Part::Response { function_response: response }));
        Ok(())
    }

    fn push_parts(&mut self, role: &'static str, parts: impl IntoIterator<Item = Part<'a>>) {
        let mut parts = parts.into_iter().peekable();
        if parts.peek().is_some() {
            self.open_content(role).parts.extend(parts);
        }
    }

    /// Returns the content for `role`, to which parts can be added. Pending results are written
    /// before this content.
    fn open_content(&mut self, role: &'static str) -> &mut Content<'a> {
        if !self.results.is_empty() {
            self.results.sort_by_key(|(order, _)| *order);
            let results = std::mem::take(&mut self.results).into_iter().map(|(_, part)| part);
            let media = std::mem::take(&mut self.result_media);
            self.switch_role("user").parts.extend(results.chain(media));
        }
        self.switch_role(role)
    }

    fn switch_role(&mut self, role: &'static str) -> &mut Content<'a> {
        if self.written.last().is_none_or(|content| content.role != role) {
            if role == "model" {
                if self.written.is_empty() && !self.has_encoded_prefix {
                    self.written.push(Content {
                        role: "user",
                        parts: text_part(USER_TEXT_PLACEHOLDER).collect(),
                    });
                }
                self.closed_elements = Some((self.item_index, self.written.len()));
            }
            self.written.push(Content { role, parts: Vec::new() });
        }
        let last = self.written.len() - 1;
        &mut self.written[last]
    }

    pub(super) fn finish(mut self) -> Result<JsonArray<()>, Error> {
        if !self.results.is_empty() {
            self.open_content("user");
        }
        let closed = self.closed_elements.map(|(at, count)| (at, count, ()));
        JsonArray::from_elements("contents", &self.written, closed)
    }
}

/// The turn at the end of a history, if the provider has paused it.
pub(super) struct PausedTurn {
    /// The token with which the request continues the turn.
    pub(super) continuation_token: String,
    /// The number of items before the turn and before all paused turns that it continues.
    pub(super) preceding_items: usize,
}

impl PausedTurn {
    /// Returns the paused turn with which these items end, if any. A turn of another model cannot
    /// be continued.
    pub(super) fn at_end_of<'a>(
        items: impl Iterator<Item = &'a Item>,
        model: &str,
    ) -> Option<Self> {
        let (mut token, mut preceding) = (None, 0);
        for (at, item) in items.enumerate() {
            let is_paused = |turn: &TurnInfo| turn.stop_reason == StopReason::Pause;
            let ends = item.turn.as_deref().is_some_and(|turn| !is_paused(turn));
            if ends || !item.is_model_output() {
                (token, preceding) = (None, at + 1);
                continue;
            }
            let data = handoff(item, PROVIDER_NAME, model).data();
            let is_other = matches!(item.kind, ItemKind::Other);
            token = data.filter(|_| is_other).and_then(Continuation::from_provider_data);
        }
        let continuation_token = token?.continuation_token;
        Some(Self { continuation_token, preceding_items: preceding })
    }
}

/// Returns whether the first content encoded from these items is certain to have the role `model`.
pub(super) fn starts_model_content<'a>(items: impl Iterator<Item = &'a Item>) -> bool {
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
