//! The value of a step, as recorded by an engine.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::{PendingCall, RawJson};
use crate::propagation::TraceContext;
use crate::tool::{AdmittedCall, SavedCalls, Tool};
use crate::world::{EffectKey, EffectKind, LoopEnd, SavedTurn, TimeLimitReached};

/// The version of the JSON format for steps. An attempt rejects steps with a later version.
const VERSION: u32 = 1;

/// The maximum size of a turn or of the results of its calls, in bytes of JSON.
pub(super) const MAX_STEP_BYTES: usize = 8 << 20;

/// The maximum size of a step's other values, in bytes of JSON: 8 MiB for the input that the step
/// delivers, and as much for the values that come from the program itself, such as the notes of
/// hooks.
///
/// NOTE: the command queue accepts at most 8 MiB of input that the run has not delivered. The limit
/// for the input is separate from the limit for the turn, so that input never ends a run, or the
/// next run, which delivers it again.
const MAX_DRAWN_BYTES: usize = 16 << 20;

/// The value of a step: the result of an effect, and the nondeterministic values that the run has
/// obtained since the previous step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StepRecord {
    v: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) drawn_values: Vec<DrawnValue>,
    /// The trace context of the span with which the run began, in the first step that was performed
    /// while the run was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace_context: Option<RecordedTraceContext>,
    /// The key of the effect. `None` if the run ended before it requested an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<EffectKey>,
    pub(super) result: StepResult,
}

/// A nondeterministic value that the run obtained synchronously.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DrawnValue {
    pub(super) kind: EffectKind,
    pub(super) value: RawJson,
}

/// The values of the headers of a trace context.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedTraceContext {
    traceparent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

/// The result of an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StepResult {
    Value(RawJson),
    Failed(Error),
    Turn(SavedTurn),
    /// The calls in a turn may start now. The results of the calls are recorded in the next step.
    CallsBegin(BegunCalls),
    Calls(SavedCalls),
    /// The run is waiting for verdicts.
    Suspended(AwaitedVerdicts),
    /// The loop was ended from outside, for example by an interrupt.
    Ended(EndedEarly),
    /// The effect's result is too large to be recorded, which ends the run.
    TooLarge(Error),
    /// The run has ended.
    Finished,
}

/// The calls that may start, in call order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BegunCalls {
    /// The name of the first attempt that may start the calls. In a later attempt, these calls may
    /// already have started.
    pub(super) attempt: String,
    pub(super) calls: Vec<BegunCall>,
}

/// A call that may start, with its final arguments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BegunCall {
    #[serde(flatten)]
    pub(super) admitted: AdmittedCall,
    /// Whether the call may run again if the attempt is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_idempotent: bool,
    /// Whether the call must not run at the same time as other calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_exclusive: bool,
    /// Whether the call can run in another process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) can_run_remotely: bool,
}

/// The calls whose verdicts a run is waiting for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AwaitedVerdicts {
    pub(super) calls: Vec<PendingCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<Duration>,
}

/// The position at which the loop was ended from outside, and the reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct EndedEarly {
    /// The number of nondeterministic values that the run had obtained since the previous step.
    pub(super) drawn_value_count: usize,
    /// The number of events that the run had yielded since the previous step. The calls in a turn
    /// take two steps; while the calls run, events are counted from the start of the first of these
    /// steps.
    pub(super) event_count: usize,
    /// The events that the effect had yielded before the loop was ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) effect_events: Vec<Event>,
    polled_since_last_event: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_limit_reached: Option<TimeLimitReached>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interrupt_reason: Option<String>,
}

impl StepResult {
    /// Returns whether parsing the result's JSON certainly returns the same result. A value may
    /// contain numbers or be nested in a way that does not survive parsing, and an error may have
    /// sources, which its JSON does not contain.
    fn is_kept_by_json(&self) -> bool {
        match self {
            Self::Value(value) => value.is_normalized(),
            Self::Finished => true,
            Self::Turn(saved) => saved.is_kept_by_json(),
            Self::CallsBegin(begun) => {
                begun.calls.iter().all(|begun| begun.admitted.new_grant.is_none())
            }
            Self::Calls(saved) => saved.has_only_results(),
            Self::Failed(_) | Self::Suspended(_) | Self::Ended(_) | Self::TooLarge(_) => false,
        }
    }

