//! Reads values as a JSON Schema describes them.

use std::borrow::Cow;
use std::cell::Cell;

use serde_json::{Map, Value};

use crate::item::RawJson;
use crate::item::model_json::fields::{JsonFields, parse_elements};
use crate::item::model_json::numbers::{has_readable_value, whole_number};
use crate::item::model_json::schema_types::{is_of_type, json_eq};

/// The number of steps for a value of any size, and for each byte of the value. A value that needs
/// more steps, which only a schema with many nested alternatives can cause, is left unchanged.
const MIN_STEPS: usize = 10_000;
const STEPS_PER_BYTE: usize = 8;

/// The maximum depth of nested values, and of references to references.
const MAX_DEPTH: usize = 128;

/// Reads a value as the schema describes it: a whole number becomes an integer where the schema
/// accepts only integers, and a `null` is left out if its property is optional and not nullable.
/// Returns `None` if nothing changes. All other text is kept as the model wrote it.
///
/// If the schema has alternatives (`anyOf`, `oneOf`), a value is read only if all alternatives that
/// accept the value read it in the same way.
pub(crate) fn read_by_schema(schema: &RawJson, json: &str) -> Option<String> {
    if !has_readable_value(json) {
        return None;
    }
    let root = schema.to_value();
    let steps = MIN_STEPS + STEPS_PER_BYTE * json.len();
    let reader = SchemaReader { root: &root, steps_left: Cell::new(steps) };
    let read = reader.read(&[&root], json, 0);
    read.filter(|_| reader.steps_left.get() > 0)
}

struct SchemaReader<'a> {
    root: &'a Value,
    steps_left: Cell<usize>,
}

/// The numbers that a schema accepts, in ascending order of generality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Numbers {
    None,
    Integers,
    All,
}

/// The keywords of a schema.
type Keywords<'a> = &'a Map<String, Value>;

