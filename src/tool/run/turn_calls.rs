//! The calls in a turn, and the states that a call can be in.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use crate::error::catch_panic;
use crate::item::{
    Grant, History, PendingCall, ResultKind, ToolCall, ToolResult, has_too_many_values,
    too_many_values_message, truncate_middle, validate_json,
};
use crate::tool::run::policy_handle::PolicyHandle;
use crate::tool::{PollTimer, PreparedCall, RunData, Tool, Toolkit};
use crate::turn::Turn;

/// The maximum length, in bytes, of the reason in an error for invalid arguments. The reason may
/// repeat the arguments, which are already in the model's context.
const MAX_ARGS_ERROR_BYTES: usize = 2 << 10;

/// The maximum number of bytes of an unknown tool's name that a result repeats.
const MAX_ECHOED_TOOL_NAME_BYTES: usize = 200;

/// The answer to a sub-agent call that would exceed the maximum nesting depth.
const MAX_DEPTH_DENIAL: &str = "Denied: sub-agents are nested as deep as allowed. Do it \
     yourself, with the other tools, or answer with what you have.";

/// The calls in a turn, along with the run's settings.
pub(super) struct TurnCalls {
    pub(super) toolkit: Toolkit,
    /// The history at the start of the run.
    pub(super) history: History,
    pub(super) turn: Arc<Turn>,
    /// Whether the run resumes pending calls, in which case the turn is already in the history.
    pub(super) is_resumed: bool,
    /// The ids that several calls in the history have, if the run resumes pending calls.
    pub(super) repeated_call_ids: HashSet<String>,
    /// The answer that every call receives if none of the turn's calls may run.
    pub(super) refusal: Option<Refusal>,
    pub(super) denies_sub_agents: bool,
    /// The data passed to the run's tools.
    pub(super) run_data: RunData,
    /// The run's policy, if any.
    pub(super) policy: PolicyHandle,
    pub(super) poll_timer: Option<Arc<PollTimer>>,
}

/// A call that may run, together with its tool and its prepared arguments.
pub(super) struct ReadyCall {
    /// The index of the call in its turn.
    pub(super) index: usize,
    pub(super) call: ToolCall,
    pub(super) tool: Tool,
    pub(super) prepared: PreparedCall,
    /// Whether the call resumes a suspended sub-agent.
    pub(super) is_resumed: bool,
    pub(super) permission: CallPermission,
}

/// The reason why a call may run.
pub(super) enum CallPermission {
    /// The call needs no approval, or was approved itself.
    Unconditional,
    /// The call was approved with this grant.
    NewGrant(Box<Grant>),
    /// The grant with this id allows the call, unless it is revoked before the call starts.
    Grant(Box<str>),
    /// An earlier attempt has admitted the call, under the grant with this id if there was one.
    Earlier { grant_id: Option<Box<str>> },
}

/// A call together with its result.
pub(super) struct AnsweredCall {
    pub(super) index: usize,
    pub(super) call: ToolCall,
    pub(super) result: ToolResult,
}

/// The result kind and text with which a call that must not run is answered.
pub(super) type Refusal = (ResultKind, String);

/// The reason why arguments are invalid for the tool.
pub(super) enum ArgsError {
    InvalidArguments(String),
    Panic(String),
}

impl TurnCalls {
    pub(super) fn new(toolkit: &Toolkit, history: &History, turn: Arc<Turn>) -> Self {
        Self {
            toolkit: toolkit.clone(),
            history: history.clone(),
            turn,
            is_resumed: false,
            repeated_call_ids: HashSet::new(),
            refusal: None,
            denies_sub_agents: false,
            run_data: RunData::new(),
            policy: PolicyHandle::default(),
            poll_timer: None,
        }
    }

    /// Returns a call's tool if the turn, the toolkit and the run all allow the call. Otherwise,
    /// the `Err` contains the answer to the call.
    pub(super) fn find_tool(&self, at: usize, call: &ToolCall) -> Result<Tool, Refusal> {
        if let Some(veto) = self.turn.calls().veto() {
            return Err((veto.result_kind, veto.message.to_owned()));
        }
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if at > 0 && self.toolkit.is_first_call_only() {
            let why = "Not run: one call in a reply, please. Call it again if it is still needed.";
            return Err((ResultKind::Skipped, why.to_owned()));
        }
        if self.is_call_id_used(&call.call_id) {
            let why = "Not run: another call has this id. Call the tool again.";
            return Err((ResultKind::Skipped, why.to_owned()));
        }
        let Some(tool) = self.toolkit.get(&call.name) else {
            let name = truncate_middle(call.name.clone(), MAX_ECHOED_TOOL_NAME_BYTES);
            let why = format!(
                "There is no tool `{name}`. {}",
                self.toolkit.available_tools_message(&name)
            );
            return Err((ResultKind::UnknownTool, why));
        };
        if self.denies_sub_agents && tool.runs_sub_agents() {
            return Err((ResultKind::Denied, MAX_DEPTH_DENIAL.to_owned()));
        }
        Ok(tool.clone())
    }

    /// Returns whether another call in the history has this id.
    fn is_call_id_used(&self, call_id: &str) -> bool {
        match self.is_resumed {
            false => self.history.has_used_call_id(call_id),
            // One of the calls with this id in the history is the call itself.
            true => self.repeated_call_ids.contains(call_id),
        }
    }

