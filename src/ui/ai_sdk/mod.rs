//! Supports the AI SDK's UI message stream, which `useChat` reads.
//!
//! [`AiSdk`] sends a run as one assistant message, and [`ChatRequest`] parses requests from `DefaultChatTransport`. The
//! chunks match versions 5, 6 and 7 of the package `ai`; see [`Version`]. The format is described at
//! <https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol>.
//!
//! In addition to the model's text and calls, the message contains these parts:
//!
//! | part | content |
//! |---|---|
//! | metadata | `model` at the start; at the end `reason`, `why`, `turns` and `usage`, including sub-agents |
//! | `data-progress` | a tool's progress; the part's id is the call's id |
//! | `data-agent` | a sub-agent's turn, latest text and calls; the part's id is the call's id, after its parents' |
//! | `data-approval` | a request for approval, for a sub-agent's call and for clients of version 5 |
//! | `data-retracted` | states that the previous step was retracted; not for version 7 |
//! | `data-steer` | steering input; not for version 7 |
//! | `data-retry`, `data-compacted` | a request is sent again, or the history was compacted; not part of the message |
//!
//! The following are not sent: encrypted reasoning, the text deltas of sub-agents, items that hooks add, and tool
//! results that are meant only for the model.
//!
//! If a sub-agent's call needs an approval, the call is sent as `data-approval`, and the approval is requested on the
//! call that the sub-agent runs as. The answer applies to all waiting calls from that sub-agent.
//!
//! Version 5 of the client does not support approvals. A version 5 client receives `data-approval`, and the app posts
//! the answer as `{"id": …, "messageId": …, "approvals": [{"id": …, "approved": true}]}`. [`ChatRequest`] accepts this
//! form from clients of any version. With this form, each call from a sub-agent can be answered separately.
//!
//! When a user reopens a page, use [`AiSdk::load_messages`] to load the session's messages. If the client sends a `GET`
//! request to resume a stream, answer the request with [`AiSdk::respond_to_resume`].

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

/// Creates the response for a rejected request. Clients display the response's body.
pub fn refuse(error: &RequestError) -> Response<String> {
    Response::of_text(error.status(), "text/plain; charset=utf-8", error.to_string())
}

#[cfg(test)]
mod tests;
