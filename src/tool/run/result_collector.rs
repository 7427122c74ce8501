//! Collects the results from a turn's calls.

use std::slice;
use std::sync::Arc;

use crate::error::Error;
use crate::event::{StopAction, ToolEvent};
use crate::item::{History, Item, PendingCall, RawJson, ToolCall, ToolResult};
use crate::tool::run::turn_calls::{AnsweredCall, TurnCalls};
use crate::tool::{Suspension, Tool, Toolkit};

/// The outcome of a turn's calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRunOutcome {
    /// The history at the start of the run, followed by the turn and then the results in call
    /// order.
    ///
    /// In this history, each result contains the tool name that the model used when it made the
    /// call.
    pub history: History,
    /// The results in call order, with the same tool names as in the events.
    pub results: Vec<ToolResult>,
    /// The calls that are waiting for a verdict or an external result. They are listed in call
    /// order, with the arguments that their tools receive if the calls run. A call whose sub-agent
    /// was suspended is not listed itself. Instead, the list contains the pending calls of the
    /// sub-agent, each with the path of calls that leads to the pending call.
    pub pending: Vec<PendingCall>,
    /// The ids of the answered calls whose tools are [pollable](crate::Tool::pollable).
    pub pollable_call_ids: Vec<String>,
    /// The number of calls that were answered because they exceeded the
    /// run's limit on calls.
    pub calls_over_limit: usize,
    /// The action of the first valid call to [`Tool::stop`](crate::Tool::stop), if any.
    pub stop_action: Option<Arc<StopAction>>,
}

/// Describes the calls without a result of their own, once the other calls have ended.
#[derive(Default)]
pub(super) struct CallsEnd {
    /// The calls that stay open, in call order.
    pub(super) pending: Vec<PendingCall>,
    /// The number of calls that were answered because they exceeded the call limit.
    pub(super) calls_over_limit: usize,
}

/// Collects results and suspensions, each with the index of its call, in the order in which their
/// events are emitted.
#[derive(Debug, Default)]
pub(super) struct ResultCollector {
    results: Vec<(usize, ToolResult)>,
    /// The calls that have no result because their sub-agents are suspended. Each entry contains
    /// the call's index in the turn, its id, and the suspension.
    suspended_calls: Vec<(usize, String, Suspension)>,
    /// The policy error that ended the run, if any.
    error: Option<Error>,
}

impl ResultCollector {
    /// Lets the policy and the toolkit change a result, then stores it and returns its event.
    pub(super) fn emit_result(&mut self, calls: &mut TurnCalls, ended: AnsweredCall) -> ToolEvent {
        let AnsweredCall { index: at, call, mut result } = ended;
        let redact = |json: &mut RawJson| {
            calls.policy.try_call_policy(|policy| policy.redact_evidence(&call, json))
        };
        let redacted = redact_each(evidence_mut(&mut result), redact);
        let looked = calls.policy.after_call(&call, &mut result);
        evidence_mut(&mut result).iter_mut().for_each(limit_json_depth);
        let event = ToolEvent::Output(calls.toolkit.truncate_result(&call, result));
        self.record_event(at, &event);
        self.set_error(looked.and(redacted));
        event
    }

    /// Applies the policy's redaction to a call's progress, and returns its event.
    pub(super) fn redact_progress(
        &mut self,
        calls: &mut TurnCalls,
        call: ToolCall,
        mut data: RawJson,
    ) -> ToolEvent {
        let redact = |data: &mut RawJson| {
            calls.policy.try_call_policy(|policy| policy.redact_progress(&call, data))
        };
        self.set_error(redact_each(slice::from_mut(&mut data), redact));
        let ToolCall { call_id, name, .. } = call;
        ToolEvent::Progress { call_id, name, data }
    }

    /// Stores the policy's error, unless an earlier one ends the run already.
    pub(super) fn set_error(&mut self, looked: Result<(), Error>) {
        self.error = self.error.take().or(looked.err());
    }

    /// Stores a suspension and returns its event. The suspended call still has no result.
    pub(super) fn emit_suspended(
        &mut self,
        at: usize,
        call: ToolCall,
        it: Suspension,
    ) -> ToolEvent {
        let ToolCall { call_id, name, .. } = call;
        let nested = Box::new(it.sub_agent_history);
        let event = ToolEvent::Suspended { call_id, name, pending: it.pending_calls, nested };
        self.record_event(at, &event);
        event
    }

