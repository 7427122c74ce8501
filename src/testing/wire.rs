//! The wires, and how a request tells its own.

use std::fmt;

/// A wire that a [`ModelServer`](crate::testing::ModelServer) speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// Anthropic Messages: `…/messages`.
    Anthropic,
    /// `OpenAI` Chat Completions: `…/chat/completions`.
    OpenAiChat,
    /// `OpenAI` Responses: `…/responses`.
    OpenAiResponses,
    /// Gemini: `…/models/{model}:streamGenerateContent`.
    Gemini,
}

impl Wire {
    /// All of them, for a test that runs over every wire.
    pub const ALL: [Self; 4] =
        [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini];

    /// The name of the wire, as it stands in provider data.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAiChat => "openai_chat",
            Self::OpenAiResponses => "openai_responses",
            Self::Gemini => "gemini",
        }
    }

    /// The wire that a path belongs to, whatever stands before it.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        let (path, _query) = path.split_once('?').unwrap_or((path, ""));
        Self::ALL.into_iter().find(|wire| match wire {
            Self::Anthropic => path.ends_with("/messages"),
            Self::OpenAiChat => path.ends_with("/chat/completions"),
            Self::OpenAiResponses => path.ends_with("/responses"),
            Self::Gemini => path.ends_with(":streamGenerateContent"),
        })
    }

    /// The header that carries the vendor's id of a request.
    pub(super) fn request_id_header(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("request-id"),
            Self::OpenAiChat | Self::OpenAiResponses => Some("x-request-id"),
            Self::Gemini => None,
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
