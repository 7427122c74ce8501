//! Encodes the tools that run on Google's servers, <https://ai.google.dev/gemini-api/docs/tools>.

use serde_json::{Value, json};

use super::generation::ModelGeneration;
use super::options::WIRE_NAME;
use crate::error::{Error, ErrorKind};
use crate::provider::codec::body::{ensure_options_unset, unsupported_error};
use crate::provider::codec::server_tools::{mcp_token, unsupported_tool_error, vendor_declaration};
use crate::provider::wires::gemini::host::Host;
use crate::provider::wires::gemini::passthrough::PROVIDER_NAME;
use crate::request::{FileSearch, McpServer, Request, ServerTool, WebFetch, WebSearch};

/// Returns whether a request combines server tools with its own tools.
///
/// # Errors
///
/// Returns an [`Unsupported`](ErrorKind::Unsupported) error if the model or its host cannot combine
/// them: "Multiple tools are supported only when they are all search tools".
pub(super) fn combines_tools(
    request: &Request,
    generation: ModelGeneration,
    host: Host,
) -> Result<bool, Error> {
    if !request.tools.has_declared() || request.options.server_tools.is_empty() {
        return Ok(false);
    }
    match (generation, host) {
        (ModelGeneration::Gemini3OrLater, Host::GeminiApi) => Ok(true),
        (ModelGeneration::Gemini2OrEarlier, _) | (_, Host::Vertex) => {
            let message = "this Gemini model cannot combine server tools with other tools; \
                           Gemini 3 and later models can, in the Gemini API";
            Err(Error::new(ErrorKind::Unsupported, message).with_parameter("server_tools"))
        }
    }
}

/// Returns the declaration of a server tool.
///
/// # Errors
///
/// Returns an [`Unsupported`](ErrorKind::Unsupported) error for a tool or a setting that the API
/// lacks.
pub(super) fn declaration(tool: &ServerTool, host: Host) -> Result<Value, Error> {
    match tool {
        ServerTool::WebSearch(search) => web_search(search, host),
        ServerTool::WebFetch(fetch) => match *fetch == WebFetch::default() {
            true => Ok(json!({ "urlContext": {} })),
            false => Err(unsupported_error(WIRE_NAME, "server_tools.web_fetch")),
        },
        ServerTool::CodeExecution(code) => {
            let has_files = !code.file_ids.is_empty();
            let name = "server_tools.code_execution.file_ids";
            ensure_options_unset(WIRE_NAME, &[(name, has_files)])?;
            Ok(json!({ "codeExecution": {} }))
        }
        ServerTool::FileSearch(search) if host == Host::GeminiApi => Ok(file_search(search)),
        ServerTool::Mcp(server) if host == Host::GeminiApi => mcp(server),
        ServerTool::Vendor(tool) => {
            Ok(vendor_declaration(tool, WIRE_NAME, PROVIDER_NAME)?.clone().into())
        }
        ServerTool::FileSearch(_) | ServerTool::Mcp(_) => {
            Err(unsupported_tool_error(WIRE_NAME, tool))
        }
    }
}

fn web_search(search: &WebSearch, host: Host) -> Result<Value, Error> {
    let WebSearch { allowed_domains, blocked_domains, max_uses, user_location } = search;
    // "This field is not supported in Gemini API."
    let lacks_blocked = host == Host::GeminiApi && !blocked_domains.is_empty();
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("server_tools.web_search.allowed_domains", !allowed_domains.is_empty()),
            ("server_tools.web_search.blocked_domains", lacks_blocked),
            ("server_tools.web_search.max_uses", max_uses.is_some()),
            ("server_tools.web_search.user_location", user_location.is_some()),
        ],
    )?;
    Ok(match blocked_domains.is_empty() {
        true => json!({ "googleSearch": {} }),
        false => json!({ "googleSearch": { "excludeDomains": blocked_domains } }),
    })
}

fn file_search(search: &FileSearch) -> Value {
    let mut fields = json!({ "fileSearchStoreNames": search.stores });
    if let Some(most) = search.max_results {
        fields["topK"] = json!(most);
    }
    json!({ "fileSearch": fields })
}

fn mcp(server: &McpServer) -> Result<Value, Error> {
    let has_filter = !server.allowed_tools.is_empty();
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("server_tools.mcp.allowed_tools", has_filter),
            ("server_tools.mcp.require_approval", server.require_approval),
        ],
    )?;
    let mut transport = json!({ "url": server.url });
    if let Some(token) = mcp_token(server)? {
        transport["headers"] = json!({ "Authorization": format!("Bearer {token}") });
    }
    let server = json!({ "name": server.name, "streamableHttpTransport": transport });
    Ok(json!({ "mcpServers": [server] }))
}
