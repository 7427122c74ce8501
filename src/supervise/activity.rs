//! Tells a silent run from one that waits for something known.

use std::collections::HashSet;
use std::time::Duration;

use crate::event::{Event, ToolEvent};
use crate::turn::TurnEvent;

/// The calls that a run waits for.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// The calls that run, or that wait for a verdict.
    open_calls: HashSet<String>,
}

impl Activity {
    /// Processes an event. Returns the time for which the run may wait before its silence begins.
    pub(super) fn observe(&mut self, event: &Event) -> Duration {
        match event {
            Event::Turn(TurnEvent::Retrying { delay_ms, .. }) => {
                return Duration::from_millis(*delay_ms);
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) => {
                self.open_calls.insert(call_id.clone());
            }
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                self.open_calls.insert(call.call_id.clone());
            }
            Event::Tool(ToolEvent::Output(result)) => {
                self.open_calls.remove(&result.call_id);
            }
            Event::Tool(ToolEvent::Suspended { call_id, .. }) => {
                self.open_calls.remove(call_id);
            }
            // All calls have results by now.
            Event::TurnStarted { .. } | Event::Finished(_) => self.open_calls.clear(),
            Event::Appended { .. }
            | Event::Rewritten { .. }
            | Event::HelperUsage { .. }
            | Event::Continued { .. }
            | Event::Turn(_)
            | Event::Tool(
                ToolEvent::Progress { .. }
                | ToolEvent::GrantAdded { .. }
                | ToolEvent::GrantRevoked { .. }
                | ToolEvent::Nested { .. },
            )
            | Event::Nested { .. }
            | Event::Unknown => {}
        }
        Duration::ZERO
    }

    /// Returns whether the run waits for a tool, a sub-agent or a verdict.
    pub(super) fn is_waiting(&self) -> bool {
        !self.open_calls.is_empty()
    }
}
