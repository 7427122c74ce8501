//! Converts a history's items to messages.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::options::WIRE_NAME;
use crate::error::{Error, ErrorKind};
use crate::item::{Content, Item, ItemKind, Media, MediaSource, Part, ToolCall, ToolResult};
use crate::provider::codec::encode_context::{EncodeContext, JsonArray, SystemZone};
use crate::provider::codec::portable_values::{approval_text, arguments_as_object};
use crate::provider::codec::unsupported_part::{PartOrText, UnsupportedPart, append_paragraph};
use crate::provider::handoff;
use crate::provider::wires::ollama::PROVIDER_NAME;
use crate::request::ToolNames;

#[derive(Default, Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: Cow<'a, str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

/// The message that contains the system prompt.
#[derive(Serialize)]
struct SystemMessage<'a> {
    role: &'static str,
    content: SystemZone<'a>,
}

impl<'a> SystemMessage<'a> {
    fn new(content: SystemZone<'a>) -> Self {
        Self { role: "system", content }
    }
}

/// A tool call in an assistant message. Servers that do not support call ids ignore the `id` field.
#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: Option<Box<RawValue>>,
}

/// Accumulates the encoded messages. Once a message is complete, the encoder does not read it
/// again.
pub(super) struct Messages<'a> {
    model: &'a str,
    tool_names: &'a ToolNames,
    written: Vec<Message<'a>>,
    /// The boundary after the messages that can no longer change. The tuple contains the item index
    /// at the boundary and the number of messages before it.
    closed_elements: Option<(usize, usize)>,
    /// The assistant message for the current turn.
    open_turn: Option<Message<'a>>,
    /// Whether the previous item was interrupted.
    was_interrupted: bool,
    /// The number of calls that have no result yet.
    open_call_count: usize,
}

impl<'a> Messages<'a> {
    pub(super) fn new(model: &'a str, tool_names: &'a ToolNames) -> Self {
        let (done, closed, turn) = (Vec::new(), None, None);
        Self {
            model,
            tool_names,
            written: done,
            closed_elements: closed,
            open_turn: turn,
            was_interrupted: false,
            open_call_count: 0,
        }
    }

    /// Encodes a context's items, preceded by the system prompt as a single message.
    pub(super) fn write(
        mut self,
        context: &'a EncodeContext<(), ToolNames>,
    ) -> Result<JsonArray<()>, Error> {
        for (at, item) in context.items_to_encode() {
            self.push(item, context.unsupported_part(at))?;
            if self.open_turn.is_none() && self.open_call_count == 0 {
                self.closed_elements = Some((at, self.written.len()));
            }
        }
        self.close_turn();
        let closed = self.closed_elements.map(|(at, count)| (at, count, ()));
        let mut array = JsonArray::from_elements("messages", &self.written, closed)?;
        let zones: Vec<SystemZone<'_>> = context.system_zones().collect();
        match zones[..] {
            [] => {}
            [zone] => array.leading_elements.push(&SystemMessage::new(zone))?,
            _ => {
                let texts: Vec<&str> = zones.into_iter().map(SystemZone::as_str).collect();
                let joined = texts.join("\n\n");
                array.leading_elements.push(&SystemMessage::new(SystemZone::Volatile(&joined)))?;
            }
        }
        Ok(array)
    }

