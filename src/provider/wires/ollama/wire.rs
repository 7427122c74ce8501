//! The provider for Ollama's native API over HTTP.

use super::encode::{TOOL_NAME_RULE, encode_body};
use super::{Chat, Decoder, KeepAlive, PROVIDER_NAME};
use crate::error::Error;
use crate::framing::NdJson;
use crate::provider::{Destination, EncodedRequest, HttpProvider, Wire};
use crate::request::Request;

/// A model served over Ollama's native API. This type is cheap to clone.
///
/// The base URL does not include `/api`, and defaults to `http://localhost:11434`. Ollama's cloud
/// service at `https://ollama.com` requires an API key, which is sent as a bearer token.
///
/// If the model is not in memory, the server first loads it, which may take several minutes. To set
/// time limits for a request, use [`Timeouts`](crate::http::Timeouts).
///
/// ```
/// use std::time::Duration;
/// use turnstream::provider::Ollama;
///
/// let local = Ollama::new("qwen3:8b")
///     .with_num_ctx(32_768)
///     .with_keep_alive(Duration::from_secs(3_600));
/// let cloud =
///     Ollama::new("gpt-oss:120b").with_base_url("https://ollama.com")?.with_api_key("…");
/// # Ok::<(), turnstream::Error>(())
/// ```
pub type Ollama = HttpProvider<Chat>;

impl Wire for Chat {
    type Framing = NdJson;
    type Decoder = Decoder;

    fn name(&self) -> &'static str {
        PROVIDER_NAME
    }

    fn base_url(&self) -> &'static str {
        "http://localhost:11434"
    }

    fn path(&self, _model: &str) -> &'static str {
        "/api/chat"
    }

    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error> {
        encode_body(request, to.model, self).map(EncodedRequest::new)
    }

    fn decoder(&self, request: &Request, to: Destination<'_>) -> Decoder {
        Decoder::new(to.model).with_tool_names(request.tools.names_for(TOOL_NAME_RULE))
    }
}

impl Ollama {
    /// Sets the size of the context window in tokens; see [`Chat::num_ctx`].
    pub fn with_num_ctx(self, tokens: u32) -> Self {
        self.update_wire(|wire| wire.num_ctx = Some(tokens))
    }

    /// Sets how long the server keeps the model in memory; see [`Chat::keep_alive`].
    pub fn with_keep_alive(self, keep_alive: impl Into<KeepAlive>) -> Self {
        self.update_wire(|wire| wire.keep_alive = Some(keep_alive.into()))
    }
}
