//! Encodes a request as a request body.

mod blocks;
mod cache;
mod content;
mod messages;
mod options;
mod server_tools;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use serde::Serialize;
use serde_json::json;

use self::blocks::CitationsConfig;
use self::cache::{EncodedPrefix, EncodingKey};
use self::messages::{Messages, starts_user_message};
use self::options::{Settings, WIRE_NAME, offers_server_tools};
use self::server_tools::ServerTools;
use crate::chunked_bytes::ChunkedBytes;
use crate::error::Error;
use crate::item::RawJson;
use crate::provider::codec::body::{ObjectWriter, unsupported_error};
use crate::provider::codec::cache_control::CacheControl;
use crate::provider::codec::encode_context::{EncodeContext, JsonElements, SystemZone};
use crate::provider::codec::encoded_tools::encoded_tools;
use crate::provider::codec::portable_values::ServerKind;
use crate::provider::codec::schema::{
    rewrite_parameters_of, to_anthropic_parameters_schema, to_anthropic_strict_schema,
};
use crate::provider::wires::anthropic::dialect::Dialect;
use crate::provider::wires::anthropic::passthrough::PROVIDER_NAME;
use crate::request::{
    Request, ToolNames, ToolSpec, ToolSpecs, extra_tool_names, repeated_name_error,
};

/// Encodes the body of a request to the Anthropic Messages API, in the dialect
/// [`Signed`](Dialect::Signed).
///
/// Message content is always an array. All items in a turn form a single message. A turn's tool
/// results are grouped at the start of the next user message.
///
/// # The two zones of the system prompt
///
/// Both zones of the system prompt are sent in `system`, with the volatile zone after the stable
/// zone. When the volatile zone changes, only the tools and the stable zone can be read from the
/// cache. Some models bind their reasoning to everything that precedes it ("a prefix check fails if
/// `system`, `tools`, or an earlier message changed"). When the volatile zone changes, such
/// models no longer accept the reasoning from earlier turns. Placing the volatile
/// zone after the conversation would not help, because it would move with each request and the
/// prefix check would always fail. For text that changes often, prefer a
/// [`System`](crate::item::ItemKind::System) item in the history.
///
/// # Server tools
///
/// Server tool calls and their results are sent back exactly as received. A server tool call
/// without a result is sent only while its result may still arrive. The result may arrive when the
/// request continues a paused turn or, if the request offers server tools, while tool calls from
/// the same turn are being answered. Any other server tool call without a result is omitted,
/// because the API rejects such calls. A result without its call is also omitted.
///
/// # Deferred tools
///
/// [Deferred](ToolSpec::deferred) tools are sent with `defer_loading`, after the server tool
/// `tool_search_tool_bm25`, which searches them. Search results are sent back exactly as received.
/// The API requires a definition for each tool that a search result names. A tool that a search
/// result names but that the request no longer offers is therefore declared as a deferred tool.
///
/// # Cache markers
///
/// A request contains at most three cache markers, one fewer than the API allows. The markers are
/// placed on the last tool that is not deferred, on the stable zone, and on the last block of the
/// last user message. With [`Cache::Off`](crate::request::Cache::Off), a request contains no cache
/// markers.
///
/// # Options
///
/// - `max_output_tokens` defaults to 8192, because the API requires a value. The limit includes
///   reasoning tokens, so a thinking budget that is at least as large as the limit is added to it.
/// - A `reasoning` budget is encoded as `thinking` of the type `enabled`, for models before Claude
///   4.7. A `reasoning` effort is encoded as `thinking` of the type `adaptive` with
///   `output_config.effort`, for Claude 4.6 and later models. The `Minimal` effort is encoded as
///   `low`, the API's lowest level.
/// - An `output` schema is encoded as `output_config.format`. The schema's name is not sent,
///   because the API has no field for it.
/// - `seed`, `frequency_penalty`, `presence_penalty`, `metadata`, `verbosity`, `logprobs`,
///   `prompt_cache_key`, `prompt_cache_retention`, a `tool_choice` that allows only some tools, and
///   JSON without a schema are [`Unsupported`](crate::ErrorKind::Unsupported).
/// - `citations` are enabled for all documents.
/// - An `output` schema that the API cannot express, such as a map with arbitrary keys, is sent as
///   an instruction at the end of `system` instead.
/// - `server_tools` and the elements of the `tools` field in `extra` are sent after all other
///   tools. The container in which server tools ran code is sent back automatically, unless `extra`
///   contains a `container`.
///
/// # Errors
///
/// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error in these cases:
///
/// - Every message is empty.
/// - Reasoning is combined with a temperature other than 1, a `top_k`, or a `top_p` below 0.95,
///   which the API rejects.
/// - A tool call is forced, but a thinking budget is set or there are no tools.
/// - The thinking budget is below 1024.
///
/// Returns an [`Unsupported`](crate::ErrorKind::Unsupported) error for images that are not JPEG,
/// PNG, GIF or WebP, and for files that are neither PDF nor text.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    let (head, changed_prefix) = (BodyHead::Vendor, PrefixMismatchBehavior::Unspecified);
    let server = (ServerKind::Vendor, Dialect::Signed);
    let encoded = encode_body(request, model, server, head, changed_prefix);
    encoded.map(|(body, _)| body.into_vec())
}

