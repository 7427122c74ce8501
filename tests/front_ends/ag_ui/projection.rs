//! The messages that a client should have at the end: the history from the events, as far as
//! messages can represent it.
//!
//! Facts that messages cannot represent are left out on both sides:
//!
//! | | |
//! |---|---|
//! | provider data, marks, the stop reason and usage of a turn | |
//! | hidden reasoning | |
//! | the order of text, calls and reasoning in a turn | a turn is one message, and one for each piece of reasoning |
//! | the order of a turn's results | a client has them in order of arrival |
//! | input, and items that hooks add | a client has its own messages |
//! | that the history was compacted | the messages stay |
//! | the kind of a result | it is in the metadata |

use serde_json::{Value, json};
use turnstream::item::{ItemKind, ToolResult};
use turnstream::{History, Item, Journal};

use turnstream_testing::conversations::Events;

/// The messages of one agent: text with calls, reasoning, and results, the last sorted by call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Messages {
    turns: Vec<Value>,
    reasoning: Vec<String>,
    results: Vec<Value>,
}

/// The messages that these runs should produce: those of the run and those of its sub-agents.
pub(crate) fn expected(start: &History, runs: &[Events]) -> (Messages, Messages) {
    let journal = Journal::new(start.clone());
    let events = runs.iter().flatten().filter_map(|event| event.as_ref().ok());
    events.for_each(|event| journal.observe(event));
    let mut nested = Messages::default();
    for call_id in journal.nested_call_ids() {
        if let Some(journal) = journal.nested_journal(&call_id) {
            nested.extend(&journal.new_items(), &format!("{call_id}/"));
        }
    }
    let mut own = Messages::default();
    own.extend(&journal.new_items(), "");
    (own.sorted(), nested.sorted())
}

impl Messages {
    fn extend(&mut self, items: &[Item], path: &str) {
        let (mut text, mut calls) = (String::new(), Vec::new());
        let mut turn = |text: &mut String, calls: &mut Vec<Value>| {
            if !text.is_empty() || !calls.is_empty() {
                self.turns.push(json!({ "content": &*text, "calls": &*calls }));
            }
            text.clear();
            calls.clear();
        };
        for item in items {
            match &item.kind {
                ItemKind::Text { text: more } => text.push_str(more),
                ItemKind::Reasoning { text } if !text.is_empty() => self.reasoning.push(text.clone()),
                ItemKind::ToolCall(call) => {
                    let id = format!("{path}{}", call.call_id);
                    calls.push(json!([id, call.name, call.arguments]));
                }
                ItemKind::ToolResult(ToolResult { call_id, content, kind, .. })
                    // Results of incomplete calls were added by this crate, so they are skipped.
                    if !item.interrupted =>
                {
                    let id = format!("{path}{call_id}");
                    self.results.push(json!([id, content.text(), kind.as_str()]));
                }
                _ => {}
            }
            let is_input = matches!(
                item.kind,
                ItemKind::System { .. } | ItemKind::User { .. } | ItemKind::ToolResult(_)
            );
            if item.turn.is_some() || is_input {
                turn(&mut text, &mut calls);
            }
        }
        turn(&mut text, &mut calls);
    }

    fn sorted(mut self) -> Self {
        self.results.sort_by_key(ToString::to_string);
        self
    }
}

/// The same for the messages that a client has: those of the run and those of its sub-agents.
pub(crate) fn found(messages: &Value) -> (Messages, Messages) {
    let (mut own, mut nested) = (Messages::default(), Messages::default());
    for message in messages.as_array().unwrap() {
        let into = if message["subagentRunId"].is_string() { &mut nested } else { &mut own };
        let content = message["content"].as_str().unwrap_or_default();
        match message["role"].as_str().unwrap() {
            "assistant" => {
                let call = |call: &Value| {
                    json!([call["id"], call["function"]["name"], call["function"]["arguments"]])
                };
                let calls = message["toolCalls"].as_array().into_iter().flatten();
                let calls: Vec<Value> = calls.map(call).collect();
                into.turns.push(json!({ "content": content, "calls": calls }));
            }
            "reasoning" if !content.is_empty() => into.reasoning.push(content.to_owned()),
            // The answer to an incomplete call.
            "tool" if message["id"].as_str().unwrap().starts_with("withdrawn-") => {}
            "tool" => {
                let kind = message["metadata"]["kind"].as_str().unwrap_or("ok");
                into.results.push(json!([message["toolCallId"], content, kind]));
            }
            _ => {}
        }
    }
    (own.sorted(), nested.sorted())
}
