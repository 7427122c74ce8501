//! Converts a session into the messages that a page shows when it opens.

use serde::Serialize;
use serde_json::{Value, json};

use super::approval_group::approval_group_id;
use super::encode::{
    AiSdkEncoder, call_input, cited_pages, content_to_json, content_to_parts, source_chunk,
};
use super::version::Version;
use crate::agent::Agent;
use crate::event::EndReason;
use crate::item::{
    Content, History, Item, ItemKind, PendingCall, RawJson, ResultKind, ToolCall, ToolResult,
    has_too_many_values,
};
use crate::session::{Entry, SessionState};
use crate::tool::{InnerToolNames, Tool};
use crate::ui::error_texts::ErrorTexts;
use crate::ui::message_name::message_id;
use crate::ui::nested_run::{NestedRun, call_path};
use crate::ui::stored_items::{StoredItem, StoredItems};

/// Builds messages from a session's entries.
pub(super) struct StoredMessages<'a> {
    session_id: &'a str,
    version: Version,
    has_typed_tools: bool,
    error_texts: &'a ErrorTexts,
    messages: Vec<UiMessage>,
    /// The number of the first entry that can belong to the next assistant message. This number is
    /// part of that message's id.
    begins_at: u64,
}

#[derive(Serialize)]
struct UiMessage {
    id: String,
    role: &'static str,
    parts: Vec<Value>,
}

impl<'a> StoredMessages<'a> {
    pub(super) fn new(session_id: &'a str, encoder: &'a AiSdkEncoder) -> Self {
        Self {
            session_id,
            version: encoder.version,
            has_typed_tools: encoder.has_typed_tools,
            error_texts: &encoder.error_texts,
            messages: Vec::new(),
            begins_at: 0,
        }
    }

    pub(super) fn read(
        mut self,
        entries: Vec<Entry>,
        state: &SessionState,
        agent: &Agent,
    ) -> Vec<Value> {
        let (mut is_new_turn, mut cited) = (true, Vec::new());
        let items = StoredItems::new(entries);
        let mut inner_names = InnerToolNames::default();
        for stored in items.iter() {
            let StoredItem { number, item, appended } = stored;
            let executed = inner_names.next_result(item);
            // A regenerated answer starts after the entry that voided the previous answer.
            if let Some(voided) = items.voided_before(*number).filter(|_| !self.is_answering()) {
                self.begins_at = self.begins_at.max(voided + 1);
            }
            match (&item.kind, appended) {
                (ItemKind::User { content }, Some(appended))
                    if appended.is_user_input() && self.is_answering() =>
                {
                    self.steered(content, &appended.item_id());
                }
                (ItemKind::User { content }, None) => self.user_message(*number, content),
                (ItemKind::User { content }, Some(appended)) if appended.is_user_input() => {
                    self.user_message(*number, content);
                    self.begins_at = appended.next_entry;
                }
                (ItemKind::User { .. } | ItemKind::System { .. }, _) if self.is_answering() => {}
                (ItemKind::User { .. } | ItemKind::System { .. }, appended) => {
                    let next = appended.as_ref().map_or(number + 1, |it| it.next_entry);
                    self.begins_at = next;
                }
                (ItemKind::ToolResult(result), _) => {
                    self.result(result);
                    if let Some((history, reason)) = items.sub_agent(&result.call_id)
                        && history.is_settled()
                    {
                        // A sub-agent may have been called through another tool.
                        let name = executed.as_deref().map_or(&result.name, |it| &it.name);
                        let state = sub_agent_state(reason, result.kind);
                        self.sub_agent(&result.call_id, name, state, history);
                    }
                }
                (
                    ItemKind::Text { .. }
                    | ItemKind::Reasoning { .. }
                    | ItemKind::ToolCall(_)
                    | ItemKind::Other,
                    _,
                ) => {
                    self.model_output(item, std::mem::take(&mut is_new_turn));
                    cited.push(item);
                    if item.turn.is_some() {
                        self.sources(*number, cited.drain(..));
                    }
                }
            }
            is_new_turn |= item.turn.is_some() || !item.is_model_output();
        }
        if let SessionState::Pending { calls } = state {
            for call in calls {
                self.pending(call, calls, agent);
            }
        }
        self.messages.iter().map(|message| json!(message)).collect()
    }

    fn user_message(&mut self, number: u64, content: &Content) {
        let id = message_id(self.session_id, number);
        let parts = content_to_parts(content).iter().map(|part| json!(part)).collect();
        self.messages.push(UiMessage { id, role: "user", parts });
        self.begins_at = number + 1;
    }

    /// Adds input that was sent during the run to the message that the run continues.
    fn steered(&mut self, content: &Content, id: &str) {
        let part = match self.version >= Version::V7 {
            true => json!({
                "type": "steering-message", "id": id, "parts": content_to_parts(content),
            }),
            false => json!({ "type": "data-steer", "id": id, "data": { "text": content.text() } }),
        };
        self.parts().push(part);
    }

    /// Returns whether the last message is an assistant message.
    fn is_answering(&self) -> bool {
        self.messages.last().is_some_and(|message| message.role == "assistant")
    }