    /// Returns the name that identifies the variant in JSON.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Value(_) => "value",
            Self::Failed(_) => "failed",
            Self::Turn(_) => "turn",
            Self::CallsBegin(_) => "calls_begin",
            Self::Calls(_) => "calls",
            Self::Suspended(_) => "suspended",
            Self::Ended(_) => "ended",
            Self::TooLarge(_) => "too_large",
            Self::Finished => "finished",
        }
    }
}

impl StepRecord {
    pub(super) fn new(
        drawn_values: Vec<DrawnValue>,
        key: Option<EffectKey>,
        result: StepResult,
    ) -> Self {
        Self { v: VERSION, drawn_values, trace_context: None, key, result }
    }

    pub(super) fn with_trace_context(self, context: Option<&TraceContext>) -> Self {
        Self { trace_context: context.map(RecordedTraceContext::from), ..self }
    }

    /// Returns a copy of the record in which the error replaces the result. Call this method if the
    /// original result is too large to be recorded.
    ///
    /// # Errors
    ///
    /// Returns `error` if its kind is not [`TooLarge`](ErrorKind::TooLarge).
    pub(super) fn too_large(&self, error: Error) -> Result<Self, Error> {
        if error.kind() != ErrorKind::TooLarge {
            return Err(error);
        }
        let (drawn_values, key) = (self.drawn_values.clone(), self.key.clone());
        Ok(Self::new(drawn_values, key, StepResult::TooLarge(error)))
    }

    /// Returns how the loop ended, if it was ended from outside in this step.
    pub(super) fn ended(&self) -> Option<&EndedEarly> {
        match &self.result {
            StepResult::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Parses a recorded step.
    ///
    /// # Errors
    ///
    /// Returns a [`ReplayMismatch`](ErrorKind::ReplayMismatch) error if the JSON is not a valid
    /// step, or if the step's version is unknown.
    pub(super) fn parse(json: &RawJson) -> Result<Self, Error> {
        let record: Self = from_json(json, "a step")?;
        match record.v <= VERSION {
            true => Ok(record),
            false => {
                let message = format!("the step was recorded by a later version ({})", record.v);
                Err(Error::new(ErrorKind::ReplayMismatch, message))
            }
        }
    }

    /// Returns whether parsing the record's JSON certainly returns the same record.
    pub(super) fn is_kept_by_json(&self) -> bool {
        let mut drawn = self.drawn_values.iter();
        drawn.all(|drawn| drawn.value.is_normalized()) && self.result.is_kept_by_json()
    }

    /// Serializes the step to JSON.
    ///
    /// # Errors
    ///
    /// Returns a [`TooLarge`](ErrorKind::TooLarge) error if the JSON of the drawn values is longer
    /// than [`MAX_DRAWN_BYTES`] bytes, or the rest of the JSON longer than [`MAX_STEP_BYTES`]
    /// bytes, and a [`Store`](ErrorKind::Store) error if the step cannot be serialized.
    pub(super) fn to_json(&self) -> Result<RawJson, Error> {
        let json = to_json(self)?;
        let drawn: usize = self.drawn_values.iter().map(|draw| draw.value.as_str().len()).sum();
        let rest = json.as_str().len().saturating_sub(drawn);
        ensure_size("a turn or its calls' results have", rest, MAX_STEP_BYTES)?;
        ensure_size("the input and the notes for a turn have", drawn, MAX_DRAWN_BYTES)?;
        Ok(json)
    }
}

/// Serializes a value that an engine records.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<RawJson, Error> {
    RawJson::new(value).map_err(|error| {
        let message = format!("a step cannot be written as JSON: {error}");
        Error::new(ErrorKind::Store, message).with_source(error)
    })
}

/// Parses a value that an engine has recorded.
pub(super) fn from_json<T: DeserializeOwned>(json: &RawJson, what: &str) -> Result<T, Error> {
    json.deserialize_as().map_err(|error| {
        let message = format!("the engine has recorded something other than {what}: {error}");
        Error::new(ErrorKind::ReplayMismatch, message).with_source(error)
    })
}

fn ensure_size(what: &str, bytes: usize, max: usize) -> Result<(), Error> {
    if bytes <= max {
        return Ok(());
    }
    let message = format!("{what} {bytes} bytes, at most {max} are stored");
    Err(Error::new(ErrorKind::TooLarge, message))
}

impl From<&TraceContext> for RecordedTraceContext {
    fn from(context: &TraceContext) -> Self {
        Self {
            traceparent: context.traceparent().to_owned(),
            tracestate: context.tracestate().map(str::to_owned),
        }
    }
}

impl RecordedTraceContext {
    /// Returns the context, or `None` if the values are invalid.
    pub(super) fn parse(&self) -> Option<TraceContext> {
        TraceContext::parse(&self.traceparent, self.tracestate.as_deref())
    }
}

impl BegunCall {
    pub(super) fn new(admitted: &AdmittedCall, tool: &Tool, is_shared: bool) -> Self {
        let runs_here = tool.is_exclusive() || tool.runs_sub_agents() || !is_shared;
        Self {
            admitted: admitted.clone(),
            is_idempotent: tool.is_idempotent(),
            is_exclusive: tool.is_exclusive(),
            can_run_remotely: !runs_here,
        }
    }
}

impl EndedEarly {
    pub(super) fn new(
        drawn_value_count: usize,
        event_count: usize,
        effect_events: Vec<Event>,
        end: &LoopEnd,
    ) -> Self {
        Self {
            drawn_value_count,
            event_count,
            effect_events,
            polled_since_last_event: end.polled_since_last_event,
            error: end.error.clone(),
            time_limit_reached: end.time_limit_reached,
            interrupt_reason: end.interrupt_reason.clone(),
        }
    }

