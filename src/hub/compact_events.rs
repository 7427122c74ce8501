//! Reduces a run's events to a shorter equivalent list.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::event::{Event, ToolEvent};
use crate::item::ToolResult;
use crate::turn::{ReasoningKind, Text, TurnEvent};

/// Collects a run's events so far, dropping those that later events have made redundant. The deltas
/// of complete turns are dropped, and only the last progress event of each call is kept. Applying
/// the remaining events gives the same result as applying all events.
#[derive(Debug, Default)]
pub(super) struct CompactEvents {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// The states of the individual runs, called lanes: one for the run itself, and one for each
    /// sub-agent.
    lanes: Vec<Lane>,
}

#[derive(Debug)]
enum Entry {
    Event(Arc<Event>),
    /// Consecutive deltas with the same key, merged into one.
    Delta {
        parents: Parents,
        key: DeltaKey,
        text: String,
    },
}

/// The ids and names of the calls that lead to a sub-agent, starting with the outermost call.
type Parents = Arc<[(String, String)]>;

#[derive(Debug, PartialEq, Eq)]
enum DeltaKey {
    Text(u32),
    Refusal(u32),
    Reasoning(u32, ReasoningKind),
    Arguments(String),
}

/// The state of one run: either the agent's own run, or a sub-agent's run.
#[derive(Debug)]
struct Lane {
    parents: Parents,
    /// The indices of the events in the turn that is currently streaming.
    open_turn: Vec<u64>,
    /// The index of the last progress event of each call.
    progress: HashMap<String, u64>,
}

impl CompactEvents {
    pub(super) fn observe(&mut self, event: &Arc<Event>) {
        let (lane, inner) = self.lane_of(event);
        match inner {
            Event::Unknown => {}
            Event::Turn(inner) => self.turn_event(lane, inner, event),
            Event::Tool(inner) => self.tool_event(lane, inner, event),
            // If a turn of the same run or sub-agent is still streaming, that turn was cut off, and
            // its events are kept.
            Event::TurnStarted { .. }
            | Event::Appended { .. }
            | Event::Rewritten { .. }
            | Event::Finished(_) => {
                self.lanes[lane].open_turn.clear();
                self.push(Entry::Event(Arc::clone(event)));
            }
            Event::Continued { .. } | Event::Nested { .. } => {
                self.push(Entry::Event(Arc::clone(event)));
            }
        }
    }

    pub(super) fn to_events(&self) -> Vec<Arc<Event>> {
        self.entries.values().map(Entry::to_event).collect()
    }

    fn push(&mut self, entry: Entry) -> u64 {
        let at = self.next;
        self.next += 1;
        self.entries.insert(at, entry);
        at
    }

