//! OpenAI's Responses API, <https://platform.openai.com/docs/api-reference/responses-streaming>.
//!
//! Hosted tools are declared as [server tools](crate::request::Options::server_tools). The output
//! of hosted tools is stored unchanged as provider-specific items and sent back to the model that
//! wrote it. Every other item that is not text, reasoning or a call is also stored unchanged and
//! sent back to the model that wrote it.
//!
//! The client must answer some items. The calls of declared [client
//! tools](crate::request::ClientTool), such as `shell_call` and `mcp_approval_request`, are tool
//! calls, and their results are sent in the items that the API expects. Other items, such as
//! `custom_tool_call` or `local_shell_call`, or calls of tools that are not declared, are
//! provider-specific items. To answer one of these items, append a provider-specific item with the
//! answer to the history. An item that has no answer is not sent back, because the API rejects it.
//! An [`Agent`](crate::Agent) cannot answer these items: its run ends with an
//! [`Unsupported`](crate::ErrorKind::Unsupported) error.

mod client_calls;
mod client_tool_call;
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
