//! The decisions that the agent's loop makes.

use std::borrow::Cow;

use crate::event::{AppendReason, EndReason, Transition};
use crate::item::ResultKind;

/// The action to take after a complete turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run the turn's tool calls, and then decide with [`after_tools`](super::after_tools).
    RunTools,
    /// Give all of the turn's tool calls the result described here, without running any of them,
    /// and then apply `next`.
    RefuseTools {
        /// The kind of result that the calls get.
        result_kind: ResultKind,
        /// The text of the result that the calls get.
        reason: Cow<'static, str>,
        /// The action to take once the calls have their results.
        next: NextAction,
    },
    /// Give the turn's tool calls a result without running them, since the stop reason does not
    /// allow tool calls to run, and then apply the action.
    Continue(NextAction),
    /// The model has stopped on its own; decide with [`at_stop`](super::at_stop).
    Stop,
}

/// The next action of a run, either to continue or to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// The run ends for this reason.
    Finish(EndReason),
    /// The run sends another request, for this reason.
    Continue(Transition),
    /// The run appends a user message and sends another request.
    SendMessage {
        /// The reason why the run continues.
        transition: Transition,
        /// The origin of the message.
        append_reason: AppendReason,
        /// The text of the user message.
        text: Cow<'static, str>,
    },
    /// The run compacts the history and sends another request.
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
