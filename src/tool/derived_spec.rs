//! Derives a tool's spec from the type of its arguments.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::item::model_json;
use crate::tool::ToolSpec;

/// The field that contains the arguments if their JSON is not always an object.
const VALUE_FIELD: &str = "value";

/// The maximum number of nested references that are followed to find out whether a schema describes
/// an object.
const MAX_DEPTH: usize = 16;

/// How a call's arguments represent a value of the argument type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentsForm {
    /// The arguments are the value's JSON, which is always an object.
    Value,
    /// The arguments are an object with a single field, which contains the value's JSON. All
    /// vendors require arguments to be an object.
    Field,
}

impl ArgumentsForm {
    /// Deserializes a call's arguments.
    pub(super) fn parse<A: DeserializeOwned>(self, arguments: &str) -> Result<A, String> {
        #[derive(Deserialize)]
        struct Field<A> {
            value: A,
        }
        match self {
            Self::Value => model_json::read_arguments_by_type(arguments),
            Self::Field => {
                model_json::read_arguments_by_type(arguments).map(|Field { value }| value)
            }
        }
    }
}

/// Derives a tool's spec from its argument type. If the JSON representation of this type is `null`,
/// as for `()`, the tool takes no arguments.
pub(super) fn derive_spec<A: schemars::JsonSchema>(
    name: &str,
    description: &str,
) -> (ToolSpec, ArgumentsForm) {
    let (parameters, form) = parameters(schemars::schema_for!(A).to_value());
    (ToolSpec::new(name, description, parameters), form)
}

fn parameters(schema: Value) -> (Value, ArgumentsForm) {
    let mut schema = match schema {
        Value::Object(schema) => schema,
        // Every JSON value matches.
        _ => Map::new(),
    };
    // Sending these keywords to the model would only cost tokens, since only people and JSON Schema
    // tools use them.
    schema.shift_remove("$schema");
    schema.shift_remove("title");
    let whole = Value::Object(schema.clone());
    match schema.get("type") {
        Some(kind) if kind == "null" => {
            (json!({ "type": "object", "properties": {} }), ArgumentsForm::Value)
        }
        Some(kind) if kind == "object" => (whole, ArgumentsForm::Value),
        // The type is implied: every value matches, or the arguments are an enum whose variants are
        // all objects.
        None if schema.keys().all(|keyword| keyword == "description")
            || is_object(&whole, &whole, 0) =>
        {
            schema.insert("type".to_owned(), json!("object"));
            (Value::Object(schema), ArgumentsForm::Value)
        }
        _ => (in_field(schema), ArgumentsForm::Field),
    }
}

/// Returns whether only objects match a schema.
fn is_object(root: &Value, schema: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    let is_object = |schema: &Value| is_object(root, schema, depth + 1);
    if let Some(kind) = schema.get("type") {
        return kind == "object";
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.is_some_and(is_object);
    }
    let alternatives =
        ["oneOf", "anyOf"].iter().find_map(|keyword| schema.get(*keyword)?.as_array());
    alternatives.is_some_and(|all| !all.is_empty() && all.iter().all(is_object))
}

/// Returns the schema of an object with a single field, whose schema is `schema`.
fn in_field(mut schema: Map<String, Value>) -> Value {
    let mut definitions = match schema.shift_remove("$defs") {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    let mut name = VALUE_FIELD.to_owned();
    while definitions.contains_key(&name) {
        name.push('_');
    }
    let new_root = json!({ "$ref": format!("#/$defs/{name}") });
    let mut value = Value::Object(schema);
    let mut is_recursive = replace_root_references(&mut value, &new_root);
    for definition in definitions.values_mut() {
        is_recursive |= replace_root_references(definition, &new_root);
    }
    if is_recursive {
        definitions.insert(name, std::mem::replace(&mut value, new_root));
    }
    let mut whole = json!({
        "type": "object",
        "properties": { VALUE_FIELD: value },
        "required": [VALUE_FIELD],
    });
    if !definitions.is_empty() {
        whole["$defs"] = Value::Object(definitions);
    }
    whole
}

/// Replaces each reference to the root. Returns whether there is such a reference.
fn replace_root_references(schema: &mut Value, by: &Value) -> bool {
    let mut is_found = false;
    match schema {
        Value::Object(fields) if fields.get("$ref") == Some(&json!("#")) => {
            fields.insert("$ref".to_owned(), by["$ref"].clone());
            is_found = true;
        }
        Value::Object(fields) => {
            for value in fields.values_mut() {
                is_found |= replace_root_references(value, by);
            }
        }
        Value::Array(values) => {
            for value in values {
                is_found |= replace_root_references(value, by);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    is_found
}