/// Specifies how Anthropic treats thinking blocks whose preceding context has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixMismatchBehavior {
    /// The setting is not sent, so Anthropic rejects a request if the context before a thinking
    /// block has changed.
    Unspecified,
    /// Anthropic does not show the thinking blocks to the model.
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "only a provider over HTTP knows its endpoint")
    )]
    DropBlock,
}

/// Encodes a request body. Returns the body and the names of the beta features that it requires.
pub(super) fn encode_body(
    request: &Request,
    model: &str,
    (server, dialect): (ServerKind, Dialect),
    head: BodyHead<'_>,
    changed_prefix: PrefixMismatchBehavior,
) -> Result<(ChunkedBytes, Vec<&'static str>), Error> {
    request.validate()?;
    let citations = CitationsConfig::from_options(&request.options);
    let key: EncodingKey = (server, request.tools.names_for(server.tool_name_rule()), citations);
    let names = &key.1;
    let mut context: EncodeContext<EncodedPrefix, _> =
        EncodeContext::from_request(request, PROVIDER_NAME, model, (key.clone(), dialect));
    if !context.peek_items_to_encode().next().is_some_and(starts_user_message) {
        // The cached prefix ends with an assistant message, to which this item may also belong.
        context = context.restart();
    }
    let has_deferred_tools = request.tools.iter().any(|tool| tool.deferred);
    let mut messages = Messages::new(
        &key,
        context.encoder_state(),
        has_deferred_tools || offers_server_tools(&request.options),
    );
    for (at, item) in context.items_to_encode() {
        messages.push(item, at, model, dialect, context.unsupported_part(at))?;
    }
    let mut written = messages.finish();
    context.ensure_not_empty(written.is_empty(), "message")?;
    let options = &request.options;
    let server_tools = encode_server_tools(request, names, head)?;
    let extra_names: HashSet<&str> =
        extra_tool_names(&options.extra).chain(server_tools.names()).collect();
    let mut undeclared_tools = match request.tools.has_declared() {
        false => declare_called_tools(
            written.called_tool_names().filter(|name| !extra_names.contains(name.as_str())),
        ),
        true => Vec::new(),
    };
    declare_found_tools(
        |name| request.tools.contains_name(names.own_name(name)) || extra_names.contains(name),
        &mut undeclared_tools,
        written.found_tool_names(),
    );
    let sends_tools = request.tools.has_declared()
        || !undeclared_tools.is_empty()
        || !server_tools.declarations.is_empty();
    let has_tools = sends_tools || options.extra.contains_key("tools");
    let mut settings = Settings::from_options(options, has_tools, names)?;
    let binds = match changed_prefix {
        PrefixMismatchBehavior::Unspecified => false,
        PrefixMismatchBehavior::DropBlock => {
            written.has_thinking() && settings.set_drop_block(options, model)
        }
    };
    let mark = CacheControl::from_option(options.cache);
    if let Some(mark) = mark {
        written.mark_moving_breakpoint(mark);
    }
    let system = context.system_zones().map(|text| SystemBlock {
        r#type: "text",
        text,
        cache_control: mark.filter(|_| matches!(text, SystemZone::Stable(_))),
    });
    let instruction = settings.output_instruction.take();
    let instruction = instruction.as_deref().map(|text| SystemBlock {
        r#type: "text",
        text: SystemZone::Volatile(text),
        cache_control: None,
    });
    let system: Vec<_> = system.chain(instruction).collect();
    let body = match head {
        BodyHead::Vendor => ObjectWriter::for_request().set("model", model),
        BodyHead::Vertex { anthropic_version, anthropic_beta } => ObjectWriter::for_request()
            .set("anthropic_version", anthropic_version)
            .set_list("anthropic_beta", anthropic_beta),
    };
    let body = settings
        .write_into(body.set("stream", true), options)
        .set_some("container", written.container())
        .set_list("mcp_servers", &server_tools.mcp_servers)
        .set_list("system", &system);
    let later_tools = LaterTools { undeclared: undeclared_tools, on_server: &server_tools };
    let body = match sends_tools {
        true => set_tools(body, &request.tools, names, later_tools, mark)?,
        false => body,
    };
    let body = context.write_body(body, written.into_array()?, &options.extra)?;
    let betas = [binds.then_some(options::BLOCK_BINDING_BETA), server_tools.beta()];
    Ok((body, betas.into_iter().flatten().collect()))
}