    /// Returns the parts of the last assistant message. If the last message is a user message, adds
    /// an assistant message first.
    fn parts(&mut self) -> &mut Vec<Value> {
        if !self.is_answering() {
            let id = message_id(self.session_id, self.begins_at);
            self.messages.push(UiMessage { id, role: "assistant", parts: Vec::new() });
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last].parts
    }

    fn model_output(&mut self, item: &Item, is_new_turn: bool) {
        let has_typed_tools = self.has_typed_tools;
        let part = match &item.kind {
            ItemKind::Text { text } if !text.is_empty() => {
                json!({ "type": "text", "text": text, "state": "done" })
            }
            ItemKind::Reasoning { text } if !text.is_empty() => {
                json!({ "type": "reasoning", "text": text, "state": "done" })
            }
            ItemKind::ToolCall(call) => call_part(call, item.interrupted, has_typed_tools),
            _ => Value::Null,
        };
        let parts = self.parts();
        if is_new_turn {
            parts.push(json!({ "type": "step-start" }));
        }
        if !part.is_null() {
            parts.push(part);
        }
    }

    /// Adds the pages that a turn cites. `number` is that of the turn's last entry.
    fn sources<'b>(&mut self, number: u64, turn: impl Iterator<Item = &'b Item>) {
        for (source, at) in cited_pages(turn).iter().zip(0..) {
            let id = format!("s{number}.{at}");
            self.parts().push(json!(source_chunk(&id, source)));
        }
    }

    /// Searches all messages for the part that represents a call, and returns this part.
    fn call(&mut self, call_id: &str) -> Option<&mut Value> {
        let parts =
            self.messages.iter_mut().rev().flat_map(|message| message.parts.iter_mut().rev());
        parts.into_iter().find(|part| part["toolCallId"] == call_id)
    }

    fn result(&mut self, result: &ToolResult) {
        let (version, shown) = (self.version, self.error_texts.result(result));
        let result = shown.as_ref().unwrap_or(result);
        let Some(part) = self.call(&result.call_id) else { return };
        match result.kind {
            _ if !result.is_error() => {
                part["state"] = "output-available".into();
                part["output"] = bounded_value(&content_to_json(&result.content));
            }
            ResultKind::Denied if version > Version::V5 => {
                part["state"] = "output-denied".into();
                part["approval"] = json!({ "id": result.call_id, "approved": false });
            }
            _ => {
                part["state"] = "output-error".into();
                part["errorText"] = result.content.text().into();
            }
        }
    }

    /// Adds the part that describes the run of a sub-agent.
    fn sub_agent(&mut self, call_id: &str, name: &str, state: &'static str, history: &History) {
        let id = call_path::<&str>(&[], call_id);
        let data = json!(NestedRun::from_history(name, state, history));
        self.parts().push(json!({ "type": "data-agent", "id": id, "data": data }));
    }

    /// Adds the request for approval of a call, which is one of the `pending` calls.
    fn pending(&mut self, call: &PendingCall, pending: &[PendingCall], agent: &Agent) {
        let tool = agent.toolkit().get(&call.name).filter(|_| call.path.is_empty());
        if tool.is_some_and(Tool::is_external) {
            return;
        }
        let (version, root) = (self.version, call.root_call_id());
        if version > Version::V5
            && let Some(part) = self.call(root)
        {
            part["state"] = "approval-requested".into();
            part["approval"] = json!({ "id": approval_group_id(root, pending) });
        }
        if version == Version::V5 || !call.path.is_empty() {
            let id = &call.approval_id;
            let data = json!({
                "approvalId": id, "toolCallId": root, "toolName": call.name,
                "input": bounded_value(&call_input(&call.to_tool_call())),
            });
            self.parts().push(json!({ "type": "data-approval", "id": id, "data": data }));
        }
    }
}

/// Returns the state of a sub-agent that has ended: the reason why its run ended or, if the run was
/// cut off or the reason was not stored, the kind of its result.
fn sub_agent_state(reason: Option<EndReason>, result: ResultKind) -> &'static str {
    match (reason, result) {
        (Some(reason), _) => reason.as_str(),
        (None, ResultKind::Error) => "failed",
        (None, kind) if kind.is_success() => "completed",
        (None, kind) => kind.as_str(),
    }
}

/// Parses JSON, or returns its text if it has too many values.
fn bounded_value(json: &RawJson) -> Value {
    match has_too_many_values(json.as_str().as_bytes()) {
        true => json.as_str().into(),
        false => json.to_value(),
    }
}

fn call_part(call: &ToolCall, is_interrupted: bool, has_typed_tools: bool) -> Value {
    let mut part = match has_typed_tools {
        true => json!({ "type": format!("tool-{}", call.name) }),
        false => json!({ "type": "dynamic-tool", "toolName": call.name }),
    };
    part["toolCallId"] = call.call_id.as_str().into();
    part["state"] = "input-available".into();
    part["input"] = bounded_value(&call_input(call));
    if is_interrupted {
        part["state"] = "output-error".into();
        part["errorText"] = "the run ended".into();
    }
    part
}
