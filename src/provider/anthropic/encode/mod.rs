//! From a request to a body.

mod blocks;
mod cache;
mod content;
mod messages;
mod options;

use std::borrow::Cow;
use std::sync::LazyLock;

use serde::Serialize;
use serde_json::json;

use self::blocks::Block;
use self::cache::EncodedPrefix;
use self::messages::{Messages, starts_user_message};
use self::options::{Settings, offers_server_tools};
use crate::error::Error;
use crate::item::RawJson;
use crate::provider::anthropic::passthrough::PROVIDER_NAME;
use crate::provider::body::ObjectWriter;
use crate::provider::cache_control::CacheControl;
use crate::provider::encode_context::EncodeContext;
use crate::request::{Request, ToolSpec};

/// Writes the body of a request to the Anthropic Messages wire.
///
/// Content is always written as arrays. The items of a turn become one message; tool results stand
/// together and first in the message of the user that follows.
///
/// # The two zones of the system prompt
///
/// Both go into `system`, the volatile one behind the stable one. Whatever it is replaced by is
/// read anew from there on: only the tools and the stable zone stay in the cache, and models that
/// bind their thoughts to all that stood before them ("a prefix check fails if `system`, `tools`,
/// or an earlier message changed") no longer take those of earlier turns. It stands there, and not
/// behind the conversation, because there it would move with every request, and the same check
/// would fail each time. What changes often is better said as a
/// [`System`](crate::item::ItemKind::System) item of the history, in its place.
///
/// # The server's own tools
///
/// What they were asked and what they returned goes back as it came. A use without its result goes
/// back as long as the result may still come: at the end of a paused turn, and while calls of the
/// same turn are answered, if the request offers such tools. Otherwise it is left out, because the
/// vendor refuses it; so is a result without its use.
///
/// # Deferred tools
///
/// [Deferred](ToolSpec::deferred) tools are sent with `defer_loading`, and the vendor's search of them,
/// `tool_search_tool_bm25`, is sent first. The result of a search goes back as it came; a tool that it has found and
/// that the request does not offer any more is declared as a deferred one, because the vendor demands it.
///
/// # Cache marks
///
/// At most three of the four that the wire allows: on the last tool that is not deferred, on the stable zone, and on the
/// last block of the last message of the user. None with [`Cache::Off`](crate::request::Cache::Off).
///
/// # Options
///
/// - `max_output_tokens` is 8192 unless set; the wire demands a number. It counts thoughts, too:
///   where a budget would leave nothing of it, it is raised by the budget.
/// - `reasoning`: a budget is the wire's `enabled`, for models before Claude 4.7; an effort is
///   `adaptive` with `output_config.effort`, for models from Claude 4.6 on, and `Minimal` is `low`,
///   the least that there is.
/// - `output`: a schema is `output_config.format`; its name has no place on this wire.
/// - `seed`, `frequency_penalty`, `presence_penalty`, `metadata` and JSON without a schema are
///   [`Unsupported`](crate::ErrorKind::Unsupported).
/// - The server's own tools go into `extra`, as `tools` that replace all others. The container that
///   their code ran in is sent again by itself, unless `extra` has a `container`.
///
/// # Errors
///
/// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if every message is empty, and for options that
/// the vendor refuses beside one another: a temperature other than 1, a `top_k` or a `top_p` below
/// 0.95 beside thinking, a forced tool call beside a budget or without tools, a budget below 1024.
/// [`Unsupported`](crate::ErrorKind::Unsupported) for images that are not JPEG, PNG, GIF or WebP and for
/// files that are neither PDF nor text.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    encode_body(request, model, BodyHead::Vendor, PrefixMismatchBehavior::Unspecified)
        .map(|(body, _)| body)
}

/// What the vendor is to do with thoughts whose prefix has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixMismatchBehavior {
    /// It is not told, and refuses the request.
    Unspecified,
    /// It does not show them to the model.
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "only a provider over HTTP knows whom it asks")
    )]
    DropBlock,
}

