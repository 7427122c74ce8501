//! Converts events to session entries.

use std::collections::HashMap;

use crate::event::{AppendReason, EndReason, Event, GrantChange, ToolEvent};
use crate::item::{GrantDuration, History, Item, OpenCalls, ToolCall, ToolResult, join_call_id};
use crate::journal::Journal;
use crate::session::called_tool::called_tool;
use crate::session::restore::EntryFold;
use crate::session::{Entry, SessionState};
use crate::tool::{Tool, Toolkit};
use crate::turn::{PartialTurn, TurnEvent};

/// Converts events to session entries, one event at a time, without performing I/O.
///
/// A complete turn is converted to one entry for each of its items. A tool result is converted as
/// soon as it arrives. Restoring the entries produces the same history as folding the events.
#[derive(Clone, Debug)]
pub(super) struct EntryRecorder {
    /// The fold of the entries recorded so far.
    fold: EntryFold,
    /// The turn that is currently streaming.
    partial_turn: PartialTurn,
    /// The calls for which a result is accepted.
    open_calls: OpenCalls<CallName>,
    /// Whether calls were open at the start of the stream, and no entry yet records that these
    /// calls may have started.
    awaits_resumed_entry: bool,
    /// Whether later results for open calls are placed after the results recorded so far.
    has_flushed_results: bool,
    /// The tools that the calls execute. `None` if they are unknown, as in a hand-written loop.
    toolkit: Option<Toolkit>,
    /// The journals of the sub-agents that have not ended, by the ids of the calls that run them.
    /// `None` if the histories of sub-agents are not stored.
    sub_agents: Option<HashMap<String, SubAgentRecord>>,
}

/// A sub-agent's history so far.
#[derive(Clone, Debug)]
struct SubAgentRecord {
    journal: Journal,
    /// The reason why its latest run ended.
    reason: Option<EndReason>,
}

/// A call's id, and the tool name as written by the model. In the history, the call's result has
/// the same tool name.
#[derive(Clone, Debug)]
struct CallName {
    call_id: String,
    name: String,
}

impl From<&ToolCall> for CallName {
    fn from(call: &ToolCall) -> Self {
        Self { call_id: call.call_id.clone(), name: call.name.clone() }
    }
}

impl EntryRecorder {
    pub(super) fn new(
        restored: EntryFold,
        toolkit: Option<Toolkit>,
        keeps_sub_agents: bool,
    ) -> Self {
        let open: OpenCalls<_> = restored.open_calls().iter().map(CallName::from).collect();
        let waits = !open.all_answered();
        Self {
            fold: restored,
            partial_turn: PartialTurn::default(),
            open_calls: open,
            awaits_resumed_entry: waits,
            has_flushed_results: false,
            toolkit,
            sub_agents: keeps_sub_agents.then(HashMap::new),
        }
    }

    /// Returns the fold of the entries recorded so far.
    pub(super) fn fold(&self) -> &EntryFold {
        &self.fold
    }

