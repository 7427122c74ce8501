//! Encodes a request as a request body.

mod blocks;
mod cache;
mod call_ids;
mod messages;
mod options;
mod server_tools;

use std::sync::Arc;

use serde_json::json;

use self::blocks::Message;
use self::cache::{EncodedPrefix, NewMessages};
use self::messages::Messages;
use self::options::{WIRE_NAME, set_options, set_tools};
use self::server_tools::ServerTools;
use crate::chunked_bytes::ChunkedBytes;
use crate::error::Error;
use crate::provider::codec::body::{ObjectWriter, unsupported_error, without_tools};
use crate::provider::codec::cache_control::CacheControl;
use crate::provider::codec::encode_context::EncodeContext;
use crate::provider::codec::encoded_tools::encoded_tools;
use crate::provider::codec::function_tool::FunctionTool;
use crate::provider::codec::schema::{
    rewrite_parameters_of, to_openai_parameters_schema, to_openai_strict_schema,
};
use crate::provider::wires::openai_chat::dialect::{Dialect, ToolChoices};
use crate::request::{Request, ToolChoice, ToolNames};

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
/// option. Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if the request
/// contains only instructions and the dialect [requires a message](Dialect::requires_message).
pub fn encode(request: &Request, model: &str, dialect: &Dialect) -> Result<Vec<u8>, Error> {
    encode_body(request, model, dialect).map(ChunkedBytes::into_vec)
}

pub(super) fn encode_body(
    request: &Request,
    model: &str,
    dialect: &Dialect,
) -> Result<ChunkedBytes, Error> {
    request.validate()?;
    let options = &request.options;
    let mark = CacheControl::from_option(options.cache).filter(|_| dialect.supports_cache_control);
    let in_parts = mark.is_some();
    let tool_names = request.tools.names_for(dialect.tool_name_rule());
    let key = (*dialect, tool_names.clone(), in_parts);
    let mut context: EncodeContext<EncodedPrefix, _> =
        EncodeContext::from_request(request, "openai_chat", model, key);
    if in_parts && !context.stable_system().is_empty() && context.stable_system().trim().is_empty()
    {
        // If the stable zone is blank, its cache marker may be placed on an item.
        context = context.restart();
    }
    if dialect.requires_message {
        context.ensure_not_only_instructions()?;
    }
    let known = context.encoder_state().cloned().unwrap_or_default();
    let messages = Messages::new(dialect, model, &tool_names, in_parts, &known.cursor);
    let mut written = messages.write(&context)?;
    let called = known.has_calls || written.messages.iter().any(Message::has_calls);
    let mut tools = tool_declarations(request, dialect, &tool_names, mark)?;
    if tools.is_none() && dialect.sends_empty_tools && called {
        tools = Some(Arc::default());
    }
    if let Some(mark) = mark
        && !context.stable_system().is_empty()
    {
        mark_stable_zone(mark, &mut written);
    }
    let mut body = ObjectWriter::for_request().set("model", model).set("stream", true);
    if dialect.stream_usage {
        body = body.set("stream_options", json!({ "include_usage": true }));
    }
    body = set_options(body, options, model, dialect)?;
    let server_tools = match omits_tools(request, dialect) {
        true => ServerTools::default(),
        false => ServerTools::encode(request, model, dialect)?,
    };
    body = body.set_some("web_search_options", server_tools.web_search_options.as_ref());
    tools = server_tools.append_to(tools)?;
    body = set_tools(body, tools.as_deref(), options, dialect, &tool_names)?;
    let array = written.into_array(&known, context.encoded_len(), mark)?;
    match omits_tools(request, dialect) {
        true => context.write_body(body, array, &without_tools(&options.extra)),
        false => context.write_body(body, array, &options.extra),
    }
}

/// Returns whether all tools are omitted, because the model must not call tools and the dialect has
/// no other way to tell the server.
fn omits_tools(request: &Request, dialect: &Dialect) -> bool {
    request.options.tool_choice == ToolChoice::None && dialect.tool_choice == ToolChoices::None
}

/// Returns the encoded tool definitions to send, the last of which has the cache marker, or `None`
/// if the `tools` field is to be omitted because most servers reject an empty array.
fn tool_declarations(
    request: &Request,
    dialect: &Dialect,
    tool_names: &ToolNames,
    mark: Option<CacheControl>,
) -> Result<Option<Arc<[u8]>>, Error> {
    let Some((last, _)) = request.tools.declared().next_back() else { return Ok(None) };
    if omits_tools(request, dialect) {
        return Ok(None);
    }
    let key = (mark, tool_names.rule(), dialect.supports_strict_tools);
    let encoded = encoded_tools(&request.tools, "openai_chat", key, |at, tool| {
        if tool.strict && !dialect.supports_strict_tools {
            return Err(unsupported_error(WIRE_NAME, "strict"));
        }
        let parameters =
            rewrite_parameters_of(tool, to_openai_parameters_schema, to_openai_strict_schema)?;
        let mut declaration = FunctionTool::new(tool, tool_names, parameters);
        declaration.cache_control = mark.filter(|_| at == last);
        Ok(declaration)
    });
    encoded.map(Some)
}

/// Adds a cache marker to the stable zone or, if no message contains the stable zone, to the first
/// message.
fn mark_stable_zone(mark: CacheControl, written: &mut NewMessages<'_>) {
    if let Some(front) = &mut written.leading_instructions {
        return front.mark_first_part(mark);
    }
    // The next request does not contain this marker, so the message must not be cached.
    (written.closed_elements, written.is_first_marked) = (None, true);
    let first = written.messages.first_mut();
    if let Some(place) = first.and_then(|message| message.content.cache_control_slots().next()) {
        *place = Some(mark);
    }
}

#[cfg(test)]
mod tests;
