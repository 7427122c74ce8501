//! From items to messages.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::block::{Block, field, reasoning, tool_use, verbatim};
use super::content::{blocks, text_block};
use super::written::{Known, Written};
use crate::error::Error;
use crate::item::{Item, ItemKind, ProviderData, StopReason, TurnInfo};
use crate::provider::anthropic::NAME;
use crate::provider::context::wire_id;
use crate::provider::handoff;
use crate::provider::lenient::{Lax, Str};

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    pub(super) content: Vec<Block<'a>>,
}

/// The messages so far, alternating roles.
#[derive(Default)]
pub(super) struct Messages<'a> {
    /// What is known of those that are encoded.
    known: Known,
    done: Vec<Message<'a>>,
    /// The place before the item that is added.
    at: usize,
    /// The place where the user began to speak last, how many messages were there, and the
    /// container: no item changes them any more.
    closed: Option<(usize, usize, Option<String>)>,
    /// Calls of the assistant's message that is being written. Text that comes behind a call is
    /// put before it: the wire is reported to refuse the other order.
    calls: Vec<Block<'a>>,
    /// Thoughts that nothing of their turn has followed yet: "the final block in an assistant
    /// message cannot be `thinking`", so those at the end of a turn are not sent.
    thoughts: Vec<Block<'a>>,
    /// Uses of the server's own tools in the open turn that have no result, and their places in the
    /// last message.
    pending: Vec<(String, usize)>,
    /// The newest container that code of this model ran in.
    container: Option<String>,
}

impl<'a> Messages<'a> {
    /// Begins behind messages that are encoded, or with nothing.
    pub(super) fn new(known: Option<&Known>) -> Self {
        let known = known.cloned().unwrap_or_default();
        Self { container: known.container.clone(), known, ..Self::default() }
    }

    /// Adds an item, behind which is the place `at`.
    pub(super) fn push(&mut self, item: &'a Item, at: usize, model: &str) -> Result<(), Error> {
        self.add(item, model)?;
        self.at = at;
        Ok(())
    }

    fn add(&mut self, item: &'a Item, model: &str) -> Result<(), Error> {
        let data = handoff(item, NAME, model).data();
        match &item.kind {
            ItemKind::User { content } => self.user(blocks(content)?),
            // The wire has no system role between messages.
            ItemKind::System { text } => self.user(text_block(text).into_iter().collect()),
            ItemKind::Text { text } => {
                if let Some(mut block) = text_block(text) {
                    if let Block::Text { citations, .. } = &mut block {
                        *citations = data.and_then(|data| field(data, "citations"));
                    }
                    self.assistant(block);
                }
            }
            ItemKind::Reasoning { text } => {
                if let Some(block) = data.and_then(|data| reasoning(text, data)) {
                    self.thoughts.push(block);
                }
            }
            ItemKind::ToolCall(call) => {
                self.open("assistant");
                self.flush_thoughts();
                self.calls.push(tool_use(call, data));
            }
            ItemKind::ToolResult(result) => {
                let mut content = blocks(&result.content)?;
                if content.is_empty() && result.is_error() {
                    // "content cannot be empty if `is_error` is true"
                    content.extend(text_block("It failed without a word."));
                }
                self.user(vec![Block::ToolResult {
                    tool_use_id: wire_id(&result.call_id),
                    content,
                    is_error: result.is_error(),
                    cache_control: None,
                }]);
            }
            ItemKind::Other => {
                if let Some(data) = data {
                    self.own(data);
                }
            }
        }
        if let Some(turn) = &item.turn {
            self.end_turn(turn);
        }
        // "final assistant content cannot end with trailing whitespace": what ends a turn, or was
        // cut off, may come to stand last.
        if item.turn.is_some() || item.interrupted {
            self.trim_end();
        }
        Ok(())
    }

