//! What a request asks, read from its JSON body.

use serde_json::Value;

/// The last thing the user said, and what happened since.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) question: String,
    /// The names of the tools that may be called.
    pub(crate) tools: Vec<String>,
    /// In the order in which they stand in the request.
    pub(crate) results: Vec<Answered>,
}

/// A call and its result.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) name: String,
    pub(crate) input: Value,
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl Asked {
    pub(crate) fn read(body: &Value) -> Self {
        let mut asked = Self::default();
        for tool in list(&body["tools"]) {
            asked.tools.extend(tool["name"].as_str().map(str::to_owned));
        }
        let mut calls: Vec<&Value> = Vec::new();
        for message in list(&body["messages"]) {
            let is_user = message["role"] == "user";
            if let Some(text) = message["content"].as_str().filter(|_| is_user) {
                asked.ask(text);
            }
            for block in list(&message["content"]) {
                match block["type"].as_str() {
                    Some("text") if is_user => asked.ask(block["text"].as_str().unwrap_or("")),
                    Some("tool_use") => calls.push(block),
                    Some("tool_result") => {
                        // An id may come twice in a strange history; the newest call is meant.
                        let id = &block["tool_use_id"];
                        let call = calls.iter().rev().find(|call| call["id"] == *id);
                        asked.results.push(Answered {
                            name: call.and_then(|it| it["name"].as_str()).unwrap_or("?").to_owned(),
                            input: call.map_or(Value::Null, |call| call["input"].clone()),
                            text: text_of(&block["content"]),
                            is_error: block["is_error"] == true,
                        });
                    }
                    _ => {}
                }
            }
        }
        asked
    }

    /// A new question: what came before it is settled.
    fn ask(&mut self, text: &str) {
        text.clone_into(&mut self.question);
        self.results.clear();
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        parts => list(parts).filter_map(|part| part["text"].as_str()).collect(),
    }
}
