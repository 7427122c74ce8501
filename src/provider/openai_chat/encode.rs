//! From a request to a body.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};
use crate::item::{Content, Item, ItemKind, Media, MediaSource, Part, ToolResult};
use crate::provider::context::{Context, object_or_wrapped, wire_id, wire_name};
use crate::provider::fields::to_bytes;
use crate::request::Request;

/// The name that a server knows the output limit by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitField {
    /// `max_completion_tokens`, as the vendor's newer models want it.
    MaxCompletionTokens,
    /// `max_tokens`, as most compatible servers want it.
    MaxTokens,
}

/// Writes the body of a request to the Chat Completions wire.
///
/// Content that is all text is written as a string. The items of one turn are one message; no two
/// turns and no two messages of the user are merged. Reasoning is not sent. Images in tool results,
/// which this wire cannot carry there, follow the results in a message of the user.
///
/// # Errors
///
/// [`Unsupported`](ErrorKind::Unsupported) for a file that is given as an address: this wire takes
/// its bytes only.
pub fn encode(request: &Request, model: &str, limit: LimitField) -> Result<Vec<u8>, Error> {
    let context = Context::of(request);
    let mut messages = Messages::default();
    for zone in [context.stable(), context.volatile()] {
        if !zone.is_empty() {
            messages.done.push(Message::plain("system", zone));
        }
    }
    for item in context.items() {
        messages.push(item)?;
    }
    let (max_completion_tokens, max_tokens) = match limit {
        LimitField::MaxCompletionTokens => (request.options.max_output_tokens, None),
        LimitField::MaxTokens => (None, request.options.max_output_tokens),
    };
    let tools = request.tools.iter().map(|tool| Tool {
        r#type: "function",
        function: Function {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.parameters,
        },
    });
    to_bytes(
        &Body {
            model,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            max_completion_tokens,
            max_tokens,
            temperature: request.options.temperature,
            tools: tools.collect(),
            messages: messages.finish(),
        },
        &request.options.extra,
    )
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    // An empty list is refused by some servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    content: Option<Spoken<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: CallFunction<'a>,
}

#[derive(Serialize)]
struct CallFunction<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

/// A string when all is text, else parts.
#[derive(Serialize)]
#[serde(untagged)]
enum Spoken<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Value>),
}

impl<'a> Message<'a> {
    fn plain(role: &'static str, text: &'a str) -> Self {
        Self::of(role, Some(Spoken::Text(text.into())))
    }

    fn of(role: &'static str, content: Option<Spoken<'a>>) -> Self {
        Self { role, tool_call_id: None, content, tool_calls: Vec::new() }
    }
}

#[derive(Default)]
struct Messages<'a> {
    done: Vec<Message<'a>>,
    /// The message of the turn that is being written.
    turn: Option<Message<'a>>,
    /// The item before was of a turn that did not complete.
    interrupted: bool,
    /// Images and files of the tool results that are being written.
    media: Vec<Value>,
}

impl<'a> Messages<'a> {
    fn push(&mut self, item: &'a Item) -> Result<(), Error> {
        // What was cut off is a message of its own; what comes next does not change it.
        if std::mem::replace(&mut self.interrupted, item.interrupted) && !item.interrupted {
            self.close_turn();
        }
        match &item.kind {
            ItemKind::User { content } => {
                self.close();
                self.done.push(Message::of("user", Some(spoken(content)?)));
            }
            ItemKind::System { text } => {
                self.close();
                self.done.push(Message::plain("system", text));
            }
            ItemKind::Text { text } => {
                let turn = self.turn();
                match &mut turn.content {
                    Some(Spoken::Text(said)) => said.to_mut().push_str(text),
                    content => *content = Some(Spoken::Text(text.into())),
                }
            }
            ItemKind::ToolCall(call) => self.turn().tool_calls.push(Call {
                id: wire_id(&call.call_id),
                r#type: "function",
                function: CallFunction {
                    name: wire_name(&call.name),
                    arguments: object_or_wrapped(call),
                },
            }),
            ItemKind::ToolResult(result) => {
                self.close_turn();
                self.result(result)?;
            }
            // This wire has no place for them.
            ItemKind::Reasoning { .. } | ItemKind::Other => {}
        }
        if item.turn.is_some() {
            self.close_turn();
        }
        Ok(())
    }

    fn result(&mut self, result: &'a ToolResult) -> Result<(), Error> {
        if let Content::Parts(parts) = &result.content {
            let media = parts.iter().filter(|part| part.as_text().is_none());
            for part in media {
                self.media.push(part_of(part)?);
            }
        }
        let content = Some(Spoken::Text(text_of(&result.content)));
        let tool_call_id = Some(wire_id(&result.call_id));
        self.done.push(Message { tool_call_id, ..Message::of("tool", content) });
        Ok(())
    }

    fn turn(&mut self) -> &mut Message<'a> {
        self.close_media();
        self.turn.get_or_insert_with(|| Message::of("assistant", None))
    }

    fn close(&mut self) {
        self.close_turn();
        self.close_media();
    }

    /// An assistant that neither said nor called anything is no message.
    fn close_turn(&mut self) {
        let turn = self.turn.take();
        self.done.extend(turn.filter(|turn| {
            let said = matches!(&turn.content, Some(Spoken::Text(said)) if !said.is_empty());
            said || !turn.tool_calls.is_empty()
        }));
    }

    fn close_media(&mut self) {
        if !self.media.is_empty() {
            let media = std::mem::take(&mut self.media);
            self.done.push(Message::of("user", Some(Spoken::Parts(media))));
        }
    }

    fn finish(mut self) -> Vec<Message<'a>> {
        self.close();
        self.done
    }
}

fn spoken(content: &Content) -> Result<Spoken<'_>, Error> {
    match content {
        Content::Parts(parts) if parts.iter().any(|part| part.as_text().is_none()) => {
            parts.iter().map(part_of).collect::<Result<_, _>>().map(Spoken::Parts)
        }
        content => Ok(Spoken::Text(text_of(content))),
    }
}

fn text_of(content: &Content) -> Cow<'_, str> {
    match content {
        Content::Text(text) => Cow::Borrowed(text),
        parts @ Content::Parts(_) => Cow::Owned(parts.text()),
    }
}

fn part_of(part: &Part) -> Result<Value, Error> {
    let data_url = |media: &Media, data: &str| format!("data:{};base64,{data}", media.media_type);
    Ok(match part {
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image(media) => {
            let url = match &media.source {
                MediaSource::Data(data) => data_url(media, data),
                MediaSource::Url(url) => url.clone(),
            };
            json!({ "type": "image_url", "image_url": { "url": url } })
        }
        Part::File(media) => match &media.source {
            MediaSource::Data(data) => json!({
                "type": "file",
                "file": { "filename": "file", "file_data": data_url(media, data) },
            }),
            MediaSource::Url(_) => {
                let message = "the Chat Completions wire takes a file's bytes, not its address";
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        },
    })
}
