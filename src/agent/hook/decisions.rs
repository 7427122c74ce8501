//! The answers of hooks.

use futures::future::BoxFuture;

use crate::error::Error;

/// The future that an asynchronous method of a [`Hook`](super::Hook) returns.
///
/// The future runs only while it is polled. The future is dropped when the run is interrupted or
/// dropped, or when the future exceeds its timeout. The future of an observing method is `'static`,
/// and is also dropped when the run ends.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// The answer of [`before_tool`](super::Hook::before_tool) to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallDecision {
    /// The call may run.
    #[default]
    Allow,
    /// The call must not run, and the model receives the reason.
    Deny(String),
    /// The call may run with these arguments, which must be the text of a JSON object. The call in
    /// the history keeps the arguments of the model.
    RewriteArguments(String),
    /// The call waits for an approval.
    RequireApproval,
}

/// The answer of [`before_stop`](super::Hook::before_stop) after the model has stopped on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StopDecision {
    /// The run may end.
    #[default]
    Allow,
    /// The run continues, and the model receives this text.
    Block(String),
    /// The run ends as `stop_hook_prevented`. The text states the reason for people, and is
    /// returned in the [outcome](crate::Outcome::why).
    EndRun(String),
    /// The run ends as `blocked`. The text names the smallest thing that the model needs to
    /// continue.
    Blocked(String),
    /// The run ends as `unproven`. The text names the claim that has no evidence.
    Unproven(String),
    /// The claim of the model is rejected: the run continues, and the model receives `text`. The
    /// run ends as `unproven` with `reason` instead if a claim was already rejected and no new
    /// input was delivered afterwards, or if no further request may be sent. The decisions of other
    /// hooks take precedence over this decision.
    RequireEvidence {
        /// The text for the model.
        text: String,
        /// The claim that has no evidence, as a text for people.
        reason: String,
    },
}

/// The return type of a hook closure, which is the answer of the hook or a `Result` with the
/// answer.
pub trait IntoHookResult<T> {
    /// Converts the value into a `Result`.
    fn into_hook_result(self) -> Result<T, Error>;
}

impl<T> IntoHookResult<T> for T {
    fn into_hook_result(self) -> Result<T, Error> {
        Ok(self)
    }
}

impl<T> IntoHookResult<T> for Result<T, Error> {
    fn into_hook_result(self) -> Self {
        self
    }
}

impl StopDecision {
    /// Combines the decisions of two hooks. A decision that blocks the stop takes precedence over a
    /// decision that ends the run. If both decisions end the run, the first decision applies.
    pub(super) fn combine(self, next: Self) -> Self {
        if let (Self::Block(first), Self::Block(next)) = (&self, &next) {
            return Self::Block(format!("{first}\n\n{next}"));
        }
        let gives_way =
            matches!(self, Self::Allow | Self::RequireEvidence { .. }) && next != Self::Allow;
        if gives_way || matches!(next, Self::Block(_)) { next } else { self }
    }

    /// Returns the text of the decision, if it has a text.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Allow => None,
            Self::Block(why)
            | Self::EndRun(why)
            | Self::Blocked(why)
            | Self::Unproven(why)
            | Self::RequireEvidence { reason: why, .. } => Some(why),
        }
    }
}
