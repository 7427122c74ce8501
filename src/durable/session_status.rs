//! The status of a session.

use serde::{Deserialize, Serialize};

use crate::item::PendingCall;
use crate::session::{Entry, SessionState};

/// The status of a session on a durable engine.
///
/// An engine writes the status when a run starts and when a run ends, so that programs can read it without loading the
/// session's entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionStatus {
    /// The number of entries in the session.
    pub version: u64,
    /// The session's state after its last run.
    pub state: SessionState,
    /// The id of the active run, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl SessionStatus {
    /// Creates a session's status from its entries. `run` is the id of the active run, if any.
    pub fn from_entries(entries: Vec<Entry>, run: Option<String>) -> Self {
        let version = entries.len() as u64;
        Self { version, state: SessionState::from_entries(entries), run }
    }

    /// Returns the pending calls, including those that have already received a verdict. The list is empty while a run
    /// is active, because that run answers the calls.
    pub fn pending_calls(&self) -> &[PendingCall] {
        match &self.state {
            SessionState::Pending { calls } if self.run.is_none() => calls,
            SessionState::Pending { .. } | SessionState::Idle | SessionState::Unfinished { .. } => {
                &[]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::item::{Item, ToolCall};

    fn call() -> ToolCall {
        ToolCall { call_id: "c1".into(), name: "pay".into(), arguments: "{}".into() }
    }

    fn pending_entries() -> Vec<Entry> {
        let call = call();
        let calls = vec![call.clone().into()];
        vec![
            Item::user("Pay.").into(),
            Item::tool_call("c1", "pay", "{}").into(),
            Entry::Pending { calls },
        ]
    }

    #[test]
    fn calls_are_pending_only_while_no_run_is_active() {
        let status = SessionStatus::from_entries(pending_entries(), None);
        assert_eq!((status.version, status.pending_calls()), (3, &[call().into()][..]));
        let running = SessionStatus::from_entries(pending_entries(), Some("run-1".to_owned()));
        assert_eq!((&running.state, running.pending_calls()), (&status.state, &[][..]));
    }

    #[track_caller]
    fn check_json(status: &SessionStatus, expected: serde_json::Value) {
        assert_eq!(serde_json::to_value(status).unwrap(), expected);
        assert_eq!(serde_json::from_value::<SessionStatus>(expected).unwrap(), *status);
    }

    #[test]
    fn the_json_of_each_status_is_fixed() {
        let idle = json!({ "version": 0, "state": { "type": "idle" } });
        check_json(&SessionStatus::default(), idle);
        let call = json!({ "call_id": "c1", "name": "pay", "arguments": "{}" });
        let pending = json!({ "version": 3, "state": { "type": "pending", "calls": [call] } });
        check_json(&SessionStatus::from_entries(pending_entries(), None), pending);
        let mut entries = pending_entries();
        entries.pop();
        let unfinished = json!({
            "version": 2,
            "state": { "type": "unfinished", "open_calls": [call] },
            "run": "run-1",
        });
        let run = Some("run-1".to_owned());
        check_json(&SessionStatus::from_entries(entries, run), unfinished);
    }

    #[test]
    fn an_empty_json_object_is_parsed_as_the_default_status() {
        assert_eq!(serde_json::from_str::<SessionStatus>("{}").unwrap(), SessionStatus::default());
    }
}
