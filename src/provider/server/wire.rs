//! The five wires.

use std::fmt;

use serde_json::Value;

use crate::error::Error;
use crate::provider::server::frame::{Frame, FrameFormat};
use crate::provider::server::server_wire::ServerWire;
use crate::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};

/// A vendor's HTTP protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// Anthropic Messages, with the path `…/messages`.
    Anthropic,
    /// `OpenAI` Chat Completions, with the path `…/chat/completions`.
    OpenAiChat,
    /// `OpenAI` Responses, with the path `…/responses`.
    OpenAiResponses,
    /// Gemini, with the path `…/models/{model}:streamGenerateContent`.
    Gemini,
    /// Ollama's native API, with the path `…/api/chat`.
    Ollama,
}

/// An error as the response to a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ErrorDocument {
    /// The HTTP status.
    pub status: u16,
    /// The headers, without `content-type`, which is `application/json`.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Value,
}

impl Wire {
    /// All wires.
    pub const ALL: [Self; 5] =
        [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini, Self::Ollama];

    /// Returns the format in which the frames of a streamed response are written. `path` is the
    /// request's path with its query: the Gemini wire sends an array, unless the query contains
    /// `alt=sse`.
    pub fn frame_format(self, path: &str) -> FrameFormat {
        (self.description().format)(path)
    }

    /// Returns the header with which the vendor identifies a response, if it does.
    pub fn request_id_header(self) -> Option<&'static str> {
        self.description().request_id_header
    }

    /// Returns the response to a request that fails before its stream starts. The status is the
    /// error's own, or the one that the vendor uses for the error's kind.
    pub fn error_document(self, error: &Error) -> ErrorDocument {
        let wire = self.description();
        let status = error.status().unwrap_or_else(|| (wire.status)(error.kind()));
        let headers = (wire.retry_after_header)(error).into_iter().collect();
        ErrorDocument { status, headers, body: (wire.error_body)(error, status) }
    }

    /// Returns an error as the frame that ends a stream. `n` is the number of frames before it.
    pub fn error_frame(self, error: &Error, n: usize) -> Frame {
        let wire = self.description();
        (wire.error_frame)(&(wire.error_body)(error, (wire.status)(error.kind())), n)
    }

    /// Returns bytes that keep the connection alive between two frames: the vendor's own event
    /// without content, a comment or an empty line. `n` is the number of frames before it.
    pub fn keep_alive(self, format: &FrameFormat, n: usize) -> String {
        let ping = (self.description().ping)(n);
        ping.map_or_else(|| format.comment(), |frame| format.encode(&frame, n))
    }

    pub(super) fn description(self) -> &'static ServerWire {
        match self {
            Self::Anthropic => &anthropic::server::SERVER_WIRE,
            Self::OpenAiChat => &openai_chat::server::SERVER_WIRE,
            Self::OpenAiResponses => &openai_responses::server::SERVER_WIRE,
            Self::Gemini => &gemini::server::SERVER_WIRE,
            Self::Ollama => &ollama::server::SERVER_WIRE,
        }
    }
}

/// Writes the wire's name, as used in provider data.
impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description().name)
    }
}
