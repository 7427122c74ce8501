//! The built-in validation, which supports the keywords that tool schemas use.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

#[cfg(not(feature = "validate"))]
use crate::error::Error;
use crate::item::model_json::{is_of_type, json_eq};
#[cfg(not(feature = "validate"))]
use crate::tool::ToolSpec;

/// The maximum number of schemas that one validation visits. A few references can describe a schema
/// of any size. The rest is not checked.
const MAX_STEPS: usize = 100_000;
/// The maximum number of schemas that are applied to each other or to the values in a value. The
/// rest is not checked.
const MAX_DEPTH: usize = 256;

/// The keywords that restrict values and that this validation does not know.
const UNCHECKED_KEYWORDS: [&str; 13] = [
    "$dynamicRef",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "if",
    "pattern",
    "patternProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "$recursiveRef",
];

#[cfg(not(feature = "validate"))]
pub(in crate::tool) struct Schema(Value);

#[cfg(not(feature = "validate"))]
impl Schema {
    #[expect(clippy::unnecessary_wraps, reason = "the full validator can reject a schema")]
    pub(in crate::tool) fn new(spec: &ToolSpec) -> Result<Self, Error> {
        Ok(Self(spec.parameters.to_value()))
    }

    pub(in crate::tool) fn check(&self, _: &ToolSpec, args: &Value) -> Result<(), String> {
        check(&self.0, args)
    }
}

/// Validates a value against a schema and stops at the first mismatch. A value is accepted if only
/// a part of the schema that is not checked could reject it. Keywords have their meaning of draft
/// 2020-12 and, where it is compatible, of earlier drafts.
pub(super) fn check(schema: &Value, value: &Value) -> Result<(), String> {
    let validation =
        Validation { root: schema, steps: Cell::new(MAX_STEPS), has_skipped: Cell::new(false) };
    validation.check(schema, value, "", 0)
}

/// Returns the keywords in a schema that [`check`] ignores although they restrict values, including
/// references that cannot be resolved, such as those to other documents, in alphabetical order.
pub(super) fn unchecked_keywords(schema: &Value) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    collect_unchecked(schema, schema, &mut found);
    found
}

fn collect_unchecked<'a>(root: &Value, schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_unresolved = name == "$ref" && resolve(root, value).is_none();
                if is_unresolved || UNCHECKED_KEYWORDS.contains(&&**name) {
                    found.insert(name);
                }
                match &**name {
                    // The names below are those of properties, or the values are plain data.
                    "properties" | "patternProperties" | "$defs" | "definitions" => {
                        let schemas = value.as_object().into_iter().flat_map(Map::values);
                        schemas.for_each(|schema| collect_unchecked(root, schema, found));
                    }
                    "const" | "enum" | "default" | "examples" | "required" => {}
                    _ => collect_unchecked(root, value, found),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                collect_unchecked(root, value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the schema in `root` that a reference points to, if any.
fn resolve<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    let pointer = reference.as_str()?.strip_prefix('#')?;
    root.pointer(pointer).or_else(|| root.pointer(&percent_decoded(pointer)?))
}

struct Validation<'a> {
    /// The whole schema, which references point into.
    root: &'a Value,
    /// The number of schemas that may still be visited.
    steps: Cell<usize>,
    /// Whether a part of a schema was skipped, because of a limit or because it is unknown.
    has_skipped: Cell<bool>,
}

