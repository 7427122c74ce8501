//! A step in a run, represented as serializable data.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::StopAction;
use crate::item::{Evidence, RawJson, SideEffect};
use crate::tool::Rationale;
use crate::trace::{NormalizedError, RemainingBudget, StepTime, ToolExit};
use crate::usage::Usage;

/// A step in a run: a tool call and its result, a message after which the run continued, or the end
/// of the run.
///
/// An event serializes to a single JSON object. Values that are unknown are omitted, and readers
/// ignore unknown fields. The `Display` implementation formats an event as this JSON object, on one
/// line.
///
/// ```
/// use turnstream::trace::TraceEvent;
///
/// let line = r#"{"step":5,"action":{"type":"stop","stop_reason":"success"},"result":{"verification_evidence":{"command":"make check","exit_code":0}}}"#;
/// let event: TraceEvent = serde_json::from_str(line)?;
/// assert_eq!(event.result.verification_evidence.as_ref().unwrap().command, "make check");
/// assert_eq!(event.to_string(), line);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TraceEvent {
    /// The number of the step, starting at 1. The steps of each sub-agent are numbered separately.
    pub step: u32,
    /// The number of the request that led to the step, or 0 if unknown. Requests are numbered from
    /// 1 within each run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn: u32,
    /// The name of the model that answered, or of the model to which the request was sent. The
    /// string is empty if the name is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The ids of the calls that run the sub-agents, from the outermost sub-agent to the sub-agent
    /// that took the step. The list is empty if the run itself took the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// The inputs that were recorded before the step. For example, an input can state which context
    /// was selected for the step's request, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<RawJson>,
    /// The action taken in the step.
    pub action: TraceAction,
    /// The result of the step's action.
    #[serde(default, skip_serializing_if = "TraceResult::is_empty")]
    pub result: TraceResult,
    /// When the step began and ended, if the trace [has a clock](crate::trace::Trace::with_clock)
    /// and the beginning is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<StepTime>,
    /// The remaining budgets after the step.
    #[serde(default, skip_serializing_if = "RemainingBudget::is_empty")]
    pub budgets: RemainingBudget,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The action taken in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TraceAction {
    /// A call to a tool.
    Tool {
        /// The name of the called tool.
        tool: String,
        /// The id of the call.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        call_id: String,
        /// The arguments as the model wrote them, without the parts that are in `why`. Arguments
        /// that are not valid JSON, or that are nested more than 100 levels deep, are stored as a
        /// string. This field is `None` if the model made the call before the trace started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<RawJson>,
        /// The model's rationale for the call, if the tool asks for a
        /// [rationale](crate::Tool::with_rationale).
        #[serde(flatten)]
        why: Rationale,
        /// The id of the [grant](crate::item::Grant) that let the call run without a request for an
        /// approval.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant_id: Option<String>,
    },
    /// A message that contains no tool calls, such as a plan or a rejected answer. The run
    /// continued after this message.
    Say {
        /// The text of the message, shortened to one line.
        text: String,
        /// The stop reason of the turn that contains the message.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        turn_stopped: String,
    },
    /// A request that is not a turn of the run: a request of the run itself, for example to
    /// summarize the history, or a request that a hook has
    /// [reported](crate::agent::State::report_helper).
    Helper {
        /// The purpose of the request: `compacted` for a summary, or else the name that the hook
        /// gave.
        purpose: String,
        /// The tokens that the request used, including those of discarded attempts.
        usage: Usage,
    },
    /// The end of the run.
    Stop {
        /// `success` if the run completed with a [proof](TraceResult::verification_evidence).
        /// Otherwise, the [reason](crate::event::EndReason) why the run ended, such as `completed`,
        /// `blocked` or `unproven`.
        stop_reason: String,
        /// The final text of the run, shortened to one line.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The [action](crate::Tool::stop) by which the model ended the run, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_action: Option<Box<StopAction>>,
    },
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TraceResult {
    /// The targets that the tool changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<String>,
    /// The targets that the tool created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub created_ids: Vec<String>,
    /// The tool's side effects other than changing or creating a target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub side_effects: Vec<SideEffect>,
    /// How the call ended, if the step is a tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_exit: Option<ToolExit>,
    /// The error that caused the step to fail, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalized_error: Option<NormalizedError>,
    /// The evidence that the tool recorded, usually a single [`Evidence`]. A single piece of
    /// evidence is serialized directly, whereas several pieces are serialized as a list.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "one_or_many")]
    pub evidence: Vec<RawJson>,
    /// The evidence that the run succeeded, taken from its [`proof`](crate::Outcome::proof).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification_evidence: Option<Evidence>,
    /// The reason why the run did not succeed: the requirement that a stop hook reported as
    /// missing, the calls that are still pending, or what is [unproven](crate::Outcome::unproven).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The reason that a stop hook gave for ending the run, unless `missing` already contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl TraceResult {
    /// Returns whether no field of the result is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Serialises a single value directly, and several values as a list. If a single value is itself a
/// list, it is wrapped in a list with one element.
mod one_or_many {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::item::RawJson;

    pub(super) fn serialize<S: Serializer>(values: &[RawJson], to: S) -> Result<S::Ok, S::Error> {
        match values {
            [one] if !one.as_str().starts_with('[') => one.serialize(to),
            values => values.serialize(to),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<RawJson>, D::Error> {
        let json = RawJson::deserialize(from)?;
        match json.as_str().starts_with('[') {
            true => json.deserialize_as().map_err(serde::de::Error::custom),
            false => Ok(vec![json]),
        }
    }
}