    /// Returns the index in `lanes` for the run or sub-agent from which an event comes, and the
    /// event without its `Nested` wrappers.
    fn lane_of<'a>(&mut self, event: &'a Event) -> (usize, &'a Event) {
        let mut parents: Vec<(&str, &str)> = Vec::new();
        let mut inner = event;
        while let Event::Nested { call_id, name, event }
        | Event::Tool(ToolEvent::Nested { call_id, name, event }) = inner
        {
            parents.push((call_id, name));
            inner = event;
        }
        let is_it = |lane: &Lane| {
            let ids = lane.parents.iter().map(|(call_id, _)| call_id.as_str());
            ids.eq(parents.iter().map(|(call_id, _)| *call_id))
        };
        // Newer sub-agents are checked first, because most events come from the newest sub-agent.
        let at = self.lanes.iter().rposition(is_it).unwrap_or_else(|| {
            let owned = |&(call_id, name): &(&str, &str)| (call_id.to_owned(), name.to_owned());
            self.lanes.push(Lane {
                parents: parents.iter().map(owned).collect(),
                open_turn: Vec::new(),
                progress: HashMap::new(),
            });
            self.lanes.len() - 1
        });
        (at, inner)
    }

    fn turn_event(&mut self, lane: usize, inner: &TurnEvent, event: &Arc<Event>) {
        match inner {
            TurnEvent::TextDelta { index, text } => self.delta(lane, DeltaKey::Text(*index), text),
            TurnEvent::RefusalDelta { index, text } => {
                self.delta(lane, DeltaKey::Refusal(*index), text);
            }
            TurnEvent::ReasoningDelta { index, text, kind } => {
                self.delta(lane, DeltaKey::Reasoning(*index, *kind), text);
            }
            TurnEvent::ToolCallArgsDelta { call_id, delta } => {
                self.delta(lane, DeltaKey::Arguments(call_id.clone()), delta);
            }
            TurnEvent::Retracted { .. } | TurnEvent::TurnComplete { .. } => {
                for at in std::mem::take(&mut self.lanes[lane].open_turn) {
                    self.entries.remove(&at);
                }
                self.push(Entry::Event(Arc::clone(event)));
            }
            TurnEvent::UsageUpdate { .. } => {
                self.remove_from_turn(lane, |entry| {
                    matches!(entry.turn_event(), Some(TurnEvent::UsageUpdate { .. }))
                });
                self.push_to_turn(lane, Entry::Event(Arc::clone(event)));
            }
            TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallEnd { .. }
            | TurnEvent::Retrying { .. } => {
                self.push_to_turn(lane, Entry::Event(Arc::clone(event)));
            }
        }
    }

    fn tool_event(&mut self, lane: usize, inner: &ToolEvent, event: &Arc<Event>) {
        if let ToolEvent::Progress { call_id, .. } | ToolEvent::Output(ToolResult { call_id, .. }) =
            inner
            && let Some(at) = self.lanes[lane].progress.remove(call_id.as_str())
        {
            self.entries.remove(&at);
        }
        let at = self.push(Entry::Event(Arc::clone(event)));
        if let ToolEvent::Progress { call_id, .. } = inner {
            self.lanes[lane].progress.insert(call_id.clone(), at);
        }
    }

    fn push_to_turn(&mut self, lane: usize, entry: Entry) {
        let at = self.push(entry);
        self.lanes[lane].open_turn.push(at);
    }

    fn remove_from_turn(&mut self, lane: usize, is_it: impl Fn(&Entry) -> bool) {
        let entries = &mut self.entries;
        self.lanes[lane].open_turn.retain(|at| {
            let goes = entries.get(at).is_some_and(&is_it);
            if goes {
                entries.remove(at);
            }
            !goes
        });
    }

    /// Merges a delta into the newest entry of its content block if that entry has the same key.
    /// Otherwise, adds a new entry.
    fn delta(&mut self, lane: usize, key: DeltaKey, delta: &Text) {
        for at in self.lanes[lane].open_turn.iter().rev() {
            match self.entries.get_mut(at) {
                Some(Entry::Delta { key: other, text, .. }) if *other == key => {
                    text.push_str(delta);
                    return;
                }
                Some(entry) if entry.is_of_same_block(&key) => break,
                _ => {}
            }
        }
        let parents = Arc::clone(&self.lanes[lane].parents);
        self.push_to_turn(lane, Entry::Delta { parents, key, text: delta.to_string() });
    }
}

impl Entry {
    /// Returns whether the entry belongs to the same content block as a delta with this key. A
    /// delta cannot be merged into an entry that precedes an entry of the same block.
    fn is_of_same_block(&self, key: &DeltaKey) -> bool {
        match (self, key) {
            (Self::Delta { key: other, .. }, _) => match (other, key) {
                (
                    DeltaKey::Text(a) | DeltaKey::Refusal(a),
                    DeltaKey::Text(b) | DeltaKey::Refusal(b),
                )
                | (DeltaKey::Reasoning(a, _), DeltaKey::Reasoning(b, _)) => a == b,
                _ => false,
            },
            (Self::Event(_), DeltaKey::Arguments(id)) => match self.turn_event() {
                Some(
                    TurnEvent::ToolCallStart { call_id, .. } | TurnEvent::ToolCallEnd { call_id },
                ) => call_id == id,
                _ => false,
            },
            (Self::Event(_), _) => false,
        }
    }

    /// Returns the turn event in this entry, if any, whether it comes from the run or from a
    /// sub-agent.
    fn turn_event(&self) -> Option<&TurnEvent> {
        let Self::Event(event) = self else { return None };
        let mut inner: &Event = event;
        loop {
            match inner {
                Event::Nested { event, .. } | Event::Tool(ToolEvent::Nested { event, .. }) => {
                    inner = event;
                }
                Event::Turn(event) => return Some(event),
                _ => return None,
            }
        }
    }

    fn to_event(&self) -> Arc<Event> {
        let (parents, key, text) = match self {
            Self::Event(event) => return Arc::clone(event),
            Self::Delta { parents, key, text } => (parents, key, Text::from(text.as_str())),
        };
        let event = Event::Turn(match key {
            DeltaKey::Text(index) => TurnEvent::TextDelta { index: *index, text },
            DeltaKey::Refusal(index) => TurnEvent::RefusalDelta { index: *index, text },
            DeltaKey::Reasoning(index, kind) => {
                TurnEvent::ReasoningDelta { index: *index, text, kind: *kind }
            }
            DeltaKey::Arguments(id) => {
                TurnEvent::ToolCallArgsDelta { call_id: id.clone(), delta: text }
            }
        });
        let wrap = |event, (call_id, name): &(String, String)| Event::Nested {
            call_id: call_id.clone(),
            name: name.clone(),
            event: Box::new(event),
        };
        Arc::new(parents.iter().rev().fold(event, wrap))
    }
}
