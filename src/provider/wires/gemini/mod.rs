//! The Gemini API, with streaming responses from `generateContent`,
//! <https://ai.google.dev/api/generate-content>.

mod decode;
mod encode;
mod host;
mod passthrough;
pub(crate) mod server;
#[cfg(feature = "http")]
mod wire;

pub use decode::Decoder;
pub use encode::encode;
pub(in crate::provider) use passthrough::is_metadata;
#[cfg(feature = "http")]
pub use wire::{Gemini, GenerateContent};
