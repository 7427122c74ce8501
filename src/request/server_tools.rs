//! Tools that run on the provider's servers.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A tool that runs on the provider's servers, declared beside the request's own tools.
///
/// The model calls such a tool within a turn. The calls and their results are provider-specific
/// items of the turn: they are events, are stored in the history, and are sent back to the same
/// model. An agent does not run them, and hooks and tool limits do not apply to them. Approvals
/// apply only to the calls of an MCP server that [requires them](McpServer::require_approval).
/// There is no event while such a tool runs: the items of its calls and results come with
/// [`TurnComplete`](crate::TurnEvent::TurnComplete). The provider may charge for each call; see
/// [`Billing::server_tool_calls`](crate::usage::Billing::server_tool_calls).
///
/// If a wire lacks a tool or one of its settings, the request fails with an
/// [`Unsupported`](crate::ErrorKind::Unsupported) error, whose
/// [`parameter`](crate::Error::parameter) names the tool and the setting, for example
/// `server_tools.web_search.max_uses`. If the model cannot combine server tools with the request's
/// own tools, the parameter is `server_tools`. On the Chat wire, only OpenAI's search models, such
/// as `gpt-5-search-api`, search the web, and they have no other tools.
///
/// | tool | Messages | Chat | Responses | Gemini |
/// |---|---|---|---|---|
/// | [`WebSearch`] | `web_search_20250305` | `web_search_options` | `web_search` | `googleSearch` |
/// | [`WebFetch`] | `web_fetch_20250910` | | | `urlContext` |
/// | [`CodeExecution`] | `code_execution_20250825` | | `code_interpreter` | `codeExecution` |
/// | [`FileSearch`] | | | `file_search` | `fileSearch` |
/// | [`McpServer`] | `mcp_servers` | | `mcp` | `mcpServers` |
///
/// Sources: <https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview>,
/// <https://developers.openai.com/api/docs/guides/tools>,
/// <https://ai.google.dev/gemini-api/docs/tools>.
///
/// ```
/// use turnstream::request::{Options, ServerTool, WebSearch};
///
/// let search = WebSearch { max_uses: Some(3), ..WebSearch::default() };
/// let options = Options { server_tools: vec![search.into()], ..Options::default() };
/// assert!(matches!(options.server_tools[0], ServerTool::WebSearch(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerTool {
    /// Searches the web.
    WebSearch(WebSearch),
    /// Reads pages and files at URLs that occur in the conversation.
    WebFetch(WebFetch),
    /// Runs code that the model writes.
    CodeExecution(CodeExecution),
    /// Searches files that were uploaded to the provider.
    FileSearch(FileSearch),
    /// Calls the tools of an MCP server, to which the provider connects.
    Mcp(McpServer),
    /// Any other tool, declared in a vendor's own format.
    Vendor(VendorTool),
}

/// The settings for a search of the web.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebSearch {
    /// The only domains in which to search, for example `docs.rs`. An empty list allows all
    /// domains. For the Messages and Responses wires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_domains: Vec<String>,
    /// The domains whose pages are left out. For the Messages wire and Gemini on Vertex AI.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_domains: Vec<String>,
    /// The maximum number of searches in a request. For the Messages wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// The approximate location of the user, which affects the results. For the Messages, Chat and
    /// Responses wires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_location: Option<UserLocation>,
}

/// The approximate location of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserLocation {
    /// The city, for example `Oslo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub city: Option<String>,
    /// The region or state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The country, as a code of two letters such as `NO` (ISO 3166-1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
    /// The IANA time zone, for example `Europe/Oslo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

/// The settings for reading pages and files at URLs. All settings are for the Messages wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebFetch {
    /// The only domains from which to read. An empty list allows all domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_domains: Vec<String>,
    /// The domains from which not to read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_domains: Vec<String>,
    /// The maximum number of URLs that are read in a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// The maximum number of tokens of a page; longer pages are truncated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_content_tokens: Option<u32>,
}

/// The settings for code that the model writes and the provider runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeExecution {
    /// The ids of uploaded files that the code can read. For the Responses wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_ids: Vec<String>,
}

/// The settings for a search in files that were uploaded to the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileSearch {
    /// The ids of the vector stores (Responses), or the names of the file search stores (Gemini).
    pub stores: Vec<String>,
    /// The maximum number of results of a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_results: Option<u32>,
}

/// An MCP server to which the provider connects. Its tools run without an approval, unless
/// [`require_approval`](Self::require_approval) is set. To approve calls on every wire, connect to
/// the server from this program, with the crate `turnstream-mcp`.
///
/// On the Messages wire, the connector is a beta feature, which is enabled with the request.
/// <https://platform.claude.com/docs/en/agents-and-tools/mcp-connector>,
/// <https://developers.openai.com/api/docs/guides/tools-connectors-mcp>
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct McpServer {
    /// The name under which the model sees the server, which must be unique in the request.
    pub name: String,
    /// The server's URL.
    pub url: String,
    /// The token with which the provider authenticates at the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<McpToken>,
    /// The only tools that the model may call. An empty list allows all tools. For the Messages and
    /// Responses wires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Whether each call needs an approval. For the Responses wire. The tool that
    /// [`Tool::mcp_approval`](crate::Tool::mcp_approval) creates requests the approvals. Without
    /// such a tool, the request fails with an [`Unsupported`](crate::ErrorKind::Unsupported) error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub require_approval: bool,
}

