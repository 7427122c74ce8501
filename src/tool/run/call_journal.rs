//! A journal of the calls of a turn, for a world that keeps what they come to.

use std::task::{Context, Poll};

use futures::stream::{self, StreamExt};

use crate::event::{Event, ToolEvent};
use crate::item::{ToolCall, ToolResult};
use crate::tool::Tool;
use crate::tool::run::saved_calls::{ReplayedCalls, SavedCalls};

/// Decides when the calls of a turn start, and keeps what they come to.
///
/// The run of the calls looks at each call first: it is found, its arguments are checked, hooks and approvals are
/// asked. Those that may run are [announced](Self::announce). None of them starts before
/// [`poll_start`](Self::poll_start) says so.
pub(crate) trait CallJournal: Send + Sync {
    /// Waits until it is known whether the calls run. Called before anything else, until it is ready.
    fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<CallsBegin>;

    /// A call may run.
    fn announce(&self, call: &ToolCall, tool: &Tool);

    /// Nothing can be done at the moment but to start what was announced.
    fn on_idle(&self);

    /// Waits until an announced call may start.
    fn poll_start(&self, call_id: &str, cx: &mut Context<'_>) -> Poll<CallStart>;

    /// A call that has started has ended, or was dropped.
    fn end(&self, call_id: &str);

    /// All that the calls had given out before was given out again.
    fn on_repeated(&self);

    /// Waits until what the calls came to is kept, after all have ended.
    fn poll_kept(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Whether the calls of a turn run.
#[cfg_attr(not(feature = "durable"), expect(dead_code, reason = "the feature makes them"))]
pub(crate) enum CallsBegin {
    /// They run. These were announced by an earlier attempt, with these arguments: no hook is asked again.
    Live(Vec<ToolCall>),
    /// They have ended before.
    Saved(SavedCalls),
    /// They were ended from outside after these events.
    Ended(Vec<Event>),
}

/// How a call starts.
#[cfg_attr(not(feature = "durable"), expect(dead_code, reason = "the feature makes them"))]
pub(crate) enum CallStart {
    /// Its tool runs.
    Run,
    /// It has run elsewhere.
    Result(ToolResult),
    /// It may have begun in an attempt that was lost.
    Interrupted,
}

/// The events of calls that were ended from outside; nothing follows them.
pub(super) fn replayed_until_end(events: Vec<Event>) -> ReplayedCalls {
    let events = events.into_iter().filter_map(|event| match event {
        Event::Tool(event) => Some(event),
        Event::Nested { call_id, name, event } => Some(ToolEvent::Nested { call_id, name, event }),
        _ => None,
    });
    ReplayedCalls::new(stream::iter(events).chain(stream::pending()))
}
