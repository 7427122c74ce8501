//! Tools that OpenAI defines and the client runs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::item::{Content, History, ItemKind, ToolResult};

/// A tool that OpenAI defines and the client runs: the model was trained to use it, and a program
/// runs its calls.
///
/// [`spec`](Self::spec) returns the tool's name, description and schema. On the Responses wire, the
/// tool is declared under its own type, and its calls and their results are sent as the items of
/// this type. On every other wire, and for the calls of another model, it is an ordinary function
/// with the same name and schema, except for `McpApproval`, which is declared on no wire. So the
/// tool is run, approved, left [external](crate::Tool::external) and stored like any other tool. It
/// cannot be [deferred](crate::request::ToolSpec::deferred) or
/// [strict](crate::request::ToolSpec::strict).
///
/// | tool | name | item of a call | item of its result |
/// |---|---|---|---|
/// | `Shell` | `shell` | `shell_call` | `shell_call_output` |
/// | `ApplyPatch` | `apply_patch` | `apply_patch_call` | `apply_patch_call_output` |
/// | `Computer` | `computer` | `computer_call` | `computer_call_output` |
/// | `McpApproval` | `mcp_approval_` and the server's name | `mcp_approval_request` | `mcp_approval_response` |
///
/// Sources: <https://developers.openai.com/api/docs/guides/tools-shell>,
/// <https://developers.openai.com/api/docs/guides/tools-apply-patch>,
/// <https://developers.openai.com/api/docs/guides/tools-computer-use>,
/// <https://developers.openai.com/api/docs/guides/tools-connectors-mcp#approvals>.
///
/// ```
/// use turnstream::request::ClientTool;
/// use turnstream::tool::Tool;
///
/// // The program answers these calls when it resumes the run.
/// let screen = Tool::external(ClientTool::Computer.spec())?;
/// let shell = Tool::raw(ClientTool::Shell.spec(), |args, _cx| async move {
///     format!("would run {}", args["commands"])
/// })?;
/// assert_eq!((screen.name(), shell.name()), ("computer", "shell"));
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClientTool {
    /// Runs shell commands. The arguments are `commands`, a list of strings, and the optional
    /// numbers `timeout_ms` and `max_output_length`, in milliseconds and characters.
    ///
    /// The result is either plain text, which becomes the output of a command that exited with the
    /// code 0, or 1 if the call failed, or JSON: a list with an object for each command, such as
    /// `[{"stdout":"a\n","stderr":"","outcome":{"type":"exit","exit_code":0}}]`. The outcome of a
    /// command that took too long is `{"type":"timeout"}`. A call whose result is the beginning of
    /// such a list, or contains an image or a file, is sent as the call of a function.
    Shell,
    /// Creates, changes or deletes a file. The arguments are the `type` of the operation, which is
    /// `create_file`, `update_file` or `delete_file`, the `path`, and for the first two a `diff`
    /// in the format of OpenAI's guide.
    ///
    /// The result is a text for the model. The patch has failed if the result is an error. A call
    /// whose result contains an image or a file is sent as the call of a function.
    ApplyPatch,
    /// Controls a computer. The arguments are `actions`, a list of objects with a `type` such as
    /// `click`, `type` or `screenshot`, and `pending_safety_checks` if OpenAI considers the actions
    /// risky.
    ///
    /// The result is an image: the screen after the actions. Only the first image is sent, without
    /// the text beside it. A result with an image acknowledges the pending safety checks, so let a
    /// person decide about such a call first, for example with
    /// [`Tool::requires_approval`](crate::Tool::requires_approval). A call whose result has no
    /// image, such as a denied call, is sent as the call of a function. So is a failed call with
    /// pending safety checks.
    Computer,
    /// Approves calls to an MCP server whose calls [need an
    /// approval](crate::request::McpServer::require_approval). The model does not see this tool:
    /// OpenAI calls it when the model calls the server. The arguments are the `name` of the
    /// server's tool and its `arguments`.
    ///
    /// The result `approved` approves the call, and any other result denies it, with its text as
    /// the reason. [`Tool::mcp_approval`](crate::Tool::mcp_approval) creates a tool that asks for
    /// an approval and then returns this result.
    McpApproval {
        /// The [name](crate::request::McpServer::name) of the server.
        server: String,
    },
}