    fn end_turn(&mut self, turn: &TurnInfo) {
        self.thoughts.clear();
        let pending = std::mem::take(&mut self.pending);
        // Where a turn was to go on, the result may come in a later response.
        let goes_on = match turn.stop_reason {
            StopReason::Pause | StopReason::ToolCalls => true,
            StopReason::Stop => !self.calls.is_empty(),
            StopReason::MaxTokens
            | StopReason::ContentFilter
            | StopReason::Refusal
            | StopReason::ContextWindow
            | StopReason::Other(_) => false,
        };
        let Some(last) = self.done.last_mut() else { return };
        if pending.is_empty() || goes_on {
            return;
        }
        for (_, at) in pending.into_iter().rev() {
            // Law: `open` empties `pending` when another message begins.
            if at < last.content.len() {
                last.content.remove(at);
            }
        }
        if !self.calls.is_empty() {
            return;
        }
        // Nothing follows these thoughts any more.
        while last.content.last().is_some_and(Block::is_thought) {
            last.content.pop();
        }
        if last.content.is_empty() {
            self.done.pop();
        }
    }

    /// An item of the provider's own: a block, or what a message said beside its blocks, which is
    /// none. A tool's use without its result is refused where the turn does not go on, and so is
    /// one that was cut off inside its input.
    fn own(&mut self, data: &ProviderData) {
        let Some(raw) = verbatim(data) else { return };
        let own: Own<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        if own.r#type.get() == Some("message") {
            let id = own.container.0.and_then(|container| container.id.0);
            self.container = id.map(Cow::into_owned).or(self.container.take());
            return;
        }
        let is_use = own.r#type.or_empty().ends_with("_tool_use");
        if is_use && own.input.is_some_and(|input| input.get().starts_with('"')) {
            return;
        }
        self.pending.retain(|(id, _)| own.tool_use_id.get() != Some(id));
        let used = is_use.then(|| own.id.or_empty().to_owned());
        self.flush_thoughts();
        self.flush_calls();
        self.assistant(Block::Verbatim(raw));
        let at = self.done.last().map_or(0, |message| message.content.len() - 1);
        self.pending.extend(used.map(|id| (id, at)));
    }

    fn user(&mut self, content: Vec<Block<'a>>) {
        if !content.is_empty() {
            self.open("user").content.extend(content);
        }
    }

    fn assistant(&mut self, block: Block<'a>) {
        self.open("assistant");
        self.flush_thoughts();
        self.open("assistant").content.push(block);
    }

    fn flush_thoughts(&mut self) {
        if !self.thoughts.is_empty() {
            self.flush_calls();
            let thoughts = std::mem::take(&mut self.thoughts);
            self.open("assistant").content.extend(thoughts);
        }
    }

    fn open(&mut self, role: &'static str) -> &mut Message<'a> {
        if self.done.last().is_none_or(|message| message.role != role) {
            self.flush_calls();
            self.pending.clear();
            if role == "user" {
                self.thoughts.clear();
                if !self.done.is_empty() {
                    self.closed = Some((self.at, self.done.len(), self.container.clone()));
                }
            }
            self.done.push(Message { role, content: Vec::new() });
        }
        let last = self.done.len() - 1;
        &mut self.done[last]
    }

    fn flush_calls(&mut self) {
        if let Some(message) = self.done.last_mut() {
            message.content.append(&mut self.calls);
        }
    }

    fn trim_end(&mut self) {
        let last = self.done.last_mut().filter(|message| message.role == "assistant");
        let block = last.and_then(|message| message.content.last_mut());
        if let Some(Block::Text { text, .. }) = block
            && self.calls.is_empty()
        {
            *text = text.trim_end();
        }
    }

    pub(super) fn finish(mut self) -> Written<'a> {
        self.trim_end();
        self.flush_calls();
        Written::new(self.known, self.done, self.closed, self.container)
    }
}

/// Whether the user speaks with this item, in a message behind that of an assistant.
pub(super) fn opens_user(item: &Item) -> bool {
    match &item.kind {
        ItemKind::ToolResult(_) => true,
        ItemKind::User { content } => blocks(content).is_ok_and(|blocks| !blocks.is_empty()),
        ItemKind::System { text } => text_block(text).is_some(),
        ItemKind::Text { .. }
        | ItemKind::Reasoning { .. }
        | ItemKind::ToolCall(_)
        | ItemKind::Other => false,
    }
}

/// What is read of an item of the provider's own.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Own<'a> {
    #[serde(borrow)]
    r#type: Str<'a>,
    #[serde(borrow)]
    id: Str<'a>,
    #[serde(borrow)]
    tool_use_id: Str<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    container: Lax<Container<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container<'a> {
    #[serde(borrow)]
    id: Str<'a>,
}
