//! Calls whose events are known before.

use futures::Stream;
use futures::stream::{BoxStream, StreamExt};

use crate::event::ToolEvent;
use crate::item::ToolCall;
use crate::tool::ToolRun;

/// What a run of calls gives out instead of running anything.
pub(super) struct Played {
    pub(super) events: BoxStream<'static, ToolEvent>,
    /// The calls that stay without a result.
    pub(super) pending: Vec<ToolCall>,
}

impl ToolRun {
    /// Runs no tool and asks nobody: its events are these, and those of `pending`
    /// that are its own are left without a result at their end.
    pub(crate) fn played(
        mut self,
        events: impl Stream<Item = ToolEvent> + Send + 'static,
        mut pending: Vec<ToolCall>,
    ) -> Self {
        pending.retain(|it| self.turn.tool_calls().any(|call| call.call_id == it.call_id));
        self.played = Some(Box::new(Played { events: events.boxed(), pending }));
        self
    }

    /// Keeps the result that an event brings.
    pub(super) fn keep(&mut self, event: &ToolEvent) {
        if let ToolEvent::Output(result) = event {
            let is_it = |call: &ToolCall| call.call_id == result.call_id;
            let at = self.turn.tool_calls().position(is_it).unwrap_or(usize::MAX);
            self.results.push((at, result.clone()));
        }
    }
}
