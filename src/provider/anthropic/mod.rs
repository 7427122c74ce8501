//! Anthropic Messages, <https://docs.anthropic.com/en/api/messages-streaming>.

mod decode;
mod encode;
#[cfg(feature = "http")]
mod http;
mod transformations;
mod wire;

pub use decode::Decoder;
pub use encode::encode;
pub use transformations::{InputTransformation, input_transformations};

#[cfg(feature = "http")]
pub use http::{Anthropic, Messages};

/// The name of this wire in provider data.
const NAME: &str = "anthropic";
