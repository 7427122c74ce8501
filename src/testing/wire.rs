//! The supported wire formats, and the data that a test server needs for each of them.

use std::fmt;

use serde_json::Value;

use crate::provider::server::ServerWire;
use crate::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use crate::testing::lint;
use crate::testing::signatures::Signatures;

/// A wire format that a [`ModelServer`](crate::testing::ModelServer) supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// The Anthropic Messages wire format, which uses the path `…/messages`.
    Anthropic,
    /// The `OpenAI` Chat Completions wire format, which uses the path `…/chat/completions`.
    OpenAiChat,
    /// The `OpenAI` Responses wire format, which uses the path `…/responses`.
    OpenAiResponses,
    /// The Gemini wire format, which uses the path `…/models/{model}:streamGenerateContent`.
    Gemini,
    /// The wire format of Ollama's native API, which uses the path `…/api/chat`.
    Ollama,
}

/// The data that a test server needs for a wire format. Each wire format also needs a
/// [lint](crate::testing::lint).
pub(super) struct WireProfile {
    /// The server side of the wire format.
    pub(super) server_wire: &'static ServerWire,
    /// Returns the errors that the vendor would report for a request's body. The first argument is
    /// the model.
    pub(super) lint: fn(&str, &Value) -> Vec<String>,
    /// Returns the errors that the vendor would report for the signatures in a request.
    pub(super) check_signatures: fn(&Signatures, &Value) -> Vec<String>,
    /// The name of a header that every request must contain.
    pub(super) required_header: Option<&'static str>,
    /// The name and data of a frame of an unknown type.
    pub(super) unknown_event: (Option<&'static str>, &'static str),
}

impl Wire {
    /// All wire formats, for tests that iterate over them.
    pub const ALL: [Self; 5] =
        [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini, Self::Ollama];

    /// Returns the wire format's name, as used in provider data.
    pub fn as_str(self) -> &'static str {
        self.server_wire().name
    }

    /// Returns the wire format for a request path, which may have any prefix.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        let (path, _query) = path.split_once('?').unwrap_or((path, ""));
        Self::ALL.into_iter().find(|wire| path.ends_with(wire.server_wire().path_suffix))
    }

    pub(super) fn server_wire(self) -> &'static ServerWire {
        self.profile().server_wire
    }

    pub(super) fn profile(self) -> &'static WireProfile {
        match self {
            Self::Anthropic => &WireProfile {
                server_wire: &anthropic::server::SERVER_WIRE,
                lint: |_, body| lint::anthropic(body),
                check_signatures: lint::anthropic::check_signatures,
                required_header: Some("anthropic-version"),
                unknown_event: (Some("weather"), r#"{"type":"weather","index":0,"sky":["blue"]}"#),
            },
            Self::OpenAiChat => &WireProfile {
                server_wire: &openai_chat::server::SERVER_WIRE,
                lint: |_, body| lint::openai_chat(body),
                check_signatures: lint::openai_chat::check_signatures,
                required_header: None,
                unknown_event: (None, r#"{"choices":[],"weather":{"sky":["blue"]}}"#),
            },
            Self::OpenAiResponses => &WireProfile {
                server_wire: &openai_responses::server::SERVER_WIRE,
                lint: |_, body| lint::openai_responses(body),
                check_signatures: lint::openai_responses::check_signatures,
                required_header: None,
                unknown_event: (
                    Some("response.weather"),
                    r#"{"type":"response.weather","sky":["blue"]}"#,
                ),
            },
            Self::Gemini => &WireProfile {
                server_wire: &gemini::server::SERVER_WIRE,
                lint: |model, body| match model.contains("gemini-3") {
                    true => lint::gemini_3(body),
                    false => lint::gemini(body),
                },
                check_signatures: lint::gemini::check_signatures,
                required_header: None,
                unknown_event: (None, r#"{"weather":{"sky":["blue"]}}"#),
            },
            Self::Ollama => &WireProfile {
                server_wire: &ollama::server::SERVER_WIRE,
                lint: |_, body| lint::ollama(body),
                // The wire has no signatures to check.
                check_signatures: |_, _| Vec::new(),
                required_header: None,
                unknown_event: (None, r#"{"weather":{"sky":["blue"]}}"#),
            },
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
