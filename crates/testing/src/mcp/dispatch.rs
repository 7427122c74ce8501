//! Determines how the server reacts to a request, without performing I/O or running a handler.

use serde_json::{Map, Value, json};

use crate::mcp::answer::McpAnswer;
use crate::mcp::era::{LEGACY_VERSIONS, MODERN_VERSIONS, McpEra, Protocol};
use crate::mcp::listing;
use crate::mcp::message::{
    INVALID_PARAMS, METHOD_NOT_FOUND, Request, SERVER_ERROR, UNSUPPORTED_VERSION, error_message,
};
use crate::mcp::peer::Peer;
use crate::mcp::resource::{Prompt, Resource};
use crate::mcp::state::{Question, State};
use crate::mcp::tool::McpTool;

pub(super) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// The server's reaction to a request.
#[derive(Debug)]
pub(super) enum Reaction {
    /// The server answers the request with this message.
    Answer(Value),
    /// The server never answers the request.
    Silence,
    Call(PreparedCall),
    /// The server opens a subscription, which lasts until the client cancels it.
    Listen {
        wants_tools: bool,
    },
}

/// A call that is ready to run.
#[derive(Debug)]
pub(super) struct PreparedCall {
    pub(super) tool: McpTool,
    pub(super) arguments: Value,
    /// The client's answers so far to the call's questions.
    pub(super) answered: Map<String, Value>,
}

/// Returns the protocol era that a request belongs to.
pub(super) fn protocol_of(era: McpEra, peer: &Peer, request: &Request) -> Protocol {
    let names_version = request.meta().is_some_and(|meta| meta.contains_key(VERSION_KEY));
    let is_handshake = matches!(request.method.as_str(), "initialize" | "ping");
    match (era.is_modern_spoken(), era.is_legacy_spoken()) {
        (false, _) => Protocol::Legacy,
        (true, true) if names_version || request.method == "server/discover" => Protocol::Modern,
        (true, true) if is_handshake || peer.legacy_version().is_some() => Protocol::Legacy,
        (true, _) => Protocol::Modern,
    }
}

/// Determines the server's reaction to a request.
pub(super) fn react(state: &State, peer: &Peer, protocol: Protocol, request: &Request) -> Reaction {
    match protocol {
        Protocol::Modern => match check_meta(request) {
            Ok(()) => react_modern(state, request),
            Err((violation, refusal)) => {
                state.log.record_violation(violation);
                Reaction::Answer(refusal)
            }
        },
        Protocol::Legacy => react_legacy(state, peer, request),
    }
}

/// Checks the fields that every modern-era request must have. An `Err` contains the violation and
/// the answer to send.
fn check_meta(request: &Request) -> Result<(), (String, Value)> {
    let supported = |requested: &Value| {
        let data = json!({ "supported": MODERN_VERSIONS, "requested": requested });
        let message = "Unsupported protocol version";
        error_message(&request.id, UNSUPPORTED_VERSION, message, Some(data))
    };
    let method = &request.method;
    if method == "initialize" {
        let requested = request.params.get("protocolVersion").unwrap_or(&Value::Null);
        return Err((format!("`{method}` is not of the modern era"), supported(requested)));
    }
    let missing = |what: &str| {
        let violation = format!("{what} of `{method}` is missing or invalid");
        (violation.clone(), request.error(INVALID_PARAMS, violation))
    };
    let meta = request.meta().ok_or_else(|| missing("`_meta`"))?;
    let version = meta.get(VERSION_KEY).filter(|version| version.is_string());
    let version = version.ok_or_else(|| missing(VERSION_KEY))?;
    if !meta.get(CAPABILITIES_KEY).is_some_and(Value::is_object) {
        return Err(missing(CAPABILITIES_KEY));
    }
    if !MODERN_VERSIONS.iter().any(|known| version == known) {
        return Err((format!("the version {version} is not supported"), supported(version)));
    }
    Ok(())
}

