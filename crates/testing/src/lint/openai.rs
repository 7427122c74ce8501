//! Checks that the lints for both `OpenAI` wire formats share.

use serde_json::Value;

use super::options::check_range;
use super::schema;
use super::violations::{
    Violations, as_list, has_text, is_given, is_plain_name, repeated_values, text,
};

/// The maximum length of a call's id in the Chat Completions wire format, in bytes.
pub(super) const MAX_CHAT_CALL_ID_BYTES: usize = 40;

/// The maximum length of an id in the Responses wire format, in bytes.
pub(super) const MAX_RESPONSES_ID_BYTES: usize = 64;

/// Reports a missing required parameter.
pub(super) fn check_required(is_there: bool, place: &str, bad: &mut Violations) {
    bad.require(is_there).or_push(format_args!("Missing required parameter: '{place}'."));
}

/// Reports a list that is empty but must not be.
pub(super) fn check_not_empty(has_elements: bool, place: &str, bad: &mut Violations) {
    bad.require(has_elements).or_push(format_args!(
        "Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty \
         array instead."
    ));
}

pub(super) fn check_sampling(body: &Value, bad: &mut Violations) {
    check_range(body, "temperature", 0.0, 2.0, bad);
    check_range(body, "top_p", 0.0, 1.0, bad);
    if is_given(body, "metadata") {
        let pairs = body["metadata"].as_object();
        bad.require(pairs.is_some_and(|pairs| pairs.len() <= 16))
            .or_push("Invalid 'metadata': expected an object of at most 16 pairs.");
        for (key, value) in pairs.into_iter().flatten() {
            let fits = key.len() <= 64 && value.as_str().is_some_and(|text| text.len() <= 512);
            bad.require(fits).or_push(format_args!(
                "Invalid 'metadata.{key}': keys have at most 64 characters, values are strings of \
                 at most 512."
            ));
        }
    }
}

/// Checks the tools and the tool choice. Each tool contains a function of the form `{name,
/// parameters, strict}` in the field named `field`. If `field` is `None`, the tool itself is the
/// function.
pub(super) fn check_tools(body: &Value, field: Option<&str>, bad: &mut Violations) {
    let inside = field.map(|field| format!(".{field}")).unwrap_or_default();
    let tools = as_list(&body["tools"]);
    let mut names = Vec::new();
    for (at, tool) in tools.iter().enumerate().filter(|(_, tool)| tool["type"] == "function") {
        let function = field.map_or(tool, |field| &tool[field]);
        let name = text(&function["name"]);
        names.push(name);
        check_name(name, &format!("tools[{at}]{inside}.name"), bad);
        let parameters = &function["parameters"];
        if !parameters.is_null() {
            let of = format!("function '{name}'");
            check_object_schema(parameters, &of, bad);
            schema::check_openai_parameters(parameters, &of, bad);
            if function["strict"] == Value::Bool(true) {
                schema::check_strict_schema(parameters, &of, bad);
            }
        }
    }
    for name in repeated_values(names.iter().copied()) {
        bad.push(format_args!("Duplicate function name: '{name}'."));
    }
    for (at, tool) in tools.iter().enumerate() {
        check_required(tool["type"].is_string(), &format!("tools[{at}].type"), bad);
        bad.require(field.is_some() || tool.get("function").is_none())
            .or_push(format_args!("Unknown parameter: 'tools[{at}].function'."));
    }
    let choice = &body["tool_choice"];
    if choice["type"] == "function" {
        let name = text(&field.map_or(choice, |field| &choice[field])["name"]);
        bad.require(names.contains(&name))
            .or_push(format_args!("Tool choice '{name}' not found in 'tools' parameter."));
    }
}

/// Checks a schema whose type must be `object`. In errors, `of` is the name of the schema's owner.
fn check_object_schema(schema: &Value, of: &str, bad: &mut Violations) {
    bad.require(schema["type"] == "object").or_push(format_args!(
        "Invalid schema for {of}: schema must be a JSON Schema of 'type: \"object\"', got 'type: \
         {}'.",
        schema["type"]
    ));
}

/// Reports an empty list of tools, and parameters that are allowed only together with tools.
pub(super) fn check_needs_tools(body: &Value, bad: &mut Violations) {
    if is_given(body, "tools") {
        return check_not_empty(!as_list(&body["tools"]).is_empty(), "tools", bad);
    }
    for field in ["tool_choice", "parallel_tool_calls"] {
        // Without tools, "none" and "auto" are accepted, since neither value has an effect.
        let idle = matches!(text(&body[field]), "none" | "auto");
        bad.require(!is_given(body, field) || idle).or_push(format_args!(
            "Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified."
        ));
    }
}

/// Checks the `{name, schema, strict}` object for a structured output.
pub(super) fn check_output_schema(format: &Value, place: &str, bad: &mut Violations) {
    check_name(text(&format["name"]), &format!("{place}.name"), bad);
    let schema = &format["schema"];
    check_required(schema.is_object(), &format!("{place}.schema"), bad);
    if format["strict"] == Value::Bool(true) {
        check_object_schema(schema, "response_format", bad);
        schema::check_strict_schema(schema, "response_format", bad);
    }
}

/// Checks that the input mentions JSON. For JSON output, the vendor requires the input to mention
/// JSON, because the model might otherwise produce endless whitespace.
pub(super) fn check_mentions_json(input: &Value, place: &str, bad: &mut Violations) {
    bad.require(input.to_string().to_ascii_lowercase().contains("json")).or_push(format_args!(
        "'{place}' must contain the word 'json' in some form, to use 'json_object' as the format \
         of the answer."
    ));
}

fn check_name(name: &str, place: &str, bad: &mut Violations) {
    bad.require(is_plain_name(name, 64)).or_push(format_args!(
        "Invalid '{place}': '{name}' does not match pattern. Expected a string of 1 to 64 \
         characters that matches the pattern '^[a-zA-Z0-9_-]+$'."
    ));
}

pub(super) fn check_id(id: &Value, longest: usize, place: &str, bad: &mut Violations) {
    let id = text(id);
    check_required(!id.is_empty(), place, bad);
    bad.require(id.len() <= longest).or_push(format_args!(
        "Invalid '{place}': string too long. Expected a string with maximum length {longest}, but \
         got a string with length {} instead.",
        id.len()
    ));
}

/// Reports a text part that has no text.
pub(super) fn check_text(part: &Value, place: &str, bad: &mut Violations) {
    bad.require(has_text(&part["text"]))
        .or_push(format_args!("Invalid '{place}.text': text content blocks must be non-empty."));
}

/// Checks a call's name and arguments. The arguments must be a JSON object, encoded as a string.
/// The vendor itself accepts any string, but some compatible servers insert the arguments into a
/// template and accept only an object.
pub(super) fn check_call(call: &Value, place: &str, bad: &mut Violations) {
    check_name(text(&call["name"]), &format!("{place}.name"), bad);
    let arguments = &call["arguments"];
    let object = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
    bad.require(matches!(object, Some(Value::Object(_)))).or_push(format_args!(
        "Invalid '{place}.arguments': expected a string that holds a JSON object, but got \
         {arguments}."
    ));
}
