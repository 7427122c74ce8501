//! The Anthropic Messages API, <https://docs.anthropic.com/en/api/messages-streaming>.

mod decode;
mod dialect;
mod encode;
mod passthrough;
pub(crate) mod server;
#[cfg(feature = "http")]
mod wire;

pub use decode::{Decoder, InputTransformation, input_transformations};
pub use dialect::Dialect;
pub use encode::encode;
pub(in crate::provider) use passthrough::is_metadata;
#[cfg(feature = "http")]
pub use wire::{Anthropic, Messages};
