//! What can be decided.

use std::borrow::Cow;

use crate::event::{AppendReason, EndReason, Transition};
use crate::item::ResultKind;

/// What a complete turn leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run its calls, and see [`after_tools`](super::after_tools).
    RunTools,
    /// Answer its calls in this way without running one, then this.
    RefuseTools {
        /// The kind of the results.
        result_kind: ResultKind,
        /// Their text.
        reason: Cow<'static, str>,
        /// What comes then.
        next: NextAction,
    },
    /// The stop reason lets no call run; answer them, then this.
    Continue(NextAction),
    /// The model has stopped by itself, see [`at_stop`](super::at_stop).
    Stop,
}

/// How a run goes on, or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// The run is over.
    Finish(EndReason),
    /// The model is asked again.
    Continue(Transition),
    /// Something is said to the model, and it is asked again.
    SendMessage {
        /// Why the run goes on.
        transition: Transition,
        /// Where the words come from.
        append_reason: AppendReason,
        /// The words, in the user's place.
        text: Cow<'static, str>,
    },
    /// The history is made shorter, and the model is asked again.
    Compact,
    /// One more turn without tools; then the run ends for this reason.
    WrapUp(EndReason),
}

impl Decision {
    pub(super) fn refuse_tools(why: impl Into<Cow<'static, str>>, next: NextAction) -> Self {
        Self::RefuseTools { result_kind: ResultKind::Budget, reason: why.into(), next }
    }
}

impl NextAction {
    /// Whether another request would be sent.
    pub(crate) fn sends_request(&self) -> bool {
        match self {
            Self::Finish(_) => false,
            Self::Continue(_) | Self::SendMessage { .. } | Self::Compact | Self::WrapUp(_) => true,
        }
    }
}
