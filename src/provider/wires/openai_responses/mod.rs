//! OpenAI's Responses API, <https://platform.openai.com/docs/api-reference/responses-streaming>.
//!
//! Hosted tools are declared in [`extra`](crate::request::Options::extra). The output of hosted
//! tools is stored unchanged as provider-specific items and sent back to the model that wrote it.
//! Every other item that is not text, reasoning or a function call is also stored unchanged and
//! sent back to the model that wrote it. The client must answer some items, such as
//! `custom_tool_call` or `local_shell_call`. To answer one of these items, append a
//! provider-specific item with the answer to the history. An item that has no answer is not sent
//! back, because the API rejects it. An [`Agent`](crate::Agent) cannot answer these items: its run
//! ends with an [`Unsupported`](crate::ErrorKind::Unsupported) error.

mod client_calls;
mod decode;
mod encode;
mod passthrough;
pub(crate) mod server;
#[cfg(feature = "http")]
mod wire;

pub(in crate::provider) use client_calls::unanswered_client_call;
pub use decode::Decoder;
pub use encode::encode;
pub(in crate::provider) use passthrough::is_metadata;
#[cfg(feature = "http")]
pub use wire::{OpenAiResponses, Responses};
