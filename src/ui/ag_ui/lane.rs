//! Tracks the part of an agent's turn that has been sent to the client.

use serde_json::{Value, json};

use super::event::{AgUiEvent, TaggedEvent};
use crate::item::{escape_call_id, join_call_id};
use crate::ui::frame::write_data;

/// Tracks the current turn of the run or of one of its sub-agents. Each sub-agent has its own
/// `Lane`, because sub-agents may run concurrently.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// The ids of the calls that lead to the sub-agent, separated by `/`. For the run itself, the
    /// path is empty.
    pub(super) path: String,
    /// The id of the sub-agent's run, which is added to each of its events.
    pub(super) tag: Option<String>,
    pub(super) has_ended: bool,
    /// The id of the turn's message.
    pub(super) message_id: String,
    /// Whether the current turn is complete, or no turn has started yet.
    pub(super) is_between_turns: bool,
    /// The number of turns started so far.
    pub(super) turn: u64,
    is_text_open: bool,
    text: String,
    reasoning: Vec<Reasoning>,
    calls: Vec<Call>,
}

#[derive(Clone, Debug)]
struct Reasoning {
    index: u32,
    id: String,
    text: String,
    is_open: bool,
}

#[derive(Clone, Debug)]
struct Call {
    id: String,
    name: String,
    arguments: String,
    is_open: bool,
}

impl Lane {
    pub(super) fn new(path: String, tag: Option<String>) -> Self {
        Self { path, tag, is_between_turns: true, ..Self::default() }
    }

    /// Returns a call id that is unique across all sub-agents.
    pub(super) fn call_id(&self, call_id: &str) -> String {
        match self.path.is_empty() {
            true => escape_call_id(call_id).into_owned(),
            false => join_call_id(&self.path, call_id),
        }
    }

    /// Starts a turn with this message id.
    pub(super) fn begin_turn(&mut self, message_id: String) {
        self.message_id = message_id;
        self.is_between_turns = false;
        self.text.clear();
        self.reasoning.clear();
        self.calls.clear();
    }

    pub(super) fn text(&mut self, delta: &str, out: &mut Vec<u8>) {
        let (message_id, tag) = (self.message_id.as_str(), self.tag.as_deref());
        if !std::mem::replace(&mut self.is_text_open, true) {
            write_tagged(tag, AgUiEvent::TextMessageStart { message_id, role: "assistant" }, out);
        }
        self.text.push_str(delta);
        write_tagged(tag, AgUiEvent::TextMessageContent { message_id, delta }, out);
    }

    pub(super) fn reasoning(&mut self, index: u32, delta: &str, out: &mut Vec<u8>) {
        let tag = self.tag.as_deref();
        let at = self.reasoning.iter().position(|it| it.index == index).unwrap_or_else(|| {
            let id = format!("{}-r{index}", self.message_id);
            let (message_id, role) = (id.as_str(), "reasoning");
            write_tagged(tag, AgUiEvent::ReasoningStart { message_id }, out);
            write_tagged(tag, AgUiEvent::ReasoningMessageStart { message_id, role }, out);
            self.reasoning.push(Reasoning { index, id, text: String::new(), is_open: true });
            self.reasoning.len() - 1
        });
        let reasoning = &mut self.reasoning[at];
        reasoning.text.push_str(delta);
        let message_id = reasoning.id.as_str();
        write_tagged(tag, AgUiEvent::ReasoningMessageContent { message_id, delta }, out);
    }

    pub(super) fn call_start(&mut self, call_id: &str, name: &str, out: &mut Vec<u8>) {
        let id = self.call_id(call_id);
        let event = AgUiEvent::ToolCallStart {
            tool_call_id: &id,
            tool_call_name: name,
            parent_message_id: &self.message_id,
        };
        self.write(event, out);
        let (name, arguments) = (name.to_owned(), String::new());
        self.calls.push(Call { id, name, arguments, is_open: true });
    }

