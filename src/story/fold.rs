//! The fold of events over a history, without any sharing.

use std::collections::HashSet;

use crate::error::Error;
use crate::event::{
    AppendedWhy, BudgetKind, Event, Exceeded, Outcome, Phase, Reason, ToolEvent, Transition,
    Undelivered,
};
use crate::item::{History, Item, Json, Report, ResultKind, ToolCall, ToolResult};
use crate::story::batch::{self, Batch, Cut};
use crate::story::nested::Nested;
use crate::turn::{PartialTurn, TurnEvent};
use crate::usage::Usage;

/// What the events so far have made of a history.
#[derive(Debug)]
pub(super) struct Fold {
    /// Without the turn that is open and the results that are held.
    history: History,
    /// What was appended before the history was last rewritten, as it was then.
    earlier: Vec<Item>,
    /// The history's length when it was last rewritten, or at first: what comes after it is new.
    base: usize,
    /// The turn that streams.
    open: PartialTurn,
    /// The calls of the last completed turn.
    batch: Batch,
    phase: Phase,
    /// What the results in the history have put on record, also those that were rewritten since.
    evidence: Vec<Json>,
    nested: Nested,
    /// Of completed turns, of void attempts, and of what was rewritten.
    spent: Usage,
    requests: u32,
    turns: u32,
    /// With what it continues.
    last_text: String,
    /// What the open turn continues.
    begun_text: String,
    /// Whether the next turn continues the text of the last.
    continues: bool,
}

impl Fold {
    pub(super) fn new(history: History) -> Self {
        // Calls that are still open can be answered by the events to come.
        let mut batch = Batch::of(history.unanswered_calls());
        for call_id in history.suspended_calls() {
            batch.report(call_id, history.nested_report(call_id));
        }
        Self {
            earlier: Vec::new(),
            base: history.len(),
            history,
            open: PartialTurn::default(),
            phase: if batch.is_answered() { Phase::Streaming } else { Phase::Tools },
            batch,
            evidence: Vec::new(),
            nested: Nested::default(),
            spent: Usage::default(),
            requests: 0,
            turns: 0,
            last_text: String::new(),
            begun_text: String::new(),
            continues: false,
        }
    }

    pub(super) fn observe(&mut self, event: &Event) {
        self.phase = begun_phase(event).unwrap_or(self.phase);
        match event {
            Event::Turn(event) => self.observe_turn(event),
            Event::Tool(ToolEvent::Output(result)) => self.hold(result),
            Event::Tool(ToolEvent::Started { call_id, .. }) => self.batch.start(call_id),
            Event::Tool(ToolEvent::ApprovalRequested(call)) => self.batch.ask(call),
            Event::Tool(ToolEvent::Suspended { call_id, name: _, pending, nested }) => {
                self.batch.suspend(call_id, pending);
                self.history.set_nested(call_id, (**nested).clone());
                self.batch.report(call_id, self.history.nested_report(call_id));
            }
            // A child's story is its own: nothing of it changes ours.
            Event::Tool(ToolEvent::Nested { call_id, event, .. })
            | Event::Nested { call_id, event, .. } => {
                self.nested.observe(&self.history, call_id, event);
            }
            Event::Appended { why, items, .. } => {
                self.flush();
                self.continues |= *why == AppendedWhy::Continuation;
                for result in items.iter().filter_map(Item::as_tool_result) {
                    self.batch.forget(&result.call_id);
                    self.evidence.extend(evidence(result));
                }
                self.history.extend(items.iter().cloned());
            }
            Event::Rewritten { from, to, items, usage, .. } => {
                self.flush();
                self.spent += *usage;
                self.earlier.extend(self.history.behind(self.base).map(|(_, item)| item.clone()));
                self.history.rewrite(*from..*to, items.iter().cloned());
                self.base = self.history.len();
                // A call that was rewritten away waits for nothing any more.
                if !self.batch.is_answered() {
                    let open: HashSet<String> = (self.history.unanswered_calls().into_iter())
                        .map(|call| call.call_id)
                        .collect();
                    self.batch.retain(|call_id| open.contains(call_id));
                }
            }
            Event::TurnStarted { transition, .. } => {
                self.flush();
                self.requests += 1;
                let continues = std::mem::take(&mut self.continues)
                    || *transition == Some(Transition::PauseResumed);
                let last = std::mem::take(&mut self.last_text);
                self.begun_text = if continues { last } else { String::new() };
            }
            Event::Finished(_) => self.flush(),
            // Nobody folds what nobody knows.
            Event::Tool(ToolEvent::Progress { .. }) | Event::Continued { .. } | Event::Unknown => {}
        }
    }

    fn observe_turn(&mut self, event: &TurnEvent) {
        // It opens no turn.
        if let TurnEvent::Retrying { .. } = event {
            return;
        }
        // Without a `TurnStarted` a turn begins with its first event.
        self.flush_results();
        match event {
            TurnEvent::TurnComplete { turn } => {
                self.open = PartialTurn::default();
                self.spent += turn.usage();
                self.turns += 1;
                self.last_text = format!("{}{}", self.begun_text, turn.answer());
                self.history.extend(turn.to_history_items());
                self.batch.extend(turn.tool_calls().cloned());
            }
            TurnEvent::Retracted { usage, .. } => {
                self.spent += *usage;
                self.open = PartialTurn::default();
            }
            event => self.open.absorb(event),
        }
    }

