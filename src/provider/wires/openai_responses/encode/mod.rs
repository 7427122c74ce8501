//! Encodes a request as a request body.

mod blocks;
mod cache;
mod client_tools;
mod messages;
mod options;
mod server_tools;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use self::cache::{EncodedPrefix, EncodingKey};
use self::messages::InputItems;
use self::options::{
    WIRE_NAME, cache_options, included_data, reasoning_options, refuse_unsupported, text_options,
    tool_choice,
};
use crate::chunked_bytes::ChunkedBytes;
use crate::error::Error;
use crate::item::RawJson;
use crate::provider::codec::body::{ObjectWriter, unsupported_error};
use crate::provider::codec::encode_context::EncodeContext;
use crate::provider::codec::encoded_tools::{append_elements, encoded_tools};
use crate::provider::codec::portable_values::ServerKind;
use crate::provider::codec::schema::{
    rewrite_parameters_of, to_openai_parameters_schema, to_openai_strict_schema,
};
use crate::provider::wires::openai::openai_service_tier;
use crate::provider::wires::openai_responses::passthrough::PROVIDER_NAME;
use crate::request::{Request, ToolNames, ToolSpec};

/// Encodes the body of a request to the Responses API.
///
/// Nothing is stored on the server (`store` is false), so each request contains the complete input,
/// including encrypted reasoning. The stable zone of the system prompt is sent as `instructions`,
/// and system messages in the history are sent as `developer` messages. The volatile zone is sent
/// as a `developer` message at the end, so that all preceding input remains a prefix of the next
/// request's input.
///
/// Reasoning items and item ids are sent back either together or not at all, and only to the model
/// that produced them. If a reasoning item is missing or would be the last item of its turn, the
/// items linked to it are sent without ids. Other models receive only the text and the calls.
///
/// Encrypted reasoning is requested with `include`, unless the model's name indicates that the
/// model does not support reasoning. Models without reasoning reject a request for encrypted
/// reasoning. The elements of `include` in [`extra`](crate::request::Options::extra) are added; any
/// value other than a list, such as `null`, replaces `include`.
/// The outputs of code and the results of file searches are requested in the same way, if these
/// [server tools](crate::request::ServerTool) are declared.
///
/// [`Cache::Long`](crate::request::Cache::Long) is sent to GPT-5.6 and later models of OpenAI. Otherwise,
/// [`cache`](crate::request::Options::cache) has no effect, because the provider caches
/// automatically.
///
/// [Deferred](crate::tool::ToolSpec::deferred) tools are sent with `defer_loading`, after the tool
/// `tool_search`, which searches them. Searches and their results are sent back exactly as
/// received.
///
/// [Client tools](crate::request::ClientTool) are declared under their own types. Their calls are
/// sent back as received, except for an id whose linked reasoning is missing, and each is answered
/// by an item with its result. A call is sent as the call of a function if its arguments have
/// changed, if the item of its answer cannot contain its result, or if its type requires an id and
/// the linked reasoning is missing. So is an approved call of an MCP server if the model continued
/// and the history does not contain the call's result, because the server could run the call again.
///
/// # Errors
///
/// Returns an [`Unsupported`](crate::ErrorKind::Unsupported) error for `stop_sequences`, `top_k`,
/// `seed`, `frequency_penalty`, `presence_penalty`, `citations` and a `reasoning` budget, which the
/// API does not support, and for an MCP server whose calls
/// [need an approval](crate::request::McpServer::require_approval) if no tool requests it. Returns
/// an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if
/// there is nothing to send.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    encode_for(request, model, ServerKind::Vendor).map(ChunkedBytes::into_vec)
}