    fn push(&mut self, item: &'a Item, unsupported: UnsupportedPart) -> Result<(), Error> {
        // An interrupted item forms a separate message, which later items do not change. Two
        // consecutive interrupted items form two messages if the first item contains text. However,
        // no message may come between calls and their results.
        let went_on = std::mem::replace(&mut self.was_interrupted, item.interrupted);
        let ends = |turn: &Message<'_>| match item.interrupted {
            true => !turn.content.trim().is_empty(),
            false => went_on,
        };
        if self.open_turn.as_ref().is_some_and(|turn| turn.tool_calls.is_empty() && ends(turn)) {
            self.close_turn();
        }
        match &item.kind {
            ItemKind::User { content } => {
                self.close_turn();
                let message = message_from_content("user", content, unsupported)?;
                self.written.push(message);
            }
            ItemKind::System { text } => {
                self.close_turn();
                if !text.trim().is_empty() {
                    let content = Cow::Borrowed(text.as_str());
                    self.written.push(Message { role: "system", content, ..Message::default() });
                }
            }
            ItemKind::Text { text } => append_text(&mut self.open_turn().content, text),
            ItemKind::Reasoning { text } => {
                // The provider data names the model that wrote the reasoning. Truncated reasoning
                // is useless.
                let is_own = handoff(item, PROVIDER_NAME, self.model).data().is_some();
                if is_own && !item.interrupted {
                    append_text(&mut self.open_turn().thinking, text);
                }
            }
            ItemKind::ToolCall(call) => {
                self.open_call_count += 1;
                let call = encode_call(call, self.tool_names);
                self.open_turn().tool_calls.push(call);
            }
            ItemKind::ToolResult(result) => {
                self.open_call_count = self.open_call_count.saturating_sub(1);
                self.close_turn();
                let message = tool_message(result, self.tool_names)?;
                self.written.push(message);
            }
            // The API has no way to represent provider-specific items.
            ItemKind::Other => {}
        }
        if item.turn.is_some() {
            self.close_turn();
        }
        Ok(())
    }

    fn open_turn(&mut self) -> &mut Message<'a> {
        self.open_turn.get_or_insert_with(|| Message { role: "assistant", ..Message::default() })
    }

    /// Ends the current turn. A turn that has neither text nor calls produces no message.
    fn close_turn(&mut self) {
        let Some(mut turn) = self.open_turn.take() else { return };
        // Text that consists only of white space is dropped, because models write white space
        // before a tool call.
        if turn.content.trim().is_empty() {
            turn.content = Cow::Borrowed("");
            if turn.tool_calls.is_empty() {
                return;
            }
        }
        self.written.push(turn);
    }
}

fn append_text<'a>(to: &mut Cow<'a, str>, more: &'a str) {
    match to.is_empty() {
        true => *to = Cow::Borrowed(more),
        false => to.to_mut().push_str(more),
    }
}

fn encode_call<'a>(call: &'a ToolCall, names: &ToolNames) -> Call<'a> {
    let arguments = RawValue::from_string(arguments_as_object(call).into_owned()).ok();
    let function = Function { name: names.sent_name(&call.name), arguments };
    Call { id: &call.call_id, function }
}

fn tool_message<'a>(result: &'a ToolResult, names: &ToolNames) -> Result<Message<'a>, Error> {
    let mut message =
        message_from_content("tool", &result.content, UnsupportedPart::IN_TOOL_RESULTS)?;
    if let Some(text) = approval_text(result) {
        message.content = text.into();
    }
    let (tool_name, tool_call_id) = (names.sent_name(&result.name), result.call_id.as_str());
    Ok(Message { tool_name: Some(tool_name), tool_call_id: Some(tool_call_id), ..message })
}

/// Encodes content as a message that contains text and images. The server places the images before
/// the text.
fn message_from_content<'a>(
    role: &'static str,
    content: &'a Content,
    unsupported: UnsupportedPart,
) -> Result<Message<'a>, Error> {
    let mut message = Message { role, ..Message::default() };
    match content {
        Content::Text(text) => message.content = Cow::Borrowed(text),
        Content::Parts(parts) => {
            let mut follows_description = false;
            for part in parts {
                if let Some(text) = part.as_text() {
                    match std::mem::take(&mut follows_description) {
                        true => append_paragraph(message.content.to_mut(), text),
                        false => append_text(&mut message.content, text),
                    }
                    continue;
                }
                match unsupported.apply(part, image_data(part))? {
                    PartOrText::Part(data) => message.images.push(data),
                    PartOrText::Text(text) => {
                        append_paragraph(message.content.to_mut(), &text);
                        follows_description = true;
                    }
                }
            }
        }
    }
    Ok(message)
}

/// Returns the base64 data of an image, the only kind of media that the API accepts.
fn image_data(part: &Part) -> Result<&str, Error> {
    match part {
        Part::Image(Media { source: MediaSource::Data(data), .. }) => Ok(data),
        Part::Image(Media { source: MediaSource::FileId(_), .. }) => {
            Err(unsupported_media("an image by id"))
        }
        Part::Image(_) => Err(unsupported_media("an image by URL")),
        Part::File(_) | Part::Text { .. } => Err(unsupported_media("a file")),
    }
}

fn unsupported_media(what: &str) -> Error {
    let message = format!("the {WIRE_NAME} wire does not support {what}");
    Error::new(ErrorKind::Unsupported, message).with_parameter("content")
}
