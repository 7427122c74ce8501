//! Ollama's native API, which streams JSON lines from `/api/chat`,
//! <https://docs.ollama.com/api/chat>.
//!
//! Ollama also serves the Chat Completions API, for which
//! [`Dialect::OLLAMA`](crate::provider::openai_chat::Dialect::OLLAMA) is the predefined dialect.
//! The native API has two settings that Chat Completions lacks: the size of the context window, and
//! how long the model stays loaded. If the size of the context window is not set, the server
//! silently truncates long prompts.

mod chat;
mod decode;
mod encode;
pub(crate) mod server;
#[cfg(feature = "http")]
mod wire;

pub use chat::{Chat, KeepAlive, Think};
pub use decode::Decoder;
pub use encode::encode;
#[cfg(feature = "http")]
pub use wire::Ollama;

/// The name that identifies this API in provider data.
const PROVIDER_NAME: &str = "ollama";
