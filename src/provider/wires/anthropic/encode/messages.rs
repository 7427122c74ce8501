//! Converts a history's items to messages.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::blocks::{
    Block, CitationsConfig, Message, reasoning_block, tool_use_block, verbatim_block,
};
use super::cache::{Boundary, EncodedPrefix, EncodingKey, NewMessages};
use super::content::{content_blocks, text_block};

use crate::error::Error;
use crate::item::{Item, ItemKind, ProviderData, StopReason, TurnInfo};
use crate::provider::codec::lenient::{Lenient, LenientStr};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::codec::portable_values::{
    EMPTY_ERROR_TEXT, IssuedCallIds, ServerKind, approval_text,
};
use crate::provider::codec::unsupported_part::UnsupportedPart;
use crate::provider::handoff;
use crate::provider::wires::anthropic::dialect::Dialect;
use crate::provider::wires::anthropic::passthrough::PROVIDER_NAME;
use crate::request::ToolNames;

/// Accumulates the encoded messages, whose roles alternate.
pub(super) struct Messages<'a> {
    server: ServerKind,
    tool_names: &'a ToolNames,
    citations: Option<CitationsConfig>,
    /// The open calls whose ids are sent back unchanged.
    issued_ids: IssuedCallIds,
    /// The encoder state at the end of the cached prefix.
    cached_prefix: EncodedPrefix,
    written: Vec<Message<'a>>,
    /// The history index at which the current item starts.
    item_index: usize,
    /// The end of the messages that can no longer change.
    closed_elements: Option<Boundary>,
    /// The calls in the assistant message being written. Text that follows a call is moved in front
    /// of the call, because the API has been reported to reject text after a call.
    calls: Vec<Block<'a>>,
    /// Thinking blocks that have not yet been followed by another kind of block in their turn.
    /// Pending thinking blocks are dropped at the end of the turn, because "the final block in an
    /// assistant message cannot be `thinking`".
    pending_thinking: Vec<Block<'a>>,
    /// Server tool calls that have no result yet.
    pending_server_tool_uses: Vec<ServerToolUsePosition>,
    /// Whether the request offers server tools.
    offers_server_tools: bool,
    /// The container in which this model most recently ran code.
    container: Option<String>,
}

/// The id and the position of a server tool call.
struct ServerToolUsePosition {
    id: String,
    message: usize,
    block: usize,
}

impl<'a> Messages<'a> {
    /// Creates the state for adding messages after the cached prefix, or at the start if nothing is
    /// cached.
    pub(super) fn new(
        (server, tool_names, citations): &'a EncodingKey,
        known: Option<&EncodedPrefix>,
        offers_native: bool,
    ) -> Self {
        let known = known.cloned().unwrap_or_default();
        Self {
            server: *server,
            tool_names,
            citations: *citations,
            issued_ids: known.issued_ids.clone(),
            container: known.container.clone(),
            cached_prefix: known,
            written: Vec::new(),
            item_index: 0,
            closed_elements: None,
            calls: Vec::new(),
            pending_thinking: Vec::new(),
            pending_server_tool_uses: Vec::new(),
            offers_server_tools: offers_native,
        }
    }

