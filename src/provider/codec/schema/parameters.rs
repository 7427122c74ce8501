//! Makes the schema of a tool's parameters valid for vendors that accept most of JSON Schema.
//! Unlike the rewriting for a subset, this never fails: only what a vendor is known to reject is
//! changed.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::merge::types_of;
use super::refs;
use super::schema_hints::SchemaHints;
use super::subset::{Schema, is_string_in};

/// The maximum number of nested references and alternatives that are followed from the root.
const MAX_MERGE_DEPTH: usize = 16;

/// The maximum number of schemas that are merged into a root.
const MAX_MERGED_PARTS: usize = 1_000;

/// The types of JSON Schema.
const TYPES: &[&str] = &["object", "array", "string", "number", "integer", "boolean", "null"];

/// The formats that JSON Schema defines,
/// <https://json-schema.org/draft/2020-12/json-schema-validation#section-7.3>. Other
/// formats, such as the `uint64` and `float` of Rust's number types, are unknown to vendors.
const FORMATS: &[&str] = &[
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uuid",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];

/// The parts of JSON Schema that a vendor rejects in a tool's parameters.
pub(super) struct ParameterRules {
    /// Whether an object must have `properties`: "object schema missing properties".
    pub(super) requires_properties: bool,
    /// Whether an array must have `items`: "array schema missing items".
    pub(super) requires_items: bool,
    /// The keywords, besides alternatives, that the root must not have.
    pub(super) rejected_at_root: &'static [&'static str],
    /// Whether formats that JSON Schema does not define are removed.
    pub(super) removes_unknown_formats: bool,
}

/// Rewrites the schema of a tool's parameters. The root of the result is an object without
/// alternatives, which all vendors require. A model may also write arguments that do not match the
/// original schema, against which the tool checks them.
pub(super) fn normalize_parameters<'a>(
    schema: &'a Value,
    rules: &ParameterRules,
) -> Cow<'a, Value> {
    let mut whole = merge_root_alternatives(schema).into_owned();
    if let Value::Object(root) = &mut whole {
        let mut hints = SchemaHints::default();
        for keyword in rules.rejected_at_root {
            if let Some(value) = root.shift_remove(*keyword) {
                hints.add_keyword(keyword, &value);
            }
        }
        hints.write_into(root);
        let is_object = root.get("type").is_none_or(|kind| types_of(kind).contains(&"object"));
        if is_object && root.get("type") != Some(&json!("object")) {
            root.insert("type".to_owned(), json!("object"));
        }
    }
    normalize_schema(&mut whole, rules);
    if whole == *schema { Cow::Borrowed(schema) } else { Cow::Owned(whole) }
}

/// Rewrites the schema of an answer in the same way, without requirements on the root.
pub(super) fn normalize_output<'a>(schema: &'a Value, rules: &ParameterRules) -> Cow<'a, Value> {
    let mut whole = schema.clone();
    normalize_schema(&mut whole, rules);
    if whole == *schema { Cow::Borrowed(schema) } else { Cow::Owned(whole) }
}

fn normalize_schema(schema: &mut Value, rules: &ParameterRules) {
    match schema {
        Value::Object(fields) => normalize_keywords(fields, rules),
        Value::Bool(true) => *schema = json!({}),
        Value::Bool(false) => *schema = json!({ "not": {} }),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}

fn normalize_keywords(schema: &mut Schema, rules: &ParameterRules) {
    let mut hints = SchemaHints::default();
    let has_unknown_format =
        schema.get("format").is_some_and(|format| !is_string_in(format, FORMATS));
    if rules.removes_unknown_formats
        && has_unknown_format
        && let Some(format) = schema.shift_remove("format")
    {
        hints.add_keyword("format", &format);
    }
    hints.write_into(schema);
    remove_unknown_types(schema);
    convert_older_drafts(schema);
    if schema.get("required").is_some_and(|required| !required.is_array()) {
        schema.shift_remove("required");
    }
    if schema.get("properties").is_some_and(|properties| !properties.is_object()) {
        schema.shift_remove("properties");
    }
    let is_of =
        |kind: &str| schema.get("type").is_some_and(|named| types_of(named).contains(&kind));
    let describes_fields = ["additionalProperties", "patternProperties", "$ref", "allOf"]
        .iter()
        .chain(&["anyOf", "oneOf"])
        .any(|keyword| schema.get(*keyword).is_some_and(|value| *value != json!(false)));
    let lacks_properties = is_of("object") && !schema.contains_key("properties");
    let lacks_items = is_of("array") && !schema.contains_key("items");
    if rules.requires_properties && lacks_properties && !describes_fields {
        schema.insert("properties".to_owned(), json!({}));
    }
    if rules.requires_items && lacks_items {
        schema.insert("items".to_owned(), json!({}));
    }
    for (keyword, value) in schema.iter_mut() {
        match (keyword.as_str(), value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(schemas),
            ) => schemas.values_mut().for_each(|schema| normalize_schema(schema, rules)),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                for schema in schemas {
                    normalize_schema(schema, rules);
                }
            }
            ("items", value @ Value::Bool(true)) => *value = json!({}),
            (
                "items"
                | "additionalProperties"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties",
                value @ Value::Object(_),
            ) => normalize_schema(value, rules),
            _ => {}
        }
    }
}

