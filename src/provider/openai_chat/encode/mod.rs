//! Encodes a request as a request body.

mod blocks;
mod cache;
mod call_ids;
mod messages;
mod options;

use std::borrow::Cow;

use serde_json::json;

use self::blocks::Message;
use self::cache::{EncodedPrefix, NewMessages};
use self::messages::Messages;
use self::options::{set_options, set_tools};
use crate::error::Error;
use crate::provider::body::ObjectWriter;
use crate::provider::cache_control::CacheControl;
use crate::provider::encode_context::EncodeContext;
use crate::provider::function_tool::FunctionTool;
use crate::provider::openai_chat::dialect::{Dialect, ToolChoices};
use crate::request::{Request, ToolChoice};

/// Encodes a request body for the Chat Completions API in the given dialect.
///
/// All items in a turn form a single message. Turns and user messages are never merged. Content
/// that consists only of text is sent as a string, or as a content part if the dialect supports
/// cache markers. The API does not allow images or files in tool results, so they are sent in a
/// user message after the results. The dialect's [`reasoning_echo`](Dialect::reasoning_echo) field
/// specifies which earlier reasoning is sent back.
///
/// # Errors
///
/// Returns an [`Unsupported`](crate::ErrorKind::Unsupported) error for an option or a content part
/// that the dialect cannot express. The error's [`parameter`](Error::parameter) is the name of the
/// option.
pub fn encode(request: &Request, model: &str, dialect: &Dialect) -> Result<Vec<u8>, Error> {
    request.validate()?;
    let options = &request.options;
    let mark = CacheControl::from_option(options.cache).filter(|_| dialect.supports_cache_control);
    let in_parts = mark.is_some();
    let mut context: EncodeContext<EncodedPrefix, _> =
        EncodeContext::from_request(request, "openai_chat", model, (*dialect, in_parts));
    if in_parts && !context.stable_system().is_empty() && context.stable_system().trim().is_empty()
    {
        // If the stable zone is blank, its cache marker may be placed on an item.
        context = context.restart();
    }
    let known = context.encoder_state().cloned().unwrap_or_default();
    let messages = Messages::new(dialect, model, in_parts, &known.cursor);
    let mut written = messages.write(&context)?;
    let called = known.has_calls || written.messages.iter().any(Message::has_calls);
    let mut tools = tool_declarations(request, dialect);
    if tools.is_none() && dialect.sends_empty_tools && called {
        tools = Some(Vec::new());
    }
    if let Some(mark) = mark {
        set_cache_marks(mark, &mut tools, &mut written, !context.stable_system().is_empty());
    }
    let mut body = ObjectWriter::for_request().set("model", model).set("stream", true);
    if dialect.stream_usage {
        body = body.set("stream_options", json!({ "include_usage": true }));
    }
    body = set_options(body, options, dialect)?;
    body = set_tools(body, tools.as_deref(), options, dialect)?;
    let array = written.into_array(&known, context.encoded_len(), mark)?;
    context.write_body(body, array, &options.extra)
}

/// Returns the tool definitions to send, or `None` if the `tools` field is to be omitted because
/// most servers reject an empty array.
fn tool_declarations<'a>(request: &'a Request, dialect: &Dialect) -> Option<Vec<FunctionTool<'a>>> {
    let choice = &request.options.tool_choice;
    let left_out = *choice == ToolChoice::None && dialect.tool_choice == ToolChoices::None;
    if request.tools.is_empty() || left_out {
        return None;
    }
    let tools = request.tools.iter();
    let tools = tools.map(|tool| FunctionTool::new(tool, Cow::Borrowed(&tool.parameters)));
    Some(tools.collect())
}

/// Adds cache markers to the last tool and to the stable zone or, if no message contains the stable
/// zone, to the first message.
fn set_cache_marks(
    mark: CacheControl,
    tools: &mut Option<Vec<FunctionTool<'_>>>,
    written: &mut NewMessages<'_>,
    has_stable_zone: bool,
) {
    if let Some(tool) = tools.as_mut().and_then(|tools| tools.last_mut()) {
        tool.cache_control = Some(mark);
    }
    if !has_stable_zone {
        return;
    }
    let first = match &mut written.leading_instructions {
        Some(front) => Some(front),
        None => {
            // The next request does not contain this marker, so the message must not be cached.
            (written.closed_elements, written.is_first_marked) = (None, true);
            written.messages.first_mut()
        }
    };
    if let Some(place) = first.and_then(|message| message.content.cache_control_slots().next()) {
        *place = Some(mark);
    }
}
