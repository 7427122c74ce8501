//! One step of a run, as data.

use serde::{Deserialize, Serialize};

use crate::item::{Evidence, RawJson, SideEffect};
use crate::tool::Rationale;
use crate::trace::{NormalizedError, RemainingBudget, ToolExit};

/// One step of a run: a call and its result, something said that was no end, or the end.
///
/// Its JSON is one flat object a line; what is not known is left out, and readers pass over fields
/// that they do not know. Shown as text it is [`Yaml`](crate::trace::Yaml).
///
/// ```
/// use turnstream::trace::TraceEvent;
///
/// let line = r#"{"step":5,"action":{"type":"stop","stop_reason":"success"},"result":{"verification_evidence":{"command":"make check","exit_code":0}}}"#;
/// let event: TraceEvent = serde_json::from_str(line)?;
/// assert_eq!(serde_json::to_string(&event)?, line);
/// assert_eq!(
///     event.to_string(),
///     r#"step: 5
/// action:
///   type: stop
///   stop_reason: "success"
/// result:
///   verification_evidence:
///     command: "make check"
///     exit_code: 0
/// "#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TraceEvent {
    /// Which step it is, from 1. Sub-agents count their own.
    pub step: u32,
    /// Which request of the run it came of, from 1; 0 if that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn: u32,
    /// The model that answered, or was asked; empty if that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The calls that the run belongs to, if it is a sub-agent's: the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// What was put on record for the step before it was done, such as what was selected for its
    /// request, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<RawJson>,
    /// What was done.
    pub action: TraceAction,
    /// What came of it.
    #[serde(default, skip_serializing_if = "TraceResult::is_empty")]
    pub result: TraceResult,
    /// What was left behind it.
    #[serde(default, skip_serializing_if = "RemainingBudget::is_empty")]
    pub budgets: RemainingBudget,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TraceAction {
    /// A tool was called.
    Tool {
        /// Its name as the model wrote it.
        tool: String,
        /// The call.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        call_id: String,
        /// The arguments as the model wrote them, without what `why` says as well. What is not JSON,
        /// or nested deeper than 100 levels, is a string; `None` if the call was made before the trace began.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<RawJson>,
        /// What the model said of the call, if its tool is [audited](crate::Tool::with_rationale).
        #[serde(flatten)]
        why: Rationale,
    },
    /// The model spoke without a call, and the run went on: a plan, a reply that was not accepted.
    Say {
        /// What it said, shortened to one line.
        text: String,
        /// Why its turn stopped, as it is written in a turn.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        turn_stopped: String,
    },
    /// The run ended.
    Stop {
        /// `success` if it was completed with a [proof](TraceResult::verification_evidence); else the [reason](crate::event::EndReason), such as `completed`, `blocked` or `unproven`.
        stop_reason: String,
        /// The last words, shortened to one line.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
}

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TraceResult {
    /// What the tool has changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<String>,
    /// What the tool has created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub created_ids: Vec<String>,
    /// What it did besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub side_effects: Vec<SideEffect>,
    /// How a call ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_exit: Option<ToolExit>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalized_error: Option<NormalizedError>,
    /// What the tool has put on record, usually an [`Evidence`]. One is
    /// written as it is, several as a list.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "one_or_many")]
    pub evidence: Vec<RawJson>,
    /// What proves a success: the [`proof`](crate::Outcome::proof) of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification_evidence: Option<Evidence>,
    /// What was missing for a success: what a stop hook named, or the calls that are pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// What a stop hook said that ended the run for another reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl TraceResult {
    /// Whether nothing came of it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// One value as it is, several as a list. One that is a list itself is a list of one.
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
