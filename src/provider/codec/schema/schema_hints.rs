//! Converts schema keywords that a wire format does not support into hints for the model.

use serde_json::Value;

use super::subset::{Schema, is_string_in};

/// The values of `format` that only name a number type of a programming language, and for which no
/// hint is added.
const NUMBER_FORMATS: &[&str] = &[
    "int8", "int16", "int32", "int64", "int128", "int", "uint8", "uint16", "uint32", "uint64",
    "uint128", "uint", "float", "double",
];

/// The hints to add to a schema's description, for example `{maximum: 5, minimum: 1}`.
#[derive(Default)]
pub(super) struct SchemaHints(String);

impl SchemaHints {
    pub(super) fn add_keyword(&mut self, keyword: &str, value: &Value) {
        let says_nothing = match keyword {
            "format" => is_string_in(value, NUMBER_FORMATS),
            "minItems" | "minLength" | "minProperties" => value.as_u64() == Some(0),
            "uniqueItems" => *value == Value::Bool(false),
            _ => false,
        };
        if says_nothing {
            return;
        }
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.0.push_str(keyword);
        self.0.push_str(": ");
        self.0.push_str(&value);
    }

    pub(super) fn write_into(self, schema: &mut Schema) {
        if self.0.is_empty() {
            return;
        }
        let description = match schema.get("description").and_then(Value::as_str) {
            Some(description) if !description.is_empty() => {
                format!("{description}\n\n{{{}}}", self.0)
            }
            _ => format!("{{{}}}", self.0),
        };
        schema.insert("description".to_owned(), Value::String(description));
    }
}
