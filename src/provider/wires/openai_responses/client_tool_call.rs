//! Calls of the tools that OpenAI defines and the client runs, as output items.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::item::from_bounded_json;
use crate::provider::codec::lenient::{LenientStr, non_null};
use crate::request::{ClientTool, ToolSpec, ToolSpecs};

/// An output item that is a call of a client tool,
/// <https://platform.openai.com/docs/api-reference/responses/object>.
pub(super) struct ClientToolCall<'a> {
    kind: CallKind,
    item: CallItem<'a>,
}

/// The tool that a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Shell,
    ApplyPatch,
    Computer,
    McpApproval,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct CallItem<'a> {
    r#type: LenientStr<'a>,
    id: LenientStr<'a>,
    call_id: LenientStr<'a>,
    status: LenientStr<'a>,
    /// The commands of a shell, or the action of a computer.
    action: Option<&'a RawValue>,
    /// The actions of a computer.
    actions: Option<&'a RawValue>,
    pending_safety_checks: Option<&'a RawValue>,
    /// The operation on a file.
    operation: Option<&'a RawValue>,
    /// Where the commands of a shell run.
    environment: Option<&'a RawValue>,
    /// The program that made the call, if not the model itself made it.
    caller: Option<&'a RawValue>,
    server_label: LenientStr<'a>,
    name: LenientStr<'a>,
    arguments: LenientStr<'a>,
}

/// The arguments of a computer.
#[derive(Serialize)]
struct ComputerArguments<'a> {
    actions: Vec<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending_safety_checks: Vec<&'a RawValue>,
}

/// The arguments of an approval.
#[derive(Serialize)]
struct ApprovalArguments<'a> {
    name: &'a str,
    arguments: &'a RawValue,
}

/// The types of the items that are calls of client tools.
const ITEM_TYPES: [&str; 4] =
    ["shell_call", "apply_patch_call", "computer_call", "mcp_approval_request"];

impl<'a> ClientToolCall<'a> {
    /// Returns whether an item may be the call of a client tool. This cheap check limits the number
    /// of items that have to be parsed.
    pub(super) fn may_be_in(json: &str) -> bool {
        ITEM_TYPES.iter().any(|item_type| json.contains(item_type))
    }

    /// Parses an item. Returns `None` for any other item, for a call that was cut off, and for
    /// commands that run in OpenAI's container.
    pub(super) fn parse(json: &'a str) -> Option<Self> {
        let item: CallItem<'a> = from_bounded_json(json).ok()?;
        let kind = match item.r#type.or_empty() {
            "shell_call" if !item.runs_in_container() => CallKind::Shell,
            "apply_patch_call" => CallKind::ApplyPatch,
            "computer_call" => CallKind::Computer,
            "mcp_approval_request" => CallKind::McpApproval,
            _ => return None,
        };
        let cut_off = matches!(item.status.or_empty(), "incomplete" | "failed");
        (!cut_off).then_some(Self { kind, item })
    }

    pub(super) fn kind(&self) -> CallKind {
        self.kind
    }

    /// Returns the tool that the call is for, if the request declares it.
    pub(super) fn declared_tool<'s>(&self, specs: &'s ToolSpecs) -> Option<&'s ToolSpec> {
        let is_it = |spec: &&ToolSpec| match (self.kind, spec.client_tool.as_ref()) {
            (CallKind::Shell, Some(ClientTool::Shell))
            | (CallKind::ApplyPatch, Some(ClientTool::ApplyPatch))
            | (CallKind::Computer, Some(ClientTool::Computer)) => true,
            (CallKind::McpApproval, Some(ClientTool::McpApproval { server })) => {
                server == self.item.server_label.or_empty()
            }
            (_, _) => false,
        };
        specs.iter().find(is_it)
    }

    /// Returns the id by which the answer refers to the call.
    pub(super) fn id(&self) -> &str {
        match self.kind {
            CallKind::McpApproval => self.item.id.or_empty(),
            CallKind::Shell | CallKind::ApplyPatch | CallKind::Computer => {
                self.item.call_id.non_empty().unwrap_or(self.item.id.or_empty())
            }
        }
    }

    /// Returns the call's arguments as JSON.
    pub(super) fn arguments(&self) -> Option<String> {
        let item = &self.item;
        match self.kind {
            CallKind::Shell => Some(non_null(item.action)?.get().to_owned()),
            CallKind::ApplyPatch => Some(non_null(item.operation)?.get().to_owned()),
            CallKind::Computer => {
                let actions = match non_null(item.actions) {
                    Some(list) => from_bounded_json(list.get()).ok()?,
                    None => vec![non_null(item.action)?],
                };
                let pending_safety_checks = self.safety_checks();
                serde_json::to_string(&ComputerArguments { actions, pending_safety_checks }).ok()
            }
            CallKind::McpApproval => {
                let text = item.arguments.non_empty().unwrap_or("{}");
                // Arguments that are not JSON are passed as a text.
                let text = match from_bounded_json::<Box<RawValue>>(text) {
                    Ok(json) => json,
                    Err(_) => to_raw_value(text).ok()?,
                };
                let name = item.name.or_empty();
                serde_json::to_string(&ApprovalArguments { name, arguments: &text }).ok()
            }
        }
    }

    /// Returns the caller, which the answer of a shell or a patch repeats.
    pub(super) fn caller(&self) -> Option<&'a RawValue> {
        non_null(self.item.caller)
    }

    /// Returns whether these are the call's arguments, in any form.
    pub(super) fn has_arguments(&self, arguments: &str) -> bool {
        let value = |text: &str| from_bounded_json::<serde_json::Value>(text).ok();
        self.arguments().is_some_and(|own| own == arguments || value(&own) == value(arguments))
    }

    /// Returns the checks that a result with a screenshot acknowledges.
    pub(super) fn safety_checks(&self) -> Vec<&'a RawValue> {
        let checks = non_null(self.item.pending_safety_checks);
        checks.and_then(|list| from_bounded_json(list.get()).ok()).unwrap_or_default()
    }

    /// Returns the maximum number of characters of a shell's output, which its answer repeats.
    pub(super) fn max_output_length(&self) -> Option<u64> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Action {
            max_output_length: Option<u64>,
        }
        let action: Action = serde_json::from_str(self.item.action?.get()).ok()?;
        action.max_output_length
    }
}

impl CallItem<'_> {
    fn runs_in_container(&self) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default, bound(deserialize = "'de: 'a"))]
        struct Environment<'a> {
            r#type: LenientStr<'a>,
        }
        let environment = non_null(self.environment);
        let environment = environment.and_then(|json| serde_json::from_str(json.get()).ok());
        environment.is_some_and(|it: Environment<'_>| it.r#type.or_empty() != "local")
    }
}
