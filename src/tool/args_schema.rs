//! Validates arguments against a raw tool's schema.

use serde_json::Value;

use crate::error::Error;
use crate::tool::ToolSpec;

#[cfg(not(feature = "validate"))]
pub(super) use small::Schema;
#[cfg(feature = "validate")]
pub(super) use whole::Schema;

impl Schema {
    /// Parses `arguments` if they match the schema; otherwise, returns the reason for the mismatch.
    pub(super) fn parse_arguments(
        &self,
        spec: &ToolSpec,
        arguments: &str,
    ) -> Result<Value, String> {
        let args = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        self.check(spec, &args)?;
        Ok(args)
    }
}

/// Implements the built-in schema validation, which supports only the keywords commonly used in
/// tool schemas.
mod small {
    use serde_json::{Map, Value};

    #[cfg(not(feature = "validate"))]
    use super::{Error, ToolSpec};
    use crate::item::model_json::{is_of_type, json_eq};

    #[cfg(not(feature = "validate"))]
    pub(in crate::tool) struct Schema(Value);

    #[cfg(not(feature = "validate"))]
    impl Schema {
        #[expect(clippy::unnecessary_wraps, reason = "the full validator can reject a schema")]
        pub(in crate::tool) fn new(spec: &ToolSpec) -> Result<Self, Error> {
            Ok(Self(spec.parameters.to_value()))
        }

        pub(in crate::tool) fn check(&self, _: &ToolSpec, args: &Value) -> Result<(), String> {
            check(&self.0, args, "")
        }
    }