    pub(super) fn to_loop_end(&self) -> LoopEnd {
        LoopEnd {
            polled_since_last_event: self.polled_since_last_event,
            error: self.error.clone(),
            time_limit_reached: self.time_limit_reached,
            interrupt_reason: self.interrupt_reason.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::{BudgetExceeded, BudgetKind};
    use crate::item::ToolCall;

    /// A step with each kind of result.
    fn records() -> Vec<StepRecord> {
        let call = ToolCall {
            call_id: "c1".to_owned(),
            name: "delete".to_owned(),
            arguments: r#"{"file":"notes"}"#.to_owned(),
        };
        let begun = BegunCall {
            admitted: call.clone().into(),
            is_idempotent: true,
            is_exclusive: true,
            can_run_remotely: true,
        };
        let turn = json!({
            "events": [{ "type": "text_delta", "index": 0, "text": "Hi" }],
            "is_vetoed": true,
            "error": { "kind": "connect", "message": "the connection was lost" },
        });
        let calls = json!({
            "events": [{ "type": "tool_started", "call_id": "c1", "name": "delete", "arguments": "{}" }],
            "pending": [],
            "calls_over_limit": 1,
            "error": { "kind": "other", "message": "the policy failed" },
        });
        let time_limit = BudgetExceeded {
            kind: BudgetKind::Time,
            used: 9,
            limit: 8,
            diminishing_returns: false,
        };
        let end = LoopEnd {
            polled_since_last_event: true,
            error: Some(Error::new(ErrorKind::Other, "the body failed")),
            time_limit_reached: Some(TimeLimitReached::WrapUp(time_limit)),
            interrupt_reason: Some("the user left".to_owned()),
        };
        let event = json!({ "type": "text_delta", "index": 0, "text": "Hi" });
        let event = serde_json::from_value(event).unwrap();
        let error = || Error::new(ErrorKind::Overloaded, "overloaded");
        let limit = Some(Duration::from_mins(1));
        let results = [
            (EffectKind::StopReview, StepResult::Value(json!({ "kind": "block" }).into())),
            (EffectKind::Step, StepResult::Failed(error())),
            (EffectKind::Turn, StepResult::Turn(serde_json::from_value(turn).unwrap())),
            (
                EffectKind::ToolCalls,
                StepResult::CallsBegin(BegunCalls {
                    attempt: "a-1".to_owned(),
                    calls: vec![begun],
                }),
            ),
            (EffectKind::ToolCalls, StepResult::Calls(serde_json::from_value(calls).unwrap())),
            (
                EffectKind::Suspension,
                StepResult::Suspended(AwaitedVerdicts { calls: vec![call.into()], limit }),
            ),
            (EffectKind::Turn, StepResult::Ended(EndedEarly::new(1, 2, vec![event], &end))),
            (EffectKind::Turn, StepResult::TooLarge(error())),
            (EffectKind::Step, StepResult::Finished),
        ];
        let record = |(nth, (kind, result))| {
            let name = if kind == EffectKind::Step { "look up" } else { "" };
            let key = EffectKey { run: "h#1".into(), iteration: 1, kind, name: name.into(), nth };
            let value = json!({ "has_steering": true }).into();
            let drawn_values = vec![DrawnValue { kind: EffectKind::Facts, value }];
            // The first step of an observed run.
            let context = (nth == 1).then(trace_context);
            StepRecord::new(drawn_values, Some(key), result).with_trace_context(context.as_ref())
        };
        (1..).zip(results).map(record).collect()
    }

    fn trace_context() -> TraceContext {
        let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        TraceContext::parse(value, Some("vendor=1")).unwrap()
    }

    /// The stored form of [`records`].
    const STORED: &str = include_str!("../../tests/stored_formats/durable_steps.jsonl");

    #[test]
    fn steps_are_written_in_their_stored_format() {
        let mut written = String::new();
        for record in records() {
            written.push_str(record.to_json().unwrap().as_str());
            written.push('\n');
        }
        for (written, stored) in written.lines().zip(STORED.lines()) {
            assert_eq!(written, stored);
        }
        assert_eq!(written, STORED);
    }

    #[test]
    fn a_record_that_is_kept_by_its_json_is_the_record_that_parsing_returns() {
        let survives = |record: &StepRecord| {
            let json = record.to_json().unwrap();
            let is_kept = record.is_kept_by_json();
            if is_kept {
                let parsed = StepRecord::parse(&json).unwrap();
                assert_eq!(format!("{parsed:?}"), format!("{record:?}"));
                assert_eq!(parsed.to_json().unwrap(), json);
            }
            is_kept
        };
        let records = records();
        let names: Vec<&str> =
            records.iter().filter(|record| survives(record)).map(|it| it.result.name()).collect();
        assert_eq!(names, ["value", "calls_begin", "finished"]);
        let value = |value: RawJson| StepRecord::new(Vec::new(), None, StepResult::Value(value));
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(survives(&value(json!({ "a": [1, "\"", null] }).into())));
        assert!(survives(&value(nested(60).into())));
        assert!(!survives(&value(nested(70).into())));
        assert!(!survives(&value(RawJson::new(&u128::MAX).unwrap())));
        let drawn = |value| vec![DrawnValue { kind: EffectKind::Facts, value }];
        let with_draw = |value| StepRecord::new(drawn(value), None, StepResult::Finished);
        assert!(survives(&with_draw(json!(1).into())));
        assert!(!survives(&with_draw(RawJson::new(&u128::MAX).unwrap())));
    }

    #[test]
    fn stored_steps_are_read() {
        let mut contexts = Vec::new();
        for line in STORED.lines() {
            let record = StepRecord::parse(&RawJson::parse(line).unwrap()).unwrap();
            assert_eq!(record.to_json().unwrap().as_str(), line);
            contexts.extend(record.trace_context.and_then(|context| context.parse()));
        }
        assert_eq!(contexts, [trace_context()]);
    }
}
