//! From events to the entries that tell what they did to the history.

use crate::event::{EndReason, Event, ToolEvent};
use crate::item::{Item, OpenCalls, ToolCall, ToolResult};
use crate::session::Entry;
use crate::session::restore::EntryFold;
use crate::turn::{PartialTurn, TurnEvent};

/// Makes entries of events, one event after the other. It does no I/O.
///
/// A turn is an entry an item when it is complete, a result when it is there. What restoring the
/// entries gives is what the fold of the events gives.
#[derive(Clone, Debug)]
pub(super) struct EntryRecorder {
    /// What the entries so far have made of the history.
    fold: EntryFold,
    /// The turn that streams.
    partial_turn: PartialTurn,
    /// The calls that a result is taken for.
    open_calls: OpenCalls<CallName>,
    /// Calls were open at the beginning, and nothing says yet that they may have begun since.
    awaits_resumed_entry: bool,
    /// What comes for open calls from here on stands behind what came before.
    has_flushed_results: bool,
}

/// A call by its id, with the name that the model wrote, which its result has in the history.
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
    pub(super) fn new(restored: EntryFold) -> Self {
        let open: OpenCalls<_> = restored.open_calls().iter().map(CallName::from).collect();
        let waits = !open.all_answered();
        Self {
            fold: restored,
            partial_turn: PartialTurn::default(),
            open_calls: open,
            awaits_resumed_entry: waits,
            has_flushed_results: false,
        }
    }

    /// What the entries so far have made of the history.
    pub(super) fn fold(&self) -> &EntryFold {
        &self.fold
    }

    /// What is to be written before the event is given to anybody.
    pub(super) fn observe(&mut self, event: &Event) -> Vec<Entry> {
        let mut entries = Vec::new();
        match event {
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                self.flush_results();
                self.partial_turn = PartialTurn::default();
                self.push_items(turn.to_history_items(), &mut entries);
                self.open_calls.extend(turn.tool_calls().map(CallName::from));
            }
            // It opens no turn.
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
                self.push_entry(Entry::Nested { call_id, history }, &mut entries);
            }
            Event::Appended { items, .. } => {
                self.flush_turn(&mut entries);
                for item in items {
                    if let Some(result) = item.as_tool_result() {
                        self.open_calls.retain(|call| call.call_id != result.call_id);
                        self.flush_results_before(result);
                    }
                    self.push_entry(Entry::Item(item.clone()), &mut entries);
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
            // Nothing of these is in the history.
            Event::Tool(
                ToolEvent::Started { .. }
                | ToolEvent::ApprovalRequested(_)
                | ToolEvent::Progress { .. }
                | ToolEvent::Suspended { .. }
                | ToolEvent::Nested { .. },
            )
            | Event::Nested { .. }
            | Event::Continued { .. }
            | Event::Unknown => {}
        }
        entries
    }

    /// What is to be written when no event comes any more.
    pub(super) fn finish(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.flush_turn(&mut entries);
        entries
    }

    /// Takes the first result of an open call, as the fold does.
    fn record_result(&mut self, result: &ToolResult, entries: &mut Vec<Entry>) {
        let is_it = |call: &CallName| call.call_id == result.call_id;
        if let Some(CallName { name, .. }) = self.open_calls.take_first_unanswered(is_it) {
            self.record_resumed(entries);
            let result = ToolResult { name, ..result.clone() };
            self.push_entry(Entry::Item(Item::tool_result(result)), entries);
        }
    }

    fn is_open_call(&self, call_id: &str) -> bool {
        self.open_calls.position(|open| open.call_id == call_id).is_some()
    }

    /// The calls that were open at the beginning go on.
    fn record_resumed(&mut self, entries: &mut Vec<Entry>) {
        if std::mem::take(&mut self.awaits_resumed_entry) {
            self.push_entry(Entry::Resumed, entries);
        }
    }

    /// The fold writes the turn that is open.
    fn flush_turn(&mut self, entries: &mut Vec<Entry>) {
        self.flush_results();
        let partial = std::mem::take(&mut self.partial_turn);
        self.push_items(partial.items(), entries);
    }

    /// The fold writes the results that it holds.
    fn flush_results(&mut self) {
        self.has_flushed_results |= self.fold.last_buffered_position().is_some();
    }

    /// A result that is not held stands behind those that are.
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
            | Entry::Pending { .. }
            | Entry::Nested { .. }
            | Entry::Resumed => false,
        };
        if is_held && self.has_flushed_results && holds(self) {
            // Otherwise it would be read back in call order.
            self.fold.push(Entry::Resumed);
            entries.push(Entry::Resumed);
            self.has_flushed_results = false;
        }
        self.fold.push(entry.clone());
        entries.push(entry);
        self.has_flushed_results &= holds(self);
    }
}
