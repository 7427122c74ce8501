//! The decisions of the loop.

use std::borrow::Cow;

use crate::event::{AppendReason, EndReason, Transition};
use crate::item::ResultKind;

/// The decision after a complete turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run the turn's calls, then decide with [`after_tools`](super::after_tools).
    RunTools,
    /// Answer all of the turn's calls with this result, without running any, then apply `next`.
    RefuseTools {
        /// The kind of the results.
        result_kind: ResultKind,
        /// The text of the results.
        reason: Cow<'static, str>,
        /// The action after that.
        next: NextAction,
    },
    /// The stop reason does not allow calls to run: answer them without running them, then apply
    /// the action.
    Continue(NextAction),
    /// The model has stopped on its own; decide with [`at_stop`](super::at_stop).
    Stop,
}

/// The next action of a run: it continues or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// The run ends.
    Finish(EndReason),
    /// The model is asked again.
    Continue(Transition),
    /// A message is appended, and the model is asked again.
    SendMessage {
        /// Why the run continues.
        transition: Transition,
        /// The origin of the message.
        append_reason: AppendReason,
        /// The text of the message, which is a user message.
        text: Cow<'static, str>,
    },
    /// The history is compacted, and the model is asked again.
    Compact,
    /// One more turn without tools follows; then the run ends for this reason.
    WrapUp(EndReason),
}

impl Decision {
    pub(super) fn refuse_tools(why: impl Into<Cow<'static, str>>, next: NextAction) -> Self {
        Self::RefuseTools { result_kind: ResultKind::Budget, reason: why.into(), next }
    }
}

impl NextAction {
    /// Whether the action sends another request.
    pub(crate) fn sends_request(&self) -> bool {
        match self {
            Self::Finish(_) => false,
            Self::Continue(_) | Self::SendMessage { .. } | Self::Compact | Self::WrapUp(_) => true,
        }
    }
}