fn react_modern(state: &State, request: &Request) -> Reaction {
    match request.method.as_str() {
        "server/discover" => {
            let mut result = json!({
                "supportedVersions": MODERN_VERSIONS,
                "capabilities": capabilities(state),
                "_meta": { SERVER_INFO_KEY: server_info() },
            });
            if let Some(instructions) = &state.settings().instructions {
                result["instructions"] = json!(instructions);
            }
            let result = cacheable(Protocol::Modern, result);
            Reaction::Answer(complete(Protocol::Modern, request, result))
        }
        "tools/call" => prepare_call(state, request),
        "subscriptions/listen" => {
            let filter = request.params.get("notifications");
            match filter.and_then(Value::as_object) {
                Some(filter) => Reaction::Listen {
                    wants_tools: filter.get("toolsListChanged") == Some(&json!(true)),
                },
                None => refuse(state, request, "`notifications` must be an object".to_owned()),
            }
        }
        _ => react_common(state, Protocol::Modern, request),
    }
}

fn react_legacy(state: &State, peer: &Peer, request: &Request) -> Reaction {
    match request.method.as_str() {
        "initialize" => initialize(state, peer, request),
        "ping" => Reaction::Answer(request.result(&json!({}))),
        // A client may send this method as a probe, to which old servers react in different ways.
        "server/discover" => match state.era() {
            McpEra::LegacySilentOnDiscover => Reaction::Silence,
            _ => unknown_method(request),
        },
        method if peer.legacy_version().is_none() => {
            state.log.record_violation(format!("`{method}` came before `initialize`"));
            Reaction::Answer(request.error(SERVER_ERROR, "the server is not initialized"))
        }
        method => {
            if !peer.is_initialized() {
                let violation = format!("`{method}` came before `notifications/initialized`");
                state.log.record_violation(violation);
            }
            match method {
                "tools/call" => prepare_call(state, request),
                "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                    Reaction::Answer(request.result(&json!({})))
                }
                _ => react_common(state, Protocol::Legacy, request),
            }
        }
    }
}

fn initialize(state: &State, peer: &Peer, request: &Request) -> Reaction {
    if peer.legacy_version().is_some() {
        return refuse(state, request, "`initialize` came twice".to_owned());
    }
    let requested = request.param("protocolVersion");
    let capabilities_of_client = request.params.get("capabilities").and_then(Value::as_object);
    let info = request.params.get("clientInfo").and_then(Value::as_object);
    let (Some(requested), Some(capabilities_of_client), Some(_)) =
        (requested, capabilities_of_client, info)
    else {
        let reason = "`initialize` must have protocolVersion, capabilities and clientInfo";
        return refuse(state, request, reason.to_owned());
    };
    let known = LEGACY_VERSIONS.iter().find(|known| **known == requested);
    let version = known.unwrap_or(&LEGACY_VERSIONS[0]);
    peer.start_legacy(version, capabilities_of_client.clone());
    let mut result = json!({
        "protocolVersion": version,
        "capabilities": capabilities(state),
        "serverInfo": server_info(),
    });
    if let Some(instructions) = &state.settings().instructions {
        result["instructions"] = json!(instructions);
    }
    Reaction::Answer(request.result(&result))
}

/// Returns the server's reaction to a request whose method exists in both eras.
fn react_common(state: &State, protocol: Protocol, request: &Request) -> Reaction {
    let cursor = request.param("cursor");
    let list = |kind: &str, entries: Vec<Value>, page_size: Option<usize>| {
        listing::page(kind, entries, page_size, cursor).map(|page| cacheable(protocol, page))
    };
    let result = match request.method.as_str() {
        "tools/list" => listing::list_tools(state, cursor).map(|page| cacheable(protocol, page)),
        "resources/list" => {
            let settings = state.settings();
            let entries = settings.resources.iter().map(Resource::listed).collect();
            list("resources", entries, settings.page_size)
        }
        "resources/templates/list" => list("resourceTemplates", Vec::new(), None),
        "resources/read" => {
            let settings = state.settings();
            let uri = request.param("uri").unwrap_or_default();
            let resource = settings.resources.iter().find(|resource| resource.uri == uri);
            match resource {
                Some(resource) => Ok(cacheable(protocol, resource.read())),
                None => {
                    let code = match protocol {
                        Protocol::Modern => INVALID_PARAMS,
                        Protocol::Legacy => -32002,
                    };
                    return Reaction::Answer(request.error(code, "Resource not found"));
                }
            }
        }
        "prompts/list" => {
            let settings = state.settings();
            let entries = settings.prompts.iter().map(Prompt::listed).collect();
            list("prompts", entries, settings.page_size)
        }
        "prompts/get" => {
            let settings = state.settings();
            let name = request.param("name").unwrap_or_default();
            let arguments = request.params.get("arguments").and_then(Value::as_object).cloned();
            match settings.prompts.iter().find(|prompt| prompt.name == name) {
                Some(prompt) => prompt.get(&arguments.unwrap_or_default()),
                None => Err(format!("Unknown prompt: {name}")),
            }
        }
        _ => return unknown_method(request),
    };
    match result {
        Ok(result) => Reaction::Answer(complete(protocol, request, result)),
        Err(reason) => refuse(state, request, reason),
    }
}

