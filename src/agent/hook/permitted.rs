//! What all hooks together say to a call.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::agent::hook::BeforeTool;
use crate::error::{Error, ErrorKind};
use crate::item::ToolCall;

/// What all hooks together say to a call. `arguments` are set if a hook has rewritten them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) enum Permitted {
    /// It may run.
    Run { arguments: Option<String> },
    /// It must not run; the model reads why.
    Deny { why: String },
    /// It waits for somebody to approve it, with these arguments.
    Ask { arguments: Option<String> },
}

impl Default for Permitted {
    fn default() -> Self {
        Self::Run { arguments: None }
    }
}

impl Permitted {
    /// After the answer of one more hook.
    pub(super) fn and(self, answer: BeforeTool) -> Result<Self, Error> {
        Ok(match (self, answer) {
            (_, BeforeTool::Deny(why)) => Self::Deny { why },
            (Self::Run { arguments }, BeforeTool::Ask) => Self::Ask { arguments },
            (Self::Run { .. }, BeforeTool::Rewrite(arguments)) => {
                Self::Run { arguments: Some(checked(arguments)?) }
            }
            (Self::Ask { .. }, BeforeTool::Rewrite(arguments)) => {
                Self::Ask { arguments: Some(checked(arguments)?) }
            }
            (permitted, BeforeTool::Run | BeforeTool::Ask | BeforeTool::Rewrite(_)) => permitted,
        })
    }

    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Deny { .. })
    }

    /// The call with the arguments so far.
    pub(super) fn rewritten<'a>(&self, call: &'a ToolCall) -> Cow<'a, ToolCall> {
        match self {
            Self::Run { arguments: Some(arguments) } | Self::Ask { arguments: Some(arguments) } => {
                Cow::Owned(ToolCall { arguments: arguments.clone(), ..call.clone() })
            }
            Self::Run { arguments: None } | Self::Ask { arguments: None } | Self::Deny { .. } => {
                Cow::Borrowed(call)
            }
        }
    }
}

/// Arguments that are a JSON object.
fn checked(arguments: String) -> Result<String, Error> {
    match serde_json::from_str::<Map<String, Value>>(&arguments) {
        Ok(_) => Ok(arguments),
        Err(source) => {
            let what = "its arguments are not a JSON object";
            Err(Error::new(ErrorKind::Other, what).with_source(source))
        }
    }
}
