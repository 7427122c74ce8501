//! The state of a tool call that is waiting for its result.

use crate::event::ToolEvent;
use crate::item::{
    EffectReport, INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION, PendingCall, ResultKind,
    TIMED_OUT_BEFORE_START, TIMED_OUT_MID_EXECUTION, ToolCall, ToolResult, interrupted_text,
};

/// The reason why a call ends without a result from its tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The run was interrupted or failed.
    Interrupted,
    /// The run's time limit was reached.
    TimedOut,
}

/// A call from a completed turn that has no result yet.
#[derive(Debug)]
pub(super) struct OpenCall {
    /// The call as written by the model.
    call: ToolCall,
    /// The request for a verdict on the call. A hook may have rewritten the original call.
    pub(super) verdict_request: Option<PendingCall>,
    /// The name of the running tool. `Some` once the tool has started in this run.
    started_tool: Option<String>,
    /// Whether the call's tool may have started in an earlier run.
    pub(super) may_have_started: bool,
    /// The pending calls of the sub-agent that this call runs, if the sub-agent is suspended.
    pub(super) nested_pending_calls: Vec<PendingCall>,
    /// The effects that the call reported before it was dropped.
    pub(super) report: EffectReport,
    /// The call's result, if it is known before its event.
    pub(super) known_result: Option<ToolResult>,
}

impl OpenCall {
    pub(super) fn id(&self) -> &str {
        &self.call.call_id
    }

    /// Returns the name by which the model called the tool.
    pub(super) fn name(&self) -> &str {
        &self.call.name
    }

    /// Records that the call's tool is running.
    pub(super) fn mark_started(&mut self, tool: &str) {
        self.started_tool = Some(tool.to_owned());
        self.nested_pending_calls.clear();
    }

    /// Returns the result of a call whose tool emits no result any more. If the result is unknown,
    /// it says so. An interrupted result contains the `reason` for the interrupt, if any.
    pub(super) fn missing_result(&self, cut: Interruption, reason: Option<&str>) -> ToolEvent {
        if let Some(result) = &self.known_result {
            return ToolEvent::Output(result.clone());
        }
        let (kind, text) = match (cut, self.may_have_started || self.started_tool.is_some()) {
            (Interruption::Interrupted, true) => {
                (ResultKind::Interrupted, INTERRUPTED_MID_EXECUTION)
            }
            (Interruption::Interrupted, false) => {
                (ResultKind::Interrupted, INTERRUPTED_BEFORE_START)
            }
            (Interruption::TimedOut, true) => (ResultKind::Timeout, TIMED_OUT_MID_EXECUTION),
            (Interruption::TimedOut, false) => (ResultKind::Budget, TIMED_OUT_BEFORE_START),
        };
        let reason = reason.filter(|_| cut == Interruption::Interrupted);
        let text = interrupted_text(text, reason);
        let mut result = ToolResult::for_call(&self.call, kind, text);
        // The result has the same tool name as the other events for this call.
        let shown_call = self.verdict_request.as_ref().map(|call| &call.name);
        if let Some(name) = self.started_tool.as_ref().or(shown_call) {
            result.name.clone_from(name);
        }
        ToolEvent::Output(result.with_report(self.report.clone()))
    }

    fn pending_call(&self) -> PendingCall {
        let request = self.verdict_request.clone();
        request.unwrap_or_else(|| PendingCall::from(self.call.clone()))
    }

    /// Returns the call with the arguments that its tool would receive or, if the call runs a
    /// sub-agent that is suspended, the sub-agent's pending calls.
    pub(super) fn pending_calls(&self) -> Vec<PendingCall> {
        match self.nested_pending_calls.is_empty() {
            true => vec![self.pending_call()],
            false => {
                let calls = self.nested_pending_calls.iter().cloned();
                calls.map(|call| call.with_parent_call(self.id())).collect()
            }
        }
    }
}

impl From<ToolCall> for OpenCall {
    fn from(call: ToolCall) -> Self {
        Self {
            call,
            verdict_request: None,
            started_tool: None,
            may_have_started: false,
            nested_pending_calls: Vec::new(),
            report: EffectReport::default(),
            known_result: None,
        }
    }
}