    /// Adds an item to the messages. `at` is the history index immediately after the item.
    pub(super) fn push(
        &mut self,
        item: &'a Item,
        at: usize,
        model: &str,
        dialect: Dialect,
        unsupported: UnsupportedPart,
    ) -> Result<(), Error> {
        let data = handoff(item, PROVIDER_NAME, model).data();
        match &item.kind {
            ItemKind::User { content } => {
                self.push_user_blocks(content_blocks(
                    content,
                    self.citations,
                    self.server,
                    unsupported,
                )?);
            }
            // The API does not support system messages between other messages.
            ItemKind::System { text } => {
                self.push_user_blocks(text_block(text).into_iter().collect());
            }
            ItemKind::Text { text } => {
                if let Some(mut block) = text_block(text) {
                    if let Block::Text { citations, .. } = &mut block {
                        *citations = data
                            .and_then(|data| OrderedFields::provider_data_field(data, "citations"));
                    }
                    self.push_assistant_block(block);
                }
            }
            ItemKind::Reasoning { text } => {
                if let Some(block) = data.and_then(|data| reasoning_block(text, data, dialect)) {
                    self.pending_thinking.push(block);
                }
            }
            ItemKind::ToolCall(call) => {
                self.open_message("assistant");
                self.flush_thinking();
                let issued = self.server.issued_call_id(item, PROVIDER_NAME);
                let id = self.issued_ids.call_id(call, issued);
                let name = self.tool_names.sent_name(&call.name);
                self.calls.push(tool_use_block(id, name, call, data));
            }
            ItemKind::ToolResult(result) => {
                let unsupported = UnsupportedPart::IN_TOOL_RESULTS;
                let mut content =
                    content_blocks(&result.content, self.citations, self.server, unsupported)?;
                if let Some(text) = approval_text(result) {
                    content = text_block(text).into_iter().collect();
                }
                if content.is_empty() && result.is_error() {
                    // "content cannot be empty if `is_error` is true"
                    content.extend(text_block(EMPTY_ERROR_TEXT));
                }
                self.open_message("user");
                let tool_use_id = self.issued_ids.result_id(&result.call_id);
                self.open_message("user").content.push(Block::ToolResult {
                    tool_use_id,
                    content,
                    is_error: result.is_error(),
                    cache_control: None,
                });
            }
            ItemKind::Other => {
                if let Some(data) = data {
                    self.push_provider_item(data);
                }
            }
        }
        if item.interrupted {
            self.remove_pending_server_tool_uses();
        }
        if let Some(turn) = &item.turn {
            self.end_turn(turn);
        }
        // "final assistant content cannot end with trailing whitespace". The last item of a turn or
        // an interrupted item may end up at the end of the request.
        if item.turn.is_some() || item.interrupted {
            self.trim_end();
        }
        self.item_index = at;
        Ok(())
    }

    fn end_turn(&mut self, turn: &TurnInfo) {
        self.pending_thinking.clear();
        // If the turn continues, a later response may contain the result.
        let is_continued = match turn.stop_reason {
            StopReason::Pause | StopReason::ToolCalls => true,
            StopReason::Stop => !self.calls.is_empty(),
            StopReason::MaxTokens
            | StopReason::ContentFilter
            | StopReason::Refusal
            | StopReason::ContextWindow
            | StopReason::Interrupted
            | StopReason::Other(_) => false,
        };
        if !is_continued {
            self.remove_pending_server_tool_uses();
        }
    }

    /// Removes the server tool calls that will never receive a result, because the API rejects such
    /// calls. If the code that a removed call executed has made another call, that call loses its
    /// `caller` field and is sent as if the model itself had made it.
    fn remove_pending_server_tool_uses(&mut self) {
        let pending = std::mem::take(&mut self.pending_server_tool_uses);
        let Some(first) = pending.first().map(|used| used.message) else { return };
        for used in pending.iter().rev() {
            self.written[used.message].content.remove(used.block);
        }
        let made_calls = self.written[first..].iter_mut().flat_map(|message| &mut message.content);
        for block in made_calls.chain(&mut self.calls) {
            block.remove_caller_if(|id| pending.iter().any(|used| used.id == id));
        }
        // Thinking blocks at the end of a message are removed, except in the last message if
        // `calls` are still to follow.
        let ended = self.written.len() - usize::from(!self.calls.is_empty());
        for message in &mut self.written[first..ended] {
            while message.content.last().is_some_and(Block::is_thinking) {
                message.content.pop();
            }
        }
        // Invariant: each earlier message contains a tool call that the next message answers, so
        // only the last message can be empty.
        self.written.pop_if(|last| last.content.is_empty() && self.calls.is_empty());
    }