/// Removes types that JSON Schema does not define, such as `any`.
fn remove_unknown_types(schema: &mut Schema) {
    let is_known = |kind: &Value| is_string_in(kind, TYPES);
    match schema.get_mut("type") {
        None => return,
        Some(Value::Array(kinds)) => {
            kinds.retain(is_known);
            if !kinds.is_empty() {
                return;
            }
        }
        Some(kind) if is_known(kind) => return,
        Some(_) => {}
    }
    schema.shift_remove("type");
}

/// Converts keywords whose form has changed since older drafts of JSON Schema.
fn convert_older_drafts(schema: &mut Schema) {
    if let Some(Value::Array(_)) = schema.get("items")
        && let Some(row) = schema.shift_remove("items")
    {
        schema.insert("prefixItems".to_owned(), row);
        if let Some(rest) = schema.shift_remove("additionalItems") {
            schema.insert("items".to_owned(), rest);
        }
    }
    for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(Value::Bool(is_exclusive)) = schema.get(exclusive) {
            let is_exclusive = *is_exclusive;
            schema.shift_remove(exclusive);
            if is_exclusive && let Some(limit) = schema.shift_remove(limit) {
                schema.insert(exclusive.to_owned(), limit);
            }
        }
    }
}

/// Merges the alternatives and the references at a schema's root into a single object schema,
/// because all vendors reject alternatives there: "`input_schema` does not support oneOf, allOf, or
/// anyOf at the top level". The result accepts every object that the schema accepts. The
/// alternatives are added to the description.
fn merge_root_alternatives(schema: &Value) -> Cow<'_, Value> {
    let Value::Object(root) = schema else { return Cow::Borrowed(schema) };
    if !["$ref", "allOf", "anyOf", "oneOf"].iter().any(|keyword| root.contains_key(*keyword)) {
        return Cow::Borrowed(schema);
    }
    let mut alternatives = RootMerger { root: schema, parts_left: MAX_MERGED_PARTS };
    let mut hints = SchemaHints::default();
    let mut merged = alternatives.merge(root.clone(), &mut hints, 0);
    merged.insert("type".to_owned(), json!("object"));
    hints.write_into(&mut merged);
    Cow::Owned(Value::Object(merged))
}

/// Merges the alternatives and references of schemas.
struct RootMerger<'a> {
    root: &'a Value,
    /// The number of schemas that may still be merged, because even a small schema can expand
    /// without limit.
    parts_left: usize,
}

impl RootMerger<'_> {
    /// Removes the alternatives and references from a schema. Adds hints about the alternatives.
    fn merge(&mut self, mut schema: Schema, hints: &mut SchemaHints, depth: usize) -> Schema {
        let mut parts = Vec::new();
        if let Some(reference) = schema.shift_remove("$ref")
            && let Some(target) = refs::resolve(self.root, reference.as_str().unwrap_or_default())
        {
            parts.push(target.clone());
        }
        if let Some(Value::Array(all)) = schema.shift_remove("allOf") {
            parts.extend(all);
        }
        for part in parts {
            if let Some(part) = self.merge_part(part, hints, depth) {
                require_also(&mut schema, part);
            }
        }
        for keyword in ["anyOf", "oneOf"] {
            let Some(alternatives) = schema.shift_remove(keyword) else { continue };
            hints.add_keyword(keyword, &alternatives);
            let Value::Array(alternatives) = alternatives else { continue };
            // The hint for an alternative includes those for its parts.
            let mut included = SchemaHints::default();
            let mut objects: Vec<Schema> = alternatives
                .into_iter()
                .filter_map(|schema| self.merge_part(schema, &mut included, depth))
                .collect();
            objects.retain(|schema| {
                schema.get("type").is_none_or(|kind| types_of(kind).contains(&"object"))
            });
            accept_any_of(&mut schema, &objects);
        }
        schema
    }

    /// Merges a schema that is part of another one. Returns `None` for a schema that is not an
    /// object, and once the limits have been reached.
    fn merge_part(&mut self, part: Value, hints: &mut SchemaHints, depth: usize) -> Option<Schema> {
        let Value::Object(part) = part else { return None };
        if depth == MAX_MERGE_DEPTH {
            return None;
        }
        self.parts_left = self.parts_left.checked_sub(1)?;
        Some(self.merge(part, hints, depth + 1))
    }
}

