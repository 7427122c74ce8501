//! Numbers within their bounds, and fields that belong to another wire.

use serde_json::Value;

use super::violations::{Complaints, is_given};

/// Complains of a number outside its bounds.
pub(super) fn within(body: &Value, field: &str, least: f64, most: f64, bad: &mut Complaints) {
    let value = &body[field];
    if value.is_null() {
        return;
    }
    match value.as_f64() {
        Some(number) if number < least => bad.add(format_args!(
            "Invalid '{field}': decimal below minimum value. Expected a value >= {least}, but got \
             {number} instead."
        )),
        Some(number) if number > most => bad.add(format_args!(
            "Invalid '{field}': decimal above maximum value. Expected a value <= {most}, but got \
             {number} instead."
        )),
        Some(_) => {}
        None => bad.add(format_args!("Invalid type for '{field}': expected a decimal.")),
    }
}

/// Complains of a limit that is no whole number of at least `least`.
pub(super) fn at_least(body: &Value, field: &str, least: u64, bad: &mut Complaints) {
    if is_given(body, field) {
        let enough = body[field].as_u64().is_some_and(|number| number >= least);
        bad.unless(enough).add(format_args!(
            "Invalid '{field}': integer below minimum value. Expected a value >= {least}, but got \
             {} instead.",
            body[field]
        ));
    }
}

/// Complains of fields that a wire does not have. Only those of the other wires are known here: a
/// vendor adds fields faster than any list.
pub(super) fn foreign(body: &Value, fields: &[&str], bad: &mut Complaints) {
    for field in fields {
        bad.unless(!is_given(body, field)).add(format_args!("Unknown parameter: '{field}'."));
    }
}

/// Fields that not all wires have, beside the names of those that do.
const FIELDS: &[(&[&str], &[&str])] = &[
    (&["anthropic"], &["system", "stop_sequences"]),
    (&["anthropic", "openai_chat"], &["messages", "max_tokens"]),
    (&["openai_chat"], &["max_completion_tokens", "response_format", "reasoning_effort"]),
    (&["openai_chat"], &["stop", "seed", "frequency_penalty", "presence_penalty"]),
    (&["openai_chat", "openai_responses"], &["stream_options", "parallel_tool_calls", "user"]),
    (&["openai_responses"], &["input", "instructions", "max_output_tokens", "text", "include"]),
    (&["gemini"], &["contents", "generationConfig"]),
];

/// Complains of the [`FIELDS`] of other wires.
pub(super) fn of_other_wires(wire: &str, body: &Value, bad: &mut Complaints) {
    for (_, fields) in FIELDS.iter().filter(|(wires, _)| !wires.contains(&wire)) {
        foreign(body, fields, bad);
    }
}
