//! What the calls of a turn came to.

use std::slice;
use std::sync::Arc;

use crate::error::Error;
use crate::event::ToolEvent;
use crate::item::{History, Item, Json, PendingCall, ToolCall, ToolResult};
use crate::tool::run::calls::{Calls, Ended};
use crate::tool::{Suspension, Tool};

/// What the calls of a turn came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// What the run began with, the turn, and the results in call order.
    pub history: History,
    /// The results, in call order.
    pub results: Vec<ToolResult>,
    /// The calls that wait for a verdict or a result from outside, in call order, with the arguments
    /// that would run. A call whose sub-agent was suspended is not listed itself; those that the
    /// sub-agent waits for are, each with the path to it.
    pub pending: Vec<PendingCall>,
    /// The ids of the results' calls whose tools are [pollable](crate::Tool::pollable).
    pub polls: Vec<String>,
    /// How many of the results are those of calls beyond the [limit](crate::tool::ToolRun::limited).
    pub limited: usize,
}

/// What was given out, in the order in which it came, with the places of the calls.
#[derive(Debug, Default)]
pub(super) struct Results {
    given: Vec<(usize, ToolResult)>,
    /// What is left of the calls that stay open since their sub-agents were suspended, with their
    /// places in the turn and their ids.
    suspended: Vec<(usize, String, Suspension)>,
    /// What the gate ended the run with.
    error: Option<Error>,
}

impl Results {
    /// The result as the gate and the kit let it be seen. It is held from here on.
    pub(super) fn give_out(&mut self, calls: &mut Calls, ended: Ended) -> ToolEvent {
        let Ended { at, call, mut result } = ended;
        let redact = |json: &mut Json| calls.gate.try_ask(|gate| gate.redact_evidence(&call, json));
        let redacted = redact_all(evidence_of(&mut result), redact);
        let looked = calls.gate.after(&call, &mut result);
        evidence_of(&mut result).iter_mut().for_each(flatten);
        let event = ToolEvent::Output(calls.kit.clip(&call, result));
        self.keep(at, &event);
        self.note_error(looked.and(redacted));
        event
    }

    /// Progress as the gate lets it be seen.
    pub(super) fn redact(&mut self, calls: &mut Calls, mut event: ToolEvent) -> ToolEvent {
        let ToolEvent::Progress { call_id, data, .. } = &mut event else { return event };
        if let Some(call) = calls.turn.tool_calls().find(|call| call.call_id == *call_id) {
            let progress = slice::from_mut(data);
            let redact =
                |data: &mut Json| calls.gate.try_ask(|gate| gate.redact_progress(call, data));
            self.note_error(redact_all(progress, redact));
        }
        event
    }

    pub(super) fn note_error(&mut self, looked: Result<(), Error>) {
        self.error = looked.err().or(self.error.take());
    }

    /// Leaves a call open.
    pub(super) fn suspend(&mut self, at: usize, call: ToolCall, it: Suspension) -> ToolEvent {
        let ToolCall { call_id, name, .. } = call;
        let nested = Box::new(it.nested);
        let event = ToolEvent::Suspended { call_id, name, pending: it.pending, nested };
        self.keep(at, &event);
        event
    }

    /// Keeps what an event says a call came to.
    pub(super) fn keep(&mut self, at: usize, event: &ToolEvent) {
        match event {
            ToolEvent::Output(result) => self.given.push((at, result.clone())),
            ToolEvent::Suspended { call_id, name: _, pending, nested } => {
                let (pending, nested) = (pending.clone(), History::clone(nested));
                let suspension = Suspension { pending, nested };
                self.suspended.push((at, call_id.clone(), suspension));
            }
            ToolEvent::ApprovalRequested(_)
            | ToolEvent::Started { .. }
            | ToolEvent::Progress { .. }
            | ToolEvent::Nested { .. } => {}
        }
    }

    pub(super) fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    pub(super) fn has(&self, call_id: &str) -> bool {
        self.given.iter().any(|(_, result)| result.call_id == call_id)
    }

    /// The calls that stay open, in call order, with those that wait for a verdict.
    pub(super) fn pending<'a>(
        &self,
        waiting: impl Iterator<Item = (usize, &'a ToolCall)>,
    ) -> Vec<PendingCall> {
        let waiting = waiting.map(|(at, call)| (at, vec![PendingCall::from(call)]));
        let suspended = self.suspended.iter().map(|(at, call_id, suspension)| {
            let calls = suspension.pending.iter().cloned();
            (*at, calls.map(|call| call.with_parent_call(call_id)).collect())
        });
        let mut pending: Vec<(usize, Vec<PendingCall>)> = waiting.chain(suspended).collect();
        pending.sort_by_key(|(at, _)| *at);
        pending.into_iter().flat_map(|(_, calls)| calls).collect()
    }

    /// All of it. `told` reads the history where its events were written into.
    pub(super) fn finish(
        mut self,
        calls: Calls,
        told: Option<impl FnOnce() -> History>,
        pending: Vec<PendingCall>,
        limited: usize,
    ) -> Result<Answered, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.given.sort_by_key(|(at, _)| *at);
        let results: Vec<_> = self.given.into_iter().map(|(_, result)| result).collect();
        let Calls { kit, mut history, turn, resumed, .. } = calls;
        if let Some(told) = told {
            history = told();
        } else {
            if !resumed {
                history.extend(turn.to_history_items());
            }
            history.extend(results.iter().cloned().map(Item::tool_result));
            for (_, call_id, suspension) in self.suspended {
                // Beside the call.
                history.set_nested(&call_id, suspension.nested);
            }
        }
        let is_poll = |name: &str| kit.get(name).is_some_and(Tool::is_pollable);
        let polls = results.iter().filter(|result| is_poll(&result.name));
        let polls = polls.map(|result| result.call_id.clone()).collect();
        Ok(Answered { history, results, pending, polls, limited })
    }
}

/// Redacts each of what a call has told or put on record. One that could not be looked through is not kept; the first error
/// is returned.
pub(crate) fn redact_all(
    told: &mut [Json],
    mut redact: impl FnMut(&mut Json) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut redacted = Ok(());
    for json in told {
        if let Err(error) = redact(json) {
            *json = serde_json::Value::Null.into();
            redacted = redacted.and(Err(error));
        }
        flatten(json);
    }
    redacted
}

/// The evidence of a result, to be changed.
fn evidence_of(result: &mut ToolResult) -> &mut [Json] {
    match &mut result.report {
        Some(report) if !report.evidence.is_empty() => &mut Arc::make_mut(report).evidence,
        Some(_) | None => &mut [],
    }
}

/// It is written with an event or an item and read again, whether a tool or a hook has set it.
fn flatten(json: &mut Json) {
    *json = json.clone().limit_depth();
}