    /// Validates a value against a schema and stops at the first mismatch. No memory is allocated
    /// unless a mismatch is found.
    pub(super) fn check(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(false) => return violation(path, "no value is allowed here"),
            _ => return Ok(()),
        };
        if let Some(wanted) = schema.get("type")
            && !is_of_type(wanted, value)
        {
            return violation(
                path,
                &format!("expected {}, found {}", type_names(wanted), type_name_of(value)),
            );
        }
        if let Some(wanted) = schema.get("const")
            && !json_eq(wanted, value)
        {
            return violation(path, &format!("expected {wanted}, found {value}"));
        }
        if let Some(Value::Array(allowed)) = schema.get("enum")
            && !allowed.iter().any(|allowed| json_eq(allowed, value))
        {
            let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            return violation(path, &format!("{value} is not one of {}", allowed.join(", ")));
        }
        match value {
            Value::Object(object) => check_object(schema, object, path),
            Value::Array(values) => {
                let Some(items) = schema.get("items") else { return Ok(()) };
                values
                    .iter()
                    .enumerate()
                    .try_for_each(|(at, value)| check(items, value, &format!("{path}[{at}]")))
            }
            _ => Ok(()),
        }
    }

    fn check_object(
        schema: &Map<String, Value>,
        object: &Map<String, Value>,
        path: &str,
    ) -> Result<(), String> {
        let inner = |key: &str| match path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        if let Some(Value::Array(required)) = schema.get("required") {
            let missing =
                required.iter().filter_map(Value::as_str).find(|key| !object.contains_key(*key));
            if let Some(key) = missing {
                return violation(path, &format!("missing `{key}`"));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, value) in object {
            match properties.and_then(|properties| properties.get(key)) {
                Some(schema) => check(schema, value, &inner(key))?,
                None => match schema.get("additionalProperties") {
                    Some(Value::Bool(false)) => {
                        return violation(path, &format!("there is no `{key}`"));
                    }
                    Some(schema) => check(schema, value, &inner(key))?,
                    None => {}
                },
            }
        }
        Ok(())
    }

    fn violation(path: &str, what: &str) -> Result<(), String> {
        Err(if path.is_empty() { what.to_owned() } else { format!("{what} (at `{path}`)") })
    }

    fn type_names(wanted: &Value) -> String {
        match wanted {
            Value::String(wanted) => wanted.clone(),
            Value::Array(any) => any.iter().map(type_names).collect::<Vec<_>>().join(" or "),
            other => other.to_string(),
        }
    }

    fn type_name_of(value: &Value) -> &'static str {
        match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

/// Implements schema validation using a complete JSON Schema validator.
#[cfg(feature = "validate")]
mod whole {
    use jsonschema::ValidationError;
    use jsonschema::error::ValidationErrorKind;
    use serde_json::Value;

    use super::{Error, ToolSpec, small};
    use crate::error::ErrorKind;

    /// The maximum number of values in arguments for which a complete diagnosis is made. For a
    /// complete diagnosis, the validator collects the errors from all alternatives in a schema, and
    /// all locations of each error. For larger arguments, the built-in validation looks for the
    /// error first. If the built-in validation finds no error, a complete diagnosis is made of a
    /// copy whose lists are truncated.
    const MAX_DIAGNOSED_VALUES: usize = 1000;
    /// The number of elements that are checked for errors in each list if the arguments contain
    /// more than [`MAX_DIAGNOSED_VALUES`] values.
    const MAX_DIAGNOSED_LIST_ELEMENTS: usize = 16;

    pub(in crate::tool) struct Schema(jsonschema::Validator);

    impl Schema {
        pub(in crate::tool) fn new(spec: &ToolSpec) -> Result<Self, Error> {
            jsonschema::validator_for(&spec.parameters.to_value()).map(Self).map_err(|error| {
                let message =
                    format!("the schema of the tool `{}` is not valid: {error}", spec.name);
                Error::new(ErrorKind::InvalidRequest, message)
            })
        }

        pub(in crate::tool) fn check(&self, spec: &ToolSpec, args: &Value) -> Result<(), String> {
            match self.0.is_valid(args) {
                true => Ok(()),
                false => Err(self.violation_reason(&spec.parameters.to_value(), args)),
            }
        }

        /// Returns the reason why arguments do not match the schema. Memory use is bounded,
        /// regardless of the size of the arguments.
        fn violation_reason(&self, schema: &Value, args: &Value) -> String {
            let unknown = || "they do not fit the schema".to_owned();
            if !has_alternatives(schema)
                || has_at_most_values(args, &mut MAX_DIAGNOSED_VALUES.clone())
            {
                let error = self.0.validate(args).err();
                return error.map_or_else(unknown, |error| format_validation_error(&error, args));
            }
            if let Err(reason) = small::check(schema, args, "") {
                return reason;
            }
            let Some(shorter) = truncate_lists(args, &mut MAX_DIAGNOSED_VALUES.clone()) else {
                return unknown();
            };
            let mut errors = self.0.iter_errors(&shorter);
            let error = errors.find(|error| !is_caused_by_truncation(error));
            error.map_or_else(unknown, |error| format_validation_error(&error, &shorter))
        }
    }

    fn format_validation_error(error: &ValidationError<'_>, args: &Value) -> String {
        match error.instance_path().as_str() {
            "" => error.to_string(),
            pointer => format!("{error} (at `{}`)", format_json_pointer(pointer, args)),
        }
    }

    /// Returns whether a schema contains keywords for which the validator tries several
    /// alternatives.
    fn has_alternatives(schema: &Value) -> bool {
        match schema {
            Value::Object(fields) => fields.iter().any(|(name, value)| {
                matches!(name.as_str(), "anyOf" | "oneOf") || has_alternatives(value)
            }),
            Value::Array(values) => values.iter().any(has_alternatives),
            _ => false,
        }
    }

    /// Returns whether an error may have been caused by omitting list elements.
    fn is_caused_by_truncation(error: &ValidationError<'_>) -> bool {
        matches!(error.kind(), ValidationErrorKind::MinItems { .. } | ValidationErrorKind::Contains)
    }

    /// Returns whether the number of values, counting `value` itself and all values nested in it,
    /// is at most `left`.
    fn has_at_most_values(value: &Value, left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else { return false };
        *left = rest;
        match value {
            Value::Object(fields) => fields.values().all(|value| has_at_most_values(value, left)),
            Value::Array(values) => values.iter().all(|value| has_at_most_values(value, left)),
            _ => true,
        }
    }

    /// Returns a copy of the value with each list truncated to its first elements, or `None` if
    /// even this copy consists of more than `left` values.
    fn truncate_lists(value: &Value, left: &mut usize) -> Option<Value> {
        *left = left.checked_sub(1)?;
        Some(match value {
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields =
                    fields.map(|(name, value)| Some((name.clone(), truncate_lists(value, left)?)));
                Value::Object(fields.collect::<Option<_>>()?)
            }
            Value::Array(values) => {
                let values = values.iter().take(MAX_DIAGNOSED_LIST_ELEMENTS);
                Value::Array(
                    values.map(|value| truncate_lists(value, left)).collect::<Option<_>>()?,
                )
            }
            other => other.clone(),
        })
    }

    /// Formats a JSON pointer (RFC 6901) in the path format of the built-in validation, for example
    /// `deep.list[1]`.
    fn format_json_pointer(pointer: &str, args: &Value) -> String {
        let mut place = String::new();
        let mut here = Some(args);
        for step in pointer.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            match here {
                Some(Value::Array(values)) => {
                    place.extend(["[", &step, "]"]);
                    here = step.parse().ok().and_then(|at: usize| values.get(at));
                }
                _ => {
                    if !place.is_empty() {
                        place.push('.');
                    }
                    place.push_str(&step);
                    here = here.and_then(|value| value.get(&step));
                }
            }
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(args: &serde_json::Value) -> Result<(), String> {
        let spec = ToolSpec::new(
            "t",
            "",
            json!({
                "type": "object",
                "properties": {
                    "n": { "type": "integer" },
                    "unit": { "enum": ["c", "f"] },
                    "tags": { "type": "array", "items": { "type": ["string", "null"] } },
                    "inner": { "type": "object", "required": ["x"], "properties": { "x": {} } },
                },
                "required": ["n"],
                "additionalProperties": false,
            }),
        );
        Schema::new(&spec).unwrap().check(&spec, args)
    }

    #[test]
    fn arguments_that_match_the_schema_pass() {
        for args in [
            json!({ "n": 1 }),
            json!({ "n": 1.0, "unit": "c", "tags": ["a", null], "inner": { "x": 0, "y": 1 } }),
        ] {
            assert_eq!(check(&args), Ok(()));
        }
    }

    #[test]
    fn an_error_in_arguments_of_any_size_has_a_reason_and_a_path() {
        let branches = (0..40).map(|n| {
            json!({
                "type": "object",
                "properties": { "kind": { "const": n }, "data": { "items": { "type": "integer" } } },
                "required": ["kind", "data"],
            })
        });
        let spec = ToolSpec::new(
            "t",
            "",
            json!({
                "type": "object",
                "properties": {
                    "v": { "anyOf": branches.collect::<Vec<_>>() },
                    "list": { "maxItems": 20, "minItems": 17 },
                    "word": { "type": "string" },
                },
            }),
        );
        let schema = Schema::new(&spec).unwrap();
        let bad = |n| json!({ "kind": 41, "data": vec!["x"; n] });
        let good = |n| json!({ "kind": 39, "data": vec![1; n] });
        assert_eq!(schema.check(&spec, &json!({ "v": good(10) })), Ok(()));
        assert_eq!(schema.check(&spec, &json!({ "v": good(20_000) })), Ok(()));
        let mut cases = vec![(json!({ "v": good(20_000), "word": 1 }), "at `word`")];
        if cfg!(feature = "validate") {
            cases.extend([
                (json!({ "v": bad(10) }), "at `v`"),
                (json!({ "v": bad(20_000) }), "at `v`"),
                (json!({ "list": vec![1; 20], "v": bad(20_000) }), "at `v`"),
                (json!({ "list": vec![1; 21] }), "at `list`"),
                (json!({ "list": vec![1; 20_000] }), "the schema"),
            ]);
        }
        for (args, place) in cases {
            let reason = schema.check(&spec, &args).unwrap_err();
            assert!(reason.contains(place), "{reason}");
            assert!(reason.len() < 1000, "{} bytes", reason.len());
        }
    }

    #[test]
    fn a_mismatch_is_reported_with_its_path() {
        for (args, path) in [
            (json!({}), "n"),
            (json!({ "n": "1" }), "n"),
            (json!({ "n": 1.5 }), "n"),
            (json!({ "n": 1, "unit": "k" }), "unit"),
            (json!({ "n": 1, "tags": ["a", 2] }), "tags"),
            (json!({ "n": 1, "inner": {} }), "inner"),
            (json!({ "n": 1, "more": 1 }), "more"),
            (json!([]), "object"),
        ] {
            let message = check(&args).unwrap_err();
            assert!(message.contains(path), "{args}: {message}");
        }
    }
}
