//! What both wires of `OpenAI` refuse.

use serde_json::Value;

use super::options::within;
use super::schema;
use super::violations::{Complaints, has_text, is_given, is_plain, list, repeated, text};

/// How long a call's id may be on the chat wire.
pub(super) const CHAT_ID: usize = 40;

/// How long any id may be on the Responses wire.
pub(super) const RESPONSES_ID: usize = 64;

/// Complains of a parameter that must be there, and is not.
pub(super) fn required(is_there: bool, place: &str, bad: &mut Complaints) {
    bad.unless(is_there).add(format_args!("Missing required parameter: '{place}'."));
}

/// Complains of a list without elements.
pub(super) fn not_empty(has_elements: bool, place: &str, bad: &mut Complaints) {
    bad.unless(has_elements).add(format_args!(
        "Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty \
         array instead."
    ));
}

pub(super) fn sampling(body: &Value, bad: &mut Complaints) {
    within(body, "temperature", 0.0, 2.0, bad);
    within(body, "top_p", 0.0, 1.0, bad);
    if is_given(body, "metadata") {
        let pairs = body["metadata"].as_object();
        bad.unless(pairs.is_some_and(|pairs| pairs.len() <= 16))
            .add("Invalid 'metadata': expected an object of at most 16 pairs.");
        for (key, value) in pairs.into_iter().flatten() {
            let fits = key.len() <= 64 && value.as_str().is_some_and(|text| text.len() <= 512);
            bad.unless(fits).add(format_args!(
                "Invalid 'metadata.{key}': keys have at most 64 characters, values are strings of \
                 at most 512."
            ));
        }
    }
}

/// Tools, and the one that must be called. A function is `{name, parameters, strict}`: the tool
/// itself, or what stands in this field of it.
pub(super) fn tools(body: &Value, field: Option<&str>, bad: &mut Complaints) {
    let inside = field.map(|field| format!(".{field}")).unwrap_or_default();
    let tools = list(&body["tools"]);
    let mut names = Vec::new();
    for (at, tool) in tools.iter().enumerate().filter(|(_, tool)| tool["type"] == "function") {
        let function = field.map_or(tool, |field| &tool[field]);
        let name = text(&function["name"]);
        names.push(name);
        check_name(name, &format!("tools[{at}]{inside}.name"), bad);
        let parameters = &function["parameters"];
        if !parameters.is_null() {
            let of = format!("function '{name}'");
            of_object(parameters, &of, bad);
            if function["strict"] == Value::Bool(true) {
                schema::strict(parameters, &of, bad);
            }
        }
    }
    for name in repeated(names.iter().copied()) {
        bad.add(format_args!("Duplicate function name: '{name}'."));
    }
    for (at, tool) in tools.iter().enumerate() {
        required(tool["type"].is_string(), &format!("tools[{at}].type"), bad);
        bad.unless(field.is_some() || tool.get("function").is_none())
            .add(format_args!("Unknown parameter: 'tools[{at}].function'."));
    }
    let choice = &body["tool_choice"];
    if choice["type"] == "function" {
        let name = text(&field.map_or(choice, |field| &choice[field])["name"]);
        bad.unless(names.contains(&name))
            .add(format_args!("Tool choice '{name}' not found in 'tools' parameter."));
    }
}

/// A schema of an object. `of` says whose it is.
fn of_object(schema: &Value, of: &str, bad: &mut Complaints) {
    bad.unless(schema["type"] == "object").add(format_args!(
        "Invalid schema for {of}: schema must be a JSON Schema of 'type: \"object\"', got 'type: \
         {}'.",
        schema["type"]
    ));
}

/// What may only be said beside tools.
pub(super) fn needs_tools(body: &Value, bad: &mut Complaints) {
    if is_given(body, "tools") {
        return not_empty(!list(&body["tools"]).is_empty(), "tools", bad);
    }
    for field in ["tool_choice", "parallel_tool_calls"] {
        // "none" and "auto" are what there is without tools anyway.
        let idle = matches!(text(&body[field]), "none" | "auto");
        bad.unless(!is_given(body, field) || idle).add(format_args!(
            "Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified."
        ));
    }
}

/// `{name, schema, strict}` of an answer that is to fit a schema.
pub(super) fn output_schema(format: &Value, place: &str, bad: &mut Complaints) {
    check_name(text(&format["name"]), &format!("{place}.name"), bad);
    let schema = &format["schema"];
    required(schema.is_object(), &format!("{place}.schema"), bad);
    if format["strict"] == Value::Bool(true) {
        of_object(schema, "response_format", bad);
        schema::strict(schema, "response_format", bad);
    }
}

/// "Output must mention JSON": the vendor's guard against endless blanks.
pub(super) fn mentions_json(said: &Value, place: &str, bad: &mut Complaints) {
    bad.unless(said.to_string().to_ascii_lowercase().contains("json")).add(format_args!(
        "'{place}' must contain the word 'json' in some form, to use 'json_object' as the format \
         of the answer."
    ));
}

fn check_name(name: &str, place: &str, bad: &mut Complaints) {
    bad.unless(is_plain(name, 64)).add(format_args!(
        "Invalid '{place}': '{name}' does not match pattern. Expected a string of 1 to 64 \
         characters that matches the pattern '^[a-zA-Z0-9_-]+$'."
    ));
}

pub(super) fn check_id(id: &Value, longest: usize, place: &str, bad: &mut Complaints) {
    let id = text(id);
    required(!id.is_empty(), place, bad);
    bad.unless(id.len() <= longest).add(format_args!(
        "Invalid '{place}': string too long. Expected a string with maximum length {longest}, but \
         got a string with length {} instead.",
        id.len()
    ));
}

/// Complains of a part of content that is text, and has none.
pub(super) fn check_text(part: &Value, place: &str, bad: &mut Complaints) {
    bad.unless(has_text(&part["text"]))
        .add(format_args!("Invalid '{place}.text': text content blocks must be non-empty."));
}

/// The name and the arguments of a call. Arguments are the text of an object. The vendor takes any
/// text here; servers that fill the arguments into a template do not.
pub(super) fn check_call(call: &Value, place: &str, bad: &mut Complaints) {
    check_name(text(&call["name"]), &format!("{place}.name"), bad);
    let arguments = &call["arguments"];
    let object = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
    bad.unless(matches!(object, Some(Value::Object(_)))).add(format_args!(
        "Invalid '{place}.arguments': expected a string that holds a JSON object, but got \
         {arguments}."
    ));
}