/// Encodes a request for the vendor's own or a compatible server.
pub(super) fn encode_for(
    request: &Request,
    model: &str,
    server: ServerKind,
) -> Result<ChunkedBytes, Error> {
    request.validate()?;
    let options = &request.options;
    refuse_unsupported(options)?;
    let key: EncodingKey = (server, request.tools.names_for(server.tool_name_rule()));
    let names = &key.1;
    let context: EncodeContext<EncodedPrefix, _> =
        EncodeContext::from_request(request, PROVIDER_NAME, model, key.clone());
    let mut input = InputItems::new(&key, &context);
    for (at, item) in context.items_to_encode() {
        input.push(item, at, model, context.unsupported_part(at))?;
    }
    context.ensure_not_empty(input.is_empty(), "message")?;
    input.push_instruction(context.volatile_system())?;
    let own = encoded_tools(&request.tools, PROVIDER_NAME, names.rule(), |_, tool| {
        match tool.client_tool.as_ref().and_then(client_tools::declaration) {
            Some(_) if tool.strict => Err(unsupported_error(WIRE_NAME, "strict")),
            Some(declaration) => Ok(OwnTool::Client(declaration)),
            None => FunctionTool::new(tool, names).map(OwnTool::Function),
        }
    })?;
    let on_server = options.server_tools.iter();
    let on_server = on_server.map(|tool| server_tools::declaration(tool, &request.tools));
    let tools = append_elements(own, &on_server.collect::<Result<Vec<_>, _>>()?)?;
    let search: &[u8] = match request.tools.iter().any(|tool| tool.deferred) {
        true => TOOL_SEARCH,
        false => b"",
    };
    let stable = context.stable_system();
    let instructions = (!stable.is_empty()).then(|| stable.to_json());
    let metadata = (!options.metadata.is_empty()).then_some(&options.metadata);
    let body = ObjectWriter::for_request()
        .set("model", model)
        .set("stream", true)
        .set("store", false)
        .set_list("include", &included_data(options, model))
        .set_some("max_output_tokens", options.max_output_tokens)
        .set_some("temperature", options.temperature)
        .set_some("top_p", options.top_p)
        .set_some("top_logprobs", options.logprobs)
        .set_object("reasoning", reasoning_options(options, model)?)
        .set_object("text", text_options(options)?)
        .set_some("service_tier", openai_service_tier(options))
        .set_some("prompt_cache_key", options.prompt_cache_key.as_ref())
        .set_some("prompt_cache_retention", options.prompt_cache_retention)
        .set_object("prompt_cache_options", cache_options(options, model, server))
        .set_some("instructions", instructions);
    let body = match tools.is_empty() {
        true => body,
        false => body.set_encoded("tools", &[b"[", search, &tools, b"]"]),
    };
    let body = body
        .set_some("tool_choice", tool_choice(&options.tool_choice, &request.tools, names))
        .set_some("parallel_tool_calls", options.parallel_tool_calls)
        .set_some("metadata", metadata)
        .set_some("safety_identifier", options.user.as_ref());
    context.write_body(body, input.finish(), &options.extra)
}

/// The hosted tool that searches the deferred tools, followed by a comma,
/// <https://developers.openai.com/api/docs/guides/tools-tool-search>.
const TOOL_SEARCH: &[u8] = br#"{"type":"tool_search"},"#;

/// The declaration of a tool that the client runs.
#[derive(Serialize)]
#[serde(untagged)]
enum OwnTool<'a> {
    Function(FunctionTool<'a>),
    Client(Value),
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    r#type: &'static str,
    name: Cow<'a, str>,
    description: &'a str,
    parameters: Cow<'a, RawJson>,
    /// Whether the schema is strict. By default, the API itself would change the schema.
    strict: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    defer_loading: bool,
}

impl<'a> FunctionTool<'a> {
    fn new(tool: &'a ToolSpec, names: &'a ToolNames) -> Result<Self, Error> {
        Ok(Self {
            r#type: "function",
            name: names.sent_name(&tool.name),
            description: &tool.description,
            parameters: rewrite_parameters_of(
                tool,
                to_openai_parameters_schema,
                to_openai_strict_schema,
            )?,
            strict: tool.strict,
            defer_loading: tool.deferred,
        })
    }
}
