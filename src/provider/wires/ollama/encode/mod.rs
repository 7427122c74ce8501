//! Encodes a request as a request body.

mod messages;
mod options;

use std::sync::Arc;

use self::messages::Messages;
use self::options::WIRE_NAME;
use super::{Chat, PROVIDER_NAME};
use crate::chunked_bytes::ChunkedBytes;
use crate::error::Error;
use crate::provider::codec::body::{
    ObjectWriter, ensure_options_unset, unsupported_error, without_tools,
};
use crate::provider::codec::encode_context::EncodeContext;
use crate::provider::codec::encoded_tools::{append_elements, encoded_tools};
use crate::provider::codec::function_tool::FunctionTool;
use crate::provider::codec::schema;
use crate::provider::codec::server_tools::vendor_tools;
use crate::request::{Request, ToolChoice, ToolNameRule, ToolNames, ToolSpec};

/// The server accepts any name.
pub(super) const TOOL_NAME_RULE: ToolNameRule = ToolNameRule::Any;

/// Encodes the body of a request to Ollama's native API.
///
/// All items in a turn form a single message. The stable and the volatile zone of the system prompt
/// are sent in a single message at the start, because most models read all instructions there.
/// Reasoning is sent back only to the model that wrote it, in the message for the same turn.
/// References in the tools' parameter schemas are inlined, because the server drops references.
/// With [`ToolChoice::None`], the tools are not sent.
///
/// An effort of `minimal` is sent as `low`, and an effort of `xhigh` or `max` as `high`, unless
/// [`Chat::think`] sets another encoding. An output schema's name has no effect.
/// [`Options::cache`](crate::request::Options::cache) has no effect, because the server caches
/// automatically.
///
/// # Errors
///
/// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error for a request without
/// messages, which the server would treat as a command to load the model, and for a request that
/// contains only instructions, which the server does not answer. Returns an
/// [`Unsupported`](crate::ErrorKind::Unsupported) error for these options:
///
/// - `user`, `metadata`, `reasoning_summary`, `verbosity`, `service_tier`, `citations` and
///   `prompt_cache_key`, `prompt_cache_retention`
/// - a `tool_choice` that requires a call or allows only some tools
/// - `parallel_tool_calls: Some(false)`
/// - a reasoning budget
/// - a `seed` of more than 53 bits
/// - media in user messages other than base64-encoded images
pub fn encode(request: &Request, model: &str, chat: &Chat) -> Result<Vec<u8>, Error> {
    encode_body(request, model, chat).map(ChunkedBytes::into_vec)
}

pub(super) fn encode_body(
    request: &Request,
    model: &str,
    chat: &Chat,
) -> Result<ChunkedBytes, Error> {
    request.validate()?;
    let options = &request.options;
    let one_at_most = options.parallel_tool_calls == Some(false);
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("user", options.user.is_some()),
            ("metadata", !options.metadata.is_empty()),
            ("parallel_tool_calls", one_at_most),
            ("reasoning_summary", options.reasoning_summary.is_some()),
            ("verbosity", options.verbosity.is_some()),
            ("service_tier", options.service_tier.is_some()),
            ("citations", options.citations),
            ("prompt_cache_key", options.prompt_cache_key.is_some()),
            ("prompt_cache_retention", options.prompt_cache_retention.is_some()),
        ],
    )?;
    let names = request.tools.names_for(TOOL_NAME_RULE);
    // The cached prefix ends where no turn is open, so no further encoder state is needed.
    let context = EncodeContext::from_request(request, PROVIDER_NAME, model, names.clone());
    let messages = Messages::new(model, &names).write(&context)?;
    context.ensure_not_empty(messages.is_empty(), "message")?;
    context.ensure_not_only_instructions()?;
    let body = ObjectWriter::for_request().set("model", model).set("stream", true);
    let on_server = vendor_tools(options, WIRE_NAME, PROVIDER_NAME)?;
    let tools = match (tool_declarations(request, &names)?, options.tool_choice == ToolChoice::None)
    {
        (tools, true) => tools,
        (None, false) if on_server.is_empty() => None,
        (tools, false) => Some(append_elements(tools.unwrap_or_default(), &on_server)?),
    };
    let body = options::write_options(
        match &tools {
            Some(tools) => body.set_encoded("tools", &[b"[", tools, b"]"]),
            None => body,
        },
        options,
        chat,
    )?;
    match options.tool_choice == ToolChoice::None {
        true => context.write_body(body, messages, &without_tools(&options.extra)),
        false => context.write_body(body, messages, &options.extra),
    }
}

/// Returns the encoded tool definitions, or `None` if no tools are sent.
fn tool_declarations(request: &Request, names: &ToolNames) -> Result<Option<Arc<[u8]>>, Error> {
    match request.options.tool_choice {
        ToolChoice::Auto if !request.tools.has_declared() => Ok(None),
        ToolChoice::Auto => {
            let declare = |_, tool| tool_declaration(tool, names);
            encoded_tools(&request.tools, PROVIDER_NAME, (), declare).map(Some)
        }
        // The API has no `tool_choice` option to forbid calls.
        ToolChoice::None => Ok(None),
        ToolChoice::Required | ToolChoice::Tool(_) | ToolChoice::Allowed { .. } => {
            Err(unsupported_error(WIRE_NAME, "tool_choice"))
        }
    }
}

fn tool_declaration<'a>(tool: &'a ToolSpec, names: &ToolNames) -> Result<FunctionTool<'a>, Error> {
    if tool.strict {
        return Err(unsupported_error(WIRE_NAME, "strict"));
    }
    let parameters = schema::rewrite_json(&tool.parameters, schema::to_ollama_parameters_schema)?;
    Ok(FunctionTool::new(tool, names, parameters))
}
