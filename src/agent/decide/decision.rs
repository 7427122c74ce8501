//! The decisions of the loop.

use std::borrow::Cow;

use crate::event::{AppendReason, EndReason, Transition};
use crate::item::ResultKind;

/// The decision after a complete turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run the turn's calls, and then decide with [`after_tools`](super::after_tools).
    RunTools,
    /// Answer all of the turn's calls with this result, without running any of the calls, and then
    /// apply `next`.
    RefuseTools {
        /// The kind of the calls' results.
        result_kind: ResultKind,
        /// The text of the calls' results.
        reason: Cow<'static, str>,
        /// The action that follows after the calls are answered.
        next: NextAction,
    },
    /// Answer the turn's calls without running them, since the stop reason does not allow calls to
    /// run, and then apply the action.
    Continue(NextAction),
    /// The model has stopped on its own; decide with [`at_stop`](super::at_stop).
    Stop,
}

/// The next action of a run, which continues or ends the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// The run ends for this reason.
    Finish(EndReason),
    /// The model is asked again, with this transition.
    Continue(Transition),
    /// A message is appended, and the model is asked again.
    SendMessage {
        /// The reason why the run continues.
        transition: Transition,
        /// The origin of the message.
        append_reason: AppendReason,
        /// The text of the user message.
        text: Cow<'static, str>,
    },
    /// The history is compacted, and the model is asked again.
    Compact,
    /// One more turn without tools follows, and then the run ends for this reason.
    WrapUp(EndReason),
}

impl Decision {
    pub(super) fn refuse_tools(why: impl Into<Cow<'static, str>>, next: NextAction) -> Self {
        Self::RefuseTools { result_kind: ResultKind::Budget, reason: why.into(), next }
    }
}

impl NextAction {
    /// Returns whether the action sends another request.
    pub(crate) fn sends_request(&self) -> bool {
        match self {
            Self::Finish(_) => false,
            Self::Continue(_) | Self::SendMessage { .. } | Self::Compact | Self::WrapUp(_) => true,
        }
    }
}
