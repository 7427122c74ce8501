//! Checks schemas against the subsets of JSON Schema that vendors accept.

use serde_json::Value;

use super::violations::{Violations, as_list};

/// The formats of strings that `OpenAI` accepts in strict mode.
const STRICT_FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Checks the parameters of a function against the rules that `OpenAI` applies outside of strict
/// mode, too.
pub(super) fn check_openai_parameters(schema: &Value, of: &str, bad: &mut Violations) {
    let rejected = ["oneOf", "anyOf", "allOf", "enum", "not"];
    bad.require(rejected.iter().all(|keyword| schema.get(keyword).is_none())).or_push(
        format_args!(
            "Invalid schema for {of}: schema must have type 'object' and not have \
         'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        ),
    );
    bad.require(schema["type"] != "object" || schema["properties"].is_object()).or_push(
        format_args!("Invalid schema for {of}: In context=(), object schema missing properties."),
    );
    check_arrays(schema, of, bad);
}

/// Checks that each array has a schema for its items.
fn check_arrays(schema: &Value, of: &str, bad: &mut Violations) {
    let items = schema.get("items");
    bad.require(schema["type"] != "array" || items.is_some())
        .or_push(format_args!("Invalid schema for {of}: array schema missing items."));
    bad.require(!items.is_some_and(Value::is_array)).or_push(format_args!(
        "Invalid schema for {of}: a list is not of type 'object', 'boolean'."
    ));
    for inner in nested_schemas(schema) {
        check_arrays(inner, of, bad);
    }
}

/// Checks that a schema is valid for Anthropic, which rejects alternatives at the root of a tool's
/// parameters.
pub(super) fn check_anthropic_parameters(schema: &Value, place: &str, bad: &mut Violations) {
    let has_alternatives = ["oneOf", "anyOf", "allOf"].iter().any(|it| schema.get(it).is_some());
    bad.require(!has_alternatives).or_push(format_args!(
        "{place}: input_schema does not support oneOf, allOf, or anyOf at the top level"
    ));
}

/// Checks the schema of an answer for Anthropic: every object must forbid additional properties.
pub(super) fn check_anthropic_output(schema: &Value, place: &str, bad: &mut Violations) {
    let is_object = schema["type"] == "object" || schema.get("properties").is_some();
    bad.require(!is_object || schema["additionalProperties"] == Value::Bool(false)).or_push(
        format_args!(
            "{place}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        ),
    );
    for inner in nested_schemas(schema) {
        check_anthropic_output(inner, place, bad);
    }
}

/// Checks a schema in Gemini's `parametersJsonSchema` and `responseJsonSchema` fields, which
/// support only some keywords of JSON Schema,
/// <https://ai.google.dev/api/generate-content#FIELDS.response_json_schema>.
pub(super) fn check_gemini_json_schema(schema: &Value, place: &str, bad: &mut Violations) {
    check_gemini_keywords(schema, schema, place, bad);
}

fn check_gemini_keywords(root: &Value, schema: &Value, place: &str, bad: &mut Violations) {
    const KNOWN_KEYWORDS: &[&[&str]] = &[
        &["type", "format", "title", "description", "enum", "items", "prefixItems", "minItems"],
        &["maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "required"],
        &["additionalProperties", "propertyOrdering"],
    ];
    let Some(fields) = schema.as_object() else {
        return bad.push(format_args!("Invalid value at '{place}': a schema is an object."));
    };
    let is_known = |field: &str| {
        field.starts_with('$') || KNOWN_KEYWORDS.iter().any(|row| row.contains(&field))
    };
    for field in fields.keys().filter(|field| !is_known(field)) {
        bad.push(format_args!("{place}: the keyword `{field}` is not supported."));
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        bad.require(target.is_some())
            .or_push(format_args!("{place}: the reference '{reference}' cannot be resolved."));
        bad.require(fields.keys().all(|field| field.starts_with('$')))
            .or_push(format_args!("{place}: other fields are set besides $ref."));
    }
    let is_simple = |value: &Value| value.is_string() || value.is_number();
    bad.require(as_list(&schema["enum"]).iter().all(is_simple))
        .or_push(format_args!("{place}.enum: only strings and numbers are supported."));
    for inner in nested_schemas(schema) {
        check_gemini_keywords(root, inner, place, bad);
    }
}

/// Checks a schema against the rules of `OpenAI`'s strict mode: every object must forbid additional
/// properties and require all of its properties,
/// <https://platform.openai.com/docs/guides/structured-outputs#supported-schemas>.
pub(super) fn check_strict_schema(schema: &Value, place: &str, bad: &mut Violations) {
    if schema["type"] == "object" || schema.get("properties").is_some() {
        bad.require(schema["additionalProperties"] == Value::Bool(false)).or_push(format_args!(
            "Invalid schema for {place}: 'additionalProperties' is required to be supplied and to \
             be false."
        ));
        let required = as_list(&schema["required"]);
        for name in schema["properties"].as_object().into_iter().flat_map(|fields| fields.keys()) {
            bad.require(required.iter().any(|required| required == name)).or_push(format_args!(
                "Invalid schema for {place}: 'required' is required to be supplied and to be an \
                 array including every key in properties. Missing '{name}'."
            ));
        }
    }
    if let Some(format) = schema["format"].as_str() {
        bad.require(STRICT_FORMATS.contains(&format))
            .or_push(format_args!("Invalid schema for {place}: '{format}' is not a valid format."));
    }
    for keyword in ["oneOf", "allOf", "not", "if", "patternProperties", "dependentRequired"] {
        bad.require(schema.get(keyword).is_none())
            .or_push(format_args!("Invalid schema for {place}: '{keyword}' is not permitted."));
    }
    for inner in nested_schemas(schema) {
        check_strict_schema(inner, place, bad);
    }
}

/// Checks that a schema is a valid Gemini `Schema`, <https://ai.google.dev/api/caching#Schema>.
/// Unknown fields are reported as errors, because Gemini's API rejects unknown fields everywhere.
pub(super) fn check_gemini_schema(schema: &Value, place: &str, bad: &mut Violations) {
    const KNOWN_KEYWORDS: &[&[&str]] = &[
        &["type", "format", "title", "description", "nullable", "enum", "example", "default"],
        &["properties", "required", "propertyOrdering", "minProperties", "maxProperties"],
        &["items", "minItems", "maxItems", "anyOf"],
        &["minimum", "maximum", "minLength", "maxLength", "pattern"],
    ];
    let Some(fields) = schema.as_object() else {
        return bad.push(format_args!("Invalid value at '{place}': a schema is an object."));
    };
    let is_known = |field: &str| KNOWN_KEYWORDS.iter().any(|row| row.contains(&field));
    for field in fields.keys().filter(|field| !is_known(field)) {
        push_unknown_field(field, &format!(" at '{place}'"), bad);
    }
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    bad.require(!fields.get("type").is_some_and(Value::is_array)).or_push(format_args!(
        "Invalid value at '{place}.type': Proto field is not repeating, cannot start list."
    ));
    bad.require(fields.get("enum").is_none() || kind.eq_ignore_ascii_case("string"))
        .or_push(format_args!("{place}.enum: only allowed for STRING type"));
    bad.require(!kind.eq_ignore_ascii_case("array") || fields.contains_key("items"))
        .or_push(format_args!("{place}.items: missing field."));
    for required in as_list(&schema["required"]) {
        let name = required.as_str().unwrap_or_default();
        bad.require(schema["properties"].get(name).is_some())
            .or_push(format_args!("{place}.required: property '{name}' is not defined"));
    }
    for inner in nested_schemas(schema) {
        check_gemini_schema(inner, place, bad);
    }
}

/// Reports a field that is not part of Gemini's `Schema`.
pub(super) fn push_unknown_field(field: &str, place: &str, bad: &mut Violations) {
    bad.push(format_args!(
        "Invalid JSON payload received. Unknown name \"{field}\"{place}: Cannot find field."
    ));
}

/// Returns the schemas nested directly inside a schema.
fn nested_schemas(schema: &Value) -> impl Iterator<Item = &Value> {
    let fields = ["properties", "$defs", "definitions"].into_iter();
    let named = fields.filter_map(|field| schema[field].as_object()).flat_map(|map| map.values());
    let lists = ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter();
    let listed = lists.flat_map(|field| as_list(&schema[field]));
    let single = ["items"].into_iter().filter_map(|field| schema.get(field));
    named.chain(listed).chain(single.filter(|inner| inner.is_object()))
}