/// The body of a request, and the name of the beta feature that it uses.
pub(super) fn encode_body(
    request: &Request,
    model: &str,
    head: BodyHead<'_>,
    changed_prefix: PrefixMismatchBehavior,
) -> Result<(Vec<u8>, Option<&'static str>), Error> {
    request.validate()?;
    let mut context =
        EncodeContext::<EncodedPrefix>::from_request(request, PROVIDER_NAME, model, ());
    if !context.peek_items_to_encode().next().is_some_and(starts_user_message) {
        // What is encoded ends with an assistant, to whose message this may belong.
        context = context.restart();
    }
    let has_deferred_tools = request.tools.iter().any(|tool| tool.deferred);
    let mut messages = Messages::new(
        context.encoder_state(),
        has_deferred_tools || offers_server_tools(&request.options.extra),
    );
    for (at, item) in context.items_to_encode() {
        messages.push(item, at, model)?;
    }
    let mut written = messages.finish();
    context.ensure_not_empty(written.is_empty(), "message")?;
    let mut tools: Vec<_> = request.tools.iter().map(Tool::from).collect();
    if tools.is_empty() {
        tools = declare_called_tools(written.called_tool_names());
    }
    declare_found_tools(&mut tools, written.found_tool_names());
    if tools.iter().any(|tool| tool.defer_loading) {
        tools.insert(0, Tool::SEARCH);
    }
    let options = &request.options;
    let has_tools = !tools.is_empty() || options.extra.contains_key("tools");
    let mut settings = Settings::from_options(options, has_tools)?;
    let binds = match changed_prefix {
        PrefixMismatchBehavior::Unspecified => false,
        PrefixMismatchBehavior::DropBlock => {
            written.has_thinking() && settings.set_drop_block(options, model)
        }
    };
    let mark = CacheControl::from_option(options.cache);
    if let Some(mark) = mark {
        written.mark_moving_breakpoint(mark);
        // A deferred tool takes no mark, and is not among what is cached.
        if let Some(tool) = tools.iter_mut().rfind(|tool| !tool.defer_loading) {
            tool.cache_control = Some(mark);
        }
    }
    let zones = [(context.stable_system(), mark), (context.volatile_system(), None)];
    let system = zones.into_iter().filter(|(text, _)| !text.trim().is_empty());
    let system =
        system.map(|(text, cache_control)| Block::Text { text, citations: None, cache_control });
    let system: Vec<_> = system.collect();
    let body = match head {
        BodyHead::Vendor => ObjectWriter::for_request().set("model", model),
        BodyHead::Vertex { anthropic_version, anthropic_beta } => ObjectWriter::for_request()
            .set("anthropic_version", anthropic_version)
            .set_list("anthropic_beta", anthropic_beta),
    };
    let body = settings
        .write_into(body.set("stream", true), options)
        .set_some("container", written.container())
        .set_list("system", &system)
        .set_list("tools", &tools);
    let body = context.write_body(body, written.into_array()?, &options.extra)?;
    Ok((body, binds.then_some(options::BLOCK_BINDING_BETA)))
}

/// What a body begins with.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyHead<'a> {
    /// As the vendor has it.
    Vendor,
    /// As Vertex AI has it: the model stands in the address, and headers in the body.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "it depends on the address"))]
    Vertex { anthropic_version: &'static str, anthropic_beta: &'a [String] },
}

#[derive(Serialize)]
struct Tool<'a> {
    /// Of a tool that the vendor runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    defer_loading: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl Tool<'_> {
    /// The vendor's own search of deferred tools,
    /// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool>.
    const SEARCH: Self = Self {
        r#type: Some("tool_search_tool_bm25_20251119"),
        name: Cow::Borrowed("tool_search_tool_bm25"),
        description: None,
        input_schema: None,
        defer_loading: false,
        cache_control: None,
    };

    /// A tool of which only the name is known.
    fn unavailable(name: String) -> Self {
        static ANY_OBJECT_SCHEMA: LazyLock<RawJson> =
            LazyLock::new(|| json!({ "type": "object" }).into());
        Self {
            r#type: None,
            name: Cow::Owned(name),
            description: Some("Not available any more."),
            input_schema: Some(&ANY_OBJECT_SCHEMA),
            defer_loading: false,
            cache_control: None,
        }
    }
}

impl<'a> From<&'a ToolSpec> for Tool<'a> {
    fn from(tool: &'a ToolSpec) -> Self {
        Self {
            r#type: None,
            name: Cow::Borrowed(&tool.name),
            description: Some(&tool.description),
            input_schema: Some(&tool.parameters),
            defer_loading: tool.deferred,
            cache_control: None,
        }
    }
}

/// The tools that were called: the wire demands that they are declared, also when none may be
/// called any more.
fn declare_called_tools(names: impl Iterator<Item = String>) -> Vec<Tool<'static>> {
    names.map(Tool::unavailable).collect()
}

/// The tools that searches of the vendor have found, as far as they are not declared: the wire demands them, too.
/// They are deferred, so that the model does not see them.
fn declare_found_tools(tools: &mut Vec<Tool<'_>>, names: impl Iterator<Item = String>) {
    for name in names {
        if tools.iter().all(|tool| tool.name != name) {
            tools.push(Tool { defer_loading: true, ..Tool::unavailable(name) });
        }
    }
}
