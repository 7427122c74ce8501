//! Checks requests to Ollama's native API, <https://docs.ollama.com/api/chat>.
//!
//! Ollama itself ignores unknown fields, whereas this check reports any field that has no effect.

use serde_json::Value;

use super::call_pairs::check_pairs;
use super::options::check_fields_absent;
use super::violations::{Violations, as_list, has_text, is_given, repeated_values, text};

/// Returns the errors in the body of a request to `/api/chat`.
pub(crate) fn ollama(body: &Value) -> Vec<String> {
    let mut bad = Violations::default();
    check_options(body, &mut bad);
    check_tools(body, &mut bad);
    let messages = as_list(&body["messages"]);
    bad.require(!messages.is_empty()).or_push("messages: without any, the model is only loaded");
    for (at, message) in messages.iter().enumerate() {
        self::check_message(message, at, &mut bad);
    }
    check_pairs(
        messages,
        |call| tool_call_id_or_name(&call["id"], &call["function"]["name"]),
        |result| tool_call_id_or_name(&result["tool_call_id"], &result["tool_name"]),
        &mut bad,
    );
    bad.into_list()
}

/// Returns a call's id, or its name if it has no id.
fn tool_call_id_or_name<'a>(id: &'a Value, name: &'a Value) -> &'a str {
    match text(id) {
        "" => text(name),
        id => id,
    }
}

/// The name of a Go type, and a function that returns whether a value is valid for that type.
type TypeCheck = (&'static str, fn(&Value) -> bool);

const STRING: TypeCheck = ("string", Value::is_string);
const BOOL: TypeCheck = ("bool", Value::is_boolean);
const INTEGER: TypeCheck = ("integer", |value| value.is_i64() || value.is_u64());
const FLOAT: TypeCheck = ("float32", Value::is_number);
const OBJECT: TypeCheck = ("object", Value::is_object);
const ARRAY: TypeCheck = ("array", Value::is_array);
const STRING_LIST: TypeCheck =
    ("array of strings", |value| value.is_array() && as_list(value).iter().all(Value::is_string));

/// The fields of Ollama's Go type `api.Options` that requests can set, grouped by type.
const MODEL_OPTIONS: &[(TypeCheck, &[&str])] = &[
    (INTEGER, &["num_ctx", "num_predict", "num_keep", "seed", "top_k", "repeat_last_n"]),
    (FLOAT, &["temperature", "top_p", "min_p", "typical_p"]),
    (FLOAT, &["repeat_penalty", "presence_penalty", "frequency_penalty"]),
    (STRING_LIST, &["stop"]),
];

/// Checks the types of an object's optional fields.
fn check_types(of: &Value, place: &str, types: &[(TypeCheck, &[&str])], bad: &mut Violations) {
    for ((name, fits), fields) in types {
        for field in *fields {
            let value = &of[*field];
            bad.require(value.is_null() || fits(value)).or_push(format_args!(
                "json: {place}{field} must be of type {name}, but is {value}"
            ));
        }
    }
}

fn check_options(body: &Value, bad: &mut Violations) {
    bad.require(has_text(&body["model"])).or_push("model is required");
    let types: [(TypeCheck, &[&str]); 4] = [
        (STRING, &["model"]),
        (ARRAY, &["messages", "tools"]),
        (BOOL, &["stream"]),
        (OBJECT, &["options"]),
    ];
    check_types(body, "", &types, bad);
    let format = &body["format"];
    bad.require(format.is_null() || format.is_object() || format == "json").or_push(format_args!(
        "invalid format: {format}; expected \"json\" or a valid JSON Schema object"
    ));
    let think = &body["think"];
    let level = matches!(text(think), "high" | "medium" | "low");
    bad.require(think.is_null() || think.is_boolean() || level).or_push(format_args!(
        "invalid think value: {think} (must be \"high\", \"medium\", \"low\", true, or false)"
    ));
    let keep_alive = &body["keep_alive"];
    bad.require(matches!(keep_alive, Value::Null | Value::Number(_) | Value::String(_))).or_push(
        format_args!(
            "json: keep_alive must be a number of seconds or a duration, but is {keep_alive}"
        ),
    );
    check_types(&body["options"], "option ", MODEL_OPTIONS, bad);
    for (_, fields) in MODEL_OPTIONS {
        check_fields_absent(body, fields, bad);
    }
    check_fields_absent(
        body,
        &["system", "input", "max_tokens", "max_output_tokens", "response_format"],
        bad,
    );
    check_fields_absent(
        body,
        &["tool_choice", "stop_sequences", "contents", "generationConfig"],
        bad,
    );
}

fn check_tools(body: &Value, bad: &mut Violations) {
    let functions = || as_list(&body["tools"]).iter().map(|tool| &tool["function"]);
    for (at, (tool, function)) in as_list(&body["tools"]).iter().zip(functions()).enumerate() {
        let place = format!("tools[{at}]");
        bad.require(tool["type"] == "function")
            .or_push(format_args!("{place}.type must be \"function\""));
        check_function_name(function, &place, bad);
        let parameters = &function["parameters"];
        bad.require(parameters.is_null() || parameters["type"] == "object").or_push(format_args!(
            "{place}.function.parameters must be a schema of an object, not {parameters}"
        ));
    }
    for name in repeated_values(functions().map(|function| text(&function["name"]))) {
        bad.push(format_args!("tools: duplicate function name: {name}"));
    }
}

fn check_function_name(function: &Value, place: &str, bad: &mut Violations) {
    bad.require(has_text(&function["name"]))
        .or_push(format_args!("{place}.function.name: a function needs a name"));
}

fn check_message(message: &Value, at: usize, bad: &mut Violations) {
    let place = format!("messages[{at}]");
    let role = text(&message["role"]);
    bad.require(matches!(role, "system" | "user" | "assistant" | "tool")).or_push(format_args!(
        "{place}: invalid role: {role}, must be one of [\"system\", \"user\", \"assistant\", \
         \"tool\"]"
    ));
    let types: [(TypeCheck, &[&str]); 4] = [
        (STRING, &["content", "thinking"]),
        (STRING_LIST, &["images"]),
        (ARRAY, &["tool_calls"]),
        (STRING, &["tool_name", "tool_call_id"]),
    ];
    check_types(message, &format!("{place}."), &types, bad);
    for field in ["thinking", "tool_calls"] {
        bad.require(role == "assistant" || !is_given(message, field))
            .or_push(format_args!("{place}.{field}: only the assistant has it"));
    }
    for (index, call) in as_list(&message["tool_calls"]).iter().enumerate() {
        let place = format!("{place}.tool_calls[{index}]");
        check_function_name(&call["function"], &place, bad);
        let arguments = &call["function"]["arguments"];
        bad.require(arguments.is_object()).or_push(format_args!(
            "json: {place}.function.arguments must be of type object, but is {arguments}"
        ));
    }
}
