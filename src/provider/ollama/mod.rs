//! Ollama's own wire, JSON lines from `/api/chat`, <https://docs.ollama.com/api/chat>.
//!
//! Ollama speaks Chat Completions, too: that is
//! [`Dialect::OLLAMA`](crate::provider::openai_chat::Dialect::OLLAMA). This wire can set what that one
//! cannot: the size of the context window, without which the server cuts a long prompt off and says
//! nothing, and how long the model stays loaded.

mod chat;
mod decode;
mod encode;
#[cfg(feature = "testing")]
pub(crate) mod server;
#[cfg(feature = "http")]
mod wire;

pub use chat::{Chat, KeepAlive, Think};
pub use decode::Decoder;
pub use encode::encode;
#[cfg(feature = "http")]
pub use wire::Ollama;

/// The name of this wire in provider data.
const PROVIDER_NAME: &str = "ollama";
