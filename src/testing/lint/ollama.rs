//! Ollama's own wire, <https://docs.ollama.com/api/chat>.
//!
//! The server passes over fields that it does not know; what is given in vain is a complaint here.

use serde_json::Value;

use super::complaints::{Complaints, is_given, list, repeated, text};
use super::options::foreign;
use super::pairs::pairs;

/// What Ollama objects to in the body of a request to `/api/chat`.
pub fn ollama(body: &Value) -> Vec<String> {
    let mut bad = Complaints::default();
    options(body, &mut bad);
    tools(body, &mut bad);
    let messages = list(&body["messages"]);
    bad.unless(!messages.is_empty(), || {
        "messages: without any, the model is loaded and says nothing".to_owned()
    });
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

/// Those of Go's `api.Options` that requests set.
const OF_MODEL: &[(&str, Type)] = &[
    ("num_ctx", INTEGER),
    ("num_predict", INTEGER),
    ("num_keep", INTEGER),
    ("seed", INTEGER),
    ("top_k", INTEGER),
    ("repeat_last_n", INTEGER),
    ("temperature", FLOAT),
    ("top_p", FLOAT),
    ("min_p", FLOAT),
    ("typical_p", FLOAT),
    ("repeat_penalty", FLOAT),
    ("presence_penalty", FLOAT),
    ("frequency_penalty", FLOAT),
    ("stop", STRINGS),
];

/// The types of fields that need not be there.
fn typed(of: &Value, place: &str, fields: &[(&str, Type)], bad: &mut Complaints) {
    for (field, (name, fits)) in fields {
        let value = &of[*field];
        bad.unless(value.is_null() || fits(value), || {
            format!("json: {place}{field} must be of type {name}, but is {value}")
        });
    }
}

fn options(body: &Value, bad: &mut Complaints) {
    bad.unless(!text(&body["model"]).is_empty(), || "model is required".to_owned());
    let fields = [
        ("model", STRING),
        ("messages", ARRAY),
        ("tools", ARRAY),
        ("stream", BOOL),
        ("options", OBJECT),
    ];
    typed(body, "", &fields, bad);
    let format = &body["format"];
    bad.unless(format.is_null() || format.is_object() || format == "json", || {
        format!("invalid format: {format}; expected \"json\" or a valid JSON Schema object")
    });
    let think = &body["think"];
    let level = matches!(text(think), "high" | "medium" | "low");
    bad.unless(think.is_null() || think.is_boolean() || level, || {
        format!(
            "invalid think value: {think} (must be \"high\", \"medium\", \"low\", true, or false)"
        )
    });
    let keep_alive = &body["keep_alive"];
    bad.unless(matches!(keep_alive, Value::Null | Value::Number(_) | Value::String(_)), || {
        format!("json: keep_alive must be a number of seconds or a duration, but is {keep_alive}")
    });
    typed(&body["options"], "option ", OF_MODEL, bad);
    for (field, _) in OF_MODEL {
        foreign(body, &[field], bad);
    }
    let others = [
        "system",
        "input",
        "max_tokens",
        "max_output_tokens",
        "response_format",
        "tool_choice",
        "stop_sequences",
        "contents",
        "generationConfig",
    ];
    foreign(body, &others, bad);
}

fn tools(body: &Value, bad: &mut Complaints) {
    let functions = || list(&body["tools"]).iter().map(|tool| &tool["function"]);
    for (at, (tool, function)) in list(&body["tools"]).iter().zip(functions()).enumerate() {
        let place = format!("tools[{at}]");
        bad.unless(tool["type"] == "function", || format!("{place}.type must be \"function\""));
        named(function, &place, bad);
        let parameters = &function["parameters"];
        bad.unless(parameters.is_null() || parameters["type"] == "object", || {
            format!("{place}.function.parameters must be a schema of an object, not {parameters}")
        });
    }
    for name in repeated(functions().map(|function| text(&function["name"]))) {
        bad.add(format!("tools: duplicate function name: {name}"));
    }
}

fn named(function: &Value, place: &str, bad: &mut Complaints) {
    bad.unless(!text(&function["name"]).is_empty(), || {
        format!("{place}.function.name: a function needs a name")
    });
}

fn message(message: &Value, at: usize, bad: &mut Complaints) {
    let place = format!("messages[{at}]");
    let role = text(&message["role"]);
    bad.unless(matches!(role, "system" | "user" | "assistant" | "tool"), || {
        format!(
            "{place}: invalid role: {role}, must be one of [\"system\", \"user\", \"assistant\", \
             \"tool\"]"
        )
    });
    let fields = [
        ("content", STRING),
        ("thinking", STRING),
        ("images", STRINGS),
        ("tool_calls", ARRAY),
        ("tool_name", STRING),
        ("tool_call_id", STRING),
    ];
    typed(message, &format!("{place}."), &fields, bad);
    for field in ["thinking", "tool_calls"] {
        bad.unless(role == "assistant" || !is_given(message, field), || {
            format!("{place}.{field}: only the assistant has it")
        });
    }
    for (index, call) in list(&message["tool_calls"]).iter().enumerate() {
        let place = format!("{place}.tool_calls[{index}]");
        named(&call["function"], &place, bad);
        let arguments = &call["function"]["arguments"];
        bad.unless(arguments.is_object(), || {
            format!("json: {place}.function.arguments must be of type object, but is {arguments}")
        });
    }
}
