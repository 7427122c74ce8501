//! A journal for a turn's calls. Durable worlds use it to store the results of the calls.

use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::item::{Grant, ToolCall, ToolResult};
use crate::tool::Tool;
use crate::tool::run::saved_calls::SavedCalls;

/// Decides whether and when the calls in a turn start, so that a [world](crate::world::World) can
/// store what the calls do, and another attempt at the run can continue from it.
///
/// [`ToolRun::with_journal`](crate::tool::ToolRun::with_journal) adds a journal to the calls that
/// [`fan_out`](crate::world::World::fan_out) receives. The run calls the methods in this order:
///
/// 1. [`poll_begin`](Self::poll_begin), until it returns whether the calls run.
/// 2. [`announce`](Self::announce) for each call that may run. At this point, the run has found the
///    call's tool, checked the arguments, invoked hooks and obtained approvals.
/// 3. [`on_idle`](Self::on_idle), once the run cannot make progress until announced calls start. A
///    durable journal now stores which calls may start.
/// 4. [`poll_start`](Self::poll_start) for each announced call, until it lets the call start. The
///    run itself limits the number of calls that run at the same time.
/// 5. [`poll_end`](Self::poll_end), until the results are stored. The results are passed to the
///    function set by [`on_complete`](crate::tool::ToolRun::on_complete).
///
/// The methods are synchronous. A method that returns `Pending` must wake the task later.
pub trait CallJournal: Send + Sync {
    /// Waits until the journal has decided whether the turn's calls run.
    fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<CallsBegin>;

    /// Announces a call that may run, with the arguments that its tool receives. By default, the
    /// call is not stored.
    fn announce(&self, call: &AdmittedCall, tool: &Tool) {
        let _ = (call, tool);
    }

    /// Notifies the journal that the run cannot make progress until announced or running calls do.
    fn on_idle(&self) {}

    /// Returns whether the call was executed elsewhere, so that it does not need a slot from the
    /// run's pool. The default is `false`.
    fn has_result(&self, call_id: &str) -> bool {
        let _ = call_id;
        false
    }

    /// Waits until an announced call may start. If this method returns a result, the call is
    /// answered with the result and its tool does not run, for example because the call was
    /// executed elsewhere, or may have started in an attempt that was lost.
    fn poll_start(&self, call: &ToolCall, cx: &mut Context<'_>) -> Poll<Option<ToolResult>> {
        let _ = (call, cx);
        Poll::Ready(None)
    }

    /// Waits until the results of the calls are stored. This method is called after all calls have
    /// ended, or after all events of [saved calls](CallsBegin::Saved) have been emitted again.
    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// A call that hooks, approvals and limits have allowed to run. A journal stores the call, and
/// returns it if another attempt continues the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdmittedCall {
    /// The call, with the arguments that its tool receives.
    #[serde(flatten)]
    pub call: ToolCall,
    /// The id of the grant that let the call run without a request for an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<Box<str>>,
    /// The grant with which the call was approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_grant: Option<Box<Grant>>,
}

impl From<ToolCall> for AdmittedCall {
    fn from(call: ToolCall) -> Self {
        Self { call, grant_id: None, new_grant: None }
    }
}

/// Specifies whether the calls in a turn run.
#[derive(Debug)]
pub enum CallsBegin {
    /// The calls run. An earlier attempt already announced the listed calls, with the arguments
    /// given in the list. Hooks are not invoked again for these calls.
    Live(Vec<AdmittedCall>),
    /// The calls ended in an earlier attempt, which saved their results.
    Saved(SavedCalls),
    /// The calls emitted these events before the loop ended early. They emit these events again and
    /// then wait until the world [ends](crate::world::LoopControl::MustEnd) the loop.
    EndedEarly(Vec<Event>),
}
