//! Checks that numbers are in range, and that a request contains no fields that belong to another
//! wire.

use serde_json::Value;

use super::violations::{Violations, is_given};

/// Reports a number that is out of range.
pub(super) fn check_range(body: &Value, field: &str, least: f64, most: f64, bad: &mut Violations) {
    let value = &body[field];
    if value.is_null() {
        return;
    }
    match value.as_f64() {
        Some(number) if number < least => bad.push(format_args!(
            "Invalid '{field}': decimal below minimum value. Expected a value >= {least}, but got \
             {number} instead."
        )),
        Some(number) if number > most => bad.push(format_args!(
            "Invalid '{field}': decimal above maximum value. Expected a value <= {most}, but got \
             {number} instead."
        )),
        Some(_) => {}
        None => bad.push(format_args!("Invalid type for '{field}': expected a decimal.")),
    }
}

/// Reports a field that is set but is not an integer of at least `least`.
pub(super) fn check_at_least(body: &Value, field: &str, least: u64, bad: &mut Violations) {
    if is_given(body, field) {
        let enough = body[field].as_u64().is_some_and(|number| number >= least);
        bad.require(enough).or_push(format_args!(
            "Invalid '{field}': integer below minimum value. Expected a value >= {least}, but got \
             {} instead.",
            body[field]
        ));
    }
}

/// Reports fields that a wire does not support. Unknown fields are not reported, because vendors
/// add new fields faster than a list of known fields can be updated.
pub(super) fn check_fields_absent(body: &Value, fields: &[&str], bad: &mut Violations) {
    for field in fields {
        bad.require(!is_given(body, field)).or_push(format_args!("Unknown parameter: '{field}'."));
    }
}

/// The fields that only some wires support. Each row contains the names of these wires and the
/// fields.
const WIRE_FIELDS: &[(&[&str], &[&str])] = &[
    (&["anthropic"], &["system", "stop_sequences"]),
    (&["anthropic", "openai_chat"], &["messages", "max_tokens"]),
    (&["openai_chat"], &["max_completion_tokens", "response_format", "reasoning_effort"]),
    (&["openai_chat"], &["stop", "seed", "frequency_penalty", "presence_penalty"]),
    (&["openai_chat", "openai_responses"], &["stream_options", "parallel_tool_calls", "user"]),
    (&["openai_responses"], &["input", "instructions", "max_output_tokens", "text", "include"]),
    (&["gemini"], &["contents", "generationConfig"]),
];

/// Reports the fields in `body` that, according to [`WIRE_FIELDS`], belong only to other wires.
pub(super) fn check_foreign_fields(wire: &str, body: &Value, bad: &mut Violations) {
    for (_, fields) in WIRE_FIELDS.iter().filter(|(wires, _)| !wires.contains(&wire)) {
        check_fields_absent(body, fields, bad);
    }
}
