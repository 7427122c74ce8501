//! Tests with schemas that schemars derives from types, and with answers that match the rewritten
//! schemas.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::wire_subsets::to_openai_strict_schema;
use super::*;
use crate::env::draw::TestRng;
use crate::error::ErrorKind;
use crate::request::OutputSchema;

/// Decides each choice in a generated answer.
struct Choices<'a> {
    root: &'a Value,
    bytes: &'a [u8],
}

impl Choices<'_> {
    fn next(&mut self) -> usize {
        // If no choices are left, the answer is the shortest one.
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first)
    }

    /// A value that matches a schema.
    fn value(&mut self, schema: &Value) -> Value {
        let n = self.next();
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.value(refs::resolve_reference(self.root, reference).unwrap());
        }
        if let Some(Value::Array(kinds)) = schema.get("anyOf") {
            // The last alternative of a recursive type ends the recursion.
            let at = if self.bytes.is_empty() { kinds.len() - 1 } else { n % kinds.len() };
            return self.value(&kinds[at]);
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(Value::Array(listed)) = schema.get("enum") {
            return listed[n % listed.len()].clone();
        }
        let kinds = schema.get("type").map(merge::types_of).unwrap_or_default();
        match kinds.get(if self.bytes.is_empty() {
            kinds.len().max(1) - 1
        } else {
            n % kinds.len()
        }) {
            Some(&"null") => Value::Null,
            Some(&"boolean") => json!(n.is_multiple_of(2)),
            Some(&"integer") => {
                let bound = |keyword| schema.get(keyword).and_then(Value::as_i64);
                let low = bound("minimum").unwrap_or(-100);
                json!(bound("maximum").unwrap_or(low + 200).min(low + i64::try_from(n).unwrap()))
            }
            Some(&"number") => json!(f64::from(u8::try_from(n).unwrap()) / 2.0),
            Some(&"string") => match schema.get("format").and_then(Value::as_str) {
                Some("date") => json!("2026-02-28"),
                Some("date-time") => json!("2026-02-28T12:00:00Z"),
                _ => json!(["", "a", "é\n"][n % 3]),
            },
            Some(&"array") => {
                let bound = |keyword| schema.get(keyword).and_then(Value::as_u64);
                let low = bound("minItems").unwrap_or(0);
                let high = bound("maxItems").unwrap_or(low + 2);
                let len = (low + u64::try_from(n).unwrap() % 3).min(high);
                match schema.get("prefixItems").and_then(Value::as_array) {
                    Some(row) => row.iter().map(|item| self.value(item)).collect(),
                    None => (0..len).map(|_| self.value(&schema["items"])).collect(),
                }
            }
            Some(&"object") => {
                let mut fields = Map::new();
                let required = schema.get("required").and_then(Value::as_array);
                let is_required =
                    |name| required.is_some_and(|r| r.iter().any(|field| field == name));
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    if is_required(name) || self.next() % 2 == 1 {
                        fields.insert(name.clone(), self.value(property));
                    }
                }
                if let Some(more @ Value::Object(_)) = schema.get("additionalProperties") {
                    fields.insert("more".into(), self.value(more));
                }
                Value::Object(fields)
            }
            other => panic!("{other:?} in {schema}"),
        }
    }
}

type Rewrite = fn(&Value) -> Result<Cow<'_, Value>, crate::error::Error>;

/// An answer that matches the rewritten schema can be deserialized into the original type.
#[track_caller]
fn reads<T: JsonSchema + DeserializeOwned>(rewrite: Rewrite) {
    let schema = OutputSchema::for_type::<T>().schema;
    let rewritten = rewrite(&schema).unwrap().into_owned();
    assert!(matches!(rewrite(&rewritten).unwrap(), Cow::Borrowed(_)), "{rewritten}");
    for seed in 0..512 {
        let draw = TestRng::new(seed);
        let bytes = draw.random_vec(59, || u8::try_from(draw.next_below(256)).unwrap());
        let answer = Choices { root: &rewritten, bytes: &bytes }.value(&rewritten);
        if let Err(error) = T::deserialize(&answer) {
            panic!("seed {seed}: {error}: {answer}\n{schema:#}\n{rewritten:#}");
        }
    }
}

