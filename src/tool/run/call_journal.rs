//! A journal of a turn's calls, for a durable runtime that stores their results.

use std::task::{Context, Poll};

use futures::stream::{self, StreamExt};

use crate::event::{Event, ToolEvent};
use crate::item::{ToolCall, ToolResult};
use crate::tool::Tool;
use crate::tool::run::saved_calls::{ReplayedCalls, SavedCalls};

/// Decides when the calls of a turn start, and stores their results.
///
/// The run first admits each call: it finds its tool, checks its arguments, and invokes hooks and
/// approvals. Calls that may run are [announced](Self::announce). None of them starts before
/// [`poll_start`](Self::poll_start) allows it.
pub(crate) trait CallJournal: Send + Sync {
    /// Waits until it is known whether the calls run. It is called before any other method, until
    /// it is ready.
    fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<CallsBegin>;

    /// Announces a call that may run.
    fn announce(&self, call: &ToolCall, tool: &Tool);

    /// Reports that the run can make no progress except by starting announced calls.
    fn on_idle(&self);

    /// Waits until an announced call may start.
    fn poll_start(&self, call_id: &str, cx: &mut Context<'_>) -> Poll<CallStart>;

    /// Reports that a started call has ended or was dropped.
    fn end(&self, call_id: &str);

    /// Reports that all events of an earlier attempt have been emitted again.
    fn on_repeated(&self);

    /// Waits until the results are stored, after all calls have ended.
    fn poll_kept(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Whether the calls of a turn run.
#[cfg_attr(not(feature = "durable"), expect(dead_code, reason = "the feature creates them"))]
pub(crate) enum CallsBegin {
    /// They run. These calls were announced by an earlier attempt, with these arguments: hooks are
    /// not invoked again.
    Live(Vec<ToolCall>),
    /// They ended in an earlier attempt, with these results.
    Saved(SavedCalls),
    /// They were ended externally after these events.
    Ended(Vec<Event>),
}

/// How a call starts.
#[cfg_attr(not(feature = "durable"), expect(dead_code, reason = "the feature creates them"))]
pub(crate) enum CallStart {
    /// Its tool runs.
    Run,
    /// It has run elsewhere, with this result.
    Result(ToolResult),
    /// It may have started in an attempt that was lost.
    Interrupted,
}

/// Replays the events of calls that were ended externally, and then stays pending forever.
pub(super) fn replayed_until_end(events: Vec<Event>) -> ReplayedCalls {
    let events = events.into_iter().filter_map(|event| match event {
        Event::Tool(event) => Some(event),
        Event::Nested { call_id, name, event } => Some(ToolEvent::Nested { call_id, name, event }),
        _ => None,
    });
    ReplayedCalls::new(stream::iter(events).chain(stream::pending()))
}
