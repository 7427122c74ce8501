//! What can be decided.

use std::borrow::Cow;

use crate::event::{AppendedWhy, Reason, Transition};
use crate::item::ResultKind;

/// What a complete turn leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run its calls, and see [`after_tools`](super::after_tools).
    RunTools,
    /// Answer its calls in this way without running one, then this.
    Refuse {
        /// The kind of the results.
        kind: ResultKind,
        /// Their text.
        why: Cow<'static, str>,
        /// What comes then.
        next: Next,
    },
    /// The stop reason lets no call run; answer them, then this.
    Then(Next),
    /// The model has stopped by itself, see [`at_stop`](super::at_stop).
    Stop,
}

/// How a run goes on, or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The run is over.
    Finish(Reason),
    /// The model is asked again.
    Continue(Transition),
    /// Something is said to the model, and it is asked again.
    Say {
        /// Why the run goes on.
        transition: Transition,
        /// Where the words come from.
        why: AppendedWhy,
        /// The words, in the user's place.
        text: Cow<'static, str>,
    },
    /// The history is made shorter, and the model is asked again.
    Compact,
    /// One more turn without tools; then the run ends for this reason.
    WrapUp(Reason),
}

impl Decision {
    pub(super) fn refuse(why: impl Into<Cow<'static, str>>, next: Next) -> Self {
        Self::Refuse { kind: ResultKind::Budget, why: why.into(), next }
    }
}

impl Next {
    /// Whether another request would be sent.
    pub fn asks_again(&self) -> bool {
        match self {
            Self::Finish(_) => false,
            Self::Continue(_) | Self::Say { .. } | Self::Compact | Self::WrapUp(_) => true,
        }
    }
}
