//! The status of a session.

use serde::{Deserialize, Serialize};

use crate::item::PendingCall;
use crate::session::{Entry, SessionState};

/// The status of a session on a durable engine.
///
/// An engine writes the status when a run starts, when a run starts or stops waiting for verdicts,
/// and when a run ends, so that programs can read it without loading the session's entries.
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
    /// The calls for whose verdicts the active run is waiting, including those that have already
    /// received a verdict. Only a run of an [interactive](crate::Agent::interactive) agent waits
    /// for verdicts. The list is empty once the wait has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub awaited_calls: Vec<PendingCall>,
}

impl SessionStatus {
    /// Creates a session's status from its entries. `run` is the id of the active run, if any.
    pub fn from_entries(entries: Vec<Entry>, run: Option<String>) -> Self {
        let version = entries.len() as u64;
        Self { version, state: SessionState::from_entries(entries), run, awaited_calls: Vec::new() }
    }

    /// Returns the calls that need a verdict, including those that have already received one.
    ///
    /// While a run is active, these are the calls that the run [awaits](Self::awaited_calls), and a
    /// verdict is sent to the run as a [`Command::Verdict`](crate::hub::Command::Verdict). If no
    /// run is active, these are the calls that the last run left pending, and a run that
    /// [resumes](crate::durable::Attempt::resume) them needs the verdicts.
    pub fn pending_calls(&self) -> &[PendingCall] {
        match (&self.run, &self.state) {
            (Some(_), _) => &self.awaited_calls,
            (None, SessionState::Pending { calls }) => calls,
            (None, SessionState::Idle | SessionState::Unfinished { .. }) => &[],
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
    fn the_pending_calls_of_a_run_are_those_that_it_awaits() {
        let status = SessionStatus::from_entries(pending_entries(), None);
        assert_eq!((status.version, status.pending_calls()), (3, &[call().into()][..]));
        let mut running = SessionStatus::from_entries(pending_entries(), Some("run-1".to_owned()));
        assert_eq!((&running.state, running.pending_calls()), (&status.state, &[][..]));
        let awaited = ToolCall { call_id: "c2".into(), ..call() };
        running.awaited_calls = vec![awaited.clone().into()];
        assert_eq!(running.pending_calls(), [awaited.into()]);
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
        check_json(&SessionStatus::from_entries(entries.clone(), run.clone()), unfinished);
        let approval_id = "a1".to_owned();
        let awaited = PendingCall { approval_id, ..self::call().into() };
        let mut status = SessionStatus::from_entries(entries, run);
        status.awaited_calls = vec![awaited.clone()];
        let waiting = json!({
            "version": 2,
            "state": { "type": "unfinished", "open_calls": [call] },
            "run": "run-1",
            "awaited_calls": [awaited],
        });
        check_json(&status, waiting);
    }

    #[test]
    fn an_empty_json_object_is_parsed_as_the_default_status() {
        assert_eq!(serde_json::from_str::<SessionStatus>("{}").unwrap(), SessionStatus::default());
    }
}