impl Validation<'_> {
    fn check(&self, schema: &Value, value: &Value, path: &str, depth: usize) -> Result<(), String> {
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(false) => return violation(path, "no value is allowed here"),
            _ => return Ok(()),
        };
        let Some(left) = self.steps.get().checked_sub(1).filter(|_| depth < MAX_DEPTH) else {
            self.has_skipped.set(true);
            return Ok(());
        };
        self.steps.set(left);
        let depth = depth + 1;
        if let Some(reference) = schema.get("$ref") {
            match resolve(self.root, reference) {
                Some(target) => self.check(target, value, path, depth)?,
                None => self.has_skipped.set(true),
            }
        }
        if schema.keys().any(|name| UNCHECKED_KEYWORDS.contains(&&**name) || name == "format") {
            self.has_skipped.set(true);
        }
        check_equality(schema, value, path)?;
        self.check_combinations(schema, value, path, depth)?;
        match value {
            Value::Object(object) => self.check_object(schema, object, path, depth),
            Value::Array(values) => self.check_array(schema, values, path, depth),
            Value::Number(number) => check_number(schema, number, path),
            Value::String(text) => {
                check_len(schema, ["minLength", "maxLength"], text.chars().count(), path)
            }
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    /// Applies a schema, and returns whether the value is known to match. `None` if a part of the
    /// schema was skipped, and the value matches the rest.
    fn matches(&self, schema: &Value, value: &Value, path: &str, depth: usize) -> Option<bool> {
        let before = self.has_skipped.replace(false);
        let is_match = self.check(schema, value, path, depth).is_ok();
        let is_incomplete = self.has_skipped.get();
        self.has_skipped.set(before || is_incomplete);
        if is_match && is_incomplete { None } else { Some(is_match) }
    }

    fn check_combinations(
        &self,
        schema: &Map<String, Value>,
        value: &Value,
        path: &str,
        depth: usize,
    ) -> Result<(), String> {
        let all_of =
            |name| schema.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for schema in all_of("allOf") {
            self.check(schema, value, path, depth)?;
        }
        for name in ["anyOf", "oneOf"] {
            let alternatives = all_of(name);
            let (mut certain, mut possible) = (0, 0);
            for schema in alternatives {
                match self.matches(schema, value, path, depth) {
                    Some(true) => certain += 1,
                    Some(false) => {}
                    None => possible += 1,
                }
            }
            if certain + possible == 0 && !alternatives.is_empty() {
                return violation(path, "it matches none of the alternatives");
            }
            if name == "oneOf" && certain > 1 {
                return violation(path, "it matches several alternatives instead of one");
            }
        }
        match schema.get("not") {
            Some(excluded) if self.matches(excluded, value, path, depth) == Some(true) => {
                violation(path, "this value is excluded")
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_array(
        &self,
        schema: &Map<String, Value>,
        values: &[Value],
        path: &str,
        depth: usize,
    ) -> Result<(), String> {
        check_len(schema, ["minItems", "maxItems"], values.len(), path)?;
        // Before draft 2020-12, a list of schemas was in `items`, and the one for the rest in
        // `additionalItems`.
        let (first, rest) = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(first), rest) => (first.as_array(), rest),
            (None, Some(Value::Array(first))) => (Some(first), schema.get("additionalItems")),
            (None, rest) => (None, rest),
        };
        let first = first.map_or(&[][..], Vec::as_slice);
        for (at, value) in values.iter().enumerate() {
            if let Some(schema) = first.get(at).or(rest) {
                self.check(schema, value, &format!("{path}[{at}]"), depth)?;
            }
        }
        Ok(())
    }

    fn check_object(
        &self,
        schema: &Map<String, Value>,
        object: &Map<String, Value>,
        path: &str,
        depth: usize,
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
        check_len(schema, ["minProperties", "maxProperties"], object.len(), path)?;
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, value) in object {
            match properties.and_then(|properties| properties.get(key)) {
                Some(schema) => self.check(schema, value, &inner(key), depth)?,
                // The key may match one of the patterns.
                None if schema.contains_key("patternProperties") => {}
                None => match schema.get("additionalProperties") {
                    Some(Value::Bool(false)) => {
                        return violation(path, &format!("there is no `{key}`"));
                    }
                    Some(schema) => self.check(schema, value, &inner(key), depth)?,
                    None => {}
                },
            }
        }
        Ok(())
    }
}

fn check_equality(schema: &Map<String, Value>, value: &Value, path: &str) -> Result<(), String> {
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
    Ok(())
}

