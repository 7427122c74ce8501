//! Encodes a request as a body.

mod messages;
mod options;

use self::messages::Messages;
use self::options::WIRE_NAME;
use super::{Chat, PROVIDER_NAME};
use crate::error::Error;
use crate::provider::body::{ObjectWriter, ensure_options_unset, unsupported_error};
use crate::provider::encode_context::EncodeContext;
use crate::provider::function_tool::FunctionTool;
use crate::provider::schema;
use crate::request::{Request, ToolChoice, ToolSpec};

/// Encodes the body of a request to Ollama's native wire.
///
/// The items of one turn form one message. Both zones of the system prompt are sent in one message
/// at the start, since most models read all instructions there. Reasoning is sent back to the model
/// that wrote it, in the message of its turn. The parameter schemas of tools are sent with
/// references inlined, because the server drops references. [`ToolChoice::None`] leaves the tools
/// out.
///
/// An effort of `minimal` is sent as `low` and an effort of `max` as `high`; see also
/// [`Chat::with_think`]. The name of an output schema and
/// [`Options::cache`](crate::request::Options::cache) have no effect: the server caches
/// automatically.
///
/// # Errors
///
/// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) for a request without messages, which the
/// server would treat as a command to load the model. [`Unsupported`](crate::ErrorKind::Unsupported)
/// for `user`, `metadata`, a `tool_choice` that requires a call, `parallel_tool_calls: Some(false)`,
/// a reasoning budget, a `seed` beyond 53 bits, and media other than images as base64 data.
pub fn encode(request: &Request, model: &str, chat: &Chat) -> Result<Vec<u8>, Error> {
    request.validate()?;
    let options = &request.options;
    let one_at_most = options.parallel_tool_calls == Some(false);
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("user", options.user.is_some()),
            ("metadata", !options.metadata.is_empty()),
            ("parallel_tool_calls", one_at_most),
        ],
    )?;
    // The cached prefix ends where no turn is open, so no further encoder state is needed.
    let context = EncodeContext::from_request(request, PROVIDER_NAME, model, ());
    let messages = Messages::new(model).write(&context)?;
    context.ensure_not_empty(messages.is_empty(), "message")?;
    let body = ObjectWriter::for_request().set("model", model).set("stream", true);
    let body = options::write_options(
        body.set_list("tools", &tool_declarations(request)?),
        options,
        chat,
    )?;
    context.write_body(body, messages, &options.extra)
}

fn tool_declarations(request: &Request) -> Result<Vec<FunctionTool<'_>>, Error> {
    match request.options.tool_choice {
        ToolChoice::Auto => request.tools.iter().map(tool_declaration).collect(),
        // The wire has no `tool_choice` to forbid calls.
        ToolChoice::None => Ok(Vec::new()),
        ToolChoice::Required | ToolChoice::Tool(_) => {
            Err(unsupported_error(WIRE_NAME, "tool_choice"))
        }
    }
}

fn tool_declaration(tool: &ToolSpec) -> Result<FunctionTool<'_>, Error> {
    let parameters = schema::rewrite_json(&tool.parameters, schema::to_ollama_parameters_schema)?;
    Ok(FunctionTool::new(tool, parameters))
}
