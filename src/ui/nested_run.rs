//! Tracks the state of a sub-agent's run, for protocols that represent the run as a single part.

use serde::Serialize;

use crate::event::{Event, ToolEvent};
use crate::item::{History, ItemKind, escape_call_id};
use crate::turn::TurnEvent;

/// The state of a sub-agent's run, as serialized for the client.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NestedRun {
    /// The name of the tool that runs the sub-agent.
    name: String,
    /// The run's state: `running`, or the reason why the run ended.
    state: &'static str,
    /// The number of turns started so far.
    turn: u32,
    /// The text of the sub-agent's latest turn.
    text: String,
    calls: Vec<NestedCall>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NestedCall {
    tool_call_id: String,
    tool_name: String,
    /// The call's state: `waiting`, `running`, or the kind of its result.
    state: &'static str,
}

impl NestedRun {
    pub(super) fn new(name: &str) -> Self {
        let (name, text) = (name.to_owned(), String::new());
        Self { name, state: "running", turn: 0, text, calls: Vec::new() }
    }

    /// Returns the state of a sub-agent that has ended in this state, from its stored history.
    pub(super) fn from_history(name: &str, state: &'static str, history: &History) -> Self {
        let mut run = Self { state, ..Self::new(name) };
        let mut starts_turn = true;
        for item in history.iter().filter(|item| !item.tombstone) {
            if item.is_model_output() && std::mem::take(&mut starts_turn) {
                run.turn += 1;
                run.text.clear();
            }
            starts_turn |= item.turn.is_some() || !item.is_model_output();
            match &item.kind {
                ItemKind::Text { text } => run.text.push_str(text),
                ItemKind::ToolCall(call) => run.calls.push(NestedCall {
                    tool_call_id: call.call_id.clone(),
                    tool_name: call.name.clone(),
                    state: "waiting",
                }),
                ItemKind::ToolResult(result) => {
                    run.set_state(&result.call_id, result.kind.as_str());
                }
                ItemKind::System { .. }
                | ItemKind::User { .. }
                | ItemKind::Reasoning { .. }
                | ItemKind::Other => {}
            }
        }
        run
    }

    /// Updates the state with an event, and returns whether the state has changed.
    pub(super) fn observe(&mut self, event: &Event) -> bool {
        match event {
            Event::TurnStarted { .. } => {
                self.turn += 1;
                self.state = "running";
            }
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                self.text = turn.text();
                let calls = turn.tool_calls().map(|call| NestedCall {
                    tool_call_id: call.call_id.clone(),
                    tool_name: call.name.clone(),
                    state: "waiting",
                });
                self.calls.extend(calls);
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) => self.set_state(call_id, "running"),
            Event::Tool(ToolEvent::Output(result)) => {
                self.set_state(&result.call_id, result.kind.as_str());
            }
            Event::Finished(outcome) => {
                self.state = outcome.reason.as_str();
            }
            _ => return false,
        }
        true
    }

    fn set_state(&mut self, call_id: &str, state: &'static str) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.tool_call_id == call_id) {
            call.state = state;
        }
    }
}

/// Returns an id for a call that is unique across all sub-agents: the ids of the calls that lead to
/// the sub-agent, followed by the call's own id, separated by slashes. A slash within an id is
/// escaped, so no two calls share an id.
pub(super) fn call_path<S: AsRef<str>>(parents: &[S], call_id: &str) -> String {
    let ids = parents.iter().map(AsRef::as_ref).chain([call_id]);
    ids.map(escape_call_id).collect::<Vec<_>>().join("/")
}