    /// Stores the result or suspension that an event contains, if any.
    pub(super) fn record_event(&mut self, at: usize, event: &ToolEvent) {
        match event {
            ToolEvent::Output(result) => self.results.push((at, result.clone())),
            ToolEvent::Suspended { call_id, name: _, pending, nested } => {
                let (pending, nested) = (pending.clone(), History::clone(nested));
                let suspension = Suspension { pending_calls: pending, sub_agent_history: nested };
                self.suspended_calls.push((at, call_id.clone(), suspension));
            }
            ToolEvent::ApprovalRequested(_)
            | ToolEvent::Started { .. }
            | ToolEvent::GrantAdded { .. }
            | ToolEvent::GrantRevoked { .. }
            | ToolEvent::Progress { .. }
            | ToolEvent::Nested { .. } => {}
        }
    }

    pub(super) fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    pub(super) fn has_result(&self, call_id: &str) -> bool {
        self.results.iter().any(|(_, result)| result.call_id == call_id)
    }

    /// Returns the calls that have no result yet, including the calls that are waiting for a
    /// verdict, in call order.
    pub(super) fn pending<'a>(
        &self,
        waiting: impl Iterator<Item = (usize, &'a PendingCall)>,
    ) -> Vec<PendingCall> {
        let waiting = waiting.map(|(at, call)| (at, vec![call.clone()]));
        let suspended = self.suspended_calls.iter().map(|(at, call_id, suspension)| {
            let calls = suspension.pending_calls.iter().cloned();
            (*at, calls.map(|call| call.with_parent_call(call_id)).collect())
        });
        let mut pending: Vec<(usize, Vec<PendingCall>)> = waiting.chain(suspended).collect();
        pending.sort_by_key(|(at, _)| *at);
        pending.into_iter().flat_map(|(_, calls)| calls).collect()
    }

    /// Builds the outcome. If `told` is given, the outcome's history is the history that `told`
    /// reads from the place where the run's events were written.
    pub(super) fn finish(
        mut self,
        calls: TurnCalls,
        told: Option<impl FnOnce() -> History>,
        CallsEnd { pending, calls_over_limit }: CallsEnd,
    ) -> Result<ToolRunOutcome, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.results.sort_by_key(|(at, _)| *at);
        let TurnCalls { toolkit, mut history, turn, is_resumed: resumed, .. } = calls;
        if let Some(told) = told {
            history = told();
        } else {
            if !resumed {
                history.extend(turn.to_history_items());
            }
            let written: Vec<&ToolCall> = turn.tool_calls().collect();
            for (at, result) in &self.results {
                // The model may have called the tool through `call_tool`. The history contains the
                // tool name that the model used.
                let name = written.get(*at).map_or(&result.name, |call| &call.name).clone();
                history.push(Item::tool_result(ToolResult { name, ..result.clone() }));
            }
            for (_, call_id, suspension) in self.suspended_calls {
                // The sub-agent's history is stored with the call that runs the sub-agent.
                history.set_nested_history(&call_id, suspension.sub_agent_history);
            }
        }
        history.set_pending_calls(&pending);
        let results: Vec<_> = self.results.into_iter().map(|(_, result)| result).collect();
        let is_poll = |name: &str| toolkit.get(name).is_some_and(Tool::is_pollable);
        let polls = results.iter().filter(|result| is_poll(&result.name));
        let polls = polls.map(|result| result.call_id.clone()).collect();
        let stop_action = results.iter().find_map(|result| stop_action(&toolkit, result));
        Ok(ToolRunOutcome {
            history,
            results,
            pending,
            pollable_call_ids: polls,
            calls_over_limit,
            stop_action: stop_action.map(Arc::new),
        })
    }
}

/// Returns the action of a call that ends the run, if this is the result of such a call.
fn stop_action(toolkit: &Toolkit, result: &ToolResult) -> Option<StopAction> {
    let tool = toolkit.get(&result.name)?;
    let is_valid = tool.ends_run() && result.kind.is_success();
    is_valid.then(|| StopAction::from_arguments(&result.content.text()).ok())?
}

/// Redacts each JSON value that a call has reported or recorded. If the redaction of a value fails,
/// the value is replaced with `null`. Returns the first error, after all values have been
/// processed.
pub(crate) fn redact_each(
    told: &mut [RawJson],
    mut redact: impl FnMut(&mut RawJson) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut redacted = Ok(());
    for json in told {
        if let Err(error) = redact(json) {
            *json = serde_json::Value::Null.into();
            redacted = redacted.and(Err(error));
        }
        limit_json_depth(json);
    }
    redacted
}

/// Returns a result's evidence as a mutable slice.
fn evidence_mut(result: &mut ToolResult) -> &mut [RawJson] {
    match &mut result.report {
        Some(report) if !report.evidence.is_empty() => &mut Arc::make_mut(report).evidence,
        Some(_) | None => &mut [],
    }
}

/// Limits the nesting depth of a value that will later be serialized and parsed again. The limit
/// also applies to a value that a hook has set.
fn limit_json_depth(json: &mut RawJson) {
    *json = json.clone().limit_depth();
}
