//! The subsets of JSON Schema that vendors take.

use serde_json::Value;

use super::violations::{Complaints, list};

/// `OpenAI`'s strict mode: every object is closed and requires all that it has,
/// <https://platform.openai.com/docs/guides/structured-outputs#supported-schemas>.
pub(super) fn strict(schema: &Value, place: &str, bad: &mut Complaints) {
    if schema["type"] == "object" || schema.get("properties").is_some() {
        bad.unless(schema["additionalProperties"] == Value::Bool(false)).add(format_args!(
            "Invalid schema for {place}: 'additionalProperties' is required to be supplied and to \
             be false."
        ));
        let required = list(&schema["required"]);
        for name in schema["properties"].as_object().into_iter().flat_map(|fields| fields.keys()) {
            bad.unless(required.iter().any(|required| required == name)).add(format_args!(
                "Invalid schema for {place}: 'required' is required to be supplied and to be an \
                 array including every key in properties. Missing '{name}'."
            ));
        }
    }
    for keyword in ["oneOf", "allOf", "not", "if", "patternProperties", "dependentRequired"] {
        bad.unless(schema.get(keyword).is_none())
            .add(format_args!("Invalid schema for {place}: '{keyword}' is not permitted."));
    }
    for inner in inside(schema) {
        strict(inner, place, bad);
    }
}

/// Gemini's `Schema`, <https://ai.google.dev/api/caching#Schema>: a field that it does not have is
/// an error, as everywhere in that API.
pub(super) fn gemini(schema: &Value, place: &str, bad: &mut Complaints) {
    const KNOWN: &[&[&str]] = &[
        &["type", "format", "title", "description", "nullable", "enum", "example", "default"],
        &["properties", "required", "propertyOrdering", "minProperties", "maxProperties"],
        &["items", "minItems", "maxItems", "anyOf"],
        &["minimum", "maximum", "minLength", "maxLength", "pattern"],
    ];
    let Some(fields) = schema.as_object() else {
        return bad.add(format_args!("Invalid value at '{place}': a schema is an object."));
    };
    let is_known = |field: &str| KNOWN.iter().any(|row| row.contains(&field));
    for field in fields.keys().filter(|field| !is_known(field)) {
        unknown_name(field, &format!(" at '{place}'"), bad);
    }
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    bad.unless(!fields.get("type").is_some_and(Value::is_array)).add(format_args!(
        "Invalid value at '{place}.type': Proto field is not repeating, cannot start list."
    ));
    bad.unless(fields.get("enum").is_none() || kind.eq_ignore_ascii_case("string"))
        .add(format_args!("{place}.enum: only allowed for STRING type"));
    bad.unless(!kind.eq_ignore_ascii_case("array") || fields.contains_key("items"))
        .add(format_args!("{place}.items: missing field."));
    for required in list(&schema["required"]) {
        let name = required.as_str().unwrap_or_default();
        bad.unless(schema["properties"].get(name).is_some())
            .add(format_args!("{place}.required: property '{name}' is not defined"));
    }
    for inner in inside(schema) {
        gemini(inner, place, bad);
    }
}

/// Complains of a field that Gemini does not have.
pub(super) fn unknown_name(field: &str, place: &str, bad: &mut Complaints) {
    bad.add(format_args!(
        "Invalid JSON payload received. Unknown name \"{field}\"{place}: Cannot find field."
    ));
}

/// The schemas that stand in a schema.
fn inside(schema: &Value) -> impl Iterator<Item = &Value> {
    let fields = ["properties", "$defs", "definitions"].into_iter();
    let named = fields.filter_map(|field| schema[field].as_object()).flat_map(|map| map.values());
    let lists = ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter();
    let listed = lists.flat_map(|field| list(&schema[field]));
    let single = ["items"].into_iter().filter_map(|field| schema.get(field));
    named.chain(listed).chain(single.filter(|inner| inner.is_object()))
}
