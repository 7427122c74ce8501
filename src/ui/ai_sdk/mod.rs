//! The AI SDK's UI message stream, which `useChat` reads.
//!
//! [`AiSdk`] sends a run as one message of the assistant, and [`ChatRequest`] reads what
//! `DefaultChatTransport` posts. The chunks are those of `ai` 5, 6 and 7; see [`Version`]. The format is
//! described at <https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol>.
//!
//! Besides the words and calls of the model, the message has:
//!
//! | part | what it has |
//! |---|---|
//! | metadata | `model` at the start; at the end `reason`, `why`, `turns` and `usage`, with that of sub-agents |
//! | `data-progress` | how far a tool is; its id is that of the call |
//! | `data-agent` | a sub-agent: its turn, its last words, its calls; its id is that of the call, with those of its parents before it |
//! | `data-approval` | what is to be approved, for a call of a sub-agent and for clients of version 5 |
//! | `data-retracted` | the step before was taken back; not for version 7 |
//! | `data-steer` | what was steered in; not for version 7 |
//! | `data-retry`, `data-compacted` | that a request is sent again, or the history was shortened; no part of the message |
//!
//! Not sent are reasoning that is encrypted, the words of a sub-agent as they come, items that hooks add,
//! and the results of tools that only the model is to see.
//!
//! A call of a sub-agent that needs an approval is sent as `data-approval`, and asked for on the call that the
//! sub-agent runs as. The answer holds for all calls of that sub-agent that wait.
//!
//! A client of version 5 has no approvals. It gets `data-approval`, and its app posts the answer as
//! `{"id": …, "messageId": …, "approvals": [{"id": …, "approved": true}]}`. [`ChatRequest`] reads that from
//! clients of any version, and with it each call of a sub-agent can have an answer of its own.
//!
//! A page that is opened again begins with the [messages](AiSdk::load_messages) of the session. The `GET` with
//! which a client wants to resume a stream is answered by [`AiSdk::respond_to_resume`].

mod chunk;
mod encode;
mod request;
mod settings;
mod stored;
mod version;

pub use request::{Action, ChatRequest};
pub use settings::AiSdk;
pub use version::Version;

use crate::ui::request::RequestError;
use crate::ui::response::Response;

/// The response to a request that is refused. Clients show its body.
pub fn refuse(error: &RequestError) -> Response<String> {
    Response::of_text(error.status(), "text/plain; charset=utf-8", error.to_string())
}

#[cfg(test)]
mod tests;