    /// Processes an event, and returns the entries that must be written before the event is
    /// yielded.
    pub(super) fn observe(&mut self, event: &Event) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.record_grant_change(event, &mut entries);
        match event {
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                self.flush_results();
                self.partial_turn = PartialTurn::default();
                let mut items = turn.to_history_items();
                for item in &mut items {
                    let call = item.as_tool_call();
                    item.idempotent = call.is_some_and(|call| self.calls_idempotent_tool(call));
                }
                self.push_items(items, &mut entries);
                self.open_calls.extend(turn.tool_calls().map(CallName::from));
            }
            // A retry does not open a turn.
            Event::Turn(TurnEvent::Retrying { .. }) => {}
            Event::Turn(event) => {
                self.flush_results();
                self.partial_turn.absorb(event);
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) if self.is_open_call(call_id) => {
                self.record_resumed(&mut entries);
            }
            Event::Tool(ToolEvent::Output(result)) => self.record_result(result, &mut entries),
            Event::Tool(ToolEvent::Suspended { call_id, nested, .. })
                if self.is_open_call(call_id) =>
            {
                let (call_id, history) = (call_id.clone(), (**nested).clone());
                self.push_entry(Entry::Nested { call_id, history, reason: None }, &mut entries);
            }
            Event::Appended { why, id, items } => {
                self.flush_turn(&mut entries);
                for item in items {
                    if let Some(result) = item.as_tool_result() {
                        self.open_calls.retain(|call| call.call_id != result.call_id);
                        self.flush_results_before(result);
                    }
                    self.push_entry(Entry::Item(item.clone()), &mut entries);
                }
                if *why != AppendReason::Input && !items.is_empty() {
                    let (why, id, count) = (*why, id.clone(), items.len());
                    self.push_entry(Entry::Appended { why, id, count }, &mut entries);
                }
                self.flush_results();
            }
            Event::Rewritten { why, from, to, items, .. } => {
                self.flush_turn(&mut entries);
                let (why, from, to, items) = (*why, *from, *to, items.clone());
                self.push_entry(Entry::Rewritten { why, from, to, items }, &mut entries);
                if !self.open_calls.all_answered() {
                    let open = self.fold.open_calls();
                    self.open_calls
                        .retain(|known| open.iter().any(|call| call.call_id == known.call_id));
                }
            }
            Event::TurnStarted { .. } => self.flush_turn(&mut entries),
            Event::Finished(outcome) => {
                self.flush_turn(&mut entries);
                if outcome.reason == EndReason::Pending && !outcome.pending.is_empty() {
                    let calls = outcome.pending.clone();
                    self.push_entry(Entry::Pending { calls }, &mut entries);
                }
            }
            Event::Tool(ToolEvent::Nested { call_id, event, .. })
            | Event::Nested { call_id, event, .. } => self.observe_sub_agent(call_id, event),
            // These events do not change the history.
            Event::Tool(
                ToolEvent::Started { .. }
                | ToolEvent::ApprovalRequested(_)
                | ToolEvent::Progress { .. }
                | ToolEvent::Suspended { .. }
                | ToolEvent::GrantAdded { .. }
                | ToolEvent::GrantRevoked { .. },
            )
            | Event::HelperUsage { .. }
            | Event::Continued { .. }
            | Event::Unknown => {}
        }
        entries
    }

    /// Records a grant that holds for the session, or the revocation of such a grant.
    fn record_grant_change(&mut self, event: &Event, entries: &mut Vec<Entry>) {
        let entry = match event.grant_change() {
            Some(GrantChange::Added(grant)) if grant.terms.duration == GrantDuration::Session => {
                Entry::GrantAdded { grant }
            }
            Some(GrantChange::Revoked { grant_id })
                if self.fold.grants().iter().any(|grant| grant.id == grant_id) =>
            {
                Entry::GrantRevoked { grant_id }
            }
            Some(GrantChange::Added(_) | GrantChange::Revoked { .. }) | None => return,
        };
        self.push_entry(entry, entries);
    }

    /// Returns the entries that must be written when the stream ends.
    pub(super) fn finish(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.flush_turn(&mut entries);
        entries
    }

    /// Records a result if it is the first result for an open call, and ignores all other results,
    /// as the [journal](crate::journal) does.
    fn record_result(&mut self, result: &ToolResult, entries: &mut Vec<Entry>) {
        let is_it = |call: &CallName| call.call_id == result.call_id;
        if let Some(CallName { name, .. }) = self.open_calls.take_first_unanswered(is_it) {
            self.record_resumed(entries);
            self.record_sub_agent(&result.call_id, entries);
            let result = ToolResult { name, ..result.clone() };
            self.push_entry(Entry::Item(Item::tool_result(result)), entries);
        }
    }

    /// Adds an event to the journal of a sub-agent, if the histories of sub-agents are stored.
    fn observe_sub_agent(&mut self, call_id: &str, event: &Event) {
        let Some(journals) = &mut self.sub_agents else { return };
        if event.grant_change().is_some() {
            // Repeated calls report the grants of a sub-agent without its other events.
            return;
        }
        let history = self.fold.history();
        let record = journals.entry(call_id.to_owned()).or_insert_with(|| {
            let suspended = history.nested_history(call_id).cloned();
            let id = join_call_id(history.id(), call_id);
            let journal = Journal::new(suspended.unwrap_or_else(|| History::empty(id)));
            SubAgentRecord { journal, reason: None }
        });
        record.journal.observe(event);
        record.reason = event.outcome().map(|outcome| outcome.reason);
    }

    /// Records the history of a sub-agent that has ended.
    fn record_sub_agent(&mut self, call_id: &str, entries: &mut Vec<Entry>) {
        let record = self.sub_agents.as_mut().and_then(|journals| journals.remove(call_id));
        if let Some(SubAgentRecord { journal, reason }) = record {
            // A sub-agent that was cut off may have left calls open.
            let (call_id, history) = (call_id.to_owned(), journal.history().settled());
            self.push_entry(Entry::Nested { call_id, history, reason }, entries);
        }
    }

    fn is_open_call(&self, call_id: &str) -> bool {
        self.open_calls.position(|open| open.call_id == call_id).is_some()
    }

    /// Records that the calls that were open at the start of the stream are resumed.
    fn record_resumed(&mut self, entries: &mut Vec<Entry>) {
        if std::mem::take(&mut self.awaits_resumed_entry) {
            let mut calls = self.repeatable_open_calls();
            calls.retain(|call| self.calls_idempotent_tool(call));
            let idempotent = calls.into_iter().map(|call| call.call_id).collect();
            self.push_entry(Entry::Resumed { idempotent }, entries);
        }
    }

    /// Returns the open calls that have not been started by a tool that was not idempotent.
    pub(super) fn repeatable_open_calls(&self) -> Vec<ToolCall> {
        let history = self.fold.history();
        let pending = match self.fold.session_state() {
            SessionState::Pending { calls } => calls,
            SessionState::Idle | SessionState::Unfinished { .. } => Vec::new(),
        };
        // A pending call of a sub-agent belongs to a call that has started.
        let has_not_started = |call_id: &str| {
            pending.iter().any(|call| call.path.is_empty() && call.call_id == call_id)
                && history.nested_history(call_id).is_none()
        };
        let mut calls = self.fold.open_calls();
        calls.retain(|call| {
            self.fold.idempotent_calls().contains(&call.call_id) || has_not_started(&call.call_id)
        });
        calls
    }

    fn calls_idempotent_tool(&self, call: &ToolCall) -> bool {
        let tool = self.toolkit.as_ref().and_then(|toolkit| called_tool(toolkit, call));
        tool.is_some_and(Tool::is_idempotent)
    }

    /// Creates the entries for the open turn. The [journal](crate::journal) adds the open turn to
    /// the history at the same point.
    fn flush_turn(&mut self, entries: &mut Vec<Entry>) {
        self.flush_results();
        let partial = std::mem::take(&mut self.partial_turn);
        self.push_items(partial.items(), entries);
    }

    /// Marks the buffered results as flushed. The [journal](crate::journal) adds the buffered
    /// results to the history at the same point.
    fn flush_results(&mut self) {
        self.has_flushed_results |= self.fold.last_buffered_position().is_some();
    }

    /// Marks the buffered results as flushed if `result` is appended directly, because such a
    /// result is placed after the buffered results.
    fn flush_results_before(&mut self, result: &ToolResult) {
        self.has_flushed_results |=
            self.fold.call_position(&result.call_id) < self.fold.last_buffered_position();
    }

    fn push_items(&mut self, items: Vec<Item>, entries: &mut Vec<Entry>) {
        for item in items {
            self.push_entry(Entry::Item(item), entries);
        }
    }

    fn push_entry(&mut self, entry: Entry, entries: &mut Vec<Entry>) {
        let holds = |it: &Self| it.fold.last_buffered_position().is_some();
        let is_held = match &entry {
            Entry::Item(item) => item.as_tool_result().is_some_and(|result| {
                !item.tombstone && self.fold.call_position(&result.call_id).is_some()
            }),
            Entry::Rewritten { .. }
            | Entry::Appended { .. }
            | Entry::Pending { .. }
            | Entry::Nested { .. }
            | Entry::Resumed { .. }
            | Entry::GrantAdded { .. }
            | Entry::GrantRevoked { .. } => false,
        };
        if is_held && self.has_flushed_results && holds(self) {
            // Without this entry, restoring the session would place the result in call order.
            let idempotent = self.fold.idempotent_calls().to_vec();
            let resumed = Entry::Resumed { idempotent };
            self.fold.push(resumed.clone());
            entries.push(resumed);
            self.has_flushed_results = false;
        }
        self.fold.push(entry.clone());
        entries.push(entry);
        self.has_flushed_results &= holds(self);
    }
}
