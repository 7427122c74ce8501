//! The answers that hooks return.

use futures::future::BoxFuture;

use crate::error::Error;

/// The future returned by an asynchronous [`Hook`](super::Hook) method.
///
/// The future runs only while it is polled, and is dropped when the run is interrupted or dropped,
/// or when the hook timeout expires. The future returned by an observing method is `'static`, and
/// is also dropped when the run ends.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// The decision on whether a tool call may run, returned by
/// [`before_tool`](super::Hook::before_tool).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallDecision {
    /// The call may run.
    #[default]
    Allow,
    /// The call must not run, and the model receives the reason.
    Deny(String),
    /// The call may run with these arguments, which must be a serialized JSON object; any other
    /// text ends the run with the reason `hook_error`. If they do not match the tool's schema, the
    /// call does not run, and its result says that a rule rewrote the arguments. In the history,
    /// the call keeps the arguments that the model wrote.
    ///
    /// ```
    /// use serde_json::{Value, json};
    /// use turnstream::Agent;
    /// use turnstream::agent::hook::{self, CallDecision};
    ///
    /// fn scoped(agent: Agent) -> Agent {
    ///     agent.with_hook(hook::before_tool(|_state, call| async move {
    ///         if call.name != "search" {
    ///             return CallDecision::Allow;
    ///         }
    ///         match call.parse_arguments::<Value>() {
    ///             Ok(mut arguments) => {
    ///                 arguments["tenant"] = json!("acme");
    ///                 CallDecision::RewriteArguments(arguments.to_string())
    ///             }
    ///             Err(_) => CallDecision::Deny("the arguments are not JSON".into()),
    ///         }
    ///     }))
    /// }
    /// # drop(scoped(Agent::new(turnstream::provider::Scripted::new(["Hi"]))));
    /// ```
    RewriteArguments(String),
    /// The call awaits approval.
    RequireApproval,
}

/// The decision on whether a run may end after the model has stopped on its own, returned by
/// [`before_stop`](super::Hook::before_stop).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StopDecision {
    /// The run may end.
    #[default]
    Allow,
    /// The run continues, and the model receives this text.
    Continue(String),
    /// The run ends with the reason `stop_hook_prevented`. The text is a human-readable explanation
    /// that is returned in the [outcome](crate::Outcome::why).
    EndRun(String),
    /// The run ends with the reason `blocked`. The text states the minimum that the model needs in
    /// order to continue.
    Blocked(String),
    /// The run ends with the reason `unproven`. The text describes the claim that lacks evidence.
    Unproven(String),
    /// The model's claim is rejected: the run continues, and the model receives `text`. However, if
    /// a claim was already rejected and no new input has been delivered since, the run ends with
    /// the reason `unproven` and the explanation `reason`. The run also ends with `unproven` if no
    /// further request may be sent. Other hooks' decisions take precedence over this one.
    RequireEvidence {
        /// The text for the model.
        text: String,
        /// A human-readable description of the claim that lacks evidence.
        reason: String,
    },
}

/// A trait for the values that a hook closure may return: the hook's answer, or a `Result` that
/// contains the answer.
pub trait IntoHookResult<T> {
    /// Converts the value into a `Result`.
    ///
    /// # Errors
    ///
    /// Returns the error that the closure returned, if any. A hook that decides then ends the run
    /// with the reason `hook_error`.
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
    /// Combines the decisions of two hooks. A decision that prevents the run from ending takes
    /// precedence over a decision that ends the run. If both decisions end the run, the first
    /// decision applies.
    pub(super) fn combine(self, next: Self) -> Self {
        if let (Self::Continue(first), Self::Continue(next)) = (&self, &next) {
            return Self::Continue(format!("{first}\n\n{next}"));
        }
        let gives_way =
            matches!(self, Self::Allow | Self::RequireEvidence { .. }) && next != Self::Allow;
        if gives_way || matches!(next, Self::Continue(_)) { next } else { self }
    }

    /// Returns the text of a decision other than [`Allow`](Self::Allow): what the model receives,
    /// or the explanation with which the run ends. For [`RequireEvidence`](Self::RequireEvidence),
    /// this is the `reason`, not the text for the model.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Allow => None,
            Self::Continue(why)
            | Self::EndRun(why)
            | Self::Blocked(why)
            | Self::Unproven(why)
            | Self::RequireEvidence { reason: why, .. } => Some(why),
        }
    }
}
