//! Supports the AI SDK's UI message stream, which `useChat` reads.
//!
//! [`AiSdk`] sends a run as one assistant message, and [`ChatRequest`] parses requests from
//! `DefaultChatTransport`. The chunks match versions 5, 6 and 7 of the `ai` package; see
//! [`Version`]. The format is described at
//! <https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol>.
//!
//! ```
//! use turnstream::Agent;
//! use turnstream::provider::Scripted;
//! use turnstream::session::{MemoryStore, Session};
//! use turnstream::ui::ai_sdk::{ClientAction, AiSdk, ChatRequest, Version};
//! use turnstream::ui::{ClientLimits, RequestError};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), RequestError> {
//!     let body = br#"{"id":"chat-1","trigger":"submit-message","messages":[
//!         {"id":"u1","role":"user","parts":[{"type":"text","text":"Hi"}]}]}"#;
//!     let agent = Agent::new(Scripted::new(["Hello!"]));
//!     let store = MemoryStore::new();
//!
//!     let request = ChatRequest::parse(Some("application/json"), body, &ClientLimits::default())?;
//!     // The client chose the id: check here that the user may access this chat.
//!     let session = Session::open(store, &request.chat_id).await?;
//!     let response = match request.action(&session, &agent)? {
//!         ClientAction::Run(input) => {
//!             let run = session.run(&agent, input).await?;
//!             AiSdk::new(Version::V6).with_session(&session).respond(run)
//!         }
//!         ClientAction::Resume { message_id, verdicts } => {
//!             let run = session.resume(&agent, verdicts).await?;
//!             AiSdk::new(Version::V6).continue_message(message_id).respond(run)
//!         }
//!         _ => return Err(RequestError::new(400, "answers are not regenerated here")),
//!     };
//!     assert_eq!(response.status, 200);
//!     Ok(())
//! }
//! ```
//!
//! In addition to the model's text and calls, the message contains these parts:
//!
//! | part | content |
//! |---|---|
//! | metadata | `model` at the start; at the end `reason`, `why`, `turns`, and `usage` and `cost`, including sub-agents |
//! | `source-url` | a page that the turn [cites](crate::provider::citations), after the turn |
//! | `data-progress` | a tool's progress; the part's id is the call's id |
//! | `data-agent` | a sub-agent's turn, latest text and calls; the id is the call's id, preceded by its parents' |
//! | `data-partial` | with [`AiSdk::with_partials`]: a value that the model writes; one id for each value |
//! | `data-approval` | an approval request, for sub-agents' calls and for version 5 clients |
//! | `data-retracted` | states that the previous step was retracted; not for version 7 |
//! | `data-steer` | steering input; not for version 7 |
//! | `data-retry`, `data-compacted` | a request is sent again, or the history was compacted; not part of the message |
//!
//! Encrypted reasoning, the text deltas of sub-agents, items that hooks added, and tool results
//! that are meant only for the model are not sent.
//!
//! The stream cannot remove parts that it has sent. If items become tombstones while a page shows
//! them, the page receives `data-compacted` with `"why": "tombstoned"` instead of `"compacted"`,
//! and keeps their parts until it loads the messages again: [`AiSdk::load_messages`] leaves
//! tombstones out.
//!
//! If a sub-agent's call needs approval, it is sent as `data-approval`, and approval is requested
//! on the tool call that started the sub-agent. The answer applies to all of the sub-agent's calls
//! for which approval was requested then. If the sub-agent makes another call, approval is
//! requested again, and the earlier answer does not apply.
//!
//! Version 5 clients, which do not support approvals, receive `data-approval` instead of an
//! approval request. The app posts the answer in this form:
//! `{"id": …, "messageId": …, "approvals": [{"id": …, "approved": true}]}`. [`ChatRequest`] accepts
//! `approvals` from clients of any version. With `approvals`, an app can answer each of a
//! sub-agent's calls separately. An entry with the [terms](crate::item::GrantTerms) of a grant, as
//! in `"always": {"scope": "any_arguments", "duration": "session"}`, also approves further calls.
//!
//! When a user reopens a page, load the session's messages with [`AiSdk::load_messages`]. If the
//! client sends a `GET` request to resume a stream, respond with [`AiSdk::respond_to_resume`].

mod approval_group;
mod chunk;
mod encode;
mod request;
mod settings;
mod stored;
mod version;

pub use request::{ChatRequest, ClientAction};
pub use settings::AiSdk;
pub use version::Version;

use crate::ui::request::RequestError;
use crate::ui::response::Response;

/// Creates the response to a rejected request. Clients display the response's body.
pub fn refuse(error: &RequestError) -> Response<String> {
    Response::of_text(error.status(), "text/plain; charset=utf-8", error.to_string())
}

#[cfg(test)]
mod tests;
