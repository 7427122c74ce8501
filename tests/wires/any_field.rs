//! A field with an unexpected value does not fail the turn, except for fields that are essential to
//! the model's output or its calls. Each value of a valid stream is replaced, one at a time.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::executor::block_on;
use futures::stream;
use serde_json::{Value, json};
use turnstream::provider::Reply;
use turnstream::provider::openai_chat::Dialect;
use turnstream::stream::TurnStreamExt;
use turnstream::turn::Turn;
use turnstream::{Error, History, Usage};
use turnstream_testing::{Answer, Wire};

use turnstream_test_support::wires::decode_in_dialect;

fn decode_turn(wire: Wire, body: String) -> Result<Turn, Error> {
    let (body, after) = (stream::iter([Ok(Bytes::from(body))]), History::empty("h"));
    let turn = decode_in_dialect(&Dialect::OPENROUTER, wire, "m", &after, body);
    block_on(turn.into_turn()).map(|turn| (*turn).clone())
}

/// The calls that may run.
fn runnable_calls(turn: &Turn) -> Vec<(String, String)> {
    let calls = turn.calls();
    let may = calls.iter().filter(|_| calls.veto().is_none());
    may.map(|call| (call.name.clone(), call.arguments.clone())).collect()
}

/// The paths of all values; elements of arrays are identified by their index.
fn collect_paths(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(name, value)| collect_paths(value, &format!("{at}/{name}"), all));
        }
        Value::Array(values) => {
            values
                .iter()
                .enumerate()
                .for_each(|(n, value)| collect_paths(value, &format!("{at}/{n}"), all));
        }
        _ => {}
    }
}

/// The name of a field, the same for all elements of an array.
fn field_name(frame: &Value, path: &str) -> String {
    let steps = path.split('/').map(|step| if step.parse::<u8>().is_ok() { "*" } else { step });
    let kind = frame["type"].as_str().unwrap_or_default();
    format!("{kind}{}", steps.collect::<Vec<_>>().join("/"))
}

/// The fields in which another value fails the turn.
fn turn_breaking_fields(wire: Wire) -> BTreeSet<String> {
    let usage = Usage { input_tokens: 10, output_tokens: 3, ..Usage::default() };
    let thought = Reply::new().think("Hm.");
    // Ollama's wire has no signatures.
    let reply = if wire == Wire::Ollama { thought } else { thought.sign("c2ln") };
    let reply = reply.say("Word.").usage(usage);
    let reply = reply.call("look", json!({ "x": [1, "y"] })).call("count", json!({ "z": 2 }));
    let body = String::from_utf8(Answer::reply(reply).to_bytes(wire)).unwrap();
    let lawful = runnable_calls(&decode_turn(wire, body.clone()).unwrap());
    assert_eq!(lawful.len(), 2, "{wire}");
    let deep = "[".repeat(200) + &"]".repeat(200);
    let odd = ["null", "true", "-1", "1e400", "\"\"", "\"odd\"", "[]", "[null]", "{}", &deep];
    let lines: Vec<&str> = body.lines().collect();
    let mut costly = BTreeSet::new();
    for (at, line) in lines.iter().enumerate() {
        let (prefix, frame) = match line.strip_prefix("data: ") {
            Some(frame) => ("data: ", frame),
            None if wire == Wire::Ollama => ("", *line),
            None => continue,
        };
        let Ok(frame) = serde_json::from_str::<Value>(frame) else { continue };
        let mut all = Vec::new();
        collect_paths(&frame, "", &mut all);
        for path in all {
            for odd in odd {
                let mut harmed = frame.clone();
                *harmed.pointer_mut(&path).unwrap() = "@@".into();
                let harmed = format!("{prefix}{}", harmed.to_string().replace("\"@@\"", odd));
                let mut lines = lines.clone();
                lines[at] = &harmed;
                let place = field_name(&frame, &path);
                match decode_turn(wire, lines.join("\n") + "\n") {
                    Err(_) => {
                        costly.insert(place);
                    }
                    // If the call itself is replaced, the value is a call of something else.
                    Ok(turn) => {
                        let strange =
                            runnable_calls(&turn).into_iter().filter(|run| !lawful.contains(run));
                        // An empty or null value is the same as a missing field, so it may be left
                        // out.
                        let is_nothing =
                            matches!(odd, "null" | "1e400" | "\"\"" | "[]" | "[null]" | "{}");
                        let is_its_own = ["arguments", "args", "name", "partial_json", "input"]
                            .iter()
                            .any(|own| place.contains(own))
                            // An event of an unknown type may have any meaning.
                            || place.ends_with("/type");
                        assert!(
                            is_nothing || is_its_own || strange.count() == 0,
                            "{wire}: {place} = {odd} runs {:?}",
                            runnable_calls(&turn)
                        );
                    }
                }
            }
        }
    }
    costly
}