    pub(super) fn call_args(&mut self, call_id: &str, delta: &str, out: &mut Vec<u8>) {
        let id = self.call_id(call_id);
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == id && call.is_open) {
            call.arguments.push_str(delta);
            self.write(AgUiEvent::ToolCallArgs { tool_call_id: &id, delta }, out);
        }
    }

    pub(super) fn call_end(&mut self, call_id: &str, out: &mut Vec<u8>) {
        let id = self.call_id(call_id);
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == id && call.is_open) {
            call.is_open = false;
            self.write(AgUiEvent::ToolCallEnd { tool_call_id: &id }, out);
        }
    }

    pub(super) fn has_call(&self, call_id: &str) -> bool {
        let id = self.call_id(call_id);
        self.calls.iter().any(|call| call.id == id)
    }

    /// Ends all reasoning, text and calls that are still open.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        let tag = self.tag.as_deref();
        for reasoning in self.reasoning.iter_mut().filter(|it| it.is_open) {
            reasoning.is_open = false;
            let message_id = reasoning.id.as_str();
            write_tagged(tag, AgUiEvent::ReasoningMessageEnd { message_id }, out);
            write_tagged(tag, AgUiEvent::ReasoningEnd { message_id }, out);
        }
        if std::mem::take(&mut self.is_text_open) {
            write_tagged(tag, AgUiEvent::TextMessageEnd { message_id: &self.message_id }, out);
        }
        for call in self.calls.iter_mut().filter(|call| call.is_open) {
            call.is_open = false;
            write_tagged(tag, AgUiEvent::ToolCallEnd { tool_call_id: &call.id }, out);
        }
    }

    /// Returns the ids of this turn's calls, except the ids in `kept`.
    pub(super) fn call_ids_without(&self, excluded: &[String]) -> Vec<String> {
        let ids = self.calls.iter().map(|call| &call.id);
        ids.filter(|id| !excluded.contains(id)).cloned().collect()
    }

    /// Returns the messages that the turn has produced so far.
    pub(super) fn messages(&self) -> Vec<Value> {
        let mut messages: Vec<Value> = self
            .reasoning
            .iter()
            .map(|it| self.tagged(json!({ "id": it.id, "role": "reasoning", "content": it.text })))
            .collect();
        if !self.text.is_empty() || !self.calls.is_empty() {
            let mut message = json!({ "id": self.message_id, "role": "assistant" });
            if !self.text.is_empty() {
                message["content"] = self.text.as_str().into();
            }
            if !self.calls.is_empty() {
                let calls = self.calls.iter().map(|call| {
                    json!({ "id": call.id, "type": "function",
                            "function": { "name": call.name, "arguments": call.arguments } })
                });
                message["toolCalls"] = calls.collect();
            }
            messages.push(self.tagged(message));
        }
        messages
    }

    /// Returns this turn's reasoning messages with empty text. The empty messages are necessary
    /// because a client keeps any reasoning messages that are missing from a snapshot.
    pub(super) fn emptied_reasoning(&self) -> impl Iterator<Item = Value> {
        let empty = |it: &Reasoning| json!({ "id": it.id, "role": "reasoning", "content": "" });
        self.reasoning.iter().map(move |it| self.tagged(empty(it)))
    }

    /// Writes an event, with the sub-agent's id.
    pub(super) fn write(&self, event: AgUiEvent<'_>, out: &mut Vec<u8>) {
        write_tagged(self.tag.as_deref(), event, out);
    }

    /// Adds the sub-agent's id to a message.
    pub(super) fn tagged(&self, mut message: Value) -> Value {
        if let Some(tag) = &self.tag {
            message["subagentRunId"] = tag.as_str().into();
        }
        message
    }
}

fn write_tagged(subagent_run_id: Option<&str>, event: AgUiEvent<'_>, out: &mut Vec<u8>) {
    write_data(out, &TaggedEvent { event, subagent_run_id });
}
