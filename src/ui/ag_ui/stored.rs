//! Converts a session into the messages that a page shows when it opens.

use serde_json::{Value, json};

use super::content::content_to_json;
use super::encode::interrupts;
use super::lane::Lane;
use crate::agent::Agent;
use crate::item::{Content, History, Item, ItemKind, PendingCall, ToolResult, escape_call_id};
use crate::session::{Entry, SessionState};
use crate::tool::Tool;
use crate::ui::error_texts::ErrorTexts;
use crate::ui::message_name::message_id;
use crate::ui::stored_items::{AppendedBy, StoredItem, StoredItems};

/// Builds messages from a session's entries.
pub(super) struct StoredMessages<'a> {
    session_id: &'a str,
    error_texts: &'a ErrorTexts,
    messages: Vec<Value>,
    /// The turn whose items have been read so far.
    turn: Lane,
    /// The number of the turn's items that have been read.
    turn_items: u32,
    /// The calls of incomplete turns. They never run.
    interrupted_calls: Vec<String>,
}

impl<'a> StoredMessages<'a> {
    pub(super) fn new(session_id: &'a str, error_texts: &'a ErrorTexts) -> Self {
        Self {
            session_id,
            error_texts,
            messages: Vec::new(),
            turn: Lane::new(String::new(), None),
            turn_items: 0,
            interrupted_calls: Vec::new(),
        }
    }

    pub(super) fn read(
        mut self,
        entries: Vec<Entry>,
        state: &SessionState,
        agent: &Agent,
    ) -> Vec<Value> {
        let items = StoredItems::new(entries);
        for StoredItem { number, item, appended } in items.iter() {
            if item.is_model_output() {
                self.model_output(*number, item);
                if item.turn.is_some() {
                    self.end_turn();
                }
                continue;
            }
            self.end_turn();
            match &item.kind {
                ItemKind::User { content }
                    if appended.as_ref().is_none_or(AppendedBy::is_user_input) =>
                {
                    self.user_message(*number, content);
                }
                ItemKind::ToolResult(result) => {
                    if let Some((history, _)) = items.sub_agent(&result.call_id)
                        && history.is_settled()
                    {
                        self.sub_agent(&result.call_id, history);
                    }
                    self.result(*number, result);
                }
                ItemKind::User { .. }
                | ItemKind::System { .. }
                | ItemKind::Text { .. }
                | ItemKind::Reasoning { .. }
                | ItemKind::ToolCall(_)
                | ItemKind::Other => {}
            }
        }
        self.end_turn();
        self.withdraw_interrupted_calls();
        if let SessionState::Pending { calls } = state {
            self.pending(calls, agent);
        }
        self.messages
    }

    fn model_output(&mut self, number: u64, item: &Item) {
        if self.turn.is_between_turns {
            self.turn.begin_turn(message_id(self.session_id, number));
            self.turn_items = 0;
        }
        add_model_output(&mut self.turn, self.turn_items, item);
        if let ItemKind::ToolCall(call) = &item.kind
            && item.interrupted
        {
            self.interrupted_calls.push(self.turn.call_id(&call.call_id));
        }
        self.turn_items += 1;
    }

    /// Adds the messages of a sub-agent, in the same form in which a stream sends them.
    fn sub_agent(&mut self, call_id: &str, history: &History) {
        let path = escape_call_id(call_id).into_owned();
        let mut lane = Lane::new(path.clone(), Some(format!("{}/{path}", self.session_id)));
        let mut turn_items = 0;
        for item in history.iter().filter(|item| !item.tombstone) {
            if item.is_model_output() {
                if lane.is_between_turns {
                    lane.turn += 1;
                    lane.begin_turn(format!("{}/{path}:{}", self.session_id, lane.turn));
                    turn_items = 0;
                }
                add_model_output(&mut lane, turn_items, item);
                turn_items += 1;
            }
            let ends_turn = item.turn.is_some() || !item.is_model_output();
            if ends_turn && !std::mem::replace(&mut lane.is_between_turns, true) {
                self.messages.extend(lane.messages());
            }
            if let Some(result) = item.as_tool_result() {
                let id = format!("{}:result-{}", self.session_id, lane.call_id(&result.call_id));
                self.messages.push(self.result_message(&lane, &id, result));
            }
        }
        if !lane.is_between_turns {
            self.messages.extend(lane.messages());
        }
    }

    fn end_turn(&mut self) {
        if !std::mem::replace(&mut self.turn.is_between_turns, true) {
            self.messages.extend(self.turn.messages());
        }
    }

    fn user_message(&mut self, number: u64, content: &Content) {
        let id = message_id(self.session_id, number);
        let content = content_to_json(content);
        self.messages.push(json!({ "id": id, "role": "user", "content": content }));
    }

    fn result(&mut self, number: u64, result: &ToolResult) {
        let id = message_id(self.session_id, number);
        self.messages.push(self.result_message(&self.turn, &id, result));
    }

    fn result_message(&self, lane: &Lane, id: &str, result: &ToolResult) -> Value {
        let shown = self.error_texts.result(result);
        let result = shown.as_ref().unwrap_or(result);
        let mut message = json!({
            "id": id, "role": "tool", "toolCallId": lane.call_id(&result.call_id),
            "content": content_to_json(&result.content),
        });
        if result.is_error() {
            message["metadata"] = json!({ "is_error": true, "kind": result.kind.as_str() });
        }
        lane.tagged(message)
    }

    /// Adds a result for each call of an incomplete turn that has none, because a client would
    /// otherwise treat the call as pending.
    fn withdraw_interrupted_calls(&mut self) {
        for tool_call_id in std::mem::take(&mut self.interrupted_calls) {
            let is_result = |message: &Value| message["toolCallId"] == tool_call_id.as_str();
            if !self.messages.iter().any(is_result) {
                self.messages.push(json!({
                    "id": format!("withdrawn-{tool_call_id}"), "role": "tool",
                    "toolCallId": tool_call_id, "content": "the run ended",
                    "metadata": { "is_error": true, "kind": "interrupted" },
                }));
            }
        }
    }

    /// Adds an activity for each interrupt with which the session's last run ended.
    fn pending(&mut self, calls: &[PendingCall], agent: &Agent) {
        let is_approval = |call: &PendingCall| {
            let tool = agent.toolkit().get(&call.name).filter(|_| call.path.is_empty());
            !tool.is_some_and(Tool::is_external)
        };
        for interrupt in interrupts(calls, is_approval) {
            self.messages.push(json!({
                "id": format!("interrupt-{}", interrupt.id), "role": "activity",
                "activityType": "interrupt", "content": interrupt,
            }));
        }
    }
}

/// Adds an item of the model, the `index`th one of its turn, to the turn's messages.
fn add_model_output(turn: &mut Lane, index: u32, item: &Item) {
    // The messages are built in the same way as in a stream, whose bytes are not needed.
    let out = &mut Vec::new();
    match &item.kind {
        ItemKind::Text { text } if !text.is_empty() => turn.text(text, out),
        ItemKind::Reasoning { text } if !text.is_empty() => turn.reasoning(index, text, out),
        ItemKind::ToolCall(call) => {
            turn.call_start(&call.call_id, &call.name, out);
            turn.call_args(&call.call_id, &call.arguments, out);
        }
        _ => {}
    }
}
