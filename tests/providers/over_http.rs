//! Providers of every wire, against a server.

use std::sync::Arc;
use std::time::Duration;

use turnstream::env::SeededRandom;
use turnstream::http::{HttpClient, Timeouts};
use turnstream::provider::{
    Anthropic, Backoff, Gemini, Ollama, OpenAiChat, OpenAiResponses, Provider,
};
use turnstream_testing::Wire;

pub(crate) const API_KEY: &str = "sk-12345678";

/// How requests are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransportSettings {
    pub(crate) backoff: Backoff,
    pub(crate) timeouts: Timeouts,
}

impl TransportSettings {
    /// The default number of attempts, without delays between them.
    pub(crate) fn without_delay() -> Self {
        let backoff = Backoff { base_delay: Duration::ZERO, ..Backoff::default() };
        Self { backoff, ..Self::default() }
    }
}

/// A provider of a wire. The number selects the model.
pub(crate) fn http_provider(
    wire: Wire,
    url: &str,
    number: u32,
    transport: TransportSettings,
) -> Arc<dyn Provider> {
    macro_rules! made {
        ($name:ident, $model:literal) => {
            Arc::new(
                $name::new(format!("{}-{number}", $model))
                    .with_base_url(url)
                    .unwrap()
                    .with_http_client(HttpClient::without_proxy())
                    .with_backoff(transport.backoff)
                    .with_random(SeededRandom::new(7))
                    .with_timeouts(transport.timeouts)
                    .with_api_key(API_KEY),
            )
        };
    }
    match wire {
        Wire::Anthropic => made!(Anthropic, "claude"),
        Wire::OpenAiChat => made!(OpenAiChat, "gpt"),
        Wire::OpenAiResponses => made!(OpenAiResponses, "o9"),
        Wire::Ollama => made!(Ollama, "qwen"),
        _ => made!(Gemini, "gemini-3-pro"),
    }
}
