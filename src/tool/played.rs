//! Calls whose events are known before.

use futures::Stream;
use futures::stream::{BoxStream, StreamExt};

use crate::event::ToolEvent;
use crate::item::{PendingCall, ToolCall};
use crate::tool::suspended::Suspended;
use crate::tool::{Suspension, ToolRun};

/// What a run of calls gives out instead of running anything.
pub(super) struct Played {
    pub(super) events: BoxStream<'static, ToolEvent>,
    /// The calls that stay without a result.
    pub(super) pending: Vec<PendingCall>,
}

impl ToolRun {
    /// Runs no tool and asks nobody: its events are these, and those of `pending`
    /// that are its own are left without a result at their end.
    pub(crate) fn played(
        mut self,
        events: impl Stream<Item = ToolEvent> + Send + 'static,
        mut pending: Vec<PendingCall>,
    ) -> Self {
        pending.retain(|it| self.turn.tool_calls().any(|call| call.call_id == it.own_call_id()));
        self.played = Some(Box::new(Played { events: events.boxed(), pending }));
        self
    }

    /// Keeps the result that an event brings.
    pub(super) fn keep(&mut self, event: &ToolEvent) {
        let is_it = |call: &ToolCall| call.call_id == event.call_id();
        let at = self.turn.tool_calls().position(is_it).unwrap_or(usize::MAX);
        match event {
            ToolEvent::Output(result) => self.results.push((at, result.clone())),
            ToolEvent::Suspended { call_id, name: _, pending, nested } => {
                let suspension =
                    Suspension { pending: pending.clone(), nested: (**nested).clone() };
                self.suspended.push(Suspended::new(at, call_id, suspension));
            }
            ToolEvent::ApprovalRequested(_)
            | ToolEvent::Started { .. }
            | ToolEvent::Progress { .. }
            | ToolEvent::Nested { .. } => {}
        }
    }
}
