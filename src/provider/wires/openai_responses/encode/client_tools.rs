//! Encodes the tools that OpenAI defines and the client runs, their calls and their results.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::blocks::file_id;
use crate::item::{
    Content, Media, Part, ProviderData, ResultKind, ToolCall, ToolResult, from_bounded_json,
};
use crate::provider::codec::file_ids::FileIdVendor;
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::codec::portable_values::{
    MAX_LONG_ID_BYTES, ServerKind, has_media, result_text, wire_id,
};
use crate::provider::wires::openai_responses::client_tool_call::{CallKind, ClientToolCall};
use crate::provider::wires::openai_responses::passthrough::PassthroughItem;
use crate::request::{ClientTool, ToolNames, ToolSpec};

/// Returns the declaration of a client tool, or `None` for a tool that is not declared.
pub(super) fn declaration(tool: &ClientTool) -> Option<Value> {
    match tool {
        ClientTool::Shell => Some(json!({ "type": "shell", "environment": { "type": "local" } })),
        ClientTool::ApplyPatch => Some(json!({ "type": "apply_patch" })),
        ClientTool::Computer => Some(json!({ "type": "computer" })),
        ClientTool::McpApproval { .. } => None,
    }
}

/// Returns how a choice refers to a tool.
pub(super) fn tool_reference(name: &str, specs: &[ToolSpec], names: &ToolNames) -> Value {
    let spec = specs.iter().find(|spec| spec.name == name);
    match spec.and_then(|spec| spec.client_tool.as_ref()) {
        Some(ClientTool::Shell) => json!({ "type": "shell" }),
        Some(ClientTool::ApplyPatch) => json!({ "type": "apply_patch" }),
        Some(ClientTool::Computer) => json!({ "type": "computer" }),
        Some(ClientTool::McpApproval { server }) => {
            json!({ "type": "mcp", "server_label": server })
        }
        None => json!({ "type": "function", "name": names.sent_name(name) }),
    }
}

/// A call that is sent as an item of its own type, and not as the call of a function.
pub(super) struct ItemOfCall<'a> {
    /// The item, if it follows the reasoning to which it is linked.
    pub(super) stored: PassthroughItem<'a>,
    pub(super) open_call: OpenClientCall,
}

/// A call that was sent as an item of its own type, and whose answer has not been sent.
#[derive(Clone, Debug)]
pub(super) struct OpenClientCall {
    /// The id of the call in the history.
    call_id: String,
    /// The id to which the answer refers.
    sent_id: String,
    answer: AnswerKind,
}

#[derive(Clone, Debug)]
enum AnswerKind {
    Shell { max_output_length: Option<u64>, caller: Option<Box<RawValue>> },
    ApplyPatch { caller: Option<Box<RawValue>> },
    Computer { safety_checks: Vec<Box<RawValue>> },
    McpApproval,
}

impl<'a> ItemOfCall<'a> {
    /// Reads the item from a call's provider data. `result` returns the call's result, if it is
    /// known.
    /// Returns `None` for the call of a function, for a call whose arguments have changed, and for
    /// a call whose result the answer's item cannot contain.
    pub(super) fn read(
        data: &'a ProviderData,
        call: &ToolCall,
        result: impl FnOnce() -> Option<&'a ToolResult>,
        server: ServerKind,
        issued_id: Option<&str>,
    ) -> Option<Self> {
        if !ClientToolCall::may_be_in(data.value.as_str()) {
            return None;
        }
        let json = PassthroughItem::client_call_json(data)?;
        let wire_call = ClientToolCall::parse(json.get())?;
        let caller = wire_call.caller().map(ToOwned::to_owned);
        let answer = match wire_call.kind() {
            CallKind::Shell => {
                AnswerKind::Shell { max_output_length: wire_call.max_output_length(), caller }
            }
            CallKind::ApplyPatch => AnswerKind::ApplyPatch { caller },
            // The id of the item, which the API requires, is not renamed with the call. The id of
            // the request for an approval identifies it at the server.
            CallKind::Computer | CallKind::McpApproval if wire_call.id() != call.call_id => {
                return None;
            }
            CallKind::Computer => {
                let checks = wire_call.safety_checks().into_iter();
                AnswerKind::Computer { safety_checks: checks.map(ToOwned::to_owned).collect() }
            }
            CallKind::McpApproval if call.call_id.is_empty() => return None,
            CallKind::McpApproval => AnswerKind::McpApproval,
        };
        if !answer.can_contain(result(), server) || !wire_call.has_arguments(&call.arguments) {
            return None;
        }
        // A call that was renamed keeps its new id, because the ids in a request must differ.
        let is_issued = issued_id.is_some_and(|issued| issued == call.call_id);
        let sent_id = match answer {
            AnswerKind::McpApproval => call.call_id.clone(),
            _ if is_issued => call.call_id.clone(),
            _ => wire_id(&call.call_id, MAX_LONG_ID_BYTES).into_owned(),
        };
        let open_call = OpenClientCall { call_id: call.call_id.clone(), sent_id, answer };
        Some(Self { stored: PassthroughItem::from_provider_data(data)?, open_call })
    }