/// Encodes the request's server tools.
///
/// # Errors
///
/// Returns an error if the API or the host lacks a tool, or if one of the request's own tools has
/// the same name.
fn encode_server_tools(
    request: &Request,
    names: &ToolNames,
    head: BodyHead<'_>,
) -> Result<ServerTools, Error> {
    let encoded = ServerTools::encode(&request.options)?;
    let is_own = |name: &&str| request.tools.contains_name(names.own_name(name));
    if let Some(name) = encoded.names().find(is_own) {
        return Err(repeated_name_error(name));
    }
    match head {
        // The connector "is not supported on Amazon Bedrock and Google Vertex".
        BodyHead::Vertex { .. } if !encoded.mcp_servers.is_empty() => {
            Err(unsupported_error(WIRE_NAME, "server_tools.mcp"))
        }
        BodyHead::Vendor | BodyHead::Vertex { .. } => Ok(encoded),
    }
}

/// The first fields of a request body, which depend on the host.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyHead<'a> {
    /// Anthropic's own API.
    Vendor,
    /// The Vertex AI API, where the model is part of the URL and the headers are sent as fields in
    /// the body.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "it depends on the endpoint"))]
    Vertex { anthropic_version: &'static str, anthropic_beta: &'a [String] },
}

#[derive(Serialize)]
struct SystemBlock<'a> {
    r#type: &'static str,
    text: SystemZone<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Tool<'a> {
    /// The tool's type, which is set only for server tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Cow<'a, RawJson>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    defer_loading: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> Tool<'a> {
    /// Creates the definition of a tool.
    fn from_spec(tool: &'a ToolSpec, names: &ToolNames) -> Result<Self, Error> {
        Ok(Self {
            r#type: None,
            name: names.sent_name(&tool.name),
            description: Some(&tool.description),
            input_schema: Some(rewrite_parameters_of(
                tool,
                to_anthropic_parameters_schema,
                to_anthropic_strict_schema,
            )?),
            strict: tool.strict,
            defer_loading: tool.deferred,
            cache_control: None,
        })
    }
}

