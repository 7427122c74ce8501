//! The decisions that the agent's loop makes.

use std::borrow::Cow;

use crate::error::Error;
use crate::event::{AppendReason, EndReason, Transition};
use crate::item::ResultKind;

/// The action to take after a complete turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Run the turn's tool calls, and then use [`after_tools`](super::after_tools) to decide the
    /// next action.
    RunTools,
    /// Give each of the turn's tool calls a result with this kind and text, without running any of
    /// them, and then apply `next`.
    RefuseTools {
        /// The kind of the calls' results.
        result_kind: ResultKind,
        /// The text of the calls' results.
        reason: Cow<'static, str>,
        /// The action to take once the calls have received their results.
        next: NextAction,
    },
    /// Give each of the turn's tool calls a result without running it, since the stop reason does
    /// not allow tool calls to run. Then apply the contained action.
    Continue(NextAction),
    /// The model has stopped on its own; use [`at_stop`](super::at_stop) to decide the next action.
    Stop,
    /// The turn contains something that an agent cannot handle. The run ends with this error.
    Fail(Error),
}

/// A run's next action: to continue or to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// The run ends with this reason.
    Finish(EndReason),
    /// The run sends another request for this reason.
    Continue(Transition),
    /// The run appends a user message and sends another request.
    SendMessage {
        /// The reason for continuing the run.
        transition: Transition,
        /// Why the message is appended.
        append_reason: AppendReason,
        /// The text of the user message.
        text: Cow<'static, str>,
    },
    /// The run compacts the history and sends another request.
    Compact,
    /// One final turn without tools follows, and then the run ends with this reason.
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