/// Restricts `schema` to values that `other` accepts, too, as far as that is possible without
/// `allOf`.
fn require_also(schema: &mut Schema, other: Schema) {
    let adds_properties = other.contains_key("properties");
    if adds_properties && schema.get("additionalProperties") != other.get("additionalProperties") {
        // In each part, `false` also excludes the properties of the other part.
        schema.shift_remove("additionalProperties");
    }
    for (keyword, value) in other {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let own = object_keyword(schema, "properties");
                for (name, property) in properties {
                    match own.get_mut(&name) {
                        None => drop(own.insert(name, property)),
                        Some(old) if *old == property => {}
                        Some(old) => *old = json!({ "allOf": [old.take(), property] }),
                    }
                }
            }
            ("required", Value::Array(names)) => add_required(schema, &names),
            ("$defs" | "definitions", _) => {}
            ("additionalProperties", _) if adds_properties => {}
            (_, value) => drop(schema.entry(keyword).or_insert(value)),
        }
    }
}

/// Extends `schema` so that it accepts the properties of all alternatives.
fn accept_any_of(schema: &mut Schema, alternatives: &[Schema]) {
    if alternatives.is_empty() {
        return;
    }
    let properties_of = |schema: &Schema| match schema.get("properties") {
        Some(Value::Object(properties)) => properties.clone(),
        _ => Map::new(),
    };
    let own = properties_of(schema);
    let mut variants: Map<String, Value> = Map::new();
    for (name, property) in alternatives.iter().flat_map(properties_of) {
        if own.contains_key(&name) {
            continue;
        }
        let known = variants.entry(name).or_insert_with(|| json!([]));
        if let Value::Array(known) = known
            && !known.contains(&property)
        {
            known.push(property);
        }
    }
    let is_closed = |schema: &Schema| schema.get("additionalProperties") == Some(&json!(false));
    if !schema.contains_key("additionalProperties") && alternatives.iter().all(is_closed) {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    let properties = object_keyword(schema, "properties");
    for (name, variants) in variants {
        if let Value::Array(variants) = variants {
            properties.insert(name, union_of(variants));
        }
    }
    let requires = |schema: &Schema, name: &Value| {
        schema.get("required").and_then(Value::as_array).is_some_and(|names| names.contains(name))
    };
    let first = alternatives[0].get("required").and_then(Value::as_array);
    let names: Vec<Value> = first
        .into_iter()
        .flatten()
        .filter(|name| alternatives.iter().all(|schema| requires(schema, name)))
        .cloned()
        .collect();
    if !names.is_empty() {
        add_required(schema, &names);
    }
}

/// Returns a schema that accepts the values of all the given schemas. Fixed values, such as the
/// tags of an enum, become a single `enum`.
fn union_of(mut schemas: Vec<Value>) -> Value {
    if schemas.len() == 1 {
        return schemas.pop().unwrap_or_default();
    }
    let fixed_values = |schema: &Value| -> Option<Vec<Value>> {
        let fields = schema.as_object()?;
        let known = ["type", "const", "enum", "description", "title"];
        let values = match (fields.get("const"), fields.get("enum")) {
            (Some(value), None) => vec![value.clone()],
            (None, Some(Value::Array(values))) => values.clone(),
            _ => return None,
        };
        fields.keys().all(|keyword| known.contains(&keyword.as_str())).then_some(values)
    };
    let values: Option<Vec<Vec<Value>>> = schemas.iter().map(fixed_values).collect();
    let Some(values) = values else { return json!({ "anyOf": schemas }) };
    let mut listed = Vec::new();
    for value in values.into_iter().flatten() {
        if !listed.contains(&value) {
            listed.push(value);
        }
    }
    let mut union = Map::new();
    if let Some(kind) = schemas[0].get("type")
        && schemas.iter().all(|schema| schema.get("type") == Some(kind))
    {
        union.insert("type".to_owned(), kind.clone());
    }
    union.insert("enum".to_owned(), Value::Array(listed));
    Value::Object(union)
}

/// Returns the object that a keyword holds, which is created if it does not exist.
fn object_keyword<'s>(schema: &'s mut Schema, keyword: &str) -> &'s mut Map<String, Value> {
    let fields = match schema.shift_remove(keyword) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let value = schema.entry(keyword).or_insert(Value::Object(fields));
    // Invariant: an object has just been inserted.
    value.as_object_mut().unwrap()
}

fn add_required(schema: &mut Schema, names: &[Value]) {
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        let new: Vec<_> = names.iter().filter(|name| !required.contains(name)).cloned().collect();
        required.extend(new);
    }
}
