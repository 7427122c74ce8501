//! Applies a run's events to a history, without shared state.

use std::collections::HashSet;

use crate::error::Error;
use crate::event::{
    AppendReason, BudgetExceeded, BudgetKind, EndReason, Event, InterruptedPhase, Outcome,
    ToolEvent, Transition, UndeliveredInput,
};
use crate::item::{
    EffectReport, History, Item, OpenCalls, PendingCall, RawJson, ResultKind, StopReason,
    ToolResult,
};
use crate::journal::open_call::{Interruption, OpenCall};
use crate::turn::{PartialTurn, TurnEvent};
use crate::usage::{CostGap, Usage, add_gap};

/// Tracks the history, usage and state that result from the events applied so far.
///
/// The fields that a delta uses come first, so that they share cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RunFold {
    phase: InterruptedPhase,
    /// Whether the requests for verdicts with which an earlier run ended are still open.
    has_earlier_requests: bool,
    /// Whether a turn was cut off, and its output became part of the history.
    has_cut_off_turn: bool,
    /// Whether the next turn continues the text of the last turn.
    next_turn_continues: bool,
    /// The open calls from completed turns, along with any results that are still buffered.
    open_calls: OpenCalls<OpenCall, ToolResult>,
    /// The turn that is currently streaming.
    partial_turn: PartialTurn,
    /// The history, excluding the open turn and the buffered results.
    history: History,
    /// The items that were appended before the last rewrite of the history, in their original form.
    earlier_new_items: Vec<Item>,
    /// The length of the history after its last rewrite, or at the start of the run if it was never
    /// rewritten. All items beyond this length are new.
    new_items_start: usize,
    /// The evidence from tool results in the history, including results that have since been
    /// rewritten.
    evidence: Vec<RawJson>,
    /// The tokens used by completed turns, retracted attempts, compactions and hooks.
    usage: Usage,
    ended_runs: EndedRuns,
    request_count: u32,
    /// The number of completed turns, including a turn that an interrupt with a reason cut off.
    ended_turns: u32,
    /// The text of the last turn, preceded by the text that the turn continues, if any.
    last_text: String,
    /// The text that the open turn continues.
    continued_text: String,
    /// The provider's word for the reason why the last turn ended, if it is unknown.
    unknown_stop_reason: Option<String>,
}

/// The usage and cost of the runs that have ended. A sub-agent that was suspended and resumed has
/// several runs.
#[derive(Debug)]
struct EndedRuns {
    usage: Usage,
    /// `None` if the cost of any of the runs is unknown.
    cost: Option<u64>,
    /// The reasons why the cost is not exact.
    gaps: Vec<CostGap>,
}

impl EndedRuns {
    /// Adds a run that ended. `usage` is the usage of all runs, which is greater than expected if
    /// an earlier run was dropped.
    fn add(&mut self, usage: Usage, outcome: &Outcome) {
        let costs = self.cost.zip(outcome.cost);
        self.cost = match usage {
            usage if usage == self.usage => self.cost,
            usage if usage == self.usage + outcome.usage => {
                costs.map(|(before, cost)| before.saturating_add(cost))
            }
            _ => None,
        };
        self.usage = usage;
        for gap in &outcome.cost_gaps {
            add_gap(&mut self.gaps, gap.clone());
        }
    }
}

/// Describes how a run ends.
#[derive(Debug)]
pub(crate) struct RunEnd<'a> {
    pub(crate) reason: EndReason,
    pub(crate) error: Option<&'a Error>,
    pub(crate) budget: Option<BudgetExceeded>,
    /// The reason for the interrupt that ended the run, which interrupted results contain.
    pub(crate) interrupt_reason: Option<&'a str>,
    /// Whether calls without a result get no result, because they receive it from outside the run.
    pub(crate) leaves_calls_open: bool,
}

impl RunFold {
    pub(super) fn new(history: History) -> Self {
        // Later events can still contain results for calls that are open at the start.
        let mut suspended: HashSet<&str> = history.suspended_call_ids().collect();
        let unanswered = history.unanswered_calls().into_iter().map(|call| {
            let mut call = OpenCall::from(call);
            if suspended.remove(call.id()) {
                call.may_have_started = true;
                call.report = history.nested_effect_report(call.id());
            }
            call
        });
        let calls: OpenCalls<OpenCall, ToolResult> = unanswered.collect();
        Self {
            earlier_new_items: Vec::new(),
            new_items_start: history.len(),
            has_earlier_requests: history.has_verdict_requests(),
            history,
            partial_turn: PartialTurn::default(),
            phase: if calls.all_answered() {
                InterruptedPhase::Streaming
            } else {
                InterruptedPhase::Tools
            },
            open_calls: calls,
            evidence: Vec::new(),
            usage: Usage::default(),
            ended_runs: EndedRuns { usage: Usage::default(), cost: Some(0), gaps: Vec::new() },
            has_cut_off_turn: false,
            request_count: 0,
            ended_turns: 0,
            last_text: String::new(),
            continued_text: String::new(),
            next_turn_continues: false,
            unknown_stop_reason: None,
        }
    }

