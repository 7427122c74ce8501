//! Checks requests to `OpenAI` Chat Completions,
//! <https://platform.openai.com/docs/api-reference/chat/create>.

use serde_json::Value;

use super::call_pairs::check_pairs;
use super::openai::{
    MAX_CHAT_CALL_ID_BYTES, check_call, check_id, check_mentions_json, check_needs_tools,
    check_not_empty, check_output_schema, check_required, check_sampling, check_text, check_tools,
};
use super::options::{check_at_least, check_foreign_fields, check_range};
use super::violations::{
    Violations, as_list, has_text, is_given, nested_elements, repeated_values, text,
};
use crate::signatures::Signatures;

/// Returns the errors that `OpenAI` would report for the body of a Chat Completions request.
pub(crate) fn openai_chat(body: &Value) -> Vec<String> {
    let mut bad = Violations::default();
    check_options(body, &mut bad);
    check_needs_tools(body, &mut bad);
    check_tools(body, Some("function"), &mut bad);
    let messages = as_list(&body["messages"]);
    check_not_empty(!messages.is_empty(), "messages", &mut bad);
    for (at, message) in messages.iter().enumerate() {
        self::check_message(message, at, &mut bad);
    }
    check_pairs(
        messages,
        |call| text(&call["id"]),
        |result| text(&result["tool_call_id"]),
        &mut bad,
    );
    bad.into_list()
}

fn check_options(body: &Value, bad: &mut Violations) {
    bad.require(has_text(&body["model"])).or_push("you must provide a model parameter");
    check_sampling(body, bad);
    check_range(body, "frequency_penalty", -2.0, 2.0, bad);
    check_range(body, "presence_penalty", -2.0, 2.0, bad);
    check_at_least(body, "max_tokens", 1, bad);
    check_at_least(body, "max_completion_tokens", 1, bad);
    bad.require(!(is_given(body, "max_tokens") && is_given(body, "max_completion_tokens")))
        .or_push(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        );
    bad.require(!is_given(body, "stream_options") || body["stream"] == Value::Bool(true))
        .or_push("The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    bad.require(as_list(&body["stop"]).len() <= 4)
        .or_push("Invalid 'stop': array too long. Expected an array with maximum length 4.");
    let format = &body["response_format"];
    match text(&format["type"]) {
        "json_schema" => {
            check_output_schema(&format["json_schema"], "response_format.json_schema", bad);
        }
        "json_object" => check_mentions_json(&body["messages"], "messages", bad),
        _ => {}
    }
    check_foreign_fields("openai_chat", body, bad);
}

fn check_message(message: &Value, at: usize, bad: &mut Violations) {
    let role = text(&message["role"]);
    let place = format!("messages[{at}]");
    bad.require(matches!(
        role,
        "system" | "developer" | "user" | "assistant" | "tool" | "function"
    ))
    .or_push(format_args!(
        "Invalid value: '{role}'. Supported values for '{place}.role' are: 'system', \
             'assistant', 'user', 'function', 'tool', and 'developer'."
    ));
    let calls = as_list(&message["tool_calls"]);
    let speaks = role == "assistant"
        && (!calls.is_empty() || is_given(message, "refusal") || is_given(message, "audio"));
    match &message["content"] {
        Value::String(_) => {}
        Value::Array(parts) => {
            check_not_empty(!parts.is_empty(), &format!("{place}.content"), bad);
            for (index, part) in parts.iter().enumerate() {
                self::check_part(part, role, &format!("{place}.content[{index}]"), bad);
            }
        }
        Value::Null => bad.require(speaks).or_push(format_args!(
            "Invalid value for 'content': expected a string, got null. ({place})"
        )),
        _ => bad.push(format_args!(
            "Invalid type for '{place}.content': expected a string or an array."
        )),
    }
    let has_calls = !is_given(message, "tool_calls") || !calls.is_empty();
    check_not_empty(has_calls, &format!("{place}.tool_calls"), bad);
    for (index, call) in calls.iter().enumerate() {
        let place = format!("{place}.tool_calls[{index}]");
        check_id(&call["id"], MAX_CHAT_CALL_ID_BYTES, &format!("{place}.id"), bad);
        if call["type"] == "function" {
            check_call(&call["function"], &format!("{place}.function"), bad);
        } else {
            bad.require(call["type"] == "custom")
                .or_push(format_args!("Invalid value for '{place}.type'."));
        }
    }
    for id in repeated_values(calls.iter().map(|call| text(&call["id"]))) {
        bad.push(format_args!("Invalid '{place}.tool_calls': duplicate id '{id}'."));
    }
    if role == "tool" {
        check_id(
            &message["tool_call_id"],
            MAX_CHAT_CALL_ID_BYTES,
            &format!("{place}.tool_call_id"),
            bad,
        );
    }
}

fn check_part(part: &Value, role: &str, place: &str, bad: &mut Violations) {
    let kind = text(&part["type"]);
    let allowed = match role {
        "user" => matches!(kind, "text" | "image_url" | "input_audio" | "file"),
        "assistant" => matches!(kind, "text" | "refusal"),
        _ => kind == "text",
    };
    bad.require(allowed).or_push(format_args!(
        "Invalid '{place}': content parts of type '{kind}' are not allowed for messages with role \
         '{role}'."
    ));
    match kind {
        "text" => check_text(part, place, bad),
        "image_url" => {
            check_required(
                has_text(&part["image_url"]["url"]),
                &format!("{place}.image_url.url"),
                bad,
            );
        }
        "file" => {
            let file = &part["file"];
            let is_there = is_given(file, "file_id") || is_given(file, "file_data");
            check_required(is_there, &format!("{place}.file.file_id"), bad);
        }
        _ => {}
    }
}

/// Returns the errors that the vendor would report for the signatures in a request.
pub(crate) fn check_signatures(known: &Signatures, body: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    for (at, index, detail) in nested_elements(&body["messages"], "reasoning_details") {
        let holds = match (&detail["data"], &detail["signature"]) {
            (Value::String(data), _) => known.is_issued_for(data, ""),
            // A request may contain the signature without its text, because the server also
            // streamed the signature separately.
            (_, Value::String(signature)) => match detail["text"].as_str() {
                Some(signed) => known.is_issued_for(signature, signed),
                None => known.was_issued(signature),
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
