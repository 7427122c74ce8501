//! What hooks answer.

use futures::future::BoxFuture;

use crate::error::Error;

/// What an asynchronous method of a [`Hook`](super::Hook) gives.
///
/// It runs only while it is polled, and is dropped when the run is interrupted or dropped, and when
/// it takes too long. Of a method that observes it is `'static`, and is dropped when the run ends.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// What [`before_tool`](super::Hook::before_tool) says to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallDecision {
    /// It may run.
    #[default]
    Allow,
    /// It must not run; the model reads why.
    Deny(String),
    /// It may run with other arguments: the text of a JSON object. The call in the history stays as
    /// the model wrote it.
    RewriteArguments(String),
    /// It waits for somebody to approve it.
    RequireApproval,
}

/// What [`before_stop`](super::Hook::before_stop) says to a model that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StopDecision {
    /// The run may end.
    #[default]
    Allow,
    /// The run goes on, and the model reads this.
    Block(String),
    /// The run ends here, as `stop_hook_prevented`: why, in words for a person, is in the
    /// [outcome](crate::Outcome::why).
    EndRun(String),
    /// The run ends here as `blocked`: the smallest thing that is missing.
    Blocked(String),
    /// The run ends here as `unproven`: what was claimed without evidence.
    Unproven(String),
    /// The run goes on once: the model reads `text`. If it was sent back in this way before, and nothing
    /// was said to it since, or no request is left, the run ends as `unproven`, for the reason `why`. What
    /// another hook says comes before it.
    RequireEvidence {
        /// What the model reads.
        text: String,
        /// What was claimed without evidence, in words for a person.
        reason: String,
    },
}

/// What a closure may give for an answer: the answer itself, or a `Result` of it.
pub trait IntoHookResult<T> {
    /// Makes the result.
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
    /// What two hooks say together: what blocks comes before what ends the run, and of two that end it
    /// the first counts.
    pub(super) fn combine(self, next: Self) -> Self {
        if let (Self::Block(first), Self::Block(next)) = (&self, &next) {
            return Self::Block(format!("{first}\n\n{next}"));
        }
        let gives_way =
            matches!(self, Self::Allow | Self::RequireEvidence { .. }) && next != Self::Allow;
        if gives_way || matches!(next, Self::Block(_)) { next } else { self }
    }

    /// What is said, unless nothing is.
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
