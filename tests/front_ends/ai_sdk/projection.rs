//! The message that a client should have at the end: the history from the events, as far as a
//! message can represent it.
//!
//! Facts that a message cannot represent are left out on both sides:
//!
//! | | |
//! |---|---|
//! | provider data, marks, the stop reason and usage of a turn | |
//! | hidden reasoning | |
//! | input, and items that hooks add | an assistant message has no user input |
//! | earlier history, and that it was compacted | it is one message |
//! | retracted turns | versions 5 and 6 keep their steps, each with `data-retracted` |
//! | the kind of an error | all errors are alike, except for denied calls |
//! | parts whose type starts with `data-`, steering messages, empty steps | not part of the history |

use serde_json::{Value, json};
use turnstream::item::{ItemKind, PendingCall, ResultKind, ToolResult};
use turnstream::ui::ai_sdk::Version;
use turnstream::{Event, History, Journal};

use turnstream_testing::conversations::Events;

/// The steps that these runs should produce.
pub(crate) fn expected_steps(start: &History, runs: &[Events], version: Version) -> Vec<Value> {
    let journal = Journal::new(start.clone());
    let events = || runs.iter().flatten().filter_map(|event| event.as_ref().ok());
    events().for_each(|event| journal.observe(event));
    let new_items = journal.new_items();
    let results: Vec<&ToolResult> =
        new_items.iter().filter_map(|item| item.as_tool_result()).collect();
    let asked: Vec<PendingCall> = events().filter_map(Event::approval_request).collect();
    let was_asked =
        |id: &str| asked.iter().any(|call| call.path.first().unwrap_or(&call.call_id) == id);
    let (mut steps, mut step) = (Vec::new(), Vec::new());
    for item in &new_items {
        match &item.kind {
            ItemKind::Text { text } if !text.is_empty() => {
                step.push(json!({ "type": "text", "text": text }));
            }
            ItemKind::Reasoning { text } if !text.is_empty() => {
                step.push(json!({ "type": "reasoning", "text": text }));
            }
            ItemKind::ToolCall(call) => {
                let result = results.iter().find(|result| result.call_id == call.call_id);
                let input: Value = serde_json::from_str(call.arguments_or_empty_object())
                    .unwrap_or_else(|_| json!(call.arguments));
                let mut part = json!({
                    "type": "dynamic-tool", "toolCallId": call.call_id, "toolName": call.name,
                });
                match result {
                    // The call was incomplete, so it was never executed.
                    None | Some(_) if item.interrupted => part["state"] = json!("output-error"),
                    Some(result) if result.kind == ResultKind::Ok => {
                        part["state"] = json!("output-available");
                        part["input"] = input;
                        part["output"] = output(result);
                    }
                    Some(result) => {
                        let is_denied =
                            result.kind == ResultKind::Denied && was_asked(&call.call_id);
                        let is_told = is_denied && version > Version::V5;
                        part["state"] =
                            json!(if is_told { "output-denied" } else { "output-error" });
                        if !is_told {
                            part["errorText"] = json!(result.content.text());
                        }
                        part["input"] = input;
                    }
                    // The client learns immediately that the call cannot be run.
                    None if input.is_string() => {
                        part["state"] = json!("output-error");
                        part["input"] = input;
                    }
                    None => {
                        let is_asked = version > Version::V5 && was_asked(&call.call_id);
                        part["state"] =
                            json!(if is_asked { "approval-requested" } else { "input-available" });
                        part["input"] = input;
                    }
                }
                step.push(part);
            }
            _ => {}
        }
        if item.turn.is_some() && !step.is_empty() {
            steps.push(Value::Array(std::mem::take(&mut step)));
        }
    }
    if !step.is_empty() {
        steps.push(Value::Array(step));
    }
    steps
}

fn output(result: &ToolResult) -> Value {
    let text = result.content.text();
    match text.starts_with('{') {
        true => serde_json::from_str(&text).unwrap(),
        false => json!(text),
    }
}

/// The same for a client's message.
pub(crate) fn steps_of_message(message: &Value) -> Vec<Value> {
    let mut steps: Vec<Vec<Value>> = vec![Vec::new()];
    let mut is_retracted = false;
    for part in message["parts"].as_array().unwrap() {
        let kind = part["type"].as_str().unwrap();
        match kind {
            "step-start" => {
                steps.push(Vec::new());
                is_retracted = false;
            }
            "data-retracted" => is_retracted = true,
            _ => {}
        }
        let last = steps.last_mut().unwrap();
        if is_retracted {
            last.clear();
        }
        let mut kept = serde_json::Map::new();
        let names: &[&str] = match kind {
            "text" | "reasoning" => &["type", "text"],
            "dynamic-tool" => match part["state"].as_str().unwrap() {
                "output-error" => {
                    &["type", "toolCallId", "toolName", "state", "input", "errorText"]
                }
                _ => &["type", "toolCallId", "toolName", "state", "input", "output"],
            },
            _ => continue,
        };
        for &name in names {
            if !part[name].is_null() {
                kept.insert(name.to_owned(), part[name].clone());
            }
        }
        let is_withdrawn = ["the model retracted it", "the run ended", "the turn was retracted"]
            .iter()
            .any(|text| part["errorText"] == *text);
        if is_withdrawn {
            kept.shift_remove("input");
            kept.shift_remove("errorText");
        }
        let text = part["errorText"].as_str().unwrap_or_default();
        if text.starts_with("the arguments are not JSON") {
            kept.shift_remove("errorText");
        }
        last.push(Value::Object(kept));
    }
    steps.into_iter().filter(|step| !step.is_empty()).map(Value::Array).collect()
}
