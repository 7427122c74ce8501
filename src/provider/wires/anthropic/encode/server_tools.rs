//! Encodes the tools that run on Anthropic's servers.

use serde_json::{Value, json};

use super::options::WIRE_NAME;
use crate::error::Error;
use crate::provider::codec::body::{ObjectWriter, ensure_options_unset};
use crate::provider::codec::server_tools::{
    approximate_location, mcp_token, unsupported_tool_error, vendor_declaration,
};
use crate::provider::wires::anthropic::passthrough::PROVIDER_NAME;
use crate::request::{McpServer, Options, ServerTool, WebFetch, WebSearch};

/// The beta feature that enables MCP servers,
/// <https://platform.claude.com/docs/en/agents-and-tools/mcp-connector>.
const MCP_BETA: &str = "mcp-client-2025-11-20";

/// A request's server tools in their serialized form.
#[derive(Default)]
pub(super) struct ServerTools {
    /// The elements of `tools`.
    pub(super) declarations: Vec<Value>,
    pub(super) mcp_servers: Vec<Value>,
}

impl ServerTools {
    /// Encodes the tools.
    ///
    /// # Errors
    ///
    /// Returns an [`Unsupported`](crate::ErrorKind::Unsupported) error for a tool or a setting that
    /// the API lacks.
    pub(super) fn encode(options: &Options) -> Result<Self, Error> {
        let mut encoded = Self::default();
        for tool in &options.server_tools {
            let declaration = match tool {
                ServerTool::WebSearch(search) => web_search(search),
                ServerTool::WebFetch(fetch) => web_fetch(fetch, options.citations),
                ServerTool::CodeExecution(code) => {
                    let has_files = !code.file_ids.is_empty();
                    let name = "server_tools.code_execution.file_ids";
                    ensure_options_unset(WIRE_NAME, &[(name, has_files)])?;
                    json!({ "type": "code_execution_20250825", "name": "code_execution" })
                }
                ServerTool::Mcp(server) => {
                    encoded.mcp_servers.push(mcp_server(server)?);
                    mcp_toolset(server)
                }
                ServerTool::Vendor(tool) => {
                    vendor_declaration(tool, WIRE_NAME, PROVIDER_NAME)?.clone().into()
                }
                ServerTool::FileSearch(_) => return Err(unsupported_tool_error(WIRE_NAME, tool)),
            };
            encoded.declarations.push(declaration);
        }
        Ok(encoded)
    }

    /// Returns the names of the tools, except for those of MCP servers.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.declarations.iter().filter_map(|tool| tool["name"].as_str())
    }

    /// Returns the beta feature that the tools require, if any.
    pub(super) fn beta(&self) -> Option<&'static str> {
        (!self.mcp_servers.is_empty()).then_some(MCP_BETA)
    }
}

/// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool>
fn web_search(search: &WebSearch) -> Value {
    let WebSearch { allowed_domains, blocked_domains, max_uses, user_location } = search;
    let fields = ObjectWriter::default()
        .set("type", "web_search_20250305")
        .set("name", "web_search")
        .set_some("max_uses", *max_uses)
        .set_list("allowed_domains", allowed_domains)
        .set_list("blocked_domains", blocked_domains)
        .set_some("user_location", user_location.as_ref().map(approximate_location));
    to_value(fields)
}

/// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-fetch-tool>
fn web_fetch(fetch: &WebFetch, has_citations: bool) -> Value {
    let WebFetch { allowed_domains, blocked_domains, max_uses, max_content_tokens } = fetch;
    let fields = ObjectWriter::default()
        .set("type", "web_fetch_20250910")
        .set("name", "web_fetch")
        .set_some("max_uses", *max_uses)
        .set_list("allowed_domains", allowed_domains)
        .set_list("blocked_domains", blocked_domains)
        .set_some("max_content_tokens", *max_content_tokens)
        .set_some("citations", has_citations.then(|| json!({ "enabled": true })));
    to_value(fields)
}

fn mcp_server(server: &McpServer) -> Result<Value, Error> {
    let name = "server_tools.mcp.require_approval";
    ensure_options_unset(WIRE_NAME, &[(name, server.require_approval)])?;
    let fields = ObjectWriter::default()
        .set("type", "url")
        .set("name", &server.name)
        .set("url", &server.url)
        .set_some("authorization_token", mcp_token(server)?);
    Ok(to_value(fields))
}

/// Returns the declaration of an MCP server's tools. If only some tools are allowed, all others are
/// disabled.
fn mcp_toolset(server: &McpServer) -> Value {
    let mut toolset = json!({ "type": "mcp_toolset", "mcp_server_name": server.name });
    if !server.allowed_tools.is_empty() {
        toolset["default_config"] = json!({ "enabled": false });
        for name in &server.allowed_tools {
            toolset["configs"][name] = json!({ "enabled": true });
        }
    }
    toolset
}

fn to_value(fields: ObjectWriter) -> Value {
    // Invariant: the fields are strings, numbers, lists and maps, which always serialize to JSON.
    fields.into_json().map(|json| json.to_value()).unwrap_or_default()
}