    /// Adds a provider-specific item, which is either a content block or message metadata. Metadata
    /// is not sent as a block. A server tool call with truncated input is omitted, as is a result
    /// without a call, because the API rejects both.
    fn push_provider_item(&mut self, data: &ProviderData) {
        let Some(raw) = verbatim_block(data) else { return };
        let own: ProviderItem<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        if own.r#type.get() == Some("message") {
            let id = own.container.0.and_then(|container| container.id.0);
            self.container = id.map(Cow::into_owned).or(self.container.take());
            return;
        }
        let is_use = own.r#type.or_empty().ends_with("_tool_use");
        if is_use && own.input.is_some_and(|input| input.get().starts_with('"')) {
            return;
        }
        if let Some(id) = own.tool_use_id.get() {
            let Some(at) = self.pending_server_tool_uses.iter().position(|used| used.id == id)
            else {
                return;
            };
            self.pending_server_tool_uses.remove(at);
        }
        let used = is_use.then(|| own.id.or_empty().to_owned());
        self.flush_thinking();
        self.flush_calls();
        self.push_assistant_block(Block::Verbatim(raw));
        if let Some(id) = used {
            let message = self.written.len() - 1;
            let block = self.written[message].content.len() - 1;
            self.pending_server_tool_uses.push(ServerToolUsePosition { id, message, block });
        }
    }

    /// Ends the current turn, if any, and adds content to the user message that follows the turn.
    fn push_user_blocks(&mut self, content: Vec<Block<'a>>) {
        if !content.is_empty() {
            self.flush_calls();
            self.remove_pending_server_tool_uses();
            self.open_message("user").content.extend(content);
        }
    }

    fn push_assistant_block(&mut self, block: Block<'a>) {
        self.open_message("assistant");
        self.flush_thinking();
        self.open_message("assistant").content.push(block);
    }

    fn flush_thinking(&mut self) {
        if !self.pending_thinking.is_empty() {
            self.flush_calls();
            let thoughts = std::mem::take(&mut self.pending_thinking);
            self.open_message("assistant").content.extend(thoughts);
        }
    }

    fn open_message(&mut self, role: &'static str) -> &mut Message<'a> {
        if self.written.last().is_none_or(|message| message.role != role) {
            self.flush_calls();
            if role == "user" {
                self.pending_thinking.clear();
                // A server tool call that has no result yet may be removed later.
                if !self.written.is_empty() && self.pending_server_tool_uses.is_empty() {
                    self.closed_elements = Some(Boundary {
                        item_index: self.item_index,
                        message_count: self.written.len(),
                        container: self.container.clone(),
                        issued_ids: self.issued_ids.clone(),
                    });
                }
            }
            self.written.push(Message { role, content: Vec::new() });
        }
        let last = self.written.len() - 1;
        &mut self.written[last]
    }

    fn flush_calls(&mut self) {
        if let Some(message) = self.written.last_mut() {
            message.content.append(&mut self.calls);
        }
    }

    fn trim_end(&mut self) {
        let last = self.written.last_mut().filter(|message| message.role == "assistant");
        let block = last.and_then(|message| message.content.last_mut());
        if let Some(Block::Text { text, .. }) = block
            && self.calls.is_empty()
        {
            match text {
                Cow::Borrowed(text) => *text = text.trim_end(),
                Cow::Owned(text) => text.truncate(text.trim_end().len()),
            }
        }
    }

    pub(super) fn finish(mut self) -> NewMessages<'a> {
        self.flush_calls();
        let answers_calls = self.written.last().is_some_and(|message| message.role == "user");
        if answers_calls && !self.offers_server_tools {
            self.remove_pending_server_tool_uses();
        }
        self.trim_end();
        NewMessages::new(self.cached_prefix, self.written, self.closed_elements, self.container)
    }
}

/// Returns whether this item, when placed after an assistant message, starts a new user message.
pub(super) fn starts_user_message(item: &Item) -> bool {
    match &item.kind {
        ItemKind::ToolResult(_) => true,
        ItemKind::User { content } => {
            // If an unsupported part is refused, nothing is sent.
            content_blocks(content, None, ServerKind::Vendor, UnsupportedPart::Described)
                .is_ok_and(|blocks| !blocks.is_empty())
        }
        ItemKind::System { text } => text_block(text).is_some(),
        ItemKind::Text { .. }
        | ItemKind::Reasoning { .. }
        | ItemKind::ToolCall(_)
        | ItemKind::Other => false,
    }
}

/// The fields that the encoder reads from a provider-specific item.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ProviderItem<'a> {
    r#type: LenientStr<'a>,
    id: LenientStr<'a>,
    tool_use_id: LenientStr<'a>,
    input: Option<&'a RawValue>,
    container: Lenient<Container<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Container<'a> {
    id: LenientStr<'a>,
}
