//! From the items of a history to those of a request.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::blocks::{content_parts, text_part};
use super::cache::EncodedPrefix;
use crate::error::Error;
use crate::item::{Item, ItemKind, Json, ProviderData, ToolCall, ToolResult};
use crate::provider::encode_context::{ClosedElements, JsonArray, JsonElements};
use crate::provider::handoff;
use crate::provider::openai_responses::passthrough::{Kept, NAME, Thought};
use crate::provider::portable_values::{
    LONG_ID, has_media, object_or_wrapped, result_text, wire_id, wire_name,
};

/// The input so far. It only grows: what an item becomes depends on those before it alone.
#[derive(Default)]
pub(super) struct Input<'a> {
    done: JsonElements,
    /// The place up to which nothing waits, how many bytes are written there, and what is known.
    closed: Option<(usize, usize, EncodedPrefix)>,
    /// Reasoning that waits for what follows it: "Item 'rs_…' of type 'reasoning' was provided
    /// without its required following item". At the end of its turn it is not sent.
    waiting: Vec<(Thought<'a>, &'a Json)>,
    /// What is known here.
    prefix: EncodedPrefix,
}

impl<'a> Input<'a> {
    /// Begins at a place, or with nothing.
    pub(super) fn new(prefix: Option<&EncodedPrefix>) -> Self {
        Self { prefix: prefix.cloned().unwrap_or_default(), ..Self::default() }
    }

    /// Adds an item, behind which is the place `at`.
    pub(super) fn push(&mut self, item: &'a Item, at: usize, model: &str) -> Result<(), Error> {
        self.add(item, model)?;
        if self.waiting.is_empty() {
            self.closed = Some((at, self.done.0.len(), self.prefix.clone()));
        }
        Ok(())
    }

    fn add(&mut self, item: &'a Item, model: &str) -> Result<(), Error> {
        if std::mem::replace(&mut self.prefix.interrupted, item.interrupted) != item.interrupted {
            self.end_turn();
        }
        let data = handoff(item, NAME, model).data();
        match &item.kind {
            ItemKind::User { content } => {
                self.end_turn();
                self.message("user", &content_parts(content))?;
            }
            ItemKind::System { text } => {
                self.end_turn();
                self.instruct(text)?;
            }
            ItemKind::Text { text } => self.text(text, data)?,
            ItemKind::Reasoning { .. } => {
                let thought = data.and_then(|data| Some((Thought::read(data)?, &data.value)));
                self.waiting.extend(thought);
            }
            ItemKind::ToolCall(call) => self.call(call, data)?,
            ItemKind::ToolResult(result) => {
                self.end_turn();
                self.result(result)?;
            }
            ItemKind::Other => {
                if let Some(data) = data {
                    self.flush()?;
                    self.done.push(&data.value)?;
                }
            }
        }
        if item.turn.is_some() {
            self.end_turn();
        }
        Ok(())
    }

    /// An instruction that stands among what is said.
    pub(super) fn instruct(&mut self, text: &str) -> Result<(), Error> {
        self.message("developer", &text_part(text).into_iter().collect::<Vec<_>>())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.done.0.is_empty()
    }

    pub(super) fn finish(self) -> JsonArray<EncodedPrefix> {
        let mut array = JsonArray::new("input");
        let mut elements = self.done;
        if let Some((at, size, state)) = self.closed {
            let rest = elements.0.split_off(size.min(elements.0.len()));
            array.closed = Some(ClosedElements { end: at, state, elements });
            elements = JsonElements(rest);
        }
        array.rest = elements;
        array
    }

    fn text(&mut self, text: &str, data: Option<&ProviderData>) -> Result<(), Error> {
        if text.is_empty() {
            return Ok(());
        }
        let kept = data.and_then(|data| self.linked(data));
        self.linked_or_plain(kept.and_then(|kept| kept.into_message(text)), || {
            let content = json!([{ "type": "output_text", "text": text }]);
            json!({ "type": "message", "role": "assistant", "content": content })
        })
    }

    fn call(&mut self, call: &ToolCall, data: Option<&ProviderData>) -> Result<(), Error> {
        let (id, name) = (wire_id(&call.call_id, LONG_ID), wire_name(&call.name));
        let arguments = object_or_wrapped(call);
        let kept = data.and_then(|data| self.linked(data));
        self.linked_or_plain(kept.and_then(|kept| kept.into_call(&id, &name, &arguments)), || {
            json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })
        })
    }

    /// Adds an item as it came with its reasoning before it; or else what there is without it, and
    /// the reasoning is not sent.
    fn linked_or_plain(
        &mut self,
        linked: Option<Box<RawValue>>,
        plain: impl FnOnce() -> Value,
    ) -> Result<(), Error> {
        match linked {
            Some(item) => {
                self.flush()?;
                self.done.push(&item)
            }
            None => {
                self.waiting.clear();
                self.done.push(&plain())
            }
        }
    }

    fn result(&mut self, result: &ToolResult) -> Result<(), Error> {
        let output = match has_media(&result.content) {
            true => content_parts(&result.content).into(),
            false => json!(result_text(result)),
        };
        self.done.push(&json!({
            "type": "function_call_output",
            "call_id": wire_id(&result.call_id, LONG_ID),
            "output": output,
        }))
    }

    /// What is kept of an item, if the reasoning that it belongs to goes before it: with its own
    /// id and without that of its reasoning it would be refused.
    fn linked(&self, data: &ProviderData) -> Option<Kept> {
        let kept = Kept::read(data)?;
        let waiting = self.waiting.last().map(|(thought, _)| thought.id());
        let before = waiting.or(self.prefix.sent.as_deref());
        (kept.after.as_deref() == before).then_some(kept)
    }

    fn flush(&mut self) -> Result<(), Error> {
        for (thought, item) in std::mem::take(&mut self.waiting) {
            self.done.push(item)?;
            self.prefix.sent = Some(thought.id().to_owned());
        }
        Ok(())
    }

    fn end_turn(&mut self) {
        self.waiting.clear();
        self.prefix.sent = None;
    }

    /// An empty message says nothing.
    fn message(&mut self, role: &str, content: &[Value]) -> Result<(), Error> {
        match content {
            [] => Ok(()),
            content => {
                self.done.push(&json!({ "type": "message", "role": role, "content": content }))
            }
        }
    }
}
