//! From items to messages.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::content::{Source, blocks, text_block};
use crate::error::Error;
use crate::item::{Item, ItemKind, ProviderData, ToolCall};
use crate::provider::anthropic::NAME;
use crate::provider::context::{object_or_wrapped, wire_id, wire_name};
use crate::provider::handoff;
use crate::provider::lenient::{Lax, Str};

/// What stands for the user's words before those of the assistant, if there are none.
const NOT_SHOWN: &str = "(What was said before is not shown.)";

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    pub(super) content: Vec<Block<'a>>,
}

/// One content block.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        citations: Option<Box<RawValue>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    Thinking {
        thinking: &'a str,
        signature: String,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: RawJson<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<Box<RawValue>>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    #[serde(untagged)]
    Verbatim(Box<RawValue>),
}

/// "Create a cache control breakpoint at this content block."
#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename = "ephemeral")]
pub(super) struct Mark {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl: Option<&'static str>,
}

impl Block<'_> {
    /// Puts a cache mark on it, where it is of the user: "thinking.cache_control: Extra inputs are
    /// not permitted".
    pub(super) fn mark(&mut self, mark: Mark) {
        match self {
            Self::Text { cache_control, .. }
            | Self::ToolResult { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::Document { cache_control, .. } => *cache_control = Some(mark),
            Self::Thinking { .. } | Self::ToolUse { .. } | Self::Verbatim(_) => {}
        }
    }
}

/// JSON text, written as it is.
pub(super) struct RawJson<'a>(Cow<'a, str>);

impl Serialize for RawJson<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// The messages so far, alternating roles.
#[derive(Default)]
pub(super) struct Messages<'a> {
    done: Vec<Message<'a>>,
    /// Calls of the assistant's message that is being written. Text that comes behind a call is
    /// put before it: the wire is reported to refuse the other order.
    calls: Vec<Block<'a>>,
    /// Thoughts that nothing of their turn has followed yet: "the final block in an assistant
    /// message cannot be `thinking`", so those at the end of a turn are not sent.
    thoughts: Vec<Block<'a>>,
    /// The newest container that code of this model ran in.
    container: Option<String>,
}

impl<'a> Messages<'a> {
    pub(super) fn push(&mut self, item: &'a Item, model: &str) -> Result<(), Error> {
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
        // "final assistant content cannot end with trailing whitespace": what ends a turn, or was
        // cut off, may come to stand last.
        if item.turn.is_some() || item.interrupted {
            self.trim_end();
        }
        if item.turn.is_some() {
            self.thoughts.clear();
        }
        Ok(())
    }

    /// An item of the provider's own: a block, or what a message said beside its blocks, which is
    /// none.
    fn own(&mut self, data: &ProviderData) {
        let beside = data.value.get::<Beside<'_>>().unwrap_or_default();
        if beside.r#type.get() == Some("message") {
            let id = beside.container.0.and_then(|container| container.id.0);
            self.container = id.map(Cow::into_owned).or(self.container.take());
            return;
        }
        if let Some(raw) = verbatim(data) {
            self.flush_thoughts();
            self.flush_calls();
            self.assistant(Block::Verbatim(raw));
        }
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
            if role == "user" {
                self.thoughts.clear();
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

    /// The messages, and the container that code ran in.
    pub(super) fn finish(mut self) -> (Vec<Message<'a>>, Option<String>) {
        self.trim_end();
        self.flush_calls();
        self.done.retain(|message| !message.content.is_empty());
        // "first message must use the user role"
        if self.done.first().is_some_and(|message| message.role == "assistant") {
            let content = text_block(NOT_SHOWN).into_iter().collect();
            self.done.insert(0, Message { role: "user", content });
        }
        (self.done, self.container)
    }
}

/// Reasoning is sent only with what proves it: a signature, or the redacted block itself.
fn reasoning<'a>(text: &'a str, data: &ProviderData) -> Option<Block<'a>> {
    if let Some(signature) = field(data, "signature") {
        let signature = serde_json::from_str(signature.get()).ok()?;
        return Some(Block::Thinking { thinking: text, signature });
    }
    let text = data.value.as_str().starts_with('"');
    (text || field(data, "type").is_some()).then(|| verbatim(data)).flatten().map(Block::Verbatim)
}

fn tool_use<'a>(call: &'a ToolCall, data: Option<&ProviderData>) -> Block<'a> {
    Block::ToolUse {
        id: wire_id(&call.call_id),
        name: wire_name(&call.name),
        input: RawJson(object_or_wrapped(call)),
        caller: data.and_then(|data| field(data, "caller")),
    }
}

/// What a message said beside its blocks, as the decoder keeps it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Beside<'a> {
    #[serde(borrow)]
    r#type: Str<'a>,
    #[serde(borrow)]
    container: Lax<Container<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container<'a> {
    #[serde(borrow)]
    id: Str<'a>,
}

/// A field of an opaque value, verbatim.
fn field(data: &ProviderData, name: &str) -> Option<Box<RawValue>> {
    let mut fields: HashMap<String, Box<RawValue>> = data.value.get().ok()?;
    fields.remove(name)
}

/// The whole of an opaque value, verbatim. One that is kept as a string is the JSON text in it.
fn verbatim(data: &ProviderData) -> Option<Box<RawValue>> {
    let text = data.value.get::<String>().unwrap_or_else(|_| data.value.as_str().to_owned());
    RawValue::from_string(text).ok()
}