    /// Returns whether the item can be sent. `is_linked` states whether the reasoning to which it
    /// is linked precedes it. The API requires the id of a computer's call and of a request for an
    /// approval, and rejects an id without the linked reasoning.
    pub(super) fn can_be_sent(&self, is_linked: bool) -> bool {
        match self.open_call.answer {
            AnswerKind::Shell { .. } | AnswerKind::ApplyPatch { .. } => true,
            AnswerKind::Computer { .. } | AnswerKind::McpApproval => {
                is_linked && self.stored.has_field("id")
            }
        }
    }

    /// Returns whether the item is a request for the approval of a call to an MCP server.
    pub(super) fn is_approval(&self) -> bool {
        matches!(self.open_call.answer, AnswerKind::McpApproval)
    }

    /// Returns the id of the call in the history.
    pub(super) fn call_id(&self) -> &str {
        &self.open_call.call_id
    }

    /// Returns the item. If the reasoning to which the item is linked does not precede it, the item
    /// is sent without its id.
    pub(super) fn into_item(self, is_linked: bool) -> Option<(OrderedFields<'a>, OpenClientCall)> {
        let Self { stored, open_call } = self;
        let mut item = stored.into_item();
        if matches!(open_call.answer, AnswerKind::Computer { .. }) {
            // The API requires both fields.
            if item.get("status").is_none() {
                item.set("status", to_raw_value("completed").ok()?);
            }
            if item.get("pending_safety_checks").is_none() {
                item.set("pending_safety_checks", to_raw_value(&[(); 0]).ok()?);
            }
        }
        if !matches!(open_call.answer, AnswerKind::McpApproval) {
            item.set("call_id", to_raw_value(&open_call.sent_id).ok()?);
            if !is_linked {
                item = item.without(&["id"]);
            }
        }
        Some((item, open_call))
    }
}

impl AnswerKind {
    /// Returns whether the answer's item can contain a result.
    fn can_contain(&self, result: Option<&ToolResult>, server: ServerKind) -> bool {
        match (self, result) {
            (Self::Shell { .. }, Some(result)) => {
                !has_media(&result.content) && !is_cut_off_list(result)
            }
            (Self::ApplyPatch { .. }, Some(result)) => !has_media(&result.content),
            // The API accepts no other result than a screenshot, and the screenshot acknowledges
            // the safety checks.
            (Self::Computer { safety_checks }, Some(result)) => {
                let is_acknowledged = safety_checks.is_empty() || !result.is_error();
                is_acknowledged && screenshot(&result.content, server).is_some()
            }
            (Self::Computer { .. }, None) => false,
            (Self::McpApproval, _) | (Self::Shell { .. } | Self::ApplyPatch { .. }, None) => true,
        }
    }
}

/// The answer to a call, with its `type` as the first field.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnswerItem<'a> {
    ShellCallOutput {
        call_id: &'a str,
        output: Vec<CommandOutput<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_output_length: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<&'a RawValue>,
    },
    ApplyPatchCallOutput {
        call_id: &'a str,
        status: &'static str,
        #[serde(skip_serializing_if = "str::is_empty")]
        output: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<&'a RawValue>,
    },
    ComputerCallOutput {
        call_id: &'a str,
        output: Screenshot<'a>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        acknowledged_safety_checks: &'a [Box<RawValue>],
    },
    McpApprovalResponse {
        approval_request_id: &'a str,
        approve: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Cow<'a, str>>,
    },
}