fn check_number(schema: &Map<String, Value>, number: &Number, path: &str) -> Result<(), String> {
    let bounds = [
        ("minimum", Ordering::Less, true, "at least"),
        ("exclusiveMinimum", Ordering::Less, false, "more than"),
        ("maximum", Ordering::Greater, true, "at most"),
        ("exclusiveMaximum", Ordering::Greater, false, "less than"),
    ];
    for (name, wrong, allows_equal, comparison) in bounds {
        let Some(Value::Number(bound)) = schema.get(name) else { continue };
        // In draft 4, a flag makes a bound exclusive.
        let flag = if name == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" };
        let allows_equal = allows_equal && schema.get(flag) != Some(&Value::Bool(true));
        let order = compare(number, bound);
        if order == Some(wrong) || (order == Some(Ordering::Equal) && !allows_equal) {
            return violation(path, &format!("expected {comparison} {bound}, found {number}"));
        }
    }
    match schema.get("multipleOf") {
        Some(Value::Number(divisor)) if !is_multiple(number, divisor) => {
            violation(path, &format!("expected a multiple of {divisor}, found {number}"))
        }
        Some(_) | None => Ok(()),
    }
}

fn compare(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Returns whether a number may be a multiple of another. Fractions are compared as far as floats
/// can represent them.
fn is_multiple(number: &Number, divisor: &Number) -> bool {
    if let (Some(number), Some(divisor)) = (number.as_i128(), divisor.as_i128()) {
        return divisor <= 0 || number % divisor == 0;
    }
    let (Some(number), Some(divisor)) = (number.as_f64(), divisor.as_f64()) else { return true };
    let quotient = number / divisor;
    divisor <= 0.0
        || !quotient.is_finite()
        || (quotient - quotient.round()).abs() < 1e-9 * quotient.abs().max(1.0)
}

/// Checks the number of characters, elements or properties against two keywords.
fn check_len(
    schema: &Map<String, Value>,
    [min, max]: [&str; 2],
    len: usize,
    path: &str,
) -> Result<(), String> {
    let bound = |name| schema.get(name).and_then(Value::as_f64);
    #[expect(clippy::cast_precision_loss, reason = "no value has so many parts")]
    let count = len as f64;
    match (bound(min), bound(max)) {
        (Some(min), _) if count < min => {
            violation(path, &format!("its length is {len}, and must be at least {min}"))
        }
        (_, Some(max)) if count > max => {
            violation(path, &format!("its length is {len}, and must be at most {max}"))
        }
        _ => Ok(()),
    }
}

/// Decodes the percent-encoded characters of a reference. Returns `None` if the result is not text.
fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        decoded.push(match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                rest = after;
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?
            }
            _ => *byte,
        });
    }
    String::from_utf8(decoded).ok()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn accepts(schema: &Value, values: &[Value]) {
        for value in values {
            assert_eq!(check(schema, value), Ok(()), "{value}");
        }
    }

    #[track_caller]
    fn rejects(schema: &Value, values: &[Value], reason: &str) {
        for value in values {
            assert_eq!(check(schema, value).unwrap_err(), reason, "{value}");
        }
    }

    #[test]
    fn numbers_are_compared_with_their_bounds() {
        let schema = json!({ "minimum": 1, "exclusiveMaximum": 10.5, "multipleOf": 0.5 });
        accepts(&schema, &[json!(1), json!(1.0), json!(10), json!(2.5), json!("text")]);
        rejects(&schema, &[json!(0)], "expected at least 1, found 0");
        rejects(&schema, &[json!(10.5)], "expected less than 10.5, found 10.5");
        rejects(&schema, &[json!(2.3)], "expected a multiple of 0.5, found 2.3");
        let large = json!({ "maximum": u64::MAX - 1 });
        accepts(&large, &[json!(u64::MAX - 1)]);
        assert!(check(&large, &json!(u64::MAX)).is_err());
        accepts(&json!({ "multipleOf": 0.1 }), &[json!(0.3), json!(1_000_000.1)]);
        accepts(&json!({ "multipleOf": 0 }), &[json!(3)]);
    }

    #[test]
    fn equal_numbers_are_equal_at_any_depth() {
        let listed = json!({ "enum": [[1, { "a": 2.0 }], 3] });
        accepts(&listed, &[json!([1.0, { "a": 2 }]), json!([1, { "a": 2.0 }]), json!(3.0)]);
        for other in [json!([1.5, { "a": 2 }]), json!([1, { "a": 2, "b": 3 }]), json!([1])] {
            rejects(
                &listed,
                std::slice::from_ref(&other),
                &format!("{other} is not one of [1,{{\"a\":2.0}}], 3"),
            );
        }
        let constant = json!({ "const": { "list": [1.0, true] } });
        accepts(&constant, &[json!({ "list": [1, true] })]);
        let other = [json!({ "l": [1, true] })];
        rejects(&constant, &other, r#"expected {"list":[1.0,true]}, found {"l":[1,true]}"#);
        // As floats, these two integers would be equal.
        let large = json!({ "const": [u64::MAX] });
        accepts(&large, &[json!([u64::MAX])]);
        assert!(check(&large, &json!([u64::MAX - 1])).is_err());
    }

    #[test]
    fn lengths_are_counted_in_characters_elements_and_properties() {
        let text = json!({ "minLength": 2, "maxLength": 3 });
        accepts(&text, &[json!("äö"), json!("äöü"), json!(["a"])]);
        rejects(&text, &[json!("ä")], "its length is 1, and must be at least 2");
        rejects(&text, &[json!("äöüß")], "its length is 4, and must be at most 3");
        rejects(
            &json!({ "maxItems": 1 }),
            &[json!([1, 2])],
            "its length is 2, and must be at most 1",
        );
        rejects(
            &json!({ "minProperties": 1 }),
            &[json!({})],
            "its length is 0, and must be at least 1",
        );
    }

    #[test]
    fn elements_are_checked_by_position() {
        let schema = json!({
            "prefixItems": [{ "type": "string" }, {}],
            "items": { "type": "integer" },
        });
        accepts(&schema, &[json!([]), json!(["a"]), json!(["a", null, 3])]);
        rejects(&schema, &[json!([1])], "expected string, found a number (at `[0]`)");
        rejects(&schema, &[json!(["a", 1, "b"])], "expected integer, found a string (at `[2]`)");
    }

    #[test]
    fn alternatives_are_tried() {
        let any = json!({ "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 5 }] });
        accepts(&any, &[json!("a"), json!(5)]);
        rejects(&any, &[json!(4), json!(null)], "it matches none of the alternatives");
        let one = json!({ "oneOf": [{ "minimum": 0 }, { "maximum": 10 }] });
        accepts(&one, &[json!(-1), json!(11)]);
        rejects(&one, &[json!(5)], "it matches several alternatives instead of one");
        let all = json!({ "allOf": [{ "minimum": 0 }, { "maximum": 10 }], "not": { "const": 5 } });
        accepts(&all, &[json!(0), json!(10)]);
        rejects(&all, &[json!(11)], "expected at most 10, found 11");
        rejects(&all, &[json!(5), json!(5.0)], "this value is excluded");
    }

    #[test]
    fn what_only_an_unknown_keyword_distinguishes_is_accepted() {
        let one = json!({ "oneOf": [{ "pattern": "^a" }, { "pattern": "^b" }] });
        accepts(&one, &[json!("a"), json!("c")]);
        accepts(&json!({ "not": { "pattern": "^a" } }), &[json!("a"), json!("b")]);
        let behind_reference = json!({
            "not": { "$ref": "#/$defs/a" },
            "$defs": { "a": { "pattern": "^a" } },
        });
        accepts(&behind_reference, &[json!("a"), json!("b")]);
        let patterns = json!({ "patternProperties": { "^x-": {} }, "additionalProperties": false });
        accepts(&patterns, &[json!({ "x-a": 1 })]);
        let formats = json!({ "oneOf": [{ "format": "ipv4" }, { "format": "ipv6" }] });
        accepts(&formats, &[json!("::1")]);
        let unknown = json!({ "not": { "$ref": "#/nowhere" } });
        accepts(&unknown, &[json!(1)]);
        // The limit on visited schemas is reached within the last element.
        let element = json!({ "required": ["a"], "properties": { "a": { "type": "string" } } });
        let many = json!({ "items": { "not": element } });
        accepts(&many, &[json!(vec![json!({ "a": 1 }); 40_000])]);
    }

    #[test]
    fn keywords_of_earlier_drafts_are_understood() {
        let tuple = |of: &str| json!({ "items": [{ "type": of }], "additionalItems": false });
        let one = json!({ "oneOf": [tuple("string"), tuple("integer")] });
        accepts(&one, &[json!(["a"]), json!([1])]);
        rejects(&one, &[json!([null]), json!(["a", "b"])], "it matches none of the alternatives");
        let exclusive = json!({ "minimum": 5, "exclusiveMinimum": true });
        accepts(&json!({ "not": exclusive }), &[json!(5), json!(4)]);
        rejects(&exclusive, &[json!(5)], "expected at least 5, found 5");
        let encoded = json!({
            "$ref": "#/definitions/List%3Cstring%3E",
            "definitions": { "List<string>": { "items": { "type": "string" } } },
        });
        accepts(&encoded, &[json!(["a"])]);
        rejects(&encoded, &[json!([1])], "expected string, found a number (at `[0]`)");
    }

    #[test]
    fn local_references_are_followed_and_recursive_ones_end() {
        let tree = json!({
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "value": { "type": "integer" },
                        "children": { "type": "array", "items": { "$ref": "#/$defs/node" } },
                    },
                    "required": ["value"],
                },
            },
        });
        accepts(&tree, &[json!({ "value": 1, "children": [{ "value": 2, "children": [] }] })]);
        rejects(
            &tree,
            &[json!({ "value": 1, "children": [{ "children": [] }] })],
            "missing `value` (at `children[0]`)",
        );
        accepts(&json!({ "$ref": "#" }), &[json!(1)]);
        accepts(&json!({ "$ref": "#/nowhere" }), &[json!(1)]);
        accepts(&json!({ "$ref": "https://example.com/schema" }), &[json!(1)]);
        // Without a limit, this schema would be visited 2^256 times.
        let both = json!({ "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] });
        accepts(&json!({ "$ref": "#/$defs/a", "$defs": { "a": both } }), &[json!(1)]);
    }

    #[test]
    fn a_reference_that_points_to_nothing_is_listed_and_one_that_is_resolved_is_not() {
        let listed = |reference: &str| {
            let schema = json!({
                "properties": { "a": { "items": { "$ref": reference } } },
                "$defs": { "an item": { "type": "string" } },
            });
            unchecked_keywords(&schema).contains("$ref")
        };
        for nowhere in ["#/nowhere", "#anchor", "other.json", "other.json#/$defs/an%20item"] {
            assert!(listed(nowhere), "{nowhere}");
        }
        for resolved in ["#", "#/$defs/an item", "#/$defs/an%20item", "#/properties/a"] {
            assert!(!listed(resolved), "{resolved}");
        }
    }

    #[test]
    fn the_unchecked_keywords_are_listed_but_not_properties_of_that_name() {
        let schema = json!({
            "properties": {
                "pattern": { "type": "string", "pattern": "^a", "minLength": 1 },
                "if": { "enum": [{ "contains": 1 }] },
                "list": { "items": { "uniqueItems": true } },
                "other": { "$ref": "https://example.com/schema" },
                "local": { "$ref": "#/$defs/contains" },
            },
            "$defs": { "contains": { "format": "date" } },
        });
        let found: Vec<&str> = unchecked_keywords(&schema).into_iter().collect();
        assert_eq!(found, ["$ref", "pattern", "uniqueItems"]);
    }
}