fn prepare_call(state: &State, request: &Request) -> Reaction {
    let Some(name) = request.param("name") else {
        return refuse(state, request, "`name` of `tools/call` must be a string".to_owned());
    };
    let arguments = match request.params.get("arguments") {
        None => json!({}),
        Some(arguments @ Value::Object(_)) => arguments.clone(),
        Some(_) => {
            return refuse(state, request, "`arguments` must be an object".to_owned());
        }
    };
    let tool = match state.tool(name) {
        Some(tool) => tool,
        None if listing::is_tool_of_fault(&state.faults(), name) => {
            let text = format!("called {name:?}");
            McpTool::new(name, "", json!({}), move |_, _| {
                std::future::ready(McpAnswer::text(text.clone()))
            })
        }
        None => {
            return Reaction::Answer(
                request.error(INVALID_PARAMS, format!("Unknown tool: {name}")),
            );
        }
    };
    match answered_questions(state, request, name, &arguments) {
        Ok(answered) => Reaction::Call(PreparedCall { tool, arguments, answered }),
        Err(reason) => refuse(state, request, reason),
    }
}

/// Returns the client's answers so far, if this call repeats an earlier call that ended with a
/// question. An `Err` describes how the repeated call differs from the earlier call.
fn answered_questions(
    state: &State,
    request: &Request,
    name: &str,
    arguments: &Value,
) -> Result<Map<String, Value>, String> {
    let responses = request.params.get("inputResponses");
    let Some(request_state) = request.params.get("requestState") else {
        return match responses {
            Some(_) => Err("`inputResponses` came without the `requestState`".to_owned()),
            None => Ok(Map::new()),
        };
    };
    let question = request_state.as_str().and_then(|known| state.question(known));
    let Some(Question { tool, arguments: asked_with, key, mut answered }) = question else {
        return Err(format!("the server never sent the `requestState` {request_state}"));
    };
    if tool != name || asked_with != *arguments {
        return Err("the repeated call has another name or other arguments".to_owned());
    }
    let response = responses.and_then(|responses| responses.get(&key));
    let response = response.filter(|response| response.is_object());
    let response = response.ok_or_else(|| format!("`inputResponses` has no object `{key}`"))?;
    answered.insert(key, response.clone());
    Ok(answered)
}

fn capabilities(state: &State) -> Value {
    let settings = state.settings();
    let mut capabilities = json!({ "tools": { "listChanged": true } });
    if !settings.resources.is_empty() {
        capabilities["resources"] = json!({});
    }
    if !settings.prompts.is_empty() {
        capabilities["prompts"] = json!({});
    }
    capabilities
}

fn server_info() -> Value {
    json!({ "name": "turnstream-scripted", "version": env!("CARGO_PKG_VERSION") })
}

/// Marks a result as one that the client may cache. In the legacy era, results have no such mark
/// and are returned unchanged.
fn cacheable(protocol: Protocol, mut result: Value) -> Value {
    match protocol {
        Protocol::Modern => {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
        }
        Protocol::Legacy => {}
    }
    result
}

/// Returns a message with a complete result. In the modern era, the result is marked as complete.
pub(super) fn complete(protocol: Protocol, request: &Request, mut result: Value) -> Value {
    match protocol {
        Protocol::Modern if result.get("resultType").is_none() => {
            result["resultType"] = json!("complete");
        }
        Protocol::Modern | Protocol::Legacy => {}
    }
    request.result(&result)
}

fn unknown_method(request: &Request) -> Reaction {
    let message = format!("Method not found: {}", request.method);
    Reaction::Answer(request.error(METHOD_NOT_FOUND, message))
}

/// Rejects an invalid request and records the violation.
fn refuse(state: &State, request: &Request, reason: String) -> Reaction {
    let refusal = request.error(INVALID_PARAMS, reason.as_str());
    state.log.record_violation(reason);
    Reaction::Answer(refusal)
}