    pub(super) fn observe(&mut self, event: &Event) {
        self.phase = phase_started_by(event).unwrap_or(self.phase);
        match event {
            Event::Turn(event) => self.observe_turn_event(event),
            Event::Tool(ToolEvent::Output(result)) => {
                self.void_earlier_requests(&result.call_id);
                self.buffer_result(result);
            }
            Event::Tool(ToolEvent::Started { call_id, name, .. }) => {
                self.void_earlier_requests(call_id);
                self.update_call(call_id, |call| call.mark_started(name));
            }
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                self.set_verdict_request((**call).clone());
            }
            Event::Tool(ToolEvent::Suspended { call_id, name: _, pending, nested }) => {
                self.update_call(call_id, |call| call.nested_pending_calls.clone_from(pending));
                self.history.set_nested_history(call_id, (**nested).clone());
                self.set_effect_report(call_id, self.history.nested_effect_report(call_id));
            }
            Event::Appended { why, items, .. } => {
                let is_cut = *why == AppendReason::Interrupt && self.has_open_turn();
                self.ended_turns += u32::from(is_cut);
                self.flush_open_turn();
                self.next_turn_continues |= *why == AppendReason::Continuation;
                for result in items.iter().filter_map(Item::as_tool_result) {
                    self.open_calls.retain(|call| call.id() != result.call_id);
                    self.evidence.extend(result_evidence(result));
                }
                self.history.extend(items.iter().cloned());
            }
            Event::Rewritten { from, to, items, usage, .. } => {
                self.flush_open_turn();
                self.usage += **usage;
                self.earlier_new_items.extend(
                    self.history.entries_after(self.new_items_start).map(|(_, item)| item.clone()),
                );
                self.history.rewrite(*from..*to, items.iter().cloned());
                self.new_items_start = self.history.len();
                // A call that was removed by a rewrite no longer waits for a result.
                if !self.open_calls.all_answered() {
                    let open: HashSet<String> = (self.history.unanswered_calls().into_iter())
                        .map(|call| call.call_id)
                        .collect();
                    self.open_calls.retain(|call| open.contains(call.id()));
                }
            }
            Event::HelperUsage { usage, .. } => self.usage += **usage,
            Event::TurnStarted { transition, .. } => {
                self.flush_open_turn();
                self.request_count += 1;
                let continues = std::mem::take(&mut self.next_turn_continues)
                    || *transition == Some(Transition::PauseResumed);
                self.unknown_stop_reason = None;
                let last = std::mem::take(&mut self.last_text);
                self.continued_text = if continues { last } else { String::new() };
            }
            Event::Finished(outcome) => {
                self.flush_open_turn();
                self.history.set_pending_calls(&outcome.pending);
                self.ended_runs.add(self.usage, outcome);
            }
            // The events of a sub-agent are recorded in its own journal and do not change this
            // journal.
            Event::Tool(
                ToolEvent::Nested { .. }
                | ToolEvent::Progress { .. }
                | ToolEvent::GrantAdded { .. }
                | ToolEvent::GrantRevoked { .. },
            )
            | Event::Nested { .. }
            | Event::Continued { .. }
            | Event::Unknown => {}
        }
    }

    fn observe_turn_event(&mut self, event: &TurnEvent) {
        // A retry does not open a turn.
        if let TurnEvent::Retrying { .. } = event {
            return;
        }
        // Without a `TurnStarted`, a turn starts with its first event.
        self.flush_results();
        match event {
            TurnEvent::TurnComplete { turn } => {
                self.partial_turn = PartialTurn::default();
                self.usage += turn.usage();
                self.ended_turns += 1;
                self.unknown_stop_reason = match turn.stop_reason() {
                    StopReason::Other(word) => Some(word.clone()),
                    _ => None,
                };
                self.last_text = format!("{}{}", self.continued_text, turn.answer());
                self.history.extend(turn.to_history_items());
                self.open_calls.extend(turn.tool_calls().cloned().map(OpenCall::from));
            }
            TurnEvent::Retracted { usage, .. } => {
                self.usage += **usage;
                self.partial_turn = PartialTurn::default();
            }
            event => self.partial_turn.absorb(event),
        }
    }

    fn buffer_result(&mut self, result: &ToolResult) {
        let is_it = |call: &OpenCall| call.id() == result.call_id;
        let mut item = result.clone();
        if let Some(call) = self.open_calls.find_mut(is_it)
            && call.name() != result.name
        {
            // The model called the tool by another name. In the history, a result has the same tool
            // name as its call.
            call.name().clone_into(&mut item.name);
        }
        self.open_calls.buffer_result(is_it, item);
        if self.open_calls.all_answered() {
            self.flush_results();
        }
    }

    fn flush_results(&mut self) {
        for result in self.open_calls.take_buffered_results() {
            self.evidence.extend(result_evidence(&result));
            self.history.push(Item::tool_result(result));
        }
    }

    /// Writes the buffered results and the open turn into the history.
    fn flush_open_turn(&mut self) {
        self.flush_results();
        if !self.partial_turn.is_empty() {
            let open = std::mem::take(&mut self.partial_turn);
            self.has_cut_off_turn = true;
            self.usage += open.usage();
            self.last_text = format!("{}{}", self.continued_text, open.text());
            self.history.extend(open.items());
        }
    }

    /// Records a request for a verdict.
    pub(super) fn set_verdict_request(&mut self, request: PendingCall) {
        let call_id = request.call_id.clone();
        self.update_call(&call_id, |call| call.verdict_request = Some(request));
    }

    /// Voids the requests with which an earlier run ended, once this run starts or answers an open
    /// call. A session stores [`Resumed`](crate::session::Entry::Resumed) at the same point.
    fn void_earlier_requests(&mut self, call_id: &str) {
        if self.has_earlier_requests
            && self.open_calls.position(|call| call.id() == call_id).is_some()
        {
            self.has_earlier_requests = false;
            self.history.void_verdict_requests();
        }
    }

    /// Records whether a call's tool may have started in an earlier run.
    pub(super) fn set_may_have_started(&mut self, call_id: &str, may_have_started: bool) {
        self.update_call(call_id, |call| call.may_have_started = may_have_started);
    }

    /// Records the effect report from a call that was dropped.
    pub(super) fn set_effect_report(&mut self, call_id: &str, report: EffectReport) {
        self.update_call(call_id, |call| call.report = report);
    }

    /// Records the result of a call whose `Output` event has not been observed yet.
    pub(super) fn set_known_result(&mut self, result: &ToolResult) {
        self.update_call(&result.call_id, |call| call.known_result = Some(result.clone()));
    }

    /// Returns the results that are known, but whose `Output` events have not been observed yet.
    pub(super) fn known_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.open_calls.unanswered().filter_map(|call| call.known_result.as_ref())
    }

    fn update_call(&mut self, call_id: &str, note: impl FnOnce(&mut OpenCall)) {
        if let Some(call) = self.open_calls.find_mut(|call| call.id() == call_id) {
            note(call);
        }
    }

    /// Returns the current history. `continued` returns the current history of a sub-agent that was
    /// suspended and has since continued.
    pub(super) fn history(&self, continued: impl Fn(&str) -> Option<History>) -> History {
        let mut history = self.history.clone();
        for call_id in self.history.suspended_call_ids() {
            if let Some(nested) = continued(call_id) {
                history.set_nested_history(call_id, nested);
            }
        }
        history.extend(self.open_calls.buffered_results().cloned().map(Item::tool_result));
        history.extend(self.partial_turn.items());
        history
    }

    /// Returns the history, excluding items whose position is not final yet.
    pub(super) fn final_history(&self) -> &History {
        &self.history
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage + self.partial_turn.usage()
    }

    /// Returns the cost of the tokens used so far, if it is known. Only the end of a run reports
    /// its cost, so the cost of a run in progress is unknown.
    pub(super) fn cost(&self) -> Option<u64> {
        self.ended_runs.cost.filter(|_| self.ended_runs.usage == self.usage())
    }

    /// Returns the reasons why the cost of the runs that have ended is not exact.
    pub(super) fn cost_gaps(&self) -> &[CostGap] {
        &self.ended_runs.gaps
    }

    /// Returns whether a turn was cut off, or would be if the run ended now.
    pub(super) fn has_cut_off_turn(&self) -> bool {
        self.has_cut_off_turn || self.has_open_turn()
    }

    pub(super) fn new_items(&self) -> Vec<Item> {
        let history = self.history(|_| None);
        let since = history.entries_after(self.new_items_start).map(|(_, item)| item);
        self.earlier_new_items.iter().chain(since).cloned().collect()
    }

    pub(super) fn phase(&self) -> InterruptedPhase {
        self.phase
    }

    pub(super) fn all_calls_answered(&self) -> bool {
        self.open_calls.all_answered()
    }

    pub(super) fn has_open_turn(&self) -> bool {
        !self.partial_turn.is_empty()
    }

    /// Creates a result for the next unanswered call.
    pub(super) fn next_missing_result(
        &self,
        cut: Interruption,
        reason: Option<&str>,
    ) -> Option<ToolEvent> {
        self.open_calls.unanswered().next().map(|call| call.missing_result(cut, reason))
    }

    /// Creates a result for the next unanswered call. Every unanswered call must have a result
    /// before the run ends, unless the run leaves its calls open.
    pub(super) fn missing_result_before_end(&self, end: &RunEnd<'_>) -> Option<ToolEvent> {
        if end.leaves_calls_open {
            return None;
        }
        let is_time = end.budget.is_some_and(|budget| budget.kind == BudgetKind::Time);
        match end.reason {
            EndReason::Budget if is_time => self.next_missing_result(Interruption::TimedOut, None),
            _ => self.next_missing_result(Interruption::Interrupted, end.interrupt_reason),
        }
    }

    /// Returns the number of requests started so far.
    pub(super) fn requests(&self) -> u32 {
        self.request_count
    }

    /// Returns the outcome that the run would have if it ended now. `history` must be the history
    /// returned by [`history`](Self::history).
    pub(super) fn outcome(
        &self,
        history: History,
        (nested_usage, nested_cost, nested_cost_gaps): (Usage, Option<u64>, Vec<CostGap>),
        reason: EndReason,
        error: Option<Error>,
        budget: Option<BudgetExceeded>,
        undelivered: Vec<UndeliveredInput>,
    ) -> Outcome {
        let open = u32::from(!self.partial_turn.is_empty());
        let text = match self.partial_turn.is_empty() {
            true => self.last_text.clone(),
            false => format!("{}{}", self.continued_text, self.partial_turn.text()),
        };
        let held = self.open_calls.buffered_results().flat_map(result_evidence);
        let pending: Vec<PendingCall> = match reason == EndReason::Pending {
            true => self.open_calls.unanswered().flat_map(OpenCall::pending_calls).collect(),
            false => Vec::new(),
        };
        let mut history = history;
        history.set_pending_calls(&pending);
        Outcome {
            reason,
            why: None,
            partial: reason.is_partial()
                || reason == EndReason::Completed && self.unknown_stop_reason.is_some(),
            unknown_stop_reason: self.unknown_stop_reason.as_deref().map(Into::into),
            text,
            turns: self.request_count.max(self.ended_turns + open),
            usage: self.usage(),
            nested_usage: nested_usage.into(),
            cost: None,
            cost_gaps: Box::default(),
            nested_cost_gaps: nested_cost_gaps.into(),
            nested_cost: nested_cost.filter(|_| nested_usage != Usage::default()),
            history,
            new_items: self.new_items().into(),
            error,
            pending,
            undelivered,
            evidence: self.evidence.iter().cloned().chain(held).collect(),
            proof: None,
            unproven: None,
            stop_action: None,
            budget: budget.map(Box::new),
        }
    }
}

