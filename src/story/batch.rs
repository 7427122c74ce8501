//! The calls that a fold has seen and not yet written the results of.

use crate::event::ToolEvent;
use crate::item::{
    INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION, Item, PendingCall, Report, ResultKind,
    TIME_UP_BEFORE_START, TIME_UP_MID_EXECUTION, ToolCall, ToolResult,
};

/// Why calls get no result of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The run was interrupted, or failed.
    Interrupted,
    /// Its time is over.
    TimeUp,
}

/// Calls of completed turns, in order, with what came for them.
#[derive(Debug, Default)]
pub(super) struct Batch(Vec<Open>);

#[derive(Debug)]
struct Open {
    /// As the model wrote it.
    call: ToolCall,
    /// As it was shown to whoever has to allow it: a rule may have written it anew.
    asked: Option<ToolCall>,
    started: bool,
    /// What its sub-agent waits for, if that was suspended.
    suspended: Vec<PendingCall>,
    /// What it put on record, where it was dropped.
    report: Report,
    result: Option<ToolResult>,
}

impl Batch {
    pub(super) fn of(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        let mut batch = Self::default();
        batch.extend(calls);
        batch
    }

    pub(super) fn extend(&mut self, calls: impl IntoIterator<Item = ToolCall>) {
        let open = |call| Open {
            call,
            asked: None,
            started: false,
            suspended: Vec::new(),
            report: Report::default(),
            result: None,
        };
        self.0.extend(calls.into_iter().map(open));
    }

    /// Notes that a call's tool runs.
    pub(super) fn start(&mut self, call_id: &str) {
        if let Some(open) = self.find(call_id) {
            open.started = true;
            open.suspended.clear();
        }
    }

    /// Notes what the sub-agent waits for that was suspended as this call.
    pub(super) fn suspend(&mut self, call_id: &str, pending: &[PendingCall]) {
        if let Some(open) = self.find(call_id) {
            open.suspended = pending.to_vec();
        }
    }

    /// Notes what somebody has to allow.
    pub(super) fn ask(&mut self, call: &ToolCall) {
        if let Some(open) = self.find(&call.call_id) {
            open.asked = Some(call.clone());
        }
    }

    /// Notes what a call put on record that was dropped.
    pub(super) fn report(&mut self, call_id: &str, report: Report) {
        if let Some(open) = self.find(call_id) {
            open.report = report;
        }
    }

    /// Keeps the first result of a call.
    pub(super) fn hold(&mut self, result: &ToolResult) {
        if let Some(open) = self.find(&result.call_id) {
            open.result = Some(result.clone());
        }
    }

    /// Forgets a call, whose result got into the history on another way.
    pub(super) fn forget(&mut self, call_id: &str) {
        self.0.retain(|open| open.call.call_id != call_id);
    }

    /// Forgets the calls that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|open| keep(&open.call.call_id));
    }

    /// Takes what is held, in call order. A call without its result stays open: it may still come.
    pub(super) fn take_results(&mut self) -> Vec<ToolResult> {
        let mut results = Vec::new();
        for mut open in std::mem::take(&mut self.0) {
            match open.result.take() {
                Some(result) => results.push(result),
                None => self.0.push(open),
            }
        }
        results
    }

    /// What is held, in call order.
    pub(super) fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.0.iter().filter_map(|open| open.result.as_ref())
    }

    pub(super) fn is_answered(&self) -> bool {
        self.unanswered().next().is_none()
    }

    /// The result of the next call that has none and gets none of its own.
    pub(super) fn missing_output(&self, cut: Cut) -> Option<ToolEvent> {
        let open = self.unanswered().next()?;
        let (kind, text) = match (cut, open.started) {
            (Cut::Interrupted, true) => (ResultKind::Interrupted, INTERRUPTED_MID_EXECUTION),
            (Cut::Interrupted, false) => (ResultKind::Interrupted, INTERRUPTED_BEFORE_START),
            (Cut::TimeUp, true) => (ResultKind::Timeout, TIME_UP_MID_EXECUTION),
            (Cut::TimeUp, false) => (ResultKind::Budget, TIME_UP_BEFORE_START),
        };
        let result = ToolResult::answering(&open.call, kind, text);
        Some(ToolEvent::Output(result.with_report(open.report.clone())))
    }

    /// The calls that have no result, as they would run, or what their sub-agents wait for.
    pub(super) fn pending(&self) -> Vec<PendingCall> {
        let mut pending = Vec::new();
        for open in self.unanswered() {
            match open.suspended.is_empty() {
                true => pending.push(open.asked.as_ref().unwrap_or(&open.call).into()),
                false => {
                    let calls = open.suspended.iter().cloned();
                    pending.extend(calls.map(|call| call.nested_in(&open.call.call_id)));
                }
            }
        }
        pending
    }

    fn unanswered(&self) -> impl Iterator<Item = &Open> {
        self.0.iter().filter(|open| open.result.is_none())
    }

    /// A call that has no result.
    fn find(&mut self, call_id: &str) -> Option<&mut Open> {
        self.0.iter_mut().find(|open| open.call.call_id == call_id && open.result.is_none())
    }
}

/// As they stand in a history.
pub(super) fn items<'a>(
    results: impl Iterator<Item = &'a ToolResult>,
) -> impl Iterator<Item = Item> {
    results.cloned().map(Item::tool_result)
}