#[track_caller]
fn refused<T: JsonSchema>(rewrite: Rewrite, at: &str) {
    let schema = OutputSchema::for_type::<T>().schema;
    let error = rewrite(&schema).expect_err(&schema.to_string());
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some(at)), "{error}");
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Plain {
    text: String,
    maybe: Option<String>,
    #[serde(default)]
    counted: i32,
    #[serde(default)]
    maybe_listed: Option<Vec<Inner>>,
    /// One of them, in words.
    inner: Inner,
    boxed: Option<Box<Inner>>,
    pair: [f64; 2],
    point: (f64, f64),
    #[serde(skip)]
    skipped: HashMap<String, u8>,
    #[serde(flatten)]
    flat: Flat,
    color: Color,
    maybe_color: Option<Color>,
    shapes: Vec<Shape>,
    outside: Outside,
    beside: Option<Beside>,
    either: Either,
    unit: (),
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Inner {
    flag: bool,
    letters: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Flat {
    flat: String,
}

#[derive(Deserialize, JsonSchema)]
enum Color {
    Red,
    /// The best.
    Blue,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "type")]
#[expect(dead_code, reason = "it is only read")]
enum Shape {
    Point,
    Circle { r: f64 },
    Inner(Inner),
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
enum Outside {
    Unit,
    New(Inner),
    Struct { x: Option<i64> },
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "t", content = "c")]
#[expect(dead_code, reason = "it is only read")]
enum Beside {
    Unit,
    New(String),
    Struct { x: bool },
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is only read")]
enum Either {
    Text(String),
    Inner(Inner),
    Many(Vec<i64>),
}

#[test]
fn answers_are_deserialized_into_structs_options_and_enums() {
    reads::<Plain>(to_openai_strict_schema);
    reads::<Plain>(to_gemini_schema);
    reads::<Few>(to_anthropic_output_schema);
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Few {
    text: String,
    maybe: Option<String>,
    #[serde(default)]
    counted: i32,
    inner: Inner,
    #[serde(flatten)]
    flat: Flat,
    maybe_color: Option<Color>,
    shapes: Vec<Shape>,
    outside: Outside,
    beside: Option<Beside>,
    either: Either,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Numbers {
    byte: u8,
    signed: i8,
    #[schemars(range(min = 1, max = 5))]
    stars: u32,
    #[schemars(length(min = 1, max = 3))]
    few: Vec<u16>,
    at_least_one: std::num::NonZeroU8,
}

#[test]
fn unsupported_ranges_are_moved_into_the_description() {
    reads::<Numbers>(to_openai_strict_schema);
    reads::<Numbers>(to_gemini_schema);
    let schema = OutputSchema::for_type::<Numbers>().schema;
    let told = to_anthropic_output_schema(&schema).unwrap();
    assert_eq!(told["properties"]["byte"]["description"], "{minimum: 0, maximum: 255}");
    assert_eq!(told["properties"]["stars"]["description"], "{minimum: 1, maximum: 5}");
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Dates {
    #[schemars(extend("format" = "date"))]
    day: String,
    #[schemars(extend("format" = "date-time"))]
    at: Option<String>,
    #[schemars(extend("format" = "partial-date-time"))]
    local: String,
}

#[test]
fn unsupported_formats_are_moved_into_the_description() {
    let schema = OutputSchema::for_type::<Dates>().schema;
    for rewrite in
        [to_openai_strict_schema as Rewrite, to_anthropic_output_schema, to_gemini_schema]
    {
        reads::<Dates>(rewrite);
        let rewritten = rewrite(&schema).unwrap();
        assert_eq!(rewritten["properties"]["day"]["format"], "date");
        assert_eq!(rewritten["properties"]["at"]["format"], "date-time");
        let local = &rewritten["properties"]["local"];
        assert_eq!(local["description"], "{format: partial-date-time}");
    }
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Tree {
    name: String,
    left: Option<Box<Tree>>,
    children: Vec<Tree>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Chain {
    name: String,
    next: Option<Box<Chain>>,
}

#[test]
fn recursive_types_are_accepted_if_the_wire_supports_recursion() {
    reads::<Chain>(to_openai_strict_schema);
    reads::<Tree>(to_openai_strict_schema);
    reads::<Chain>(to_gemini_schema);
    refused::<Tree>(to_gemini_schema, "#/properties/children/items");
    refused::<Chain>(to_anthropic_output_schema, "#/properties/next/anyOf/0");
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Maps {
    by_name: HashMap<String, u8>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct ById {
    by_id: BTreeMap<u32, String>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is only read")]
struct Anything {
    anything: Value,
}

#[test]
fn maps_and_arbitrary_values_are_accepted_if_objects_may_be_open() {
    for rewrite in [to_openai_strict_schema as Rewrite, to_anthropic_output_schema] {
        refused::<Maps>(rewrite, "#/properties/by_name/additionalProperties");
        refused::<Anything>(rewrite, "#/properties/anything");
    }
    refused::<ById>(to_openai_strict_schema, "#/properties/by_id/patternProperties");
    reads::<Maps>(to_gemini_schema);
    let by_id = OutputSchema::for_type::<ById>().schema;
    let by_id = to_gemini_schema(&by_id).unwrap();
    assert_eq!(by_id["properties"]["by_id"]["additionalProperties"], json!({ "type": "string" }));
    let anything = OutputSchema::for_type::<Anything>().schema;
    assert!(to_gemini_schema(&anything).is_ok());
}

#[test]
fn an_enum_at_the_root_is_rejected_in_strict_mode_only() {
    refused::<Shape>(to_openai_strict_schema, "#");
    reads::<Shape>(to_anthropic_output_schema);
    reads::<Shape>(to_gemini_schema);
}
