//! The question of a request, parsed from the request's JSON body.

use serde_json::Value;

use crate::offline::outside::OutsideTool;

/// The user's last message, and the calls since then.
#[derive(Debug, Default)]
pub(crate) struct ParsedRequest {
    pub(crate) question: String,
    /// The names of the tools that may be called.
    pub(crate) tool_names: Vec<String>,
    /// The MCP servers' tools among them.
    pub(crate) outside_tools: Vec<OutsideTool>,
    /// In the order of the request.
    pub(crate) results: Vec<CallResult>,
}

/// A call and its result.
#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) tool_name: String,
    pub(crate) input: Value,
    pub(crate) output: String,
    pub(crate) is_error: bool,
}

impl ParsedRequest {
    pub(crate) fn parse(body: &Value) -> Self {
        let mut request = Self::default();
        for tool in array_items(&body["tools"]) {
            request.tool_names.extend(tool["name"].as_str().map(str::to_owned));
            request.outside_tools.extend(OutsideTool::parse(tool));
        }
        let mut calls: Vec<&Value> = Vec::new();
        for message in array_items(&body["messages"]) {
            let is_user = message["role"] == "user";
            if let Some(text) = message["content"].as_str().filter(|_| is_user) {
                request.set_question(text);
            }
            for block in array_items(&message["content"]) {
                match block["type"].as_str() {
                    Some("text") if is_user => {
                        request.set_question(block["text"].as_str().unwrap_or(""));
                    }
                    Some("tool_use") => calls.push(block),
                    Some("tool_result") => {
                        // A malformed history may repeat an id; the newest call is meant.
                        let id = &block["tool_use_id"];
                        let call = calls.iter().rev().find(|call| call["id"] == *id);
                        request.results.push(CallResult {
                            tool_name: call
                                .and_then(|it| it["name"].as_str())
                                .unwrap_or("?")
                                .to_owned(),
                            input: call.map_or(Value::Null, |call| call["input"].clone()),
                            output: content_text(&block["content"]),
                            is_error: block["is_error"] == true,
                        });
                    }
                    _ => {}
                }
            }
        }
        request
    }

    /// Starts a new question, and forgets everything before it.
    fn set_question(&mut self, text: &str) {
        text.clone_into(&mut self.question);
        self.results.clear();
    }
}

fn array_items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        parts => array_items(parts).filter_map(|part| part["text"].as_str()).collect(),
    }
}
