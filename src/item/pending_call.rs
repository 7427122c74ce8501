//! A pending tool call, with the path of sub-agent calls that leads to it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::item::ToolCall;

/// A tool call that is waiting for a verdict or for an external result. The call was made by the
/// run itself or by one of its sub-agents.
///
/// Each request for a verdict has an id of its own. A verdict names this
/// [`approval_id`](Self::approval_id), and holds only for the request with this id, for this tool
/// and for these arguments.
///
/// ```
/// use turnstream::item::PendingCall;
///
/// let json = r#"{"approval_id":"a1","call_id":"c2","name":"delete","arguments":"{}"}"#;
/// let own: PendingCall = serde_json::from_str(json)?;
/// assert!(own.path.is_empty());
/// // The same call, made by the sub-agent that runs as the call `c1`.
/// let nested = own.with_parent_call("c1");
/// assert_eq!(
///     serde_json::to_string(&nested)?,
///     r#"{"approval_id":"a1","path":["c1"],"call_id":"c2","name":"delete","arguments":"{}"}"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCall {
    /// The id of the request for a verdict. It is generated with the run's [ids](crate::env::Ids)
    /// when the verdict is requested, and is valid until the call starts or has a result.
    ///
    /// The id is empty if no verdict was requested: the call was left open by a crash, or its run
    /// was dropped. A verdict on such a call comes from a program that has decided to
    /// [resume](crate::Agent::resume) the call. A verdict other than an approval, with which
    /// nothing runs, may also leave the id empty: such a verdict names only the call. It is used
    /// for the results of [external](crate::Tool::external) calls, whose requests are not events.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub approval_id: String,
    /// The ids of the calls that run the sub-agents, from the outermost sub-agent to the sub-agent
    /// that made this call. The path is empty if the run itself made the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// The call's id, which is unique within the history of the agent that made the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments that would be passed to the tool, as a JSON string.
    pub arguments: String,
    /// The definition of the tool for which the verdict was requested: the tool's name, description
    /// and schema as JSON text or, if the tool's source supplies one, a fingerprint. A verdict does
    /// not hold for a tool with another definition. Empty if no verdict was requested.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub definition: String,
}

impl PendingCall {
    /// Converts the pending call to a plain tool call, without the path.
    pub fn to_tool_call(&self) -> ToolCall {
        let (call_id, name) = (self.call_id.clone(), self.name.clone());
        ToolCall { call_id, name, arguments: self.arguments.clone() }
    }

    /// Converts the call from the sub-agent's view to the parent agent's view by prepending
    /// `parent` to the path. `parent` is the id of the parent's call that runs the sub-agent.
    pub fn with_parent_call(mut self, parent: &str) -> Self {
        self.path.insert(0, parent.to_owned());
        self
    }

    /// Returns the id of the call that the run itself made: the first id in the path, or this
    /// call's own id if the path is empty.
    pub(crate) fn root_call_id(&self) -> &str {
        self.path.first().unwrap_or(&self.call_id)
    }

    /// Splits off the first id in the path, which identifies the run's own call to the sub-agent.
    /// Returns the removed id and the call from the sub-agent's view, or `None` if the run itself
    /// made the call.
    pub(crate) fn split_root(&self) -> Option<(&str, Self)> {
        let (parent, path) = self.path.split_first()?;
        Some((parent, Self { path: path.to_vec(), ..self.clone() }))
    }

    /// Returns whether both values refer to the same call, whatever verdicts were requested on it.
    pub(crate) fn is_same_call(&self, other: &Self) -> bool {
        self.call_id == other.call_id && self.path == other.path
    }

    /// Returns whether an approval of this pending call holds for `call`, which is about to run.
    pub(crate) fn covers(&self, call: &Self) -> bool {
        self.has_same_arguments(call) && self.has_definition(&call.definition)
    }

    /// Returns whether both calls pass the same arguments to a tool of the same name.
    pub(crate) fn has_same_arguments(&self, call: &Self) -> bool {
        self.name == call.name && self.arguments == call.arguments
    }

    /// Returns whether the verdict was requested for a tool with this definition.
    pub(crate) fn has_definition(&self, definition: &str) -> bool {
        self.approval_id.is_empty() || self.definition == definition
    }
}

/// Creates a pending call for which no verdict was requested, for example from a call that a crash
/// left [open](crate::session::SessionState::Unfinished).
impl From<ToolCall> for PendingCall {
    fn from(call: ToolCall) -> Self {
        let ToolCall { call_id, name, arguments } = call;
        let (approval_id, path, definition) = (String::new(), Vec::new(), String::new());
        Self { approval_id, path, call_id, name, arguments, definition }
    }
}

impl From<&Self> for PendingCall {
    fn from(call: &Self) -> Self {
        call.clone()
    }
}

/// Appends a call's id to the id of the history or the path that contains the call, separated by a
/// slash. A slash in the call's id is escaped as in a JSON pointer ([RFC 6901], section 3), so that
/// a call with the id `c1/n1` is not confused with the call `n1` of the sub-agent of `c1`.
///
/// [RFC 6901]: https://www.rfc-editor.org/rfc/rfc6901
pub(crate) fn join_call_id(parent: &str, call_id: &str) -> String {
    format!("{parent}/{}", escape_call_id(call_id))
}

/// Escapes a call's id for a path of ids that are separated by slashes.
pub(crate) fn escape_call_id(call_id: &str) -> Cow<'_, str> {
    match call_id.contains(['~', '/']) {
        true => call_id.replace('~', "~0").replace('/', "~1").into(),
        false => call_id.into(),
    }
}
