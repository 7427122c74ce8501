//! The decision on a tool call, combined from the answers of all hooks.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::agent::hook::CallDecision;
use crate::error::{Error, ErrorKind};
use crate::item::ToolCall;

/// The decision on a tool call, combined from the answers of all hooks. An `arguments` field is
/// `Some` if a hook has rewritten the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) enum CombinedDecision {
    /// The call may run.
    Allow { arguments: Option<String> },
    /// The call must not run, and the model receives the reason.
    Deny { reason: String },
    /// The call awaits approval; if approved, it runs with these arguments.
    RequireApproval { arguments: Option<String> },
}

impl Default for CombinedDecision {
    fn default() -> Self {
        Self::Allow { arguments: None }
    }
}

impl CombinedDecision {
    /// Combines the decision so far with the next hook's answer.
    pub(super) fn combine(self, answer: CallDecision) -> Result<Self, Error> {
        Ok(match (self, answer) {
            (_, CallDecision::Deny(why)) => Self::Deny { reason: why },
            (Self::Allow { arguments }, CallDecision::RequireApproval) => {
                Self::RequireApproval { arguments }
            }
            (Self::Allow { .. }, CallDecision::RewriteArguments(arguments)) => {
                Self::Allow { arguments: Some(check_json_object(arguments)?) }
            }
            (Self::RequireApproval { .. }, CallDecision::RewriteArguments(arguments)) => {
                Self::RequireApproval { arguments: Some(check_json_object(arguments)?) }
            }
            (
                permitted,
                CallDecision::Allow
                | CallDecision::RequireApproval
                | CallDecision::RewriteArguments(_),
            ) => permitted,
        })
    }

    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Deny { .. })
    }

    /// Returns the call, with the new arguments if a hook has rewritten them.
    pub(super) fn rewritten_call<'a>(&self, call: &'a ToolCall) -> Cow<'a, ToolCall> {
        match self {
            Self::Allow { arguments: Some(arguments) }
            | Self::RequireApproval { arguments: Some(arguments) } => {
                Cow::Owned(ToolCall { arguments: arguments.clone(), ..call.clone() })
            }
            Self::Allow { arguments: None }
            | Self::RequireApproval { arguments: None }
            | Self::Deny { .. } => Cow::Borrowed(call),
        }
    }
}

/// Returns the arguments if they are a serialized JSON object, and an error otherwise.
fn check_json_object(arguments: String) -> Result<String, Error> {
    match serde_json::from_str::<Map<String, Value>>(&arguments) {
        Ok(_) => Ok(arguments),
        Err(source) => {
            let what = "the rewritten arguments are not a JSON object";
            Err(Error::new(ErrorKind::Other, what).with_source(source))
        }
    }
}
