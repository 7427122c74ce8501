//! Supports AG-UI 1.0, a protocol between agents and front ends.
//!
//! [`RunRequest`] parses the `RunAgentInput` that a client posts, and [`AgUi`] sends the run's
//! events to the client. The protocol is described at <https://docs.ag-ui.com>, and its schema is
//! at
//! <https://ag-ui.com/spec/1.0/schema.json>.
//!
//! | in the run | events |
//! |---|---|
//! | a turn | a step `turn-{n}`, and one assistant message with all the turn's text and calls |
//! | reasoning | a separate message with an id derived from the turn's message id |
//! | a call and its result | `TOOL_CALL_*`; a failed result's `metadata` contains `kind`, the kind of failure |
//! | a tool's progress | an activity `tool_progress` |
//! | a sub-agent | `SUBAGENT_*`; its events contain `subagentRunId`, and its call ids start with its parents' |
//! | a retracted turn, a rewritten history | answers to the removed calls, then `MESSAGES_SNAPSHOT` |
//! | steering input | a user message |
//! | a request that is sent again | `CUSTOM` `retrying` |
//! | a value that the model writes, with [`AgUi::with_partials`] | `STATE_SNAPSHOT` and `STATE_DELTA`, in the member `partials` |
//! | a call that needs approval | `CUSTOM` `approval_requested`, and an interrupt if the run ends while waiting |
//! | calls to the client's tools | no outcome, or interrupts `tool_output` if there are also approvals |
//! | an interrupted or stopped run | `cancelled` |
//! | a run that failed | `RUN_ERROR`, whose `code` is the kind of the error |
//! | any other end of a run | `success`, with the reason in `result` |
//!
//! Encrypted reasoning, the run's input, and items that hooks added are not sent.
//!
//! When a user reopens a page, load the session's messages with [`AgUi::load_messages`]. If the
//! session keeps the [histories of sub-agents](crate::session::Session::with_sub_agent_histories),
//! the messages of sub-agents are among them, with a `subagentRunId` that begins with the session's
//! id.

mod content;
mod encode;
mod event;
mod lane;
mod request;
mod settings;
mod stored;
mod tombstones;

pub use request::{ClientAction, Context, RunRequest};
pub use settings::AgUi;

use crate::ui::request::RequestError;
use crate::ui::response::Response;

/// Creates the response to a rejected request: a status, and a body that contains `code` and
/// `message`.
pub fn refuse(error: &RequestError) -> Response<String> {
    let body = serde_json::json!({ "code": error.status(), "message": error.to_string() });
    Response::of_text(error.status(), "application/json", body.to_string())
}

#[cfg(test)]
mod tests;