/// The output of a command.
#[derive(Serialize, Deserialize)]
pub(super) struct CommandOutput<'a> {
    stdout: Cow<'a, str>,
    stderr: Cow<'a, str>,
    outcome: CommandOutcome,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CommandOutcome {
    Exit { exit_code: i64 },
    Timeout,
}

/// The screen of a computer.
#[derive(Serialize)]
pub(super) struct Screenshot<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_url: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<&'a str>,
}

impl OpenClientCall {
    pub(super) fn is_answered_by(&self, result: &ToolResult) -> bool {
        self.call_id == result.call_id
    }

    /// Returns the answer that contains a result.
    pub(super) fn answer<'a>(
        &'a self,
        result: &'a ToolResult,
        server: ServerKind,
    ) -> AnswerItem<'a> {
        let call_id = self.sent_id.as_str();
        match &self.answer {
            AnswerKind::Shell { max_output_length, caller } => AnswerItem::ShellCallOutput {
                call_id,
                output: command_outputs(result),
                max_output_length: *max_output_length,
                caller: caller.as_deref(),
            },
            AnswerKind::ApplyPatch { caller } => AnswerItem::ApplyPatchCallOutput {
                call_id,
                status: if result.is_error() { "failed" } else { "completed" },
                output: result_text(result),
                caller: caller.as_deref(),
            },
            AnswerKind::Computer { safety_checks } => AnswerItem::ComputerCallOutput {
                call_id,
                output: Screenshot::of(result, server),
                acknowledged_safety_checks: safety_checks,
            },
            AnswerKind::McpApproval => {
                let approve = ClientTool::is_approved(result);
                let reason = (!approve).then(|| result_text(result));
                AnswerItem::McpApprovalResponse { approval_request_id: call_id, approve, reason }
            }
        }
    }
}

/// Returns the output of each command. A result that is not JSON of this form is the output of a
/// single command.
fn command_outputs(result: &ToolResult) -> Vec<CommandOutput<'_>> {
    let text = result_text(result);
    if let Ok(outputs) = from_bounded_json::<Vec<CommandOutput<'_>>>(&text)
        && !outputs.is_empty()
    {
        let own = |output: CommandOutput<'_>| CommandOutput {
            stdout: Cow::Owned(output.stdout.into_owned()),
            stderr: Cow::Owned(output.stderr.into_owned()),
            outcome: output.outcome,
        };
        return outputs.into_iter().map(own).collect();
    }
    let outcome = match result.kind {
        ResultKind::Timeout => CommandOutcome::Timeout,
        _ => CommandOutcome::Exit { exit_code: i64::from(result.is_error()) },
    };
    let (stdout, stderr) =
        if result.is_error() { (Cow::Borrowed(""), text) } else { (text, Cow::Borrowed("")) };
    vec![CommandOutput { stdout, stderr, outcome }]
}

/// Returns whether a result is the beginning of a list of outputs, whose exit codes are unknown.
fn is_cut_off_list(result: &ToolResult) -> bool {
    let text = result_text(result);
    let is_list = text.trim_start().starts_with("[{") && text.contains("\"stdout\"");
    is_list && from_bounded_json::<&RawValue>(text.trim()).is_err()
}

impl<'a> Screenshot<'a> {
    fn of(result: &'a ToolResult, server: ServerKind) -> Self {
        let image = screenshot(&result.content, server);
        Self {
            r#type: "computer_screenshot",
            image_url: image.and_then(Media::to_url),
            file_id: image.and_then(file_id),
        }
    }
}

/// Returns the first image in a result that the server accepts.
fn screenshot(content: &Content, server: ServerKind) -> Option<&Media> {
    let is_accepted = |media: &Media| match server {
        ServerKind::Vendor => FileIdVendor::OpenAi.ensure_own(media).is_ok(),
        ServerKind::Compatible => true,
    };
    match content {
        Content::Text(_) => None,
        Content::Parts(parts) => parts.iter().find_map(|part| match part {
            Part::Image(media) => Some(media).filter(|media| is_accepted(media)),
            Part::Text { .. } | Part::File(_) => None,
        }),
    }
}
