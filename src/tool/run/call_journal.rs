//! A journal for a turn's calls. Durable runtimes use it to store the results of the calls.

use std::task::{Context, Poll};

use crate::event::Event;
use crate::item::{ToolCall, ToolResult};
use crate::tool::Tool;
use crate::tool::run::saved_calls::SavedCalls;

/// Decides when the calls in a turn start, and stores their results.
///
/// The run first admits each call: it finds the call's tool, checks the arguments, invokes hooks
/// and obtains approvals. It then [announces](Self::announce) the calls that may run. No announced
/// call starts before [`poll_start`](Self::poll_start) allows it.
pub(crate) trait CallJournal: Send + Sync {
    /// Waits until the journal has decided whether the turn's calls run. The run polls this method
    /// until it returns `Ready` before calling any other method of the journal.
    fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<CallsBegin>;

    /// Announces a call that may run.
    fn announce(&self, call: &ToolCall, tool: &Tool);

    /// Notifies the journal that the run cannot make progress until announced calls start.
    fn on_idle(&self);

    /// Returns whether the call was executed elsewhere, so that it does not need a slot.
    fn has_result(&self, call_id: &str) -> bool;

    /// Waits until an announced call may start.
    fn poll_start(&self, call_id: &str, cx: &mut Context<'_>) -> Poll<CallStart>;

    /// Notifies the journal that a started call has ended or has been dropped.
    fn end(&self, call_id: &str);

    /// Notifies the journal that all events from an earlier attempt have been emitted again.
    fn on_repeated(&self);

    /// Waits until the results of the calls are stored. This method is called only after all calls
    /// have ended.
    fn poll_kept(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Specifies whether the calls in a turn run.
pub(crate) enum CallsBegin {
    /// The calls run. An earlier attempt already announced the listed calls, with the arguments
    /// given in the list. Hooks are not invoked again for these calls.
    Live(Vec<ToolCall>),
    /// The calls ended in an earlier attempt, which saved their results.
    Saved(SavedCalls),
    /// The calls emitted these events before the loop was ended from outside.
    Ended(Vec<Event>),
}

/// Specifies whether a call's tool runs.
pub(crate) enum CallStart {
    /// The call's tool runs.
    Run,
    /// The call was executed elsewhere and returned this result.
    Result(ToolResult),
    /// The call may have started in an attempt that was lost.
    Interrupted,
}
