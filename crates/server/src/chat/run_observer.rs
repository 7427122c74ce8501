//! Observes how a run ends and what its sub-agents do.

use serde_json::{Value, json};
use turnstream::Event;
use turnstream::event::ToolEvent;
use turnstream::item::Item;
use turnstream::turn::TurnEvent;

use super::ended_runs::{EndedRun, RunSummary, shown_item};

/// The maximum size of a run's events of sub-agents, as JSON. If they are larger, none is kept.
const MAX_NESTED_BYTES: usize = 128 * 1024;

/// Observes a run.
pub(super) struct RunObserver {
    starts_at: u64,
    nested: Vec<Value>,
    nested_bytes: usize,
}

impl RunObserver {
    pub(super) fn new(starts_at: u64) -> Self {
        Self { starts_at, nested: Vec::new(), nested_bytes: 0 }
    }

    /// Observes the next event, in which error messages are hidden, and before which the session
    /// had `entries` entries. Returns the run when it has ended.
    pub(super) fn observe(&mut self, event: &Event, entries: u64) -> Option<EndedRun> {
        match event {
            Event::Nested { .. } => {
                self.add_nested(event);
                None
            }
            Event::Finished(outcome) => Some(EndedRun {
                starts_at: self.starts_at,
                ends_at: entries,
                outcome: RunSummary::from(&**outcome),
                nested: std::mem::take(&mut self.nested),
            }),
            _ => None,
        }
    }

    fn add_nested(&mut self, event: &Event) {
        let Some(shown) = shown_event(event) else { return };
        self.nested_bytes += shown.to_string().len();
        self.nested.push(shown);
        if self.nested_bytes > MAX_NESTED_BYTES {
            self.nested.clear();
        }
    }
}

/// An event as a page shows it later, or `None` if a later event contains it.
fn shown_event(event: &Event) -> Option<Value> {
    match event {
        Event::Nested { call_id, event, .. } => {
            let event = shown_event(event)?;
            Some(json!({ "type": "nested", "call_id": call_id, "event": event }))
        }
        Event::Finished(outcome) => {
            Some(json!({ "type": "finished", "outcome": RunSummary::from(&**outcome) }))
        }
        Event::Turn(TurnEvent::TurnComplete { turn }) => {
            let items: Vec<Item> = turn.to_history_items();
            let items: Vec<Value> = items.iter().map(shown_item).collect();
            Some(json!({ "type": "turn_complete", "turn": { "items": items } }))
        }
        Event::Tool(ToolEvent::Suspended { call_id, name, .. }) => {
            Some(json!({ "type": "tool_suspended", "call_id": call_id, "name": name }))
        }
        Event::Appended { .. }
        | Event::TurnStarted { .. }
        | Event::Tool(
            ToolEvent::ApprovalRequested(_) | ToolEvent::Started { .. } | ToolEvent::Output(_),
        ) => Some(json!(event)),
        _ => None,
    }
}