impl<'a> SchemaReader<'a> {
    /// Reads a value that all of the `schemas` describe.
    fn read(&self, schemas: &[&'a Value], json: &str, depth: usize) -> Option<String> {
        if !self.take_step() || depth > MAX_DEPTH {
            return None;
        }
        match json.bytes().next()? {
            b'{' => self.read_object(&self.keywords(schemas), json, depth),
            b'[' => self.read_array(&self.keywords(schemas), json, depth),
            b'-' | b'0'..=b'9' => {
                let integer = whole_number(json)?;
                let accepted = schemas.iter().map(|schema| self.numbers(schema, 0)).min();
                (accepted == Some(Numbers::Integers)).then_some(integer)
            }
            _ => None,
        }
    }

    fn read_object(&self, keywords: &[Keywords<'a>], json: &str, depth: usize) -> Option<String> {
        let mut fields = JsonFields::parse(json)?;
        let mut is_changed = false;
        fields.0.retain_mut(|(name, value)| {
            let schemas = property_schemas(keywords, name);
            if *value == "null" && self.is_omissible(keywords, name) {
                is_changed = true;
                return false;
            }
            if let Some(read) = self.read(&schemas, value, depth + 1) {
                *value = Cow::Owned(read);
                is_changed = true;
            }
            true
        });
        let read = is_changed.then(|| fields.to_json());
        self.read_alternatives(keywords, json, read, depth)
    }

    fn read_array(&self, keywords: &[Keywords<'a>], json: &str, depth: usize) -> Option<String> {
        let mut is_changed = false;
        let read_element = |(at, element): (usize, &str)| {
            let read = self.read(&element_schemas(keywords, at), element, depth + 1);
            is_changed |= read.is_some();
            read.unwrap_or_else(|| element.to_owned())
        };
        let elements = parse_elements(json)?;
        let elements: Vec<String> = elements.into_iter().enumerate().map(read_element).collect();
        let read = is_changed.then(|| format!("[{}]", elements.join(",")));
        self.read_alternatives(keywords, json, read, depth)
    }

    /// Reads an object or array as the schema's alternatives describe it. `read` is the value as
    /// the schema's other keywords describe it, or `None` if they do not change it.
    fn read_alternatives(
        &self,
        keywords: &[Keywords<'a>],
        json: &str,
        mut read: Option<String>,
        depth: usize,
    ) -> Option<String> {
        for alternatives in keywords.iter().flat_map(|keywords| alternatives(keywords)) {
            let json = read.as_deref().unwrap_or(json);
            let mut readings = alternatives.iter().filter_map(|alternative| {
                let read = self.read(&[alternative], json, depth + 1);
                let value = serde_json::from_str(read.as_deref().unwrap_or(json)).ok()?;
                self.matches(alternative, &value, 0).then_some(read)
            });
            let first = readings.next().flatten();
            let agrees = readings.all(|other| other == first);
            if agrees && first.is_some() {
                read = first;
            }
        }
        read
    }

    /// Returns whether a field with the value `null` means the same as no field: the property is
    /// declared and optional, and does not accept `null`.
    fn is_omissible(&self, keywords: &[Keywords<'a>], name: &str) -> bool {
        let is_required = |keywords: &Keywords<'a>| {
            let required = keywords.get("required").and_then(Value::as_array);
            required.is_some_and(|names| names.iter().any(|required| required == name))
        };
        let properties = keywords.iter().filter_map(|keywords| keywords.get("properties"));
        let mut declared = properties.filter_map(|properties| properties.get(name));
        !keywords.iter().any(is_required) && declared.any(|schema| !self.accepts_null(schema, 0))
    }

    /// Returns the keywords of the schemas, including those of references and of `allOf`.
    fn keywords(&self, schemas: &[&'a Value]) -> Vec<Keywords<'a>> {
        let mut found = Vec::new();
        let mut queue: Vec<&Value> = schemas.to_vec();
        while let Some(schema) = queue.pop() {
            let Value::Object(keywords) = schema else { continue };
            // A schema may reference itself.
            if !self.take_step() || found.len() > MAX_DEPTH {
                break;
            }
            found.push(keywords);
            queue.extend(self.referenced(keywords));
            queue.extend(all_of(keywords));
        }
        found
    }

    /// Returns the schema that a `$ref` to a part of the root schema references.
    fn referenced(&self, keywords: Keywords<'_>) -> Option<&'a Value> {
        let pointer = keywords.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    /// Returns the numbers that a schema accepts.
    fn numbers(&self, schema: &'a Value, depth: usize) -> Numbers {
        let keywords = match schema {
            Value::Object(keywords) if depth < MAX_DEPTH && self.take_step() => keywords,
            Value::Bool(false) => return Numbers::None,
            _ => return Numbers::All,
        };
        let of_type = |kind: &str| keywords.get("type").is_none_or(|wanted| names(wanted, kind));
        let own = match (of_type("number"), of_type("integer")) {
            (true, _) => Numbers::All,
            (false, true) => Numbers::Integers,
            (false, false) => Numbers::None,
        };
        let listed = listed_values(keywords).map(|values| {
            let number = |value: &&Value| match value {
                Value::Number(number) if number.is_f64() => Some(Numbers::All),
                Value::Number(_) => Some(Numbers::Integers),
                _ => None,
            };
            values.iter().filter_map(number).max().unwrap_or(Numbers::None)
        });
        let inner = self.referenced(keywords).into_iter().chain(all_of(keywords));
        let inner = inner.map(|schema| self.numbers(schema, depth + 1));
        let alternatives = alternatives(keywords).map(|alternatives| {
            let numbers = alternatives.iter().map(|schema| self.numbers(schema, depth + 1));
            numbers.max().unwrap_or(Numbers::None)
        });
        listed.into_iter().chain(inner).chain(alternatives).fold(own, Numbers::min)
    }

    fn accepts_null(&self, schema: &'a Value, depth: usize) -> bool {
        let keywords = match schema {
            Value::Object(keywords) if depth < MAX_DEPTH && self.take_step() => keywords,
            Value::Bool(accepts) => return *accepts,
            _ => return true,
        };
        if keywords.get("nullable") == Some(&Value::Bool(true)) {
            return true;
        }
        let has_type = keywords.get("type").is_none_or(|wanted| names(wanted, "null"));
        let is_listed =
            listed_values(keywords).is_none_or(|values| values.iter().any(|value| value.is_null()));
        let mut inner = self.referenced(keywords).into_iter().chain(all_of(keywords));
        has_type
            && is_listed
            && inner.all(|schema| self.accepts_null(schema, depth + 1))
            && alternatives(keywords).all(|alternatives| {
                alternatives.iter().any(|schema| self.accepts_null(schema, depth + 1))
            })
    }

    /// Returns whether a value matches a schema, as far as the keywords that distinguish the
    /// alternatives of a schema are concerned.
    fn matches(&self, schema: &'a Value, value: &Value, depth: usize) -> bool {
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(accepts) => return *accepts,
            _ => return true,
        };
        if !self.take_step() || depth > MAX_DEPTH {
            return false;
        }
        let matches = |schema: &'a Value, value: &Value| self.matches(schema, value, depth + 1);
        let mut inner = self.referenced(keywords).into_iter().chain(all_of(keywords));
        keywords.get("type").is_none_or(|wanted| is_of_type(wanted, value))
            && listed_values(keywords)
                .is_none_or(|values| values.iter().any(|listed| json_eq(listed, value)))
            && inner.all(|schema| matches(schema, value))
            && alternatives(keywords)
                .all(|alternatives| alternatives.iter().any(|schema| matches(schema, value)))
            && match value {
                Value::Object(fields) => {
                    let required = keywords.get("required").and_then(Value::as_array);
                    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
                    let is_closed = keywords.get("additionalProperties")
                        == Some(&Value::Bool(false))
                        && !keywords.contains_key("patternProperties");
                    required.all(|name| fields.contains_key(name))
                        && fields.iter().all(|(name, value)| {
                            let schemas = property_schemas(&[keywords], name);
                            !(is_closed && schemas.is_empty())
                                && schemas.into_iter().all(|schema| matches(schema, value))
                        })
                }
                Value::Array(elements) => elements.iter().enumerate().all(|(at, element)| {
                    let schemas = element_schemas(&[keywords], at);
                    schemas.into_iter().all(|schema| matches(schema, element))
                }),
                _ => true,
            }
    }

    /// Counts a step, and returns whether further steps may be taken.
    fn take_step(&self) -> bool {
        let left = self.steps_left.get().saturating_sub(1);
        self.steps_left.set(left);
        left > 0
    }
}

/// Returns the schemas that describe a property.
fn property_schemas<'a>(keywords: &[Keywords<'a>], name: &str) -> Vec<&'a Value> {
    let schema = |keywords: &Keywords<'a>| {
        let declared = keywords.get("properties").and_then(|properties| properties.get(name));
        declared.or_else(|| keywords.get("additionalProperties").filter(|more| more.is_object()))
    };
    keywords.iter().filter_map(schema).collect()
}

/// Returns the schemas that describe the element at a position in an array.
fn element_schemas<'a>(keywords: &[Keywords<'a>], at: usize) -> Vec<&'a Value> {
    let schema = |keywords: &Keywords<'a>| {
        let items = keywords.get("items");
        // Before 2020-12, `items` listed the schemas of the first elements.
        let listed = keywords.get("prefixItems").or(items.filter(|items| items.is_array()));
        let listed = listed.and_then(Value::as_array).and_then(|listed| listed.get(at));
        listed.or_else(|| items.filter(|items| items.is_object()))
    };
    keywords.iter().filter_map(schema).collect()
}

