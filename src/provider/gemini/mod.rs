//! Gemini's `generateContent` as a stream, <https://ai.google.dev/api/generate-content>.

mod calls;
mod contents;
mod decode;
mod encode;
mod finish;
#[cfg(feature = "http")]
mod http;
mod model;
mod partial_args;
mod wire;

pub use decode::Decoder;
pub use encode::encode;

#[cfg(feature = "http")]
pub use http::{Gemini, GenerateContent};

/// The name of this wire in provider data.
const NAME: &str = "gemini";
