//! The Responses wire of OpenAI,
//! <https://platform.openai.com/docs/api-reference/responses-streaming>.
//!
//! Hosted tools are declared in [`extra`](crate::request::Options::extra). Their output, and every
//! other item that is not text, reasoning or a function call, is stored unchanged as a
//! provider-specific item and sent back to the model that wrote it. For items that the client must
//! answer, such as `custom_tool_call` or `local_shell_call`, add a provider-specific item with the
//! answer to the history.

mod decode;
mod encode;
mod passthrough;
#[cfg(feature = "testing")]
pub(crate) mod server;
#[cfg(feature = "http")]
mod wire;

pub use decode::Decoder;
pub use encode::encode;
#[cfg(feature = "http")]
pub use wire::{OpenAiResponses, Responses};
