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

/// Compares two JSON values in the same way as JSON Schema: numbers such as 1 and 1.0 are equal.
pub(crate) fn json_eq(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
}
