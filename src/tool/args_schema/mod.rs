//! Validates arguments against a raw tool's schema.

mod small;
#[cfg(feature = "validate")]
mod whole;

use serde_json::Value;

use crate::tool::ToolSpec;

#[cfg(not(feature = "validate"))]
pub(super) use small::Schema;
#[cfg(feature = "validate")]
pub(super) use whole::Schema;

/// Returns the keywords in a schema that are not checked although they restrict values.
pub(super) fn unchecked_keywords(schema: &Value) -> Vec<String> {
    match cfg!(feature = "validate") {
        true => Vec::new(),
        false => small::unchecked_keywords(schema).into_iter().map(str::to_owned).collect(),
    }
}

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
                (json!({ "list": vec![1; 20_000] }), "at `list`"),
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
