//! From messages to the bytes of a body, of which those that cannot change are remembered.

use super::blocks::{Block, Message};
use super::content::text_block;
use crate::error::Error;
use crate::provider::cache_control::CacheControl;
use crate::provider::encode_context::JsonArray;
use crate::provider::portable_values::USER_TEXT_PLACEHOLDER;

/// What is known of the messages that are encoded, the last of which is of the assistant.
#[derive(Clone, Default)]
pub(super) struct EncodedPrefix {
    /// The newest container that code of this model ran in.
    pub(super) container: Option<String>,
    /// The tools that were called, each once.
    called_tool_names: Vec<String>,
    /// The tools that the vendor has found in a search, each once.
    found_tool_names: Vec<String>,
    /// Whether there are thoughts among them.
    has_thinking: bool,
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

/// The messages of a context, as far as they were not encoded before.
pub(super) struct NewMessages<'a> {
    /// What is known of those before.
    cached_prefix: EncodedPrefix,
    messages: Vec<Message<'a>>,
    /// The place up to which nothing changes any more, how many messages are there, and the
    /// container.
    closed_elements: Option<(usize, usize, Option<String>)>,
    /// What is known of those before and of these.
    full_prefix: EncodedPrefix,
}

impl<'a> NewMessages<'a> {
    pub(super) fn new(
        known: EncodedPrefix,
        mut messages: Vec<Message<'a>>,
        mut closed: Option<(usize, usize, Option<String>)>,
        container: Option<String>,
    ) -> Self {
        let says = |message: &Message<'_>| !message.content.is_empty();
        if let Some((_, count, _)) = &mut closed {
            *count = messages.iter().take(*count).filter(|message| says(message)).count();
        }
        messages.retain(says);
        // "first message must use the user role"; so does the first behind what is encoded.
        if messages.first().is_some_and(|message| message.role == "assistant") {
            let content = text_block(USER_TEXT_PLACEHOLDER).into_iter().collect();
            messages.insert(0, Message { role: "user", content });
            if let Some((_, count, _)) = &mut closed {
                *count += 1;
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

    /// The names of all tools that were called, each once.
    pub(super) fn called_tool_names(&self) -> impl Iterator<Item = String> + use<> {
        self.full_prefix.called_tool_names.clone().into_iter()
    }

    /// The names of all tools that the vendor has found in a search, each once.
    pub(super) fn found_tool_names(&self) -> impl Iterator<Item = String> + use<> {
        self.full_prefix.found_tool_names.clone().into_iter()
    }

    /// Whether any thoughts are sent.
    pub(super) fn has_thinking(&self) -> bool {
        self.full_prefix.has_thinking
    }

    /// Puts the mark that moves on with the conversation: the next request begins with all up to
    /// here. What is closed ends with an assistant, so that it stands behind.
    pub(super) fn mark_moving_breakpoint(&mut self, mark: CacheControl) {
        let last = self.messages.iter_mut().rfind(|message| message.role == "user");
        if let Some(block) = last.and_then(|message| message.content.last_mut()) {
            block.mark_cache(mark);
        }
    }

    pub(super) fn into_array(self) -> Result<JsonArray<EncodedPrefix>, Error> {
        let closed = self.closed_elements.map(|(at, count, container)| {
            let closed = &self.messages[..count.min(self.messages.len())];
            (at, count, EncodedPrefix { container, ..self.cached_prefix }.extended_by(closed))
        });
        JsonArray::from_elements("messages", &self.messages, closed)
    }
}