/// Returns the schemas in `allOf`.
fn all_of(keywords: Keywords<'_>) -> impl Iterator<Item = &Value> {
    keywords.get("allOf").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the alternatives in `anyOf`, and those in `oneOf`.
fn alternatives(keywords: Keywords<'_>) -> impl Iterator<Item = &Vec<Value>> {
    ["anyOf", "oneOf"].into_iter().filter_map(|name| keywords.get(name).and_then(Value::as_array))
}

/// Returns the only values that a schema accepts, if it lists them.
fn listed_values(keywords: Keywords<'_>) -> Option<Vec<&Value>> {
    match (keywords.get("const"), keywords.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        (None, _) => None,
    }
}

/// Returns whether a `type` keyword names a type.
fn names(wanted: &Value, kind: &str) -> bool {
    match wanted {
        Value::Array(any) => any.iter().any(|wanted| wanted == kind),
        wanted => wanted == kind,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, written: &str, expected: &str) {
        let read = read_by_schema(&schema.into(), written);
        assert_eq!(read.as_deref().unwrap_or(written), expected, "{schema}");
    }

    #[track_caller]
    fn check_unchanged(schema: &Value, written: &str) {
        assert_eq!(read_by_schema(&schema.into(), written), None, "{schema}");
    }

    fn object(properties: &Value) -> Value {
        json!({ "type": "object", "properties": properties })
    }

    #[test]
    fn a_whole_number_becomes_an_integer_where_only_integers_are_accepted() {
        let schema = object(&json!({
            "id": { "type": "integer" },
            "opt": { "type": ["integer", "null"] },
            "price": { "type": "number" },
            "any": {},
            "list": { "type": "array", "items": { "type": "integer" } },
            "pair": { "prefixItems": [{ "type": "integer" }, { "type": "number" }] },
            "level": { "enum": [1, 2, 3] },
            "inner": object(&json!({ "n": { "type": "integer" } })),
        }));
        check(
            &schema,
            r#"{"id":14380.0,"price":2.0,"any":3.0}"#,
            r#"{"id":14380,"price":2.0,"any":3.0}"#,
        );
        check(&schema, r#"{ "opt": 2.0, "list": [1.0, 2] }"#, r#"{"opt":2,"list":[1,2]}"#);
        check(&schema, r#"{"pair":[1.0,1.0],"level":3.0}"#, r#"{"pair":[1,1.0],"level":3}"#);
        check(&schema, r#"{"inner":{"n":1e2,"x":1.0}}"#, r#"{"inner":{"n":100,"x":1.0}}"#);
        for unchanged in [r#"{"id":5.5}"#, r#"{"id":"5"}"#, r#"{"id":"5.0"}"#, r#"{"id":[5.0]}"#] {
            check_unchanged(&schema, unchanged);
        }
    }

    #[test]
    fn a_null_is_left_out_only_for_an_optional_property_that_is_not_nullable() {
        let mut schema = object(&json!({
            "q": { "type": "string" },
            "limit": { "type": "integer", "default": 0 },
            "opt": { "type": ["string", "null"] },
            "either": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            "open": { "nullable": true, "type": "string" },
            "any": {},
            "mode": { "enum": ["a", "b"] },
        }));
        schema["required"] = json!(["q"]);
        check(&schema, r#"{"q":"a","limit":null,"mode":null}"#, r#"{"q":"a"}"#);
        for unchanged in [
            r#"{"q":null}"#,
            r#"{"opt":null,"either":null,"open":null,"any":null}"#,
            r#"{"unknown":null}"#,
        ] {
            check_unchanged(&schema, unchanged);
        }
        let map = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
        check_unchanged(&map, r#"{"a":null}"#);
        check(&map, r#"{"a":1.0}"#, r#"{"a":1}"#);
    }

    #[test]
    fn references_and_combined_schemas_are_followed() {
        let schema = json!({
            "$defs": {
                "Count": { "type": "integer" },
                "Node": object(&json!({
                    "n": { "$ref": "#/$defs/Count" },
                    "next": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] },
                })),
                "Loop": { "$ref": "#/$defs/Loop" },
            },
            "allOf": [{ "$ref": "#/$defs/Node" }, object(&json!({ "m": { "type": "integer" } }))],
            "properties": { "loop": { "$ref": "#/$defs/Loop" } },
        });
        check(
            &schema,
            r#"{"n":1.0,"m":2.0,"next":{"n":3.0,"next":null},"loop":4.0}"#,
            r#"{"n":1,"m":2,"next":{"n":3,"next":null},"loop":4.0}"#,
        );
    }

    #[test]
    fn an_alternative_is_chosen_only_if_it_is_certain() {
        let variant = |kind: &str, number: &str| {
            json!({
                "type": "object",
                "properties": {
                    "kind": { "const": kind },
                    "n": { "type": number },
                    "limit": { "type": number },
                },
                "required": ["kind", "n"],
            })
        };
        let tagged = json!({ "oneOf": [variant("a", "integer"), variant("b", "number")] });
        check(&tagged, r#"{"kind":"a","n":1.0,"limit":null}"#, r#"{"kind":"a","n":1}"#);
        check(&tagged, r#"{"kind":"b","n":1.0,"limit":null}"#, r#"{"kind":"b","n":1.0}"#);
        check_unchanged(&tagged, r#"{"kind":"c","n":1.0}"#);

        let either =
            |a: &str, b: &str| object(&json!({ "v": { "anyOf": [{ "type": a }, { "type": b }] } }));
        check(&either("integer", "string"), r#"{"v":1.0}"#, r#"{"v":1}"#);
        check_unchanged(&either("integer", "number"), r#"{"v":1.0}"#);
        let list = |kind: &str| json!({ "type": "array", "items": { "type": kind } });
        let lists = json!({ "anyOf": [list("integer"), list("number")] });
        check_unchanged(&lists, "[1.0]");
    }

    #[test]
    fn deep_values_and_schemas_with_many_alternatives_end() {
        let schema = json!({
            "$defs": { "T": { "anyOf": [
                object(&json!({ "l": { "$ref": "#/$defs/T" }, "n": { "type": "integer" } })),
                object(&json!({ "l": { "$ref": "#/$defs/T" }, "m": { "type": "integer" } })),
            ] } },
            "$ref": "#/$defs/T",
        });
        let nested = format!("{}1.0{}", r#"{"l":"#.repeat(100), "}".repeat(100));
        check_unchanged(&schema, &nested);
        let deep = format!("{}1.0{}", "[".repeat(10_000), "]".repeat(10_000));
        let lists =
            json!({ "$defs": { "L": { "items": { "$ref": "#/$defs/L" } } }, "$ref": "#/$defs/L" });
        check_unchanged(&lists, &deep);
    }

    #[test]
    fn big_integers_and_the_order_of_fields_are_kept() {
        let schema = object(&json!({ "a": { "type": "integer" } }));
        check(
            &schema,
            r#"{"z": 123456789012345678901234567890, "a": 9007199254740993.0, "b": 1.50}"#,
            r#"{"z":123456789012345678901234567890,"a":9007199254740993,"b":1.50}"#,
        );
    }
}
