//! A journal for a turn's calls. Durable runtimes use this journal to store the results of the
//! calls.

use std::task::{Context, Poll};

use futures::stream::{self, StreamExt};

use crate::event::{Event, ToolEvent};
use crate::item::{ToolCall, ToolResult};
use crate::tool::Tool;
use crate::tool::run::saved_calls::{ReplayedCalls, SavedCalls};

/// Decides when the calls in a turn start, and stores their results.
///
/// The run first admits each call: the run finds the call's tool, checks the arguments, and invokes
/// hooks and approvals. Calls that may run are [announced](Self::announce). No announced call
/// starts before [`poll_start`](Self::poll_start) allows it.
pub(crate) trait CallJournal: Send + Sync {
    /// Waits until it is known whether the calls run. Before any other method is called,
    /// `poll_begin` is called until it returns `Ready`.
    fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<CallsBegin>;

    /// Announces a call that may run.
    fn announce(&self, call: &ToolCall, tool: &Tool);

    /// Notifies the journal that the run can make progress only by starting announced calls.
    fn on_idle(&self);

    /// Waits until an announced call may start.
    fn poll_start(&self, call_id: &str, cx: &mut Context<'_>) -> Poll<CallStart>;

    /// Notifies the journal that a started call has ended or was dropped.
    fn end(&self, call_id: &str);

    /// Notifies the journal that all events from an earlier attempt have been emitted again.
    fn on_repeated(&self);

    /// Waits until the results are stored. `poll_kept` is called after all calls have ended.
    fn poll_kept(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Specifies whether the calls in a turn run.
#[cfg_attr(not(feature = "durable"), expect(dead_code, reason = "the feature creates them"))]
pub(crate) enum CallsBegin {
    /// The calls run. An earlier attempt announced the listed calls, with the arguments that they
    /// contain. Hooks are not invoked again for the listed calls.
    Live(Vec<ToolCall>),
    /// The calls ended in an earlier attempt, which saved these results.
    Saved(SavedCalls),
    /// The calls were ended externally after these events.
    Ended(Vec<Event>),
}

/// Specifies whether a call's tool runs.
#[cfg_attr(not(feature = "durable"), expect(dead_code, reason = "the feature creates them"))]
pub(crate) enum CallStart {
    /// The call's tool runs.
    Run,
    /// The call has run elsewhere and returned this result.
    Result(ToolResult),
    /// The call may have started in an attempt that was lost.
    Interrupted,
}

/// Returns a replay of the events from calls that were ended externally. After the last event, the
/// replay stays pending forever.
pub(super) fn replayed_until_end(events: Vec<Event>) -> ReplayedCalls {
    let events = events.into_iter().filter_map(|event| match event {
        Event::Tool(event) => Some(event),
        Event::Nested { call_id, name, event } => Some(ToolEvent::Nested { call_id, name, event }),
        _ => None,
    });
    ReplayedCalls::new(stream::iter(events).chain(stream::pending()))
}
