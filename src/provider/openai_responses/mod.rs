//! OpenAI's Responses, <https://platform.openai.com/docs/api-reference/responses-streaming>.
//!
//! Hosted tools are declared by [`extra`](crate::request::Options::extra). What they give, and
//! everything else that is not text, reasoning or a function call, is kept whole as the provider's
//! own item and sent back to the model that wrote it. Those of them that wait for an answer of the
//! client, for example `custom_tool_call` or `local_shell_call`, are answered by a provider's own
//! item that holds the answer.

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
