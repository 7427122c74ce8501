//! Encodes a request as a request body.

mod blocks;
mod generation;
mod messages;
mod options;
mod server_tools;

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use self::generation::ModelGeneration;
use self::messages::{Contents, PausedTurn, starts_model_content};
pub(super) use self::options::uses_cached_content;
use self::options::{WIRE_NAME, generation_config, service_tier, tool_config};
use self::server_tools::{combines_tools, declaration};
use crate::chunked_bytes::ChunkedBytes;
use crate::error::Error;
use crate::item::RawJson;
use crate::provider::codec::body::{ObjectWriter, unsupported_error};
use crate::provider::codec::encode_context::{EncodeContext, SystemZone};
use crate::provider::codec::encoded_tools::{append_elements, encoded_tools};
use crate::provider::codec::schema;
use crate::provider::wires::gemini::host::Host;
use crate::provider::wires::gemini::passthrough::PROVIDER_NAME;
use crate::request::{Request, ToolNameRule, ToolNames, ToolSpec};

/// The rule for the names of functions: "Must start with a letter or an underscore",
/// <https://ai.google.dev/api/caching#FunctionDeclaration>.
pub(super) const TOOL_NAME_RULE: ToolNameRule = ToolNameRule::LetterOrUnderscore;

/// Encodes the body of a request to the Gemini API. The body does not contain the model name, which
/// is part of the URL.
///
/// In this API, a message is called a content. Consecutive items with the same role form a single
/// content, so that the roles alternate. A turn's tool results are grouped together, in the order
/// of their calls. For Gemini 3 and later, files in tool results are sent inside the results. Files
/// for earlier models and files specified by URL are sent after the results. A call without a
/// signature is sent with a placeholder signature, which Gemini 3 does not validate. An output
/// schema's name has no effect. [`Options::cache`](crate::request::Options::cache) has no effect,
/// because the provider caches automatically.
///
/// Server tools are sent after the request's own tools. If there are both, the model is asked to
/// include its calls of server tools in the answer, which is required to combine them. Models
/// before Gemini 3 cannot combine them.
///
/// If [`extra`](crate::request::Options::extra) contains `cachedContent`, the name of a prefix that
/// Google has stored, the system prompt, the tools and the choice of tools are not sent, because
/// the API rejects them beside it: the stored prefix contains them.
///
/// If the history ends with a turn that the provider has paused, the request continues this turn:
/// it repeats the contents that precede the turn, together with the turn's `continuationToken`.
///
/// # Errors
///
/// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if all content of the
/// request is empty. Returns an [`Unsupported`](crate::ErrorKind::Unsupported) error for `user`,
/// `metadata`, `verbosity`, `citations`, `prompt_cache_key`, `prompt_cache_retention`,
/// `parallel_tool_calls: Some(false)` and a `seed` outside the range of `i32`.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    encode_for(request, model, Host::GeminiApi).map(ChunkedBytes::into_vec)
}

/// Encodes a request for one of the hosts of Gemini models.
pub(super) fn encode_for(
    request: &Request,
    model: &str,
    host: Host,
) -> Result<ChunkedBytes, Error> {
    request.validate()?;
    let names = request.tools.names_for(TOOL_NAME_RULE);
    // The cached prefix ends where a model content starts, so no further encoder state is needed.
    let mut context: EncodeContext<(), _> =
        EncodeContext::from_request(request, PROVIDER_NAME, model, names.clone());
    if !starts_model_content(context.peek_items_to_encode()) {
        // The cached prefix ends with a user content, to which this item may also belong.
        context = context.restart();
    }
    let paused = PausedTurn::at_end_of(context.peek_items_to_encode(), model);
    let sent_items = paused.as_ref().map_or(usize::MAX, |paused| paused.preceding_items);
    let mut contents = Contents::new(model, &names, context.encoder_state().is_some());
    for (at, item) in context.items_to_encode().take(sent_items) {
        contents.push(item, at, context.unsupported_part(at))?;
    }
    let contents = contents.finish()?;
    context.ensure_not_empty(contents.is_empty(), "content")?;
    let generation = ModelGeneration::from_model_name(model);
    let body = ObjectWriter::for_request();
    let (body, tool_config) = match uses_cached_content(&request.options) {
        // "CachedContent can not be used with GenerateContent request setting system_instruction,
        // tools or tool_config."
        true => (body, ObjectWriter::default()),
        false => {
            let system: Vec<_> = context.system_zones().map(|text| TextPart { text }).collect();
            let system = ObjectWriter::default().set_list("parts", &system);
            let combines_tools = combines_tools(request, generation, host)?;
            let body = body.set_object("systemInstruction", system);
            let tool_config = tool_config(request, &names)?.set_some(
                "includeServerSideToolInvocations",
                // "This flag is required to combine built-in tools with function calling",
                // <https://ai.google.dev/gemini-api/docs/tool-combination>.
                combines_tools.then_some(true),
            );
            (set_tools(body, request, &names, host)?, tool_config)
        }
    };
    let body = body
        .set_some("continuationToken", paused.map(|paused| paused.continuation_token))
        .set_object("toolConfig", tool_config)
        .set_some("serviceTier", service_tier(&request.options, host)?)
        .set_object("generationConfig", generation_config(&request.options, generation)?);
    context.write_body(body, contents, &request.options.extra)
}

/// Sets the `tools` field: the request's tools, followed by the server tools.
fn set_tools(
    body: ObjectWriter,
    request: &Request,
    names: &ToolNames,
    host: Host,
) -> Result<ObjectWriter, Error> {
    let on_server = request.options.server_tools.iter().map(|tool| declaration(tool, host));
    let on_server = append_elements(Arc::default(), &on_server.collect::<Result<Vec<_>, _>>()?)?;
    let declare = |_, tool| function_declaration(tool, names);
    let functions = encoded_tools(&request.tools, PROVIDER_NAME, (), declare)?;
    let begin: &[u8] = br#"[{"functionDeclarations":["#;
    Ok(match (functions.is_empty(), on_server.is_empty()) {
        (true, true) => body,
        (true, false) => body.set_encoded("tools", &[b"[", &on_server, b"]"]),
        (false, true) => body.set_encoded("tools", &[begin, &functions, b"]}]"]),
        (false, false) => body.set_encoded("tools", &[begin, &functions, b"]},", &on_server, b"]"]),
    })
}

#[derive(Serialize)]
struct TextPart<'a> {
    text: SystemZone<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    /// The schema for the tool's parameters. "This field is mutually exclusive with `parameters`",
    /// which accepts a subset of JSON Schema in a separate format.
    parameters_json_schema: Cow<'a, RawJson>,
}

fn function_declaration<'a>(
    tool: &'a ToolSpec,
    names: &ToolNames,
) -> Result<FunctionDeclaration<'a>, Error> {
    if tool.strict {
        return Err(unsupported_error(WIRE_NAME, "strict"));
    }
    let parameters_json_schema =
        schema::rewrite_json(&tool.parameters, schema::to_gemini_parameters_schema)?;
    Ok(FunctionDeclaration {
        name: names.sent_name(&tool.name),
        description: &tool.description,
        parameters_json_schema,
    })
}
