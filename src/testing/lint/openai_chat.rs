//! `OpenAI` Chat Completions, <https://platform.openai.com/docs/api-reference/chat/create>.

use serde_json::Value;

use super::call_pairs::pairs;
use super::openai::{
    CHAT_ID, check_call, check_id, check_text, mentions_json, needs_tools, not_empty,
    output_schema, required, sampling, tools,
};
use super::options::{at_least, of_other_wires, within};
use super::violations::{Complaints, has_text, inner, is_given, list, repeated, text};
use crate::testing::signatures::Signatures;

/// What `OpenAI` objects to in the body of a Chat Completions request.
pub(in crate::testing) fn openai_chat(body: &Value) -> Vec<String> {
    let mut bad = Complaints::default();
    options(body, &mut bad);
    needs_tools(body, &mut bad);
    tools(body, Some("function"), &mut bad);
    let messages = list(&body["messages"]);
    not_empty(!messages.is_empty(), "messages", &mut bad);
    for (at, message) in messages.iter().enumerate() {
        self::message(message, at, &mut bad);
    }
    pairs(messages, |call| text(&call["id"]), |result| text(&result["tool_call_id"]), &mut bad);
    bad.into_list()
}

fn options(body: &Value, bad: &mut Complaints) {
    bad.unless(has_text(&body["model"])).add("you must provide a model parameter");
    sampling(body, bad);
    within(body, "frequency_penalty", -2.0, 2.0, bad);
    within(body, "presence_penalty", -2.0, 2.0, bad);
    at_least(body, "max_tokens", 1, bad);
    at_least(body, "max_completion_tokens", 1, bad);
    bad.unless(!(is_given(body, "max_tokens") && is_given(body, "max_completion_tokens")))
        .add("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.");
    bad.unless(!is_given(body, "stream_options") || body["stream"] == Value::Bool(true))
        .add("The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    bad.unless(list(&body["stop"]).len() <= 4)
        .add("Invalid 'stop': array too long. Expected an array with maximum length 4.");
    let format = &body["response_format"];
    match text(&format["type"]) {
        "json_schema" => {
            output_schema(&format["json_schema"], "response_format.json_schema", bad);
        }
        "json_object" => mentions_json(&body["messages"], "messages", bad),
        _ => {}
    }
    of_other_wires("openai_chat", body, bad);
}

fn message(message: &Value, at: usize, bad: &mut Complaints) {
    let role = text(&message["role"]);
    let place = format!("messages[{at}]");
    bad.unless(matches!(role, "system" | "developer" | "user" | "assistant" | "tool" | "function"))
        .add(format_args!(
            "Invalid value: '{role}'. Supported values for '{place}.role' are: 'system', \
             'assistant', 'user', 'function', 'tool', and 'developer'."
        ));
    let calls = list(&message["tool_calls"]);
    let speaks = role == "assistant"
        && (!calls.is_empty() || is_given(message, "refusal") || is_given(message, "audio"));
    match &message["content"] {
        Value::String(_) => {}
        Value::Array(parts) => {
            not_empty(!parts.is_empty(), &format!("{place}.content"), bad);
            for (index, part) in parts.iter().enumerate() {
                self::part(part, role, &format!("{place}.content[{index}]"), bad);
            }
        }
        Value::Null => bad.unless(speaks).add(format_args!(
            "Invalid value for 'content': expected a string, got null. ({place})"
        )),
        _ => bad.add(format_args!(
            "Invalid type for '{place}.content': expected a string or an array."
        )),
    }
    let has_calls = !is_given(message, "tool_calls") || !calls.is_empty();
    not_empty(has_calls, &format!("{place}.tool_calls"), bad);
    for (index, call) in calls.iter().enumerate() {
        let place = format!("{place}.tool_calls[{index}]");
        check_id(&call["id"], CHAT_ID, &format!("{place}.id"), bad);
        if call["type"] == "function" {
            check_call(&call["function"], &format!("{place}.function"), bad);
        } else {
            bad.unless(call["type"] == "custom")
                .add(format_args!("Invalid value for '{place}.type'."));
        }
    }
    for id in repeated(calls.iter().map(|call| text(&call["id"]))) {
        bad.add(format_args!("Invalid '{place}.tool_calls': duplicate id '{id}'."));
    }
    if role == "tool" {
        check_id(&message["tool_call_id"], CHAT_ID, &format!("{place}.tool_call_id"), bad);
    }
}

fn part(part: &Value, role: &str, place: &str, bad: &mut Complaints) {
    let kind = text(&part["type"]);
    let allowed = match role {
        "user" => matches!(kind, "text" | "image_url" | "input_audio" | "file"),
        "assistant" => matches!(kind, "text" | "refusal"),
        _ => kind == "text",
    };
    bad.unless(allowed).add(format_args!(
        "Invalid '{place}': content parts of type '{kind}' are not allowed for messages with role \
         '{role}'."
    ));
    match kind {
        "text" => check_text(part, place, bad),
        "image_url" => {
            required(has_text(&part["image_url"]["url"]), &format!("{place}.image_url.url"), bad);
        }
        "file" => {
            let file = &part["file"];
            let is_there = is_given(file, "file_id") || is_given(file, "file_data");
            required(is_there, &format!("{place}.file.file_id"), bad);
        }
        _ => {}
    }
}

/// What the vendor objects to in the signatures that a request brings back.
pub(in crate::testing) fn signatures(known: &Signatures, body: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    for (at, index, detail) in inner(&body["messages"], "reasoning_details") {
        let holds = match (&detail["data"], &detail["signature"]) {
            (Value::String(data), _) => known.hold(data, ""),
            // The signature may come back on its own, as it was sent.
            (_, Value::String(signature)) => match detail["text"].as_str() {
                Some(said) => known.hold(signature, said),
                None => known.issued(signature),
            },
            _ => true,
        };
        if !holds {
            bad.push(format!(
                "messages[{at}].reasoning_details[{index}]: Invalid `signature` in `thinking` block"
            ));
        }
    }
    bad
}