/// The structure of a turn: its frames, its end, and its calls.
const ANTHROPIC_BREAKING_FIELDS: &[&str] = &[
    "content_block_delta",
    "content_block_delta/delta",
    "content_block_delta/delta/partial_json",
    "content_block_start",
    "content_block_start/content_block",
    "content_block_start/content_block/name",
    "content_block_start/index",
    "content_block_start/type",
    "content_block_stop",
    "content_block_stop/type",
    "message_delta",
    "message_start",
    "message_stop",
];
const CHAT_BREAKING_FIELDS: &[&str] = &[
    "",
    "/choices",
    "/choices/*",
    "/choices/*/delta",
    "/choices/*/delta/tool_calls",
    "/choices/*/delta/tool_calls/*",
    "/choices/*/delta/tool_calls/*/function",
    "/choices/*/delta/tool_calls/*/function/arguments",
    "/choices/*/delta/tool_calls/*/function/name",
    "/choices/*/delta/tool_calls/*/index",
    "/choices/*/finish_reason",
];
/// A frame that is a string is not an event, whatever its `event:` line says.
const RESPONSES_BREAKING_FIELDS: &[&str] = &[
    "response.completed",
    "response.completed/response/output/*/arguments",
    "response.completed/type",
    "response.content_part.added",
    "response.content_part.done",
    "response.created",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.function_call_arguments.done/arguments",
    "response.in_progress",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_item.done/item/arguments",
    "response.output_text.delta",
    "response.output_text.done",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
];
/// A chunk with a call is not repaired if a field after `finishReason` contains a number beyond any
/// type.
const GEMINI_BREAKING_FIELDS: &[&str] = &[
    "",
    "/candidates",
    "/candidates/*",
    "/candidates/*/content/parts/*/functionCall",
    "/candidates/*/content/parts/*/functionCall/args",
    "/candidates/*/content/parts/*/functionCall/name",
    "/candidates/*/finishReason",
    "/candidates/*/index",
    "/modelVersion",
    "/responseId",
    "/usageMetadata",
    "/usageMetadata/promptTokenCount",
    "/usageMetadata/totalTokenCount",
];
/// A line with a call is not repaired if its `content` or its `model` contains a number beyond any
/// type.
const OLLAMA_BREAKING_FIELDS: &[&str] = &[
    "",
    "/done",
    "/message/content",
    "/message/tool_calls",
    "/message/tool_calls/*",
    "/message/tool_calls/*/function",
    "/message/tool_calls/*/function/arguments",
    "/message/tool_calls/*/function/name",
    "/model",
];

/// Whether numbers of any size can be parsed, because a dependency has enabled
/// `arbitrary_precision`.
fn has_arbitrary_precision() -> bool {
    serde_json::from_str::<serde_json::Value>("1e999").is_ok()
}

/// Whether a field fails the turn only if it contains a number beyond any type.
fn is_lost_to_large_number(wire: Wire, field: &str) -> bool {
    match wire {
        Wire::Gemini => {
            field == "/candidates/*/index" || !field.starts_with("/candidates") && !field.is_empty()
        }
        Wire::Ollama => matches!(field, "/message/content" | "/model"),
        _ => false,
    }
}

#[test]
fn only_an_essential_field_with_a_wrong_type_fails_the_turn() {
    for (wire, allowed) in Wire::ALL.into_iter().zip([
        ANTHROPIC_BREAKING_FIELDS,
        CHAT_BREAKING_FIELDS,
        RESPONSES_BREAKING_FIELDS,
        GEMINI_BREAKING_FIELDS,
        OLLAMA_BREAKING_FIELDS,
    ]) {
        let costly = turn_breaking_fields(wire);
        let found: Vec<&str> = costly.iter().map(String::as_str).collect();
        let is_allowed =
            |field: &&str| !has_arbitrary_precision() || !is_lost_to_large_number(wire, field);
        let allowed: Vec<&str> = allowed.iter().copied().filter(is_allowed).collect();
        assert_eq!(found, allowed, "{wire}");
    }
}
