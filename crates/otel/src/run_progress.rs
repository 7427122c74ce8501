//! The progress of a durable run that another attempt has begun.

use turnstream::Journal;
use turnstream::event::{Event, RewriteReason, ToolEvent};
use turnstream::item::{History, PendingCall};

/// The progress of a run before its span starts.
#[derive(Clone)]
pub(crate) struct RunProgress {
    /// The history, and the tokens that earlier attempts at a durable run have recorded.
    pub(crate) journal: Journal,
    /// The calls that wait for a verdict.
    pub(crate) awaiting_calls: Vec<PendingCall>,
    /// Whether the history was compacted.
    pub(crate) is_compacted: bool,
}

impl RunProgress {
    /// Returns the progress of a run that has not started.
    pub(crate) fn new(history: History) -> Self {
        Self { journal: Journal::new(history), awaiting_calls: Vec::new(), is_compacted: false }
    }

    /// Adds an event that repeats a recorded step, and for which nothing is emitted.
    pub(crate) fn observe_repeated(&mut self, event: &Event) {
        self.journal.observe(event);
        match event {
            // The approval of a call may be requested again.
            Event::Tool(ToolEvent::ApprovalRequested(call))
                if self.awaiting_calls.iter().all(|known| known.call_id != call.call_id) =>
            {
                self.awaiting_calls.push(PendingCall::clone(call));
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) => {
                self.awaiting_calls.retain(|call| call.call_id != *call_id);
            }
            Event::Tool(ToolEvent::Output(result)) => {
                self.awaiting_calls.retain(|call| call.call_id != result.call_id);
            }
            Event::Rewritten { why: RewriteReason::Compacted, from, to, items, .. } => {
                self.is_compacted |= from < to || !items.is_empty();
            }
            _ => {}
        }
    }
}
