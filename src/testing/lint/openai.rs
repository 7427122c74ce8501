//! What both wires of `OpenAI` refuse.

use serde_json::Value;

use super::complaints::{Complaints, is_given, is_plain, list, repeated, text};
use super::options::within;
use super::schema;

/// How long a call's id may be on the chat wire.
pub(super) const CHAT_ID: usize = 40;

/// How long any id may be on the Responses wire.
pub(super) const RESPONSES_ID: usize = 64;

/// Complains of a parameter that must be there, and is not.
pub(super) fn required(is_there: bool, place: &str, bad: &mut Complaints) {
    bad.unless(is_there, || format!("Missing required parameter: '{place}'."));
}

/// Complains of a list without elements.
pub(super) fn not_empty(has_elements: bool, place: &str, bad: &mut Complaints) {
    bad.unless(has_elements, || {
        format!(
            "Invalid '{place}': empty array. Expected an array with minimum length 1, but got an \
             empty array instead."
        )
    });
}

pub(super) fn sampling(body: &Value, bad: &mut Complaints) {
    within(body, "temperature", 0.0, 2.0, bad);
    within(body, "top_p", 0.0, 1.0, bad);
    if is_given(body, "metadata") {
        let pairs = body["metadata"].as_object();
        bad.unless(
            pairs.is_some_and(|pairs| pairs.len() <= 16),
            || "Invalid 'metadata': expected an object of at most 16 pairs.",
        );
        for (key, value) in pairs.into_iter().flatten() {
            let fits = key.len() <= 64 && value.as_str().is_some_and(|text| text.len() <= 512);
            bad.unless(fits, || {
                format!(
                    "Invalid 'metadata.{key}': keys have at most 64 characters, values are \
                         strings of at most 512."
                )
            });
        }
    }
}

/// Functions, each as `{name, parameters, strict}`.
pub(super) fn functions<'a>(
    functions: impl Iterator<Item = (String, &'a Value)>,
    bad: &mut Complaints,
) {
    let mut names = Vec::new();
    for (place, function) in functions {
        let name = text(&function["name"]);
        names.push(name);
        check_name(name, &format!("{place}.name"), bad);
        let parameters = &function["parameters"];
        if parameters.is_null() {
            continue;
        }
        bad.unless(parameters["type"] == "object", || {
            format!(
                "Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \
                 \"object\"', got 'type: {}'.",
                parameters["type"]
            )
        });
        if function["strict"] == Value::Bool(true) {
            schema::strict(parameters, &format!("function '{name}'"), bad);
        }
    }
    for name in repeated(names) {
        bad.add(format!("Duplicate function name: '{name}'."));
    }
}

/// What may only be said beside tools.
pub(super) fn needs_tools(body: &Value, bad: &mut Complaints) {
    if is_given(body, "tools") {
        return not_empty(!list(&body["tools"]).is_empty(), "tools", bad);
    }
    for field in ["tool_choice", "parallel_tool_calls"] {
        // "none" and "auto" are what there is without tools anyway.
        let idle = matches!(text(&body[field]), "none" | "auto");
        bad.unless(!is_given(body, field) || idle, || {
            format!(
                "Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified."
            )
        });
    }
}

/// The tool that must be called is declared.
pub(super) fn chosen<'a>(
    name: &str,
    declared: impl Iterator<Item = &'a str>,
    bad: &mut Complaints,
) {
    let mut declared = declared;
    bad.unless(declared.any(|known| known == name), || {
        format!("Tool choice '{name}' not found in 'tools' parameter.")
    });
}

/// `{name, schema, strict}` of an answer that is to fit a schema.
pub(super) fn output_schema(format: &Value, place: &str, bad: &mut Complaints) {
    check_name(text(&format["name"]), &format!("{place}.name"), bad);
    let schema = &format["schema"];
    required(schema.is_object(), &format!("{place}.schema"), bad);
    if format["strict"] == Value::Bool(true) {
        bad.unless(schema["type"] == "object", || {
            format!(
                "Invalid schema for response_format: schema must be a JSON Schema of 'type: \
                     \"object\"', got 'type: {}'.",
                schema["type"]
            )
        });
        schema::strict(schema, "response_format", bad);
    }
}

/// "Output must mention JSON": the vendor's guard against endless blanks.
pub(super) fn mentions_json(said: &Value, place: &str, bad: &mut Complaints) {
    bad.unless(said.to_string().to_ascii_lowercase().contains("json"), || {
        format!(
            "'{place}' must contain the word 'json' in some form, to use 'json_object' as the \
             format of the answer."
        )
    });
}

pub(super) fn check_name(name: &str, place: &str, bad: &mut Complaints) {
    bad.unless(is_plain(name, 64), || {
        format!(
            "Invalid '{place}': '{name}' does not match pattern. Expected a string of 1 to 64 \
             characters that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )
    });
}

pub(super) fn check_id(id: &Value, longest: usize, place: &str, bad: &mut Complaints) {
    match id.as_str() {
        Some("") | None => bad.add(format!("Missing required parameter: '{place}'.")),
        Some(id) => bad.unless(id.len() <= longest, || {
            format!(
                "Invalid '{place}': string too long. Expected a string with maximum length \
                 {longest}, but got a string with length {} instead.",
                id.len()
            )
        }),
    }
}

/// Arguments are the text of an object. The vendor takes any text here; servers that fill the
/// arguments into a template do not.
pub(super) fn check_arguments(arguments: &Value, place: &str, bad: &mut Complaints) {
    let object = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
    bad.unless(matches!(object, Some(Value::Object(_))), || {
        format!(
            "Invalid '{place}': expected a string that holds a JSON object, but got {arguments}."
        )
    });
}
