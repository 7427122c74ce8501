//! Compares values as they were written with values as they were read.

use serde_json::Value;

use crate::item::from_bounded_json;
use crate::item::model_json::schema_types::json_eq;

/// Returns whether `read` could be the result of [reading](super) `written`: both are equal, but
/// for the notation of numbers and for `null` fields that are left out in `read`. JSON with too
/// many values is not compared.
pub(crate) fn is_reading_of(read: &str, written: &str) -> bool {
    let parse = |json: &str| from_bounded_json::<Value>(json).ok();
    match (parse(read), parse(written)) {
        (Some(read), Some(written)) => is_read_value(&read, &written),
        (_, _) => false,
    }
}

fn is_read_value(read: &Value, written: &Value) -> bool {
    match (read, written) {
        (Value::Object(read), Value::Object(written)) => {
            written.iter().all(|(name, value)| match read.get(name) {
                Some(read) => is_read_value(read, value),
                None => value.is_null(),
            }) && read.keys().all(|name| written.contains_key(name))
        }
        (Value::Array(read), Value::Array(written)) => {
            read.len() == written.len()
                && read.iter().zip(written).all(|(read, written)| is_read_value(read, written))
        }
        (read, written) => json_eq(read, written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_differs_only_in_notation_and_in_absent_nulls() {
        let written = r#"{"n": 5.0, "list": [1.0, {"x": null}], "s": "5"}"#;
        assert!(is_reading_of(written, written));
        assert!(is_reading_of(r#"{"n":5,"list":[1,{}],"s":"5"}"#, written));
        for other in [
            r#"{"n":6,"list":[1,{}],"s":"5"}"#,
            r#"{"n":5,"list":[1,{}],"s":5}"#,
            r#"{"n":5,"list":[1],"s":"5"}"#,
            r#"{"n":5,"list":[1,{}]}"#,
            r#"{"n":5,"list":[1,{}],"s":"5","more":null}"#,
            "{",
        ] {
            assert!(!is_reading_of(other, written), "{other}");
        }
    }
}