/// Returns the phase that begins with the given event, if any.
fn phase_started_by(event: &Event) -> Option<InterruptedPhase> {
    match event {
        Event::Tool(ToolEvent::Started { .. } | ToolEvent::ApprovalRequested(_)) => {
            Some(InterruptedPhase::Tools)
        }
        // At the end of a run, calls that never started get an `Interrupted` result.
        Event::Tool(ToolEvent::Output(result)) => {
            (result.kind != ResultKind::Interrupted).then_some(InterruptedPhase::Tools)
        }
        // A retry does not open a turn.
        Event::Turn(TurnEvent::Retrying { .. })
        | Event::Tool(
            ToolEvent::Progress { .. }
            | ToolEvent::Suspended { .. }
            | ToolEvent::GrantAdded { .. }
            | ToolEvent::GrantRevoked { .. }
            | ToolEvent::Nested { .. },
        )
        | Event::Nested { .. }
        | Event::Appended { .. }
        | Event::Rewritten { .. }
        | Event::HelperUsage { .. }
        | Event::Continued { .. }
        | Event::Finished(_)
        | Event::Unknown => None,
        Event::TurnStarted { .. } | Event::Turn(_) => Some(InterruptedPhase::Streaming),
    }
}

/// Returns an iterator over the evidence in a tool result.
fn result_evidence(result: &ToolResult) -> impl Iterator<Item = RawJson> {
    result.report.iter().flat_map(|report| report.evidence.iter().cloned())
}
