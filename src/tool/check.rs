//! Whether arguments fit a raw schema.

use serde_json::Value;

use crate::error::Error;
use crate::tool::ToolSpec;

#[cfg(not(feature = "validate"))]
pub(super) use small::Schema;
#[cfg(feature = "validate")]
pub(super) use whole::Schema;

impl Schema {
    /// Reads arguments that fit, or says where they do not.
    pub(super) fn read(&self, spec: &ToolSpec, arguments: &str) -> Result<Value, String> {
        let args = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        self.check(spec, &args)?;
        Ok(args)
    }
}

/// The built-in check: the keywords that schemas of tools are made of.
#[cfg(not(feature = "validate"))]
mod small {
    use serde_json::{Map, Value};

    use super::{Error, ToolSpec};

    pub(in crate::tool) struct Schema;

    impl Schema {
        #[expect(clippy::unnecessary_wraps, reason = "the whole validator can refuse a schema")]
        pub(in crate::tool) fn new(_: &ToolSpec) -> Result<Self, Error> {
            Ok(Self)
        }

        #[expect(clippy::unused_self, reason = "the whole validator keeps its own form")]
        pub(in crate::tool) fn check(&self, spec: &ToolSpec, args: &Value) -> Result<(), String> {
            check(&spec.parameters, args, "")
        }
    }

    fn check(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(false) => return fail(path, "nothing is allowed here"),
            _ => return Ok(()),
        };
        if let Some(wanted) = schema.get("type")
            && !is_of_type(wanted, value)
        {
            return fail(path, &format!("expected {}, found {}", types(wanted), name(value)));
        }
        if let Some(wanted) = schema.get("const")
            && !equal(wanted, value)
        {
            return fail(path, &format!("expected {wanted}, found {value}"));
        }
        if let Some(Value::Array(allowed)) = schema.get("enum")
            && !allowed.iter().any(|allowed| equal(allowed, value))
        {
            let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            return fail(path, &format!("{value} is not one of {}", allowed.join(", ")));
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
                return fail(path, &format!("missing `{key}`"));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, value) in object {
            match properties.and_then(|properties| properties.get(key)) {
                Some(schema) => check(schema, value, &inner(key))?,
                None => match schema.get("additionalProperties") {
                    Some(Value::Bool(false)) => {
                        return fail(path, &format!("there is no `{key}`"));
                    }
                    Some(schema) => check(schema, value, &inner(key))?,
                    None => {}
                },
            }
        }
        Ok(())
    }

    fn fail(path: &str, what: &str) -> Result<(), String> {
        Err(if path.is_empty() { what.to_owned() } else { format!("{what} (at `{path}`)") })
    }

    fn is_of_type(wanted: &Value, value: &Value) -> bool {
        match wanted {
            Value::String(wanted) => match wanted.as_str() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "number" => value.is_number(),
                // JSON Schema counts 1.0 as an integer.
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

    /// JSON Schema compares numbers by their value: 1 is 1.0.
    fn equal(a: &Value, b: &Value) -> bool {
        a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
    }

    fn types(wanted: &Value) -> String {
        match wanted {
            Value::String(wanted) => wanted.clone(),
            Value::Array(any) => any.iter().map(types).collect::<Vec<_>>().join(" or "),
            other => other.to_string(),
        }
    }

    fn name(value: &Value) -> &'static str {
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

/// The check by a full validator.
#[cfg(feature = "validate")]
mod whole {
    use serde_json::Value;

    use super::{Error, ToolSpec};
    use crate::error::ErrorKind;

    pub(in crate::tool) struct Schema(jsonschema::Validator);

    impl Schema {
        pub(in crate::tool) fn new(spec: &ToolSpec) -> Result<Self, Error> {
            jsonschema::validator_for(&spec.parameters).map(Self).map_err(|error| {
                let message =
                    format!("the schema of the tool `{}` is not valid: {error}", spec.name);
                Error::new(ErrorKind::InvalidRequest, message)
            })
        }

        pub(in crate::tool) fn check(&self, _: &ToolSpec, args: &Value) -> Result<(), String> {
            self.0.validate(args).map_err(|error| match error.instance_path().as_str() {
                "" => error.to_string(),
                pointer => format!("{error} (at `{}`)", place(pointer, args)),
            })
        }
    }

    /// A JSON pointer (RFC 6901) in the words of the built-in check: `deep.list[1]`.
    fn place(pointer: &str, args: &Value) -> String {
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
        let spec = ToolSpec {
            name: "t".into(),
            description: String::new(),
            parameters: json!({
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
        };
        Schema::new(&spec).unwrap().check(&spec, args)
    }

    #[test]
    fn what_fits_passes() {
        for args in [
            json!({ "n": 1 }),
            json!({ "n": 1.0, "unit": "c", "tags": ["a", null], "inner": { "x": 0, "y": 1 } }),
        ] {
            assert_eq!(check(&args), Ok(()));
        }
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_path() {
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
