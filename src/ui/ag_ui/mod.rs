//! AG-UI 1.0, the protocol between agents and front ends.
//!
//! [`RunRequest`] reads the `RunAgentInput` that a client posts, and [`AgUi`] sends the run as events. The
//! protocol is described at <https://docs.ag-ui.com>, its schema is <https://ag-ui.com/spec/1.0/schema.json>.
//!
//! | the run | its events |
//! |---|---|
//! | a turn | a step `turn-{n}`, and one message of the assistant with all its words and calls |
//! | reasoning | a message of its own, named after that of the turn |
//! | a call and its result | `TOOL_CALL_*`; how a result failed is in its `metadata`, as `kind` |
//! | how far a tool is | an activity `tool_progress` |
//! | a sub-agent | `SUBAGENT_*`; its events have `subagentRunId`, and the ids of its calls begin with those of its parents |
//! | a turn that was taken back, a history that was rewritten | its calls are answered, then `MESSAGES_SNAPSHOT` |
//! | what was steered in | a message of the user |
//! | a request that is sent again | `CUSTOM` `retrying` |
//! | a call that needs an approval | `CUSTOM` `approval_requested`, and an interrupt if the run ends with it |
//! | calls of the client's tools | `pendingToolCallIds`, or interrupts `tool_output` beside approvals |
//! | an interrupted or stopped run | `cancelled` |
//! | a run that failed | `RUN_ERROR`, whose `code` is the kind of the error |
//! | every other end | `success`, with the reason in its `result` |
//!
//! Not sent are reasoning that is encrypted, the input, and items that hooks add.

mod encode;
mod event;
mod lane;
mod request;
mod settings;

pub use request::{Action, Context, RunRequest};
pub use settings::AgUi;

use crate::ui::request::RequestError;
use crate::ui::response::Response;

/// The response to a request that is refused: its status, and a body with `code` and `message`.
pub fn refuse(error: &RequestError) -> Response<String> {
    let body = serde_json::json!({ "code": error.status(), "message": error.to_string() });
    Response::of_text(error.status(), "application/json", body.to_string())
}

#[cfg(test)]
mod tests;