    fn hold(&mut self, result: &ToolResult) {
        self.batch.hold(result);
        if self.batch.is_answered() {
            self.flush_results();
        }
    }

    fn flush_results(&mut self) {
        for result in self.batch.take_results() {
            self.evidence.extend(evidence(&result));
            self.history.push(Item::tool_result(result));
        }
    }

    /// Writes what is held and what is open into the history.
    fn flush(&mut self) {
        self.flush_results();
        if !self.open.is_empty() {
            let open = std::mem::take(&mut self.open);
            self.spent += open.usage();
            self.last_text = format!("{}{}", self.begun_text, open.text());
            self.history.extend(open.items());
        }
    }

    pub(super) fn ask(&mut self, calls: impl IntoIterator<Item = ToolCall>) {
        for call in calls {
            self.batch.ask(&call);
        }
    }

    pub(super) fn report(&mut self, call_id: &str, report: Report) {
        self.batch.report(call_id, report);
    }

    pub(super) fn history(&self) -> History {
        let mut history = self.history.clone();
        for call_id in self.history.suspended_calls() {
            // It may have continued since.
            if let Some(child) = self.nested.find(call_id) {
                history.set_nested(call_id, child.history());
            }
        }
        history.extend(batch::items(self.batch.results()));
        history.extend(self.open.items());
        history
    }

    /// How many entries of the history have their final position.
    pub(super) fn complete(&self) -> usize {
        self.history.len()
    }

    pub(super) fn usage(&self) -> Usage {
        self.spent + self.open.usage()
    }

    pub(super) fn new_items(&self) -> Vec<Item> {
        let history = self.history();
        let since = history.behind(self.base).map(|(_, item)| item);
        self.earlier.iter().chain(since).cloned().collect()
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn is_answered(&self) -> bool {
        self.batch.is_answered()
    }

    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn nested(&self) -> &Nested {
        &self.nested
    }

    /// A result for the next call that has none.
    pub(super) fn missing_output(&self, cut: Cut) -> Option<ToolEvent> {
        self.batch.missing_output(cut)
    }

    /// What comes before a run can end for this reason: a result for the next call that has none.
    /// Calls that are pending get theirs from outside.
    pub(super) fn missing_output_of(
        &self,
        reason: Reason,
        budget: Option<Exceeded>,
    ) -> Option<ToolEvent> {
        let is_time = budget.is_some_and(|budget| budget.kind == BudgetKind::Time);
        match reason {
            Reason::Pending => None,
            Reason::Budget if is_time => self.missing_output(Cut::TimeUp),
            _ => self.missing_output(Cut::Interrupted),
        }
    }

    /// How many requests were begun.
    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    pub(super) fn outcome(
        &self,
        reason: Reason,
        error: Option<Error>,
        budget: Option<Exceeded>,
        undelivered: Vec<Undelivered>,
    ) -> Outcome {
        let open = u32::from(!self.open.is_empty());
        let text = match self.open.is_empty() {
            true => self.last_text.clone(),
            false => format!("{}{}", self.begun_text, self.open.text()),
        };
        let held = self.batch.results().flat_map(evidence);
        Outcome {
            reason,
            why: None,
            partial: reason.is_partial(),
            text,
            turns: self.requests.max(self.turns + open),
            usage: self.usage(),
            nested_usage: self.nested.usage(),
            cost: None,
            history: self.history(),
            new_items: self.new_items(),
            error,
            pending: match reason == Reason::Pending {
                true => self.batch.pending(),
                false => Vec::new(),
            },
            undelivered,
            evidence: self.evidence.iter().cloned().chain(held).collect(),
            proof: None,
            budget,
        }
    }
}

/// The phase that an event begins.
fn begun_phase(event: &Event) -> Option<Phase> {
    match event {
        Event::Tool(ToolEvent::Started { .. } | ToolEvent::ApprovalRequested(_)) => {
            Some(Phase::Tools)
        }
        // The end of a run answers calls that never began.
        Event::Tool(ToolEvent::Output(result)) => {
            (result.kind != ResultKind::Interrupted).then_some(Phase::Tools)
        }
        // A retry opens no turn.
        Event::Turn(TurnEvent::Retrying { .. })
        | Event::Tool(
            ToolEvent::Progress { .. } | ToolEvent::Suspended { .. } | ToolEvent::Nested { .. },
        )
        | Event::Nested { .. }
        | Event::Appended { .. }
        | Event::Rewritten { .. }
        | Event::Continued { .. }
        | Event::Finished(_)
        | Event::Unknown => None,
        Event::TurnStarted { .. } | Event::Turn(_) => Some(Phase::Streaming),
    }
}

/// What a result has put on record.
fn evidence(result: &ToolResult) -> impl Iterator<Item = Json> {
    result.report.iter().flat_map(|report| report.evidence.iter().cloned())
}
