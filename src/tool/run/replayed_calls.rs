//! Emits events that were saved or recorded, without running calls.

use std::mem;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt};

use crate::event::{Event, ToolEvent};
use crate::item::PendingCall;
use crate::tool::run::result_collector::{CallsEnd, ResultCollector};
use crate::tool::run::saved_calls::SavedCalls;
use crate::tool::run::turn_calls::TurnCalls;

/// Emits events that were saved or recorded, without running calls.
pub(super) struct ReplayedCalls {
    events: BoxStream<'static, ToolEvent>,
    /// The saved outcome, whose list of events is empty because the events are stored separately.
    saved_calls: SavedCalls,
}

impl ReplayedCalls {
    /// Creates the replay of calls that leave the calls in `pending` open.
    pub(super) fn new(
        events: impl Stream<Item = ToolEvent> + Send + 'static,
        pending: Vec<PendingCall>,
    ) -> Self {
        let saved_calls = SavedCalls { pending, ..SavedCalls::default() };
        Self { events: events.boxed(), saved_calls }
    }

    /// Creates a replay of the events that calls emitted before the loop was ended from outside.
    /// After the last event, the replay stays pending forever.
    pub(super) fn until_early_end(events: Vec<Event>) -> Self {
        Self::new(tool_events(events).chain(stream::pending()), Vec::new())
    }

    pub(super) fn poll_event(
        &mut self,
        calls: &TurnCalls,
        results: &mut ResultCollector,
        cx: &mut Context<'_>,
    ) -> Poll<Option<ToolEvent>> {
        let Some(event) = ready!(self.events.poll_next_unpin(cx)) else {
            results.set_error(self.saved_calls.error.take().map_or(Ok(()), Err));
            return Poll::Ready(None);
        };
        let at = calls.turn.tool_calls().position(|call| call.call_id == event.call_id());
        results.record_event(at.unwrap_or(usize::MAX), &event);
        Poll::Ready(Some(event))
    }

    pub(super) fn end(&self, results: &ResultCollector) -> CallsEnd {
        let SavedCalls { pending, calls_over_limit, .. } = &self.saved_calls;
        let is_open = |call: &&PendingCall| !results.has_result(call.root_call_id());
        let pending = pending.iter().filter(is_open).cloned().collect();
        CallsEnd { pending, calls_over_limit: *calls_over_limit }
    }
}

impl From<SavedCalls> for ReplayedCalls {
    fn from(mut saved_calls: SavedCalls) -> Self {
        let events = tool_events(mem::take(&mut saved_calls.events)).boxed();
        Self { events, saved_calls }
    }
}

fn tool_events(events: Vec<Event>) -> impl Stream<Item = ToolEvent> + Send {
    stream::iter(events.into_iter().filter_map(|event| match event {
        Event::Tool(event) => Some(event),
        Event::Nested { call_id, name, event } => Some(ToolEvent::Nested { call_id, name, event }),
        _ => None,
    }))
}
