//! The decisions that the agent's loop makes.

use std::borrow::Cow;

use crate::event::{AppendReason, EndReason, Transition};
use crate::item::ResultKind;

/// The action to take after a complete turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run the turn's tool calls, and then decide with [`after_tools`](super::after_tools).
    RunTools,
    /// Give all of the turn's tool calls a result with this kind and text, without running any of
    /// the calls, and then apply `next`.
    RefuseTools {
        /// The kind of result for the calls.
        result_kind: ResultKind,
        /// The text of the result for the calls.
        reason: Cow<'static, str>,
        /// The action to take once the calls have received their results.
        next: NextAction,
    },
    /// Give the turn's tool calls a result without running the calls, because the stop reason does
    /// not allow tool calls to run, and then apply the contained action.
    Continue(NextAction),
    /// The model has stopped on its own; decide with [`at_stop`](super::at_stop).
    Stop,
}

/// The next action of a run, either to continue or to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// The run ends with this reason.
    Finish(EndReason),
    /// The run sends another request, for this reason.
    Continue(Transition),
    /// The run appends a user message and sends another request.
    SendMessage {
        /// The reason for continuing the run.
        transition: Transition,
        /// The origin of the message.
        append_reason: AppendReason,
        /// The text of the user message.
        text: Cow<'static, str>,
    },
    /// The run compacts the history and sends another request.
    Compact,
    /// One more turn without tools follows, and then the run ends with this reason.
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
