//! Serializes messages, and caches the bytes of messages that can no longer change.

use super::blocks::{Block, CitationsConfig, Message};
use super::content::text_block;
use crate::error::Error;
use crate::provider::codec::cache_control::CacheControl;
use crate::provider::codec::encode_context::JsonArray;
use crate::provider::codec::portable_values::{IssuedCallIds, ServerKind, USER_TEXT_PLACEHOLDER};
use crate::request::ToolNames;

/// The encoder state after the already encoded messages, the last of which is an assistant message.
#[derive(Clone, Default)]
pub(super) struct EncodedPrefix {
    /// The container in which this model most recently ran code.
    pub(super) container: Option<String>,
    /// The names of all tools that have been called, without duplicates.
    called_tool_names: Vec<String>,
    /// The names of the tools that a tool search has found, without duplicates.
    found_tool_names: Vec<String>,
    /// Whether the encoded messages contain thinking blocks.
    has_thinking: bool,
    /// The open calls whose ids are sent back unchanged.
    pub(super) issued_ids: IssuedCallIds,
}

/// The settings that determine, together with the items, how an item is encoded.
pub(super) type EncodingKey = (ServerKind, ToolNames, Option<CitationsConfig>);

/// A boundary, at the start of a user message, between the messages that can no longer change and
/// those that still can.
#[derive(Clone, Debug)]
pub(super) struct Boundary {
    /// The index of the first item after the boundary.
    pub(super) item_index: usize,
    /// The number of messages before the boundary.
    pub(super) message_count: usize,
    /// The newest container before the boundary.
    pub(super) container: Option<String>,
    /// The open calls, before the boundary, whose ids are sent back unchanged.
    pub(super) issued_ids: IssuedCallIds,
}

impl EncodedPrefix {
    fn extended_by(mut self, messages: &[Message<'_>]) -> Self {
        for block in messages.iter().flat_map(|message| &message.content) {
            self.has_thinking |= block.is_thinking();
            if let Block::ToolUse { name, .. } = block
                && self.called_tool_names.iter().all(|known| known != name)
            {
                self.called_tool_names.push(name.clone().into_owned());
            }
            for name in block.found_tool_names() {
                if !self.found_tool_names.contains(&name) {
                    self.found_tool_names.push(name);
                }
            }
        }
        self
    }
}

/// The messages that follow the cached prefix of a context.
pub(super) struct NewMessages<'a> {
    /// The encoder state at the end of the cached prefix.
    cached_prefix: EncodedPrefix,
    messages: Vec<Message<'a>>,
    /// The end of the messages that can no longer change.
    closed_elements: Option<Boundary>,
    /// The encoder state after the cached prefix and the new messages.
    full_prefix: EncodedPrefix,
}

impl<'a> NewMessages<'a> {
    pub(super) fn new(
        known: EncodedPrefix,
        mut messages: Vec<Message<'a>>,
        mut closed: Option<Boundary>,
        container: Option<String>,
    ) -> Self {
        let says = |message: &Message<'_>| !message.content.is_empty();
        if let Some(Boundary { message_count, .. }) = &mut closed {
            let count = messages.iter().take(*message_count).filter(|message| says(message));
            *message_count = count.count();
        }
        messages.retain(says);
        // "first message must use the user role". The first message after the cached prefix must
        // also be a user message.
        if messages.first().is_some_and(|message| message.role == "assistant") {
            let content = text_block(USER_TEXT_PLACEHOLDER).into_iter().collect();
            messages.insert(0, Message { role: "user", content });
            if let Some(Boundary { message_count, .. }) = &mut closed {
                *message_count += 1;
            }
        }
        let all = EncodedPrefix { container, ..known.clone() }.extended_by(&messages);
        Self { cached_prefix: known, messages, closed_elements: closed, full_prefix: all }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn container(&mut self) -> Option<String> {
        self.full_prefix.container.take()
    }

    /// Returns the names of all tools that have been called, without duplicates.
    pub(super) fn called_tool_names(&self) -> impl Iterator<Item = String> + use<> {
        self.full_prefix.called_tool_names.clone().into_iter()
    }

    /// Returns the names of all tools that a tool search has found, without duplicates.
    pub(super) fn found_tool_names(&self) -> impl Iterator<Item = String> + use<> {
        self.full_prefix.found_tool_names.clone().into_iter()
    }

    /// Returns whether the request contains thinking blocks.
    pub(super) fn has_thinking(&self) -> bool {
        self.full_prefix.has_thinking
    }

    /// Adds a cache marker to the last user message, so that the next request can reuse everything
    /// up to the marker. The cached prefix ends with an assistant message, so the marker always
    /// comes after the cached prefix.
    pub(super) fn mark_moving_breakpoint(&mut self, mark: CacheControl) {
        let last = self.messages.iter_mut().rfind(|message| message.role == "user");
        if let Some(block) = last.and_then(|message| message.content.last_mut()) {
            block.mark_cache(mark);
        }
    }

    pub(super) fn into_array(self) -> Result<JsonArray<EncodedPrefix>, Error> {
        let closed = self.closed_elements.map(|boundary| {
            let Boundary { item_index, message_count, container, issued_ids } = boundary;
            let closed = &self.messages[..message_count.min(self.messages.len())];
            let prefix = EncodedPrefix { container, issued_ids, ..self.cached_prefix };
            (item_index, message_count, prefix.extended_by(closed))
        });
        JsonArray::from_elements("messages", &self.messages, closed)
    }
}