    /// Returns an error if the run is a dry run and the tool does not support dry runs. The `Err`
    /// contains the answer to the call.
    pub(super) fn check_dry_run(&self, tool: &Tool, call: &ToolCall) -> Result<(), Refusal> {
        if self.toolkit.is_dry_run() && !tool.supports_dry_run() {
            let name = &call.name;
            let arguments =
                truncate_middle(call.arguments_or_empty_object().to_owned(), MAX_ARGS_ERROR_BYTES);
            let why =
                format!("Not run: this is a dry run. `{name}` would be called with {arguments}");
            return Err((ResultKind::Skipped, why));
        }
        Ok(())
    }
}

impl AnsweredCall {
    pub(super) fn from_refusal(at: usize, call: ToolCall, (kind, why): Refusal) -> Self {
        let result = ToolResult::for_call(&call, kind, why);
        Self { index: at, call, result }
    }
}

impl CallPermission {
    /// Returns the id of the grant that lets the call run without a request for an approval.
    pub(super) fn grant_id(&self) -> Option<&str> {
        match self {
            Self::Grant(id) => Some(id),
            Self::Earlier { grant_id } => grant_id.as_deref(),
            Self::Unconditional | Self::NewGrant(_) => None,
        }
    }
}

impl ReadyCall {
    /// Returns the call as a request for a verdict that has no id yet.
    pub(super) fn to_request(&self) -> PendingCall {
        PendingCall { definition: self.tool.definition(), ..self.call.clone().into() }
    }

    pub(super) fn into_refused(self, kind: ResultKind, why: impl Into<String>) -> AnsweredCall {
        AnsweredCall::from_refusal(self.index, self.call, (kind, why.into()))
    }
}

impl ArgsError {
    /// Returns the answer to `call`, whose arguments are invalid for this reason.
    pub(super) fn into_refusal(self, call: &ToolCall) -> Refusal {
        match self {
            Self::InvalidArguments(why) => {
                let why = format!(
                    "The arguments of `{}` do not fit: {why}. Call it again with arguments that \
                     fit its schema.",
                    call.name
                );
                (ResultKind::InvalidArguments, why)
            }
            Self::Panic(why) => (ResultKind::Panic, why),
        }
    }
}

/// Prepares a call if its arguments are a JSON object that is valid for the tool. The arguments are
/// [read](Tool::read_arguments) as the tool's schema describes them. If the call can be prepared,
/// the arguments that were read replace those in `call`, so that hooks, approvers and the tool all
/// see the same arguments.
pub(super) fn prepare_call(tool: &Tool, call: &mut ToolCall) -> Result<PreparedCall, ArgsError> {
    let arguments = call.arguments_or_empty_object();
    if has_too_many_values(arguments.as_bytes()) {
        return Err(ArgsError::InvalidArguments(too_many_values_message()));
    }
    if let Err(error) = validate_json(&call.arguments) {
        return Err(ArgsError::InvalidArguments(format!("not JSON: {error}")));
    }
    if !arguments.starts_with('{') {
        return Err(ArgsError::InvalidArguments("not a JSON object".to_owned()));
    }
    let arguments = tool.read_arguments(arguments);
    // The reason is truncated, since it may repeat all of the arguments.
    let reason = |why| truncate_middle(why, MAX_ARGS_ERROR_BYTES);
    let prepared = match catch_panic(|| tool.handler.prepare(&arguments)) {
        Ok(prepared) => prepared.map_err(|why| ArgsError::InvalidArguments(reason(why)))?,
        Err(message) => return Err(ArgsError::Panic(reason(panic_message(&message)))),
    };
    if let Cow::Owned(read) = arguments {
        call.arguments = read;
    }
    Ok(prepared)
}

pub(super) fn panic_message(message: &str) -> String {
    format!("Error: the tool panicked: {message}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::item::MAX_JSON_VALUES;
    use crate::request::ToolSpec;

    /// The error for arguments that consist of a list of this many numbers.
    fn error_for_values(schema: serde_json::Value, len: usize) -> Option<String> {
        let spec = ToolSpec::new("t", "", schema);
        let tool = Tool::raw(spec, |_, _| async { "" }).unwrap();
        let arguments = format!("{{\"v\":[{}]}}", vec!["1"; len].join(","));
        let mut call = ToolCall { call_id: "c".into(), name: "t".into(), arguments };
        match prepare_call(&tool, &mut call) {
            Ok(_) => None,
            Err(ArgsError::InvalidArguments(why) | ArgsError::Panic(why)) => Some(why),
        }
    }

    #[test]
    fn arguments_with_too_many_values_are_refused_before_they_are_parsed() {
        let branches: Vec<_> = (0..40)
            .map(|n| json!({ "properties": { "v": { "type": "array", "maxItems": n } } }))
            .collect();
        let schemas = [json!({ "type": "object" }), json!({ "type": "object", "anyOf": branches })];
        for schema in schemas {
            // The object and the list are values too.
            let error = error_for_values(schema.clone(), MAX_JSON_VALUES - 2);
            assert!(!error.unwrap_or_default().contains("JSON values"));
            let error = error_for_values(schema, MAX_JSON_VALUES - 1).unwrap();
            assert_eq!(error, "it has more than 200000 JSON values");
        }
    }
}
