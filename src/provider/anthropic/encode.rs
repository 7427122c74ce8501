//! From a request to a body.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::NAME;
use crate::error::{Error, ErrorKind};
use crate::item::{Content, Item, ItemKind, Media, MediaSource, Part, ProviderData, ToolCall};
use crate::provider::context::{Context, object_or_wrapped, wire_id, wire_name};
use crate::provider::fields::to_bytes;
use crate::provider::handoff;
use crate::request::Request;

/// What is asked for unless a request says how many tokens; the wire demands a number.
const MAX_TOKENS: u32 = 8192;

/// What stands for the user's words before those of the assistant, if there are none.
const NOT_SHOWN: &str = "(What was said before is not shown.)";

/// Writes the body of a request to the Anthropic Messages wire.
///
/// Content is always written as arrays. The items of a turn become one message; tool results stand
/// together and first in the message of the user that follows.
///
/// # Errors
///
/// [`InvalidRequest`](ErrorKind::InvalidRequest) if every message is empty.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    let context = Context::of(request);
    let mut messages = Messages::default();
    for item in context.items() {
        messages.push(item, model);
    }
    let zones = [context.stable(), context.volatile()];
    let system: Vec<_> = zones
        .iter()
        .filter(|text| !text.trim().is_empty())
        .map(|text| json!({ "type": "text", "text": text }))
        .collect();
    let messages = messages.finish();
    if messages.is_empty() {
        let message = "there is nothing to send: every message is empty";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    let tools = request.tools.iter().map(|tool| Tool {
        name: Cow::Borrowed(&tool.name),
        description: &tool.description,
        input_schema: &tool.parameters,
    });
    let mut tools: Vec<_> = tools.collect();
    if tools.is_empty() {
        tools = called(&messages);
    }
    let body = Body {
        model,
        max_tokens: request.options.max_output_tokens.unwrap_or(MAX_TOKENS),
        stream: true,
        temperature: request.options.temperature,
        system,
        tools,
        messages,
    };
    to_bytes(&body, &request.options.extra)
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<serde_json::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: &'a serde_json::Value,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

/// One content block.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        citations: Option<Box<RawValue>>,
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
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
    },
    #[serde(untagged)]
    Verbatim(Box<RawValue>),
}

/// JSON text, written as it is.
struct RawJson<'a>(Cow<'a, str>);

impl Serialize for RawJson<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

/// The messages so far, alternating roles.
#[derive(Default)]
struct Messages<'a> {
    done: Vec<Message<'a>>,
    /// Calls of the assistant's message that is being written. Text that comes behind a call is
    /// put before it: the wire is reported to refuse the other order.
    calls: Vec<Block<'a>>,
    /// Thoughts that nothing of their turn has followed yet: "the final block in an assistant
    /// message cannot be `thinking`", so those at the end of a turn are not sent.
    thoughts: Vec<Block<'a>>,
}

impl<'a> Messages<'a> {
    fn push(&mut self, item: &'a Item, model: &str) {
        let data = handoff(item, NAME, model).data();
        match &item.kind {
            ItemKind::User { content } => self.user(blocks(content)),
            // The wire has no system role between messages.
            ItemKind::System { text } => self.user(text_block(text).into_iter().collect()),
            ItemKind::Text { text } => {
                let citations = data.and_then(|data| field(data, "citations"));
                if let Some(Block::Text { text, .. }) = text_block(text) {
                    // "final assistant content cannot end with trailing whitespace"; which text is
                    // the final one changes from request to request.
                    self.assistant(Block::Text { text: text.trim_end(), citations });
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
                let mut content = blocks(&result.content);
                if content.is_empty() && result.is_error() {
                    // "content cannot be empty if `is_error` is true"
                    content.extend(text_block("It failed without a word."));
                }
                self.user(vec![Block::ToolResult {
                    tool_use_id: wire_id(&result.call_id),
                    content,
                    is_error: result.is_error(),
                }]);
            }
            ItemKind::Other => {
                if let Some(data) = data
                    && let Some(raw) = raw(data.value.as_str())
                {
                    self.flush_thoughts();
                    self.flush_calls();
                    self.assistant(Block::Verbatim(raw));
                }
            }
        }
        if item.turn.is_some() {
            self.thoughts.clear();
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

    fn finish(mut self) -> Vec<Message<'a>> {
        self.flush_calls();
        self.done.retain(|message| !message.content.is_empty());
        // "first message must use the user role"
        if self.done.first().is_some_and(|message| message.role == "assistant") {
            let content = text_block(NOT_SHOWN).into_iter().collect();
            self.done.insert(0, Message { role: "user", content });
        }
        self.done
    }
}

/// The tools that were called: the wire demands that they are declared, also when none may be
/// called any more.
fn called<'a>(messages: &[Message<'a>]) -> Vec<Tool<'a>> {
    static ANYTHING: LazyLock<serde_json::Value> = LazyLock::new(|| json!({ "type": "object" }));
    let mut tools: Vec<Tool<'a>> = Vec::new();
    for block in messages.iter().flat_map(|message| &message.content) {
        if let Block::ToolUse { name, .. } = block
            && tools.iter().all(|tool| tool.name != *name)
        {
            let description = "Not available any more.";
            tools.push(Tool { name: name.clone(), description, input_schema: &ANYTHING });
        }
    }
    tools
}

/// "text content blocks must contain non-whitespace text"
fn text_block(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text, citations: None })
}

fn blocks(content: &Content) -> Vec<Block<'_>> {
    match content {
        Content::Text(text) => text_block(text).into_iter().collect(),
        Content::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => text_block(text),
                Part::Image(media) => Some(Block::Image { source: source(media) }),
                Part::File(media) => Some(Block::Document { source: source(media) }),
            })
            .collect(),
    }
}

fn source(media: &Media) -> Source<'_> {
    match &media.source {
        MediaSource::Data(data) => Source::Base64 { media_type: &media.media_type, data },
        MediaSource::Url(url) => Source::Url { url },
    }
}

/// Reasoning is sent only with what proves it: a signature, or the redacted block itself.
fn reasoning<'a>(text: &'a str, data: &ProviderData) -> Option<Block<'a>> {
    if let Some(signature) = field(data, "signature") {
        let signature = serde_json::from_str(signature.get()).ok()?;
        return Some(Block::Thinking { thinking: text, signature });
    }
    field(data, "type").and_then(|_| raw(data.value.as_str())).map(Block::Verbatim)
}

fn tool_use<'a>(call: &'a ToolCall, data: Option<&ProviderData>) -> Block<'a> {
    Block::ToolUse {
        id: wire_id(&call.call_id),
        name: wire_name(&call.name),
        input: RawJson(object_or_wrapped(call)),
        caller: data.and_then(|data| field(data, "caller")),
    }
}

/// A field of an opaque value, verbatim.
fn field(data: &ProviderData, name: &str) -> Option<Box<RawValue>> {
    let mut fields: std::collections::HashMap<String, Box<RawValue>> = data.value.get().ok()?;
    fields.remove(name)
}

fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(json.to_owned()).ok()
}
