//! Reduces a run's events to a shorter equivalent list.

use std::collections::HashMap;
use std::sync::Arc;

use crate::event::{Event, ToolEvent};
use crate::hub::log::delta::{DeltaKey, DeltaSource, Parents};
use crate::hub::log::snapshot_events::{Entry, MergedDeltas, SnapshotEvents};
use crate::item::ToolResult;
use crate::turn::{Text, TurnEvent};

/// Collects a run's events so far, dropping those that later events have made redundant. The deltas
/// of complete turns are dropped, and only the last progress event of each call is kept. Applying
/// the remaining events gives the same result as applying all events.
#[derive(Debug, Default)]
pub(in crate::hub) struct CompactEvents {
    stored: SnapshotEvents,
    /// The lane of the run itself.
    root: Lane,
}

/// The state of one run: either the agent's own run, or a sub-agent's run.
#[derive(Debug, Default)]
struct Lane {
    /// The calls that lead to the sub-agent; empty for the agent's own run.
    parents: Parents,
    /// The numbers of the events in the turn that is currently streaming.
    open_turn: Vec<u64>,
    /// The number of the last progress event of each call.
    progress: HashMap<String, u64>,
    /// The lanes of the sub-agents that are running or suspended, by the ids of the calls that run
    /// them.
    sub_agents: HashMap<String, Lane>,
}

impl CompactEvents {
    pub(in crate::hub) fn observe(&mut self, event: &Arc<Event>) {
        let (mut lane, mut inner) = (&mut self.root, &**event);
        while let Event::Nested { call_id, name, event }
        | Event::Tool(ToolEvent::Nested { call_id, name, event }) = inner
        {
            lane = lane.sub_agent_mut(call_id, name);
            inner = event;
        }
        lane.observe(&mut self.stored, inner, event);
    }

    /// Returns the remaining events. The returned value shares them with this value, and is not
    /// changed by further events.
    pub(in crate::hub) fn snapshot_events(&self) -> SnapshotEvents {
        self.stored.clone()
    }
}

impl Lane {
    fn sub_agent_mut(&mut self, call_id: &str, name: &str) -> &mut Self {
        if !self.sub_agents.contains_key(call_id) {
            let parents = self.parents.iter().cloned();
            let parents = parents.chain([(call_id.to_owned(), name.to_owned())]).collect();
            self.sub_agents.insert(call_id.to_owned(), Self { parents, ..Self::default() });
        }
        // Invariant: the lane was inserted above.
        self.sub_agents.get_mut(call_id).expect("the lane exists")
    }

    /// Adds an event. `inner` is the event without the wrappers that name the sub-agent.
    fn observe(&mut self, stored: &mut SnapshotEvents, inner: &Event, event: &Arc<Event>) {
        match inner {
            Event::Unknown => {}
            Event::Turn(inner) => self.turn_event(stored, inner, event),
            Event::Tool(inner) => self.tool_event(stored, inner, event),
            // If a turn of the same run or sub-agent is still streaming, that turn was cut off, and
            // its events are kept.
            Event::TurnStarted { .. }
            | Event::Appended { .. }
            | Event::Rewritten { .. }
            | Event::Finished(_) => {
                self.open_turn.clear();
                stored.push(Entry::Event(Arc::clone(event)));
            }
            Event::HelperUsage { .. } | Event::Continued { .. } | Event::Nested { .. } => {
                stored.push(Entry::Event(Arc::clone(event)));
            }
        }
    }

    fn turn_event(&mut self, stored: &mut SnapshotEvents, inner: &TurnEvent, event: &Arc<Event>) {
        match inner {
            TurnEvent::TextDelta { .. }
            | TurnEvent::RefusalDelta { .. }
            | TurnEvent::ReasoningDelta { .. }
            | TurnEvent::ToolCallArgsDelta { .. } => {
                if let Some((key, text)) = DeltaKey::of(inner) {
                    self.delta(stored, &key, text);
                }
            }
            TurnEvent::Retracted { .. } | TurnEvent::TurnComplete { .. } => {
                for at in std::mem::take(&mut self.open_turn) {
                    stored.remove(at);
                }
                stored.push(Entry::Event(Arc::clone(event)));
            }
            TurnEvent::UsageUpdate { .. } => {
                self.remove_from_turn(stored, |entry| {
                    matches!(entry.turn_event(), Some(TurnEvent::UsageUpdate { .. }))
                });
                self.push_to_turn(stored, Entry::Event(Arc::clone(event)));
            }
            TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallEnd { .. }
            | TurnEvent::Retrying { .. } => {
                self.push_to_turn(stored, Entry::Event(Arc::clone(event)));
            }
        }
    }

    fn tool_event(&mut self, stored: &mut SnapshotEvents, inner: &ToolEvent, event: &Arc<Event>) {
        if let ToolEvent::Progress { call_id, .. } | ToolEvent::Output(ToolResult { call_id, .. }) =
            inner
            && let Some(at) = self.progress.remove(call_id.as_str())
        {
            stored.remove(at);
        }
        if let ToolEvent::Output(result) = inner {
            // A call's sub-agent has ended when the call has a result.
            self.sub_agents.remove(&result.call_id);
        }
        let at = stored.push(Entry::Event(Arc::clone(event)));
        if let ToolEvent::Progress { call_id, .. } = inner {
            self.progress.insert(call_id.clone(), at);
        }
    }

    fn push_to_turn(&mut self, stored: &mut SnapshotEvents, entry: Entry) {
        let at = stored.push(entry);
        self.open_turn.push(at);
    }

    fn remove_from_turn(&mut self, stored: &mut SnapshotEvents, is_it: impl Fn(&Entry) -> bool) {
        self.open_turn.retain(|at| {
            let goes = stored.get(*at).is_some_and(&is_it);
            if goes {
                stored.remove(*at);
            }
            !goes
        });
    }

    /// Merges a delta into the newest entry of its content block if that entry has the same key.
    /// Otherwise, adds a new entry.
    fn delta(&mut self, stored: &mut SnapshotEvents, key: &DeltaKey<&str>, text: &Text) {
        let is_of_block = |at: &u64| stored.get(*at).is_some_and(|entry| entry.is_of_block(key));
        if let Some(at) = self.open_turn.iter().rev().copied().find(is_of_block)
            && let Some(Entry::Deltas(deltas)) = stored.get_mut(at)
            && deltas.source.key.as_borrowed() == *key
        {
            deltas.text.push_str(text);
            return;
        }
        let source = DeltaSource { parents: Arc::clone(&self.parents), key: key.to_owned_key() };
        let deltas = MergedDeltas { source, text: text.to_string() };
        self.push_to_turn(stored, Entry::Deltas(Box::new(deltas)));
    }
}
