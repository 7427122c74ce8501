//! Ollama's own wire, <https://docs.ollama.com/api/chat>.
//!
//! The server passes over fields that it does not know; what is given in vain is a complaint here.

use serde_json::Value;

use super::call_pairs::pairs;
use super::options::foreign;
use super::violations::{Complaints, has_text, is_given, list, repeated, text};

/// What Ollama objects to in the body of a request to `/api/chat`.
pub(in crate::testing) fn ollama(body: &Value) -> Vec<String> {
    let mut bad = Complaints::default();
    options(body, &mut bad);
    tools(body, &mut bad);
    let messages = list(&body["messages"]);
    bad.unless(!messages.is_empty())
        .add("messages: without any, the model is loaded and says nothing");
    for (at, message) in messages.iter().enumerate() {
        self::message(message, at, &mut bad);
    }
    pairs(
        messages,
        |call| id_or(&call["id"], &call["function"]["name"]),
        |result| id_or(&result["tool_call_id"], &result["tool_name"]),
        &mut bad,
    );
    bad.into_list()
}

/// Calls have ids or only names.
fn id_or<'a>(id: &'a Value, name: &'a Value) -> &'a str {
    match text(id) {
        "" => text(name),
        id => id,
    }
}

/// A type as Go has it, and whether a value fits it.
type Type = (&'static str, fn(&Value) -> bool);

const STRING: Type = ("string", Value::is_string);
const BOOL: Type = ("bool", Value::is_boolean);
const INTEGER: Type = ("integer", |value| value.is_i64() || value.is_u64());
const FLOAT: Type = ("float32", Value::is_number);
const OBJECT: Type = ("object", Value::is_object);
const ARRAY: Type = ("array", Value::is_array);
const STRINGS: Type =
    ("array of strings", |value| value.is_array() && list(value).iter().all(Value::is_string));

/// Those of Go's `api.Options` that requests set, by their types.
const OF_MODEL: &[(Type, &[&str])] = &[
    (INTEGER, &["num_ctx", "num_predict", "num_keep", "seed", "top_k", "repeat_last_n"]),
    (FLOAT, &["temperature", "top_p", "min_p", "typical_p"]),
    (FLOAT, &["repeat_penalty", "presence_penalty", "frequency_penalty"]),
    (STRINGS, &["stop"]),
];

/// The types of fields that need not be there.
fn typed(of: &Value, place: &str, types: &[(Type, &[&str])], bad: &mut Complaints) {
    for ((name, fits), fields) in types {
        for field in *fields {
            let value = &of[*field];
            bad.unless(value.is_null() || fits(value))
                .add(format_args!("json: {place}{field} must be of type {name}, but is {value}"));
        }
    }
}

fn options(body: &Value, bad: &mut Complaints) {
    bad.unless(has_text(&body["model"])).add("model is required");
    let types: [(Type, &[&str]); 4] = [
        (STRING, &["model"]),
        (ARRAY, &["messages", "tools"]),
        (BOOL, &["stream"]),
        (OBJECT, &["options"]),
    ];
    typed(body, "", &types, bad);
    let format = &body["format"];
    bad.unless(format.is_null() || format.is_object() || format == "json").add(format_args!(
        "invalid format: {format}; expected \"json\" or a valid JSON Schema object"
    ));
    let think = &body["think"];
    let level = matches!(text(think), "high" | "medium" | "low");
    bad.unless(think.is_null() || think.is_boolean() || level).add(format_args!(
        "invalid think value: {think} (must be \"high\", \"medium\", \"low\", true, or false)"
    ));
    let keep_alive = &body["keep_alive"];
    bad.unless(matches!(keep_alive, Value::Null | Value::Number(_) | Value::String(_))).add(
        format_args!(
            "json: keep_alive must be a number of seconds or a duration, but is {keep_alive}"
        ),
    );
    typed(&body["options"], "option ", OF_MODEL, bad);
    for (_, fields) in OF_MODEL {
        foreign(body, fields, bad);
    }
    foreign(body, &["system", "input", "max_tokens", "max_output_tokens", "response_format"], bad);
    foreign(body, &["tool_choice", "stop_sequences", "contents", "generationConfig"], bad);
}

fn tools(body: &Value, bad: &mut Complaints) {
    let functions = || list(&body["tools"]).iter().map(|tool| &tool["function"]);
    for (at, (tool, function)) in list(&body["tools"]).iter().zip(functions()).enumerate() {
        let place = format!("tools[{at}]");
        bad.unless(tool["type"] == "function")
            .add(format_args!("{place}.type must be \"function\""));
        named(function, &place, bad);
        let parameters = &function["parameters"];
        bad.unless(parameters.is_null() || parameters["type"] == "object").add(format_args!(
            "{place}.function.parameters must be a schema of an object, not {parameters}"
        ));
    }
    for name in repeated(functions().map(|function| text(&function["name"]))) {
        bad.add(format_args!("tools: duplicate function name: {name}"));
    }
}

fn named(function: &Value, place: &str, bad: &mut Complaints) {
    bad.unless(has_text(&function["name"]))
        .add(format_args!("{place}.function.name: a function needs a name"));
}

fn message(message: &Value, at: usize, bad: &mut Complaints) {
    let place = format!("messages[{at}]");
    let role = text(&message["role"]);
    bad.unless(matches!(role, "system" | "user" | "assistant" | "tool")).add(format_args!(
        "{place}: invalid role: {role}, must be one of [\"system\", \"user\", \"assistant\", \
         \"tool\"]"
    ));
    let types: [(Type, &[&str]); 4] = [
        (STRING, &["content", "thinking"]),
        (STRINGS, &["images"]),
        (ARRAY, &["tool_calls"]),
        (STRING, &["tool_name", "tool_call_id"]),
    ];
    typed(message, &format!("{place}."), &types, bad);
    for field in ["thinking", "tool_calls"] {
        bad.unless(role == "assistant" || !is_given(message, field))
            .add(format_args!("{place}.{field}: only the assistant has it"));
    }
    for (index, call) in list(&message["tool_calls"]).iter().enumerate() {
        let place = format!("{place}.tool_calls[{index}]");
        named(&call["function"], &place, bad);
        let arguments = &call["function"]["arguments"];
        bad.unless(arguments.is_object()).add(format_args!(
            "json: {place}.function.arguments must be of type object, but is {arguments}"
        ));
    }
}
