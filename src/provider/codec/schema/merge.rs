//! Merges two schemas into a single schema that requires values to match both.

use serde_json::Value;

use super::subset::{Schema, is_structural};

/// Merges two schemas into a single schema that accepts a value only if both schemas accept the
/// value. If both schemas contain the same annotation, the annotation in `first` is kept. If the
/// schemas cannot be merged, the returned error is the keyword that prevents the merge.
pub(super) fn merge_schemas(mut first: Schema, second: Schema) -> Result<Schema, String> {
    if forbids_properties_of(&first, &second) || forbids_properties_of(&second, &first) {
        return Err("additionalProperties".to_owned());
    }
    for (keyword, value) in second {
        match first.get_mut(&keyword) {
            None => drop(first.insert(keyword, value)),
            Some(old) if *old == value || !is_structural(&keyword) => {}
            Some(old) => *old = merge_keyword(&keyword, old.take(), value).ok_or(keyword)?,
        }
    }
    Ok(first)
}

/// Returns whether `closed` forbids a property that `other` defines.
fn forbids_properties_of(closed: &Schema, other: &Schema) -> bool {
    let properties = |schema: &Schema| match schema.get("properties") {
        Some(Value::Object(properties)) => properties.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let own = properties(closed);
    closed.get("additionalProperties") == Some(&Value::Bool(false))
        && properties(other).iter().any(|name| !own.contains(name))
}

/// Merges two values of a keyword. Returns `None` if the values cannot be merged.
fn merge_keyword(keyword: &str, first: Value, second: Value) -> Option<Value> {
    match (keyword, first, second) {
        ("properties", Value::Object(mut first), Value::Object(second)) => {
            for (name, value) in second {
                match (first.get_mut(&name), value) {
                    (None, value) => drop(first.insert(name, value)),
                    (Some(old), value) if *old == value => {}
                    (Some(Value::Object(old)), Value::Object(value)) => {
                        *old = merge_schemas(std::mem::take(old), value).ok()?;
                    }
                    _ => return None,
                }
            }
            Some(Value::Object(first))
        }
        ("required", Value::Array(mut first), Value::Array(second)) => {
            let new: Vec<_> = second.into_iter().filter(|name| !first.contains(name)).collect();
            first.extend(new);
            Some(Value::Array(first))
        }
        ("enum", Value::Array(first), Value::Array(second)) => {
            let both: Vec<_> = first.into_iter().filter(|value| second.contains(value)).collect();
            (!both.is_empty()).then_some(Value::Array(both))
        }
        ("additionalProperties", Value::Bool(false), _)
        | ("additionalProperties", _, Value::Bool(false)) => Some(Value::Bool(false)),
        ("additionalProperties", Value::Bool(true), other)
        | ("additionalProperties", other, Value::Bool(true)) => Some(other),
        ("type", first, second) => {
            let (first, second) = (types_of(&first), types_of(&second));
            let both: Vec<_> = first.iter().filter_map(|name| common_type(name, &second)).collect();
            match both.as_slice() {
                [] => None,
                [one] => Some(Value::from(*one)),
                several => Some(several.iter().copied().map(Value::from).collect()),
            }
        }
        _ => None,
    }
}

/// Returns the type names in the value of a `type` keyword.
pub(super) fn types_of(of: &Value) -> Vec<&str> {
    match of {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Returns the intersection of the type `name` and the given types, or `None` if the intersection
/// is empty. An integer also counts as a number.
fn common_type<'a>(name: &'a str, others: &[&'a str]) -> Option<&'a str> {
    match name {
        name if others.contains(&name) => Some(name),
        "integer" if others.contains(&"number") => Some("integer"),
        "number" if others.contains(&"integer") => Some("integer"),
        _ => None,
    }
}
