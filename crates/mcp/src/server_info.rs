//! A server's description of itself.

use serde_json::Value;

/// The generation of the [protocol](https://modelcontextprotocol.io/specification) that a
/// connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Era {
    /// The protocol from version 2026-07-28 on. Each request is self-contained. If a server needs
    /// input during a call, it answers the call with a question.
    Modern,
    /// The protocol up to version 2025-11-25, which uses a handshake, sessions, and requests from
    /// the server to the client.
    Legacy,
}

/// A server's description of itself, which is not verified. Use it to show or log which server
/// answered, and not to decide what the server may do.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent capability")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The server program's name.
    pub name: Option<String>,
    /// The server program's version.
    pub version: Option<String>,
    /// The protocol version, for example `2026-07-28`.
    pub protocol_version: String,
    /// The generation of the protocol that the connection uses.
    pub era: Era,
    /// The server's instructions for a model. The model receives them only if you add them to a
    /// [system prompt](turnstream::Agent::with_system).
    pub instructions: Option<String>,
    /// Whether the server offers tools.
    pub has_tools: bool,
    /// Whether the server reports changes to its tool list.
    pub reports_tool_changes: bool,
    /// Whether the server offers resources.
    pub has_resources: bool,
    /// Whether the server offers prompts.
    pub has_prompts: bool,
}

/// The first protocol version without a handshake.
const FIRST_MODERN_VERSION: &str = "2026-07-28";

impl ServerInfo {
    pub(crate) fn from_json(json: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let protocol_version = text(&json["protocolVersion"]).unwrap_or_default();
        let capabilities = &json["capabilities"];
        let era = match *protocol_version >= *FIRST_MODERN_VERSION {
            true => Era::Modern,
            false => Era::Legacy,
        };
        Self {
            name: text(&json["serverInfo"]["name"]),
            version: text(&json["serverInfo"]["version"]),
            era,
            instructions: text(&json["instructions"]),
            has_tools: capabilities["tools"].is_object(),
            reports_tool_changes: capabilities["tools"]["listChanged"] == true,
            has_resources: capabilities["resources"].is_object(),
            has_prompts: capabilities["prompts"].is_object(),
            protocol_version,
        }
    }
}
