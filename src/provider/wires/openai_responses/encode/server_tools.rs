//! Encodes the tools that run on OpenAI's servers,
//! <https://developers.openai.com/api/docs/guides/tools>.

use serde_json::{Value, json};

use super::options::WIRE_NAME;
use crate::error::{Error, ErrorKind};
use crate::provider::codec::body::ensure_options_unset;
use crate::provider::codec::server_tools::{
    approximate_location, mcp_token, unsupported_tool_error, vendor_declaration,
};
use crate::provider::wires::openai_responses::passthrough::PROVIDER_NAME;
use crate::request::{McpServer, ServerTool, ToolSpec, WebSearch};

/// Returns the declaration of a server tool. `specs` are the request's own tools.
///
/// # Errors
///
/// Returns an [`Unsupported`](ErrorKind::Unsupported) error for a tool or a setting that the API
/// lacks, and for an MCP server whose calls need an approval that no tool requests.
pub(super) fn declaration(tool: &ServerTool, specs: &[ToolSpec]) -> Result<Value, Error> {
    match tool {
        ServerTool::WebSearch(search) => web_search(search),
        ServerTool::CodeExecution(code) => {
            let mut container = json!({ "type": "auto" });
            if !code.file_ids.is_empty() {
                container["file_ids"] = json!(code.file_ids);
            }
            Ok(json!({ "type": "code_interpreter", "container": container }))
        }
        ServerTool::FileSearch(search) => {
            let mut tool = json!({ "type": "file_search", "vector_store_ids": search.stores });
            if let Some(most) = search.max_results {
                tool["max_num_results"] = json!(most);
            }
            Ok(tool)
        }
        ServerTool::Mcp(server) => mcp(server, specs),
        ServerTool::Vendor(tool) => {
            Ok(vendor_declaration(tool, WIRE_NAME, PROVIDER_NAME)?.clone().into())
        }
        ServerTool::WebFetch(_) => Err(unsupported_tool_error(WIRE_NAME, tool)),
    }
}

fn web_search(search: &WebSearch) -> Result<Value, Error> {
    let WebSearch { allowed_domains, blocked_domains, max_uses, user_location } = search;
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("server_tools.web_search.blocked_domains", !blocked_domains.is_empty()),
            ("server_tools.web_search.max_uses", max_uses.is_some()),
        ],
    )?;
    let mut tool = json!({ "type": "web_search" });
    if !allowed_domains.is_empty() {
        tool["filters"] = json!({ "allowed_domains": allowed_domains });
    }
    if let Some(location) = user_location {
        tool["user_location"] = approximate_location(location).into();
    }
    Ok(tool)
}

fn mcp(server: &McpServer, specs: &[ToolSpec]) -> Result<Value, Error> {
    let is_approved = |spec: &ToolSpec| spec.approved_server() == Some(server.name.as_str());
    if server.require_approval && !specs.iter().any(is_approved) {
        let message = format!(
            "no tool approves the calls of the MCP server `{}`; `Tool::mcp_approval` creates one",
            server.name
        );
        let parameter = "server_tools.mcp.require_approval";
        return Err(Error::new(ErrorKind::Unsupported, message).with_parameter(parameter));
    }
    let mut tool = json!({
        "type": "mcp",
        "server_label": server.name,
        "server_url": server.url,
        // The default is "always".
        "require_approval": if server.require_approval { "always" } else { "never" },
    });
    if let Some(token) = mcp_token(server)? {
        tool["authorization"] = token.into();
    }
    if !server.allowed_tools.is_empty() {
        tool["allowed_tools"] = json!(server.allowed_tools);
    }
    Ok(tool)
}