impl ClientTool {
    /// The result with which a call of an MCP server is approved.
    pub(crate) const APPROVED: &str = "approved";

    /// Returns whether a tool with this name approves the calls of an MCP server.
    pub(crate) fn is_approval_name(name: &str) -> bool {
        name.starts_with("mcp_approval_")
    }

    /// Returns whether a result approves the call of an MCP server, if it is a result of the tool
    /// that approves such calls.
    pub(crate) fn is_approved(result: &ToolResult) -> bool {
        !result.is_error()
            && match &result.content {
                Content::Text(text) => text == Self::APPROVED,
                parts @ Content::Parts(_) => parts.text() == Self::APPROVED,
            }
    }

    /// Returns whether a history ends with the approval of a call of an MCP server, before any
    /// output of the model. The provider that receives the history runs this call.
    pub(crate) fn has_new_approval(history: &History) -> bool {
        let is_approval =
            |result: &ToolResult| Self::is_approval_name(&result.name) && Self::is_approved(result);
        for item in history.newest_first().filter(|item| !item.tombstone) {
            match &item.kind {
                ItemKind::ToolResult(result) if is_approval(result) => return true,
                ItemKind::ToolResult(_) | ItemKind::User { .. } | ItemKind::System { .. } => {}
                ItemKind::Text { .. }
                | ItemKind::Reasoning { .. }
                | ItemKind::ToolCall(_)
                | ItemKind::Other => return false,
            }
        }
        false
    }

    /// Returns the tool's name.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Shell => "shell".to_owned(),
            Self::ApplyPatch => "apply_patch".to_owned(),
            Self::Computer => "computer".to_owned(),
            Self::McpApproval { server } => format!("mcp_approval_{server}"),
        }
    }

    /// Returns the description for models of other vendors.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Shell => "Runs shell commands".to_owned(),
            Self::ApplyPatch => {
                "Creates, changes or deletes a file. `diff` contains the lines of a \
                                 new file after `+`, or the changes of a unified diff"
                    .to_owned()
            }
            Self::Computer => "Controls a computer, and returns a picture of the screen".to_owned(),
            Self::McpApproval { server } => format!("Approves a call to the MCP server `{server}`"),
        }
    }

    /// Returns the JSON Schema of the arguments.
    pub(super) fn parameters(&self) -> Value {
        let text = || json!({ "type": "string" });
        let integer = || json!({ "type": "integer" });
        let object = |required: &[&str], properties: Value| json!({ "type": "object", "properties": properties, "required": required });
        let list = |items: Value| json!({ "type": "array", "items": items });
        match self {
            Self::Shell => object(
                &["commands"],
                json!({
                    "commands": list(text()),
                    "timeout_ms": integer(),
                    "max_output_length": integer(),
                }),
            ),
            Self::ApplyPatch => {
                let kinds = ["create_file", "update_file", "delete_file"];
                object(
                    &["type", "path"],
                    json!({
                        "type": { "type": "string", "enum": kinds },
                        "path": text(),
                        "diff": text(),
                    }),
                )
            }
            Self::Computer => {
                let point = object(&["x", "y"], json!({ "x": integer(), "y": integer() }));
                let action = json!({
                    "type": {
                        "type": "string",
                        "description": "click, double_click, drag, keypress, move, screenshot, \
                                        scroll, type or wait",
                    },
                    "x": integer(),
                    "y": integer(),
                    "button": text(),
                    "keys": list(text()),
                    "text": text(),
                    "scroll_x": integer(),
                    "scroll_y": integer(),
                    "path": list(point),
                });
                let check = json!({ "id": text(), "code": text(), "message": text() });
                object(
                    &["actions"],
                    json!({
                        "actions": list(object(&["type"], action)),
                        "pending_safety_checks": list(object(&["id"], check)),
                    }),
                )
            }
            Self::McpApproval { .. } => object(
                &["name"],
                json!({ "name": text(), "arguments": { "description": "The call's arguments" } }),
            ),
        }
    }
}
