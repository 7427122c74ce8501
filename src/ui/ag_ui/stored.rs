//! Converts a session into the messages that a page shows when it opens.

use serde_json::{Value, json};

use super::encode::{content_to_json, interrupts};
use super::lane::Lane;
use crate::agent::Agent;
use crate::item::{Content, Item, ItemKind, PendingCall, ToolResult};
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
        for StoredItem { number, item, appended } in StoredItems::new(entries).iter() {
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
                ItemKind::ToolResult(result) => self.result(*number, result),
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
        // The messages are built in the same way as in a stream, whose bytes are not needed.
        let out = &mut Vec::new();
        match &item.kind {
            ItemKind::Text { text } if !text.is_empty() => self.turn.text(text, out),
            ItemKind::Reasoning { text } if !text.is_empty() => {
                self.turn.reasoning(self.turn_items, text, out);
            }
            ItemKind::ToolCall(call) => {
                self.turn.call_start(&call.call_id, &call.name, out);
                self.turn.call_args(&call.call_id, &call.arguments, out);
                if item.interrupted {
                    self.interrupted_calls.push(self.turn.call_id(&call.call_id));
                }
            }
            _ => {}
        }
        self.turn_items += 1;
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
        let shown = self.error_texts.result(result);
        let result = shown.as_ref().unwrap_or(result);
        let id = message_id(self.session_id, number);
        let mut message = json!({
            "id": id, "role": "tool", "toolCallId": self.turn.call_id(&result.call_id),
            "content": content_to_json(&result.content),
        });
        if result.is_error() {
            message["metadata"] = json!({ "is_error": true, "kind": result.kind.as_str() });
        }
        self.messages.push(message);
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
