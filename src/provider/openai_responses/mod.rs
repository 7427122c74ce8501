//! OpenAI's Responses API, <https://platform.openai.com/docs/api-reference/responses-streaming>.
//!
//! Hosted tools are declared in [`extra`](crate::request::Options::extra). The output of hosted
//! tools is stored unchanged as provider-specific items and sent back to the model that wrote it.
//! Every other item that is not text, reasoning or a function call is also stored unchanged and
//! sent back to the model that wrote it. The client must answer some items, such as
//! `custom_tool_call` or `local_shell_call`. To answer one of these items, append a
//! provider-specific item with the answer to the history.

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
