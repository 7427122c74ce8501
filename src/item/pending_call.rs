//! A pending tool call, with the path of sub-agent calls that leads to it.

use serde::{Deserialize, Serialize};

use crate::item::ToolCall;

/// A tool call that is waiting for a verdict or for an external result. The call was made by the
/// run itself or by one of its sub-agents.
///
/// ```
/// use turnstream::item::{PendingCall, ToolCall};
///
/// let call = ToolCall { call_id: "c2".into(), name: "delete".into(), arguments: "{}".into() };
/// let own = PendingCall::from(call);
/// assert!(own.path.is_empty());
/// // The same call, made by the sub-agent that runs as the call `c1`.
/// let nested = own.with_parent_call("c1");
/// assert_eq!(
///     serde_json::to_string(&nested)?,
///     r#"{"path":["c1"],"call_id":"c2","name":"delete","arguments":"{}"}"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCall {
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
}

impl PendingCall {
    /// Converts the pending call to a plain tool call, without the path.
    pub fn to_tool_call(&self) -> ToolCall {
        let Self { path: _, call_id, name, arguments } = self.clone();
        ToolCall { call_id, name, arguments }
    }

    /// Converts the call from the sub-agent's view to the parent agent's view by prepending
    /// `parent` to the path. `parent` is the id of the parent's call that runs the sub-agent.
    pub fn with_parent_call(mut self, parent: &str) -> Self {
        self.path.insert(0, parent.to_owned());
        self
    }

    /// Returns the id of the call that the run itself made: the first id in the path, or this
    /// call's own id if the path is empty.
    pub fn root_call_id(&self) -> &str {
        self.path.first().unwrap_or(&self.call_id)
    }

    /// Splits off the first id in the path, which identifies the run's own call to the sub-agent.
    /// Returns the removed id and the call from the sub-agent's view, or `None` if the run itself
    /// made the call.
    pub(crate) fn split_root(&self) -> Option<(&str, Self)> {
        let (parent, path) = self.path.split_first()?;
        Some((parent, Self { path: path.to_vec(), ..self.clone() }))
    }
}

impl From<ToolCall> for PendingCall {
    fn from(call: ToolCall) -> Self {
        let ToolCall { call_id, name, arguments } = call;
        Self { path: Vec::new(), call_id, name, arguments }
    }
}

impl From<&ToolCall> for PendingCall {
    fn from(call: &ToolCall) -> Self {
        call.clone().into()
    }
}

impl From<&Self> for PendingCall {
    fn from(call: &Self) -> Self {
        call.clone()
    }
}
