//! The sub-agents of a run.

use crate::event::{Event, ToolEvent};
use crate::item::History;
use crate::story::Journal;
use crate::usage::Usage;

/// One journal a call that a sub-agent ran as, in the order of their first events.
///
/// A child's lock is taken below its parent's and never the other way.
#[derive(Debug, Default)]
pub(super) struct Nested(Vec<(String, Journal)>);

impl Nested {
    /// Takes the next event of the child that runs as `call_id` in the run of `parent`. A child that
    /// was suspended continues with its history.
    pub(super) fn observe(&mut self, parent: &History, call_id: &str, event: &Event) {
        if says_nothing(event) {
            return;
        }
        if let Some(child) = self.find(call_id) {
            return child.observe(event);
        }
        let begins = || History::with_id(format!("{}/{call_id}", parent.id()));
        let child = Journal::new(parent.nested(call_id).cloned().unwrap_or_else(begins));
        child.observe(event);
        self.0.push((call_id.to_owned(), child));
    }

    /// The newest is looked at first: it is the one that runs.
    pub(super) fn find(&self, call_id: &str) -> Option<&Journal> {
        self.0.iter().rev().find(|(id, _)| id == call_id).map(|(_, child)| child)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.0.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Of all levels.
    pub(super) fn usage(&self) -> Usage {
        self.0.iter().map(|(_, child)| child.usage() + child.nested_usage()).sum()
    }
}

/// Whether it is an event that nobody knows, in however many wrappings: a store does not keep it.
fn says_nothing(event: &Event) -> bool {
    match event {
        Event::Unknown => true,
        Event::Nested { event, .. } | Event::Tool(ToolEvent::Nested { event, .. }) => {
            says_nothing(event)
        }
        Event::Appended { .. }
        | Event::Rewritten { .. }
        | Event::TurnStarted { .. }
        | Event::Turn(_)
        | Event::Tool(_)
        | Event::Continued { .. }
        | Event::Finished(_) => false,
    }
}