/// A tool that is declared in a vendor's own format.
///
/// ```
/// use serde_json::json;
/// use turnstream::request::{Options, ServerTool, VendorTool};
///
/// let images = VendorTool::new("openai_responses", json!({ "type": "image_generation" }));
/// // A newer version of Anthropic's search than that of `WebSearch`.
/// let search = json!({ "type": "web_search_20260318", "name": "web_search" });
/// let search = VendorTool::new("anthropic", search);
/// let options = Options { server_tools: vec![search.into()], ..Options::default() };
/// # let _ = images;
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VendorTool {
    /// The wire to which the declaration is sent: `anthropic`, `openai_responses`, `gemini`,
    /// `ollama`, or the [name](crate::provider::openai_chat::Dialect::name) of a dialect of the
    /// Chat wire, such as `openai_chat`. All other wires refuse the request.
    pub wire: String,
    /// An element of the list `tools`.
    pub declaration: Map<String, Value>,
}

impl VendorTool {
    /// Creates a tool from its declaration. A declaration that is not an object becomes an empty
    /// object.
    pub fn new(wire: impl Into<String>, declaration: Value) -> Self {
        let declaration = match declaration {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Self { wire: wire.into(), declaration }
    }
}

/// A token with which a provider authenticates at an [MCP server](McpServer).
///
/// `Debug` output and JSON never contain the token, and all tokens are equal, so that a recorded
/// request matches a request with a new token. A token that was read from such JSON is unknown, and
/// a request with an unknown token fails with an
/// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error.
///
/// ```
/// use turnstream::request::McpToken;
///
/// let token = McpToken::new("secret");
/// assert_eq!(format!("{token:?}"), "McpToken(…)");
/// assert_eq!(serde_json::to_string(&token)?, "\"…\"");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct McpToken(Token);

#[derive(Clone)]
enum Token {
    Known(Arc<str>),
    /// The token was read from JSON that does not contain it.
    Unknown,
}

/// The text that stands for a token in JSON.
const MASK: &str = "…";

impl McpToken {
    /// Creates a token. White space around the token is removed.
    pub fn new(token: impl AsRef<str>) -> Self {
        Self(Token::Known(token.as_ref().trim().into()))
    }

    fn is_unknown(&self) -> bool {
        matches!(self.0, Token::Unknown)
    }

    /// Returns the token, or `None` if it is unknown.
    pub(crate) fn expose(&self) -> Option<&str> {
        match &self.0 {
            Token::Known(token) => Some(token),
            Token::Unknown => None,
        }
    }
}

impl fmt::Debug for McpToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("McpToken(…)")
    }
}

impl PartialEq for McpToken {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for McpToken {}

impl Serialize for McpToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

impl<'de> Deserialize<'de> for McpToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(if text == MASK { Self(Token::Unknown) } else { Self::new(text) })
    }
}

/// Returns whether the token of an MCP server is unknown.
pub(crate) fn has_unknown_token(tools: &[ServerTool]) -> bool {
    let token = |tool: &ServerTool| match tool {
        ServerTool::Mcp(server) => server.authorization.as_ref().map(McpToken::is_unknown),
        _ => None,
    };
    tools.iter().filter_map(token).any(|is_unknown| is_unknown)
}

/// Sets the tokens that are unknown in `tools` to those of the servers with the same names and URLs
/// in `known`.
pub(crate) fn restore_tokens(tools: &mut [ServerTool], known: &[ServerTool]) {
    for tool in tools {
        let ServerTool::Mcp(server) = tool else { continue };
        let Some(token) = server.authorization.as_mut().filter(|it| it.is_unknown()) else {
            continue;
        };
        let same = known.iter().find_map(|tool| match tool {
            ServerTool::Mcp(other) if other.name == server.name && other.url == server.url => {
                other.authorization.as_ref().filter(|token| !token.is_unknown())
            }
            _ => None,
        });
        if let Some(same) = same {
            *token = same.clone();
        }
    }
}

macro_rules! impl_from_settings {
    ($($variant:ident($settings:ident)),+) => {
        $(impl From<$settings> for ServerTool {
            fn from(settings: $settings) -> Self {
                Self::$variant(settings)
            }
        })+
    };
}

impl_from_settings!(
    WebSearch(WebSearch),
    WebFetch(WebFetch),
    CodeExecution(CodeExecution),
    FileSearch(FileSearch),
    Mcp(McpServer),
    Vendor(VendorTool)
);

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str, token: McpToken) -> ServerTool {
        let (name, url) = ("wiki".to_owned(), url.to_owned());
        let authorization = Some(token);
        McpServer { name, url, authorization, ..McpServer::default() }.into()
    }

    fn token_of(tool: &ServerTool) -> Option<&str> {
        let ServerTool::Mcp(server) = tool else { return None };
        server.authorization.as_ref().and_then(McpToken::expose)
    }

    #[test]
    fn a_token_that_was_not_stored_is_restored_for_the_same_server_only() {
        let unknown: McpToken = serde_json::from_str("\"…\"").unwrap();
        let known = [server("https://a.example", McpToken::new(" secret\n"))];
        let mut tools = [
            server("https://a.example", unknown.clone()),
            server("https://b.example", unknown),
            server("https://a.example", McpToken::new("own")),
        ];
        restore_tokens(&mut tools, &known);
        let tokens: Vec<_> = tools.iter().map(token_of).collect();
        assert_eq!(tokens, [Some("secret"), None, Some("own")]);
        assert!(has_unknown_token(&tools) && !has_unknown_token(&known));
    }
}
