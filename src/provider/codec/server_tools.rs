//! Helpers for encoding tools that run on a provider's servers.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};
use crate::provider::codec::body::unsupported_error;
use crate::request::{McpServer, Options, ServerTool, UserLocation, VendorTool};

/// Returns the declaration of a vendor's tool.
///
/// # Errors
///
/// Returns an [`Unsupported`](ErrorKind::Unsupported) error if the tool is for a wire other than
/// `provider`.
pub(in crate::provider) fn vendor_declaration<'a>(
    tool: &'a VendorTool,
    wire: &str,
    provider: &str,
) -> Result<&'a Map<String, Value>, Error> {
    match tool.wire == provider {
        true => Ok(&tool.declaration),
        false => Err(unsupported_error(wire, "server_tools.vendor")),
    }
}

/// Returns the declarations of a request's server tools on a wire that only has its vendor's own
/// tools.
///
/// # Errors
///
/// Returns an [`Unsupported`](ErrorKind::Unsupported) error for any other tool.
pub(in crate::provider) fn vendor_tools<'a>(
    options: &'a Options,
    wire: &str,
    provider: &str,
) -> Result<Vec<&'a Map<String, Value>>, Error> {
    let declaration = |tool: &'a ServerTool| match tool {
        ServerTool::Vendor(tool) => vendor_declaration(tool, wire, provider),
        tool => Err(unsupported_tool_error(wire, tool)),
    };
    options.server_tools.iter().map(declaration).collect()
}

/// Creates the error for a tool that the wire lacks.
pub(in crate::provider) fn unsupported_tool_error(wire: &str, tool: &ServerTool) -> Error {
    let name = match tool {
        ServerTool::WebSearch(_) => "server_tools.web_search",
        ServerTool::WebFetch(_) => "server_tools.web_fetch",
        ServerTool::CodeExecution(_) => "server_tools.code_execution",
        ServerTool::FileSearch(_) => "server_tools.file_search",
        ServerTool::Mcp(_) => "server_tools.mcp",
        ServerTool::Vendor(_) => "server_tools.vendor",
    };
    unsupported_error(wire, name)
}

/// Returns the token for an MCP server, or `None` if the server needs no token.
///
/// # Errors
///
/// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the server needs a token that
/// is unknown.
pub(in crate::provider) fn mcp_token(server: &McpServer) -> Result<Option<&str>, Error> {
    let Some(token) = &server.authorization else { return Ok(None) };
    token.expose().map(Some).ok_or_else(|| {
        let message = format!(
            "the token of the MCP server `{}` is unknown, because stored options do not contain it",
            server.name
        );
        Error::new(ErrorKind::InvalidRequest, message).with_parameter("server_tools.mcp")
    })
}

/// Returns a location as OpenAI and Anthropic encode it, without its type.
pub(in crate::provider) fn location_fields(location: &UserLocation) -> Map<String, Value> {
    let UserLocation { city, region, country, timezone } = location;
    [("city", city), ("region", region), ("country", country), ("timezone", timezone)]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())))
        .collect()
}

/// Returns an approximate location as a single object.
pub(in crate::provider) fn approximate_location(location: &UserLocation) -> Map<String, Value> {
    let mut fields = location_fields(location);
    fields.insert("type".to_owned(), "approximate".into());
    fields
}
