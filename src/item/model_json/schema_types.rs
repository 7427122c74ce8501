//! The types of JSON Schema, and its equality.

use serde_json::Value;

/// Returns whether a value has the type, or one of the types, in a schema's `type` keyword.
pub(crate) fn is_of_type(wanted: &Value, value: &Value) -> bool {
    match wanted {
        Value::String(wanted) => match wanted.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "number" => value.is_number(),
            // JSON Schema treats 1.0 as an integer.
            "integer" => {
                value.is_i64()
                    || value.is_u64()
                    || value.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            _ => true,
        },
        Value::Array(any) => any.iter().any(|wanted| is_of_type(wanted, value)),
        _ => true,
    }
}

/// Compares two JSON values in the same way as JSON Schema: numbers such as 1 and 1.0 are equal,
/// also as elements of lists and as properties of objects.
pub(crate) fn json_eq(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i128(), b.as_i128()) {
            (Some(a), Some(b)) => a == b,
            (_, _) => a.as_f64() == b.as_f64(),
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| json_eq(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let is_in_b = |(name, value): (&String, &Value)| {
                b.get(name).is_some_and(|other| json_eq(value, other))
            };
            a.len() == b.len() && a.iter().all(is_in_b)
        }
        (a, b) => a == b,
    }
}