impl Tool<'_> {
    /// The server tool that searches the deferred tools,
    /// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool>.
    const SEARCH: Self = Self {
        r#type: Some("tool_search_tool_bm25_20251119"),
        name: Cow::Borrowed("tool_search_tool_bm25"),
        description: None,
        input_schema: None,
        strict: false,
        defer_loading: false,
        cache_control: None,
    };

    /// Creates a definition for a tool of which only the name is known.
    fn unavailable(name: String) -> Self {
        static ANY_OBJECT_SCHEMA: LazyLock<RawJson> =
            LazyLock::new(|| json!({ "type": "object" }).into());
        Self {
            r#type: None,
            name: Cow::Owned(name),
            description: Some("Not available any more."),
            input_schema: Some(Cow::Borrowed(&ANY_OBJECT_SCHEMA)),
            strict: false,
            defer_loading: false,
            cache_control: None,
        }
    }
}

/// The tools that are declared after the request's own tools.
struct LaterTools<'a> {
    /// The tools that the request does not contain.
    undeclared: Vec<Tool<'a>>,
    on_server: &'a ServerTools,
}

/// Sets the `tools` field: the search tool if any tool is deferred, the request's tools, and then
/// `later`.
fn set_tools(
    body: ObjectWriter,
    specs: &ToolSpecs,
    names: &ToolNames,
    later: LaterTools<'_>,
    mark: Option<CacheControl>,
) -> Result<ObjectWriter, Error> {
    let LaterTools { mut undeclared, on_server } = later;
    let mut search = None;
    if undeclared.iter().any(|tool| tool.defer_loading)
        || specs.declared().any(|(_, spec)| spec.deferred)
    {
        search = Some(Tool::SEARCH);
    }
    // A deferred tool does not accept a cache marker and is not part of the cached prefix.
    let mut marked = None;
    if let Some(mark) = mark {
        let last = undeclared.iter_mut().rfind(|tool| !tool.defer_loading);
        let last_spec = specs.declared().rfind(|(_, spec)| !spec.deferred);
        marked = last_spec.map(|(at, _)| at).filter(|_| last.is_none());
        if marked.is_none()
            && let Some(tool) = last.or(search.as_mut())
        {
            tool.cache_control = Some(mark);
        }
    }
    let mark = mark.filter(|_| marked.is_some());
    let key = (mark, names.rule());
    let declared = encoded_tools(specs, PROVIDER_NAME, key, |at, spec| {
        let cache_control = mark.filter(|_| marked == Some(at));
        Ok(Tool { cache_control, ..Tool::from_spec(spec, names)? })
    })?;
    let mut before = JsonElements::default();
    search.iter().try_for_each(|tool| before.push(tool))?;
    let mut after = JsonElements::default();
    undeclared.iter().try_for_each(|tool| after.push(tool))?;
    on_server.declarations.iter().try_for_each(|tool| after.push(tool))?;
    // The elements are followed by commas, except for the last declared tool.
    let comma: &[u8] = if declared.is_empty() || after.0.is_empty() { b"" } else { b"," };
    after.0.pop();
    Ok(body.set_encoded("tools", &[b"[", &before.0, &declared, comma, &after.0, b"]"]))
}

/// Declares the tools that were called, because the API requires definitions for them even if the
/// model is no longer allowed to call them.
fn declare_called_tools(names: impl Iterator<Item = String>) -> Vec<Tool<'static>> {
    names.map(Tool::unavailable).collect()
}

/// Declares the tools that a tool search has found, unless they are already declared, because the
/// API requires definitions for them. The tools are declared as deferred tools, which are hidden
/// from the model. `is_declared` returns whether a tool is among the request's tools.
fn declare_found_tools(
    is_declared: impl Fn(&str) -> bool,
    undeclared: &mut Vec<Tool<'_>>,
    names: impl Iterator<Item = String>,
) {
    let called: HashSet<String> =
        undeclared.iter().map(|tool| tool.name.clone().into_owned()).collect();
    let found = names.filter(|name| !is_declared(name) && !called.contains(name));
    undeclared.extend(found.map(|name| Tool { defer_loading: true, ..Tool::unavailable(name) }));
}
