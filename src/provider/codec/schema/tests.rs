use std::borrow::Cow;

use serde_json::{Value, json};

use super::wire_subsets::to_openai_strict_schema;
use super::*;
use crate::env::draw::TestRng;
use crate::error::{Error, ErrorKind};

type Rewrite = fn(&Value) -> Result<Cow<'_, Value>, Error>;
const ALL: [Rewrite; 3] = [to_openai_strict_schema, to_anthropic_output_schema, to_gemini_schema];

#[track_caller]
fn check(rewrite: Rewrite, schema: &Value, expected: &Value) {
    let found = rewrite(schema).unwrap();
    assert_eq!(&*found, expected, "of {schema}");
    let again = rewrite(&found).unwrap();
    assert!(matches!(again, Cow::Borrowed(_)), "{found} became {again}");
}

#[track_caller]
fn refused(rewrite: Rewrite, schema: &Value, at: &str) {
    let error = rewrite(schema).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.parameter(), Some(at), "{error}");
    assert!(error.message().contains(at), "{error}");
}

fn object(properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

fn strict(properties: &Value) -> Value {
    let names: Vec<_> = properties.as_object().unwrap().keys().collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": false,
    })
}

#[test]
fn a_supported_schema_is_returned_unchanged() {
    let fits = strict(&json!({
        "a": { "type": "string", "description": "an a", "enum": ["x", "y"] },
        "b": { "type": ["integer", "null"] },
        "c": { "anyOf": [{ "type": "number" }, { "$ref": "#/$defs/D" }] },
    }));
    let mut fits = fits;
    fits["required"] = json!(["c", "a", "b"]);
    fits["$defs"] = json!({ "D": strict(&json!({ "x": { "type": "boolean" } })) });
    for rewrite in ALL {
        assert!(matches!(rewrite(&fits).unwrap(), Cow::Borrowed(_)));
    }
}

#[test]
fn strict_mode_closes_objects_and_requires_every_property() {
    let nested = object(&json!({ "x": { "type": "integer" } }));
    let mut schema = object(&json!({ "n": nested, "s": { "type": "string" } }));
    schema["required"] = json!(["s", "n"]);
    schema["properties"]["n"]["required"] = json!(["x"]);
    let mut expected = strict(&json!({
        "n": strict(&json!({ "x": { "type": "integer" } })),
        "s": { "type": "string" },
    }));
    expected["required"] = json!(["s", "n"]);
    check(to_openai_strict_schema, &schema, &expected);
}

#[test]
fn strict_mode_makes_optional_properties_nullable() {
    let schema = object(&json!({
        "text": { "type": "string" },
        "null": { "type": ["string", "null"] },
        "word": { "type": "string", "enum": ["a"] },
        "one": { "const": "a", "description": "always a" },
        "any": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
        "maybe": { "oneOf": [{ "type": "string" }, { "type": "null" }] },
        "there": { "$ref": "#/$defs/T" },
        "gone": { "$ref": "#/$defs/N" },
        "seven": { "type": "integer", "default": 7 },
    }));
    let mut schema = schema;
    schema["$defs"] = json!({ "T": { "type": "string" }, "N": { "type": "null" } });
    let mut expected = strict(&json!({
        "text": { "type": ["string", "null"] },
        "null": { "type": ["string", "null"] },
        "word": { "type": ["string", "null"], "enum": ["a", null] },
        "one": {
            "description": "always a",
            "anyOf": [{ "type": "string", "const": "a" }, { "type": "null" }],
        },
        "any": { "anyOf": [{ "type": "string" }, { "type": "integer" }, { "type": "null" }] },
        "maybe": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
        "there": { "anyOf": [{ "$ref": "#/$defs/T" }, { "type": "null" }] },
        "gone": { "$ref": "#/$defs/N" },
        "seven": { "type": "integer", "description": "{default: 7}" },
    }));
    expected["$defs"] = schema["$defs"].clone();
    check(to_openai_strict_schema, &schema, &expected);
}

#[test]
fn unsupported_keywords_are_moved_into_the_description() {
    let schema = strict(&json!({
        "n": { "type": "integer", "minimum": 1, "maximum": 5, "format": "uint8" },
        "s": { "type": "string", "description": "a name", "minLength": 2, "format": "iri" },
        "l": { "type": "array", "items": { "type": "null" }, "minItems": 3, "uniqueItems": true },
        "p": { "type": "string", "pattern": "^(?!x)" },
    }));
    check(
        to_openai_strict_schema,
        &schema,
        &strict(&json!({
            "n": { "type": "integer", "minimum": 1, "maximum": 5 },
            "s": { "type": "string", "description": "a name\n\n{minLength: 2, format: iri}" },
            "l": {
                "type": "array",
                "items": { "type": "null" },
                "minItems": 3,
                "description": "{uniqueItems: true}",
            },
            "p": { "type": "string", "description": "{pattern: ^(?!x)}" },
        })),
    );
    check(
        to_anthropic_output_schema,
        &schema,
        &strict(&json!({
            "n": { "type": "integer", "description": "{minimum: 1, maximum: 5}" },
            "s": { "type": "string", "description": "a name\n\n{minLength: 2, format: iri}" },
            "l": {
                "type": "array",
                "items": { "type": "null" },
                "description": "{minItems: 3, uniqueItems: true}",
            },
            "p": { "type": "string", "description": "{pattern: ^(?!x)}" },
        })),
    );
    let gemini_n = json!({ "type": "integer", "minimum": 1, "maximum": 5 });
    assert_eq!(to_gemini_schema(&schema).unwrap()["properties"]["n"], gemini_n);
}

#[test]
fn a_rewritten_schema_keeps_the_order_of_its_fields() {
    #[track_caller]
    fn check(rewrite: Rewrite, schema: &str, expected: &str) {
        let schema = serde_json::from_str(schema).unwrap();
        assert_eq!(rewrite(&schema).unwrap().to_string(), expected);
    }
    // Omitting, merging or resolving keywords does not move the others.
    let schema = concat!(
        r#"{"$schema":"x","title":"T","type":"object","#,
        r##""$defs":{"Z":{"title":"Z","type":"string","description":"a z"}},"##,
        r##""properties":{"z":{"$ref":"#/$defs/Z","default":"z"},"##,
        r#""m":{"allOf":[{"type":"integer","title":"M"},{"minimum":1,"type":"number"}],"description":"an m"},"#,
        r#""a":{"nullable":true,"description":"an a","maximum":2,"type":"number"}},"#,
        r#""required":["z","m","a"],"additionalProperties":false}"#,
    );
    check(
        to_openai_strict_schema,
        schema,
        concat!(
            r#"{"title":"T","type":"object","properties":{"#,
            r#""z":{"title":"Z","type":"string","description":"a z\n\n{default: z}"},"#,
            r#""m":{"description":"an m","type":"integer","title":"M","minimum":1},"#,
            r#""a":{"description":"an a","maximum":2,"type":["number","null"]}},"#,
            r#""required":["z","m","a"],"additionalProperties":false}"#,
        ),
    );
}

#[test]
fn metadata_keywords_are_removed() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "x",
        "$comment": "c",
        "type": "object",
        "properties": { "a": { "type": "null", "examples": [1], "deprecated": true, "x-y": 1 } },
        "required": ["a"],
        "additionalProperties": false,
    });
    for rewrite in ALL {
        check(rewrite, &schema, &strict(&json!({ "a": { "type": "null" } })));
    }
}

#[test]
fn closed_subsets_reject_schemas_that_allow_other_shapes() {
    for rewrite in [to_openai_strict_schema as Rewrite, to_anthropic_output_schema] {
        for (inner, at) in [
            (json!({ "type": "object" }), "#/properties/a"),
            (json!({ "type": "array" }), "#/properties/a"),
            (json!({}), "#/properties/a"),
            (json!(true), "#/properties/a"),
            (json!(false), "#/properties/a"),
            (
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
                "#/properties/a/additionalProperties",
            ),
            (
                json!({ "type": "object", "patternProperties": { "^a": { "type": "string" } } }),
                "#/properties/a/patternProperties",
            ),
            (json!({ "type": "string", "not": { "const": "x" } }), "#/properties/a/not"),
            (
                json!({ "prefixItems": [{ "type": "string" }, { "type": "null" }] }),
                "#/properties/a",
            ),
            (json!({ "$ref": "https://example.org/x" }), "#/properties/a"),
            (json!({ "$ref": "#/$defs/nobody" }), "#/properties/a"),
            (json!({ "enum": [{ "x": 1 }] }), "#/properties/a"),
        ] {
            refused(rewrite, &object(&json!({ "a": inner })), at);
        }
        let tilde = object(&json!({ "a/b~c": {} }));
        refused(rewrite, &tilde, "#/properties/a~1b~0c");
    }
}

#[test]
fn strict_mode_has_an_object_at_its_root() {
    for root in [
        json!({ "type": "string" }),
        json!({ "type": ["object", "null"], "properties": {} }),
        json!({ "anyOf": [object(&json!({})), object(&json!({ "a": { "type": "null" } }))] }),
    ] {
        refused(to_openai_strict_schema, &root, "#");
    }
    let root = json!({ "$ref": "#/$defs/A", "$defs": { "A": object(&json!({})) } });
    check(to_openai_strict_schema, &root, &strict(&json!({})));
}

#[test]
fn keywords_next_to_a_reference_are_merged_into_its_target() {
    let schema = json!({
        "oneOf": [{
            "type": "object",
            "properties": { "type": { "type": "string", "const": "Circle" } },
            "required": ["type"],
            "$ref": "#/$defs/Circle",
        }],
        "$defs": {
            "Circle": {
                "type": "object",
                "description": "round",
                "properties": { "r": { "type": "integer" } },
                "required": ["r"],
            },
        },
    });
    let mut circle = strict(&json!({
        "r": { "type": "integer" },
        "type": { "type": "string", "const": "Circle" },
    }));
    circle["required"] = json!(["type", "r"]);
    circle["description"] = json!("round");
    check(to_anthropic_output_schema, &schema, &json!({ "anyOf": [circle] }));
}

#[test]
fn keywords_next_to_alternatives_are_merged_into_each() {
    let schema = json!({
        "type": "object",
        "description": "one of two",
        "properties": { "id": { "type": "integer" } },
        "required": ["id"],
        "anyOf": [
            { "properties": { "a": { "type": "null" } }, "required": ["a"] },
            { "properties": { "b": { "type": "null" } }, "required": ["b"] },
        ],
    });
    let kind = |name: &str| {
        let mut kind = strict(&json!({ name: { "type": "null" }, "id": { "type": "integer" } }));
        kind["required"] = json!([name, "id"]);
        kind
    };
    let expected = json!({ "description": "one of two", "anyOf": [kind("a"), kind("b")] });
    check(to_anthropic_output_schema, &schema, &expected);
}

#[test]
fn members_of_all_of_are_merged_and_contradictions_rejected() {
    let a = object(&json!({ "a": { "type": "number" } }));
    let b = object(&json!({ "a": { "type": "integer" }, "b": { "type": "null" } }));
    let schema = json!({ "allOf": [a, b] });
    let joined = strict(&json!({ "a": { "type": "integer" }, "b": { "type": "null" } }));
    let mut joined = joined;
    joined.as_object_mut().unwrap().shift_remove("required");
    check(to_anthropic_output_schema, &schema, &joined);
    for rewrite in ALL {
        let at = object(&json!({ "x": { "allOf": [{ "type": "string" }, { "type": "null" }] } }));
        refused(rewrite, &at, "#/properties/x");
    }
}

#[test]
fn a_closed_member_of_all_of_forbids_the_fields_of_other_members() {
    let mut a = object(&json!({ "a": { "type": "null" } }));
    a["additionalProperties"] = json!(false);
    let b = object(&json!({ "b": { "type": "null" } }));
    for rewrite in ALL {
        refused(rewrite, &json!({ "allOf": [a, b] }), "#");
        refused(rewrite, &json!({ "allOf": [b, a] }), "#");
    }
}

#[test]
fn a_pattern_is_kept_if_a_grammar_supports_it() {
    for (pattern, is_kept) in [
        (r"^\d+(a|b)*$", true),
        (r"^\\b$", true),
        (r"\bword", false),
        (r"(a)\1", false),
        (r"a(?=b)", false),
        (r"(?<!a)b", false),
    ] {
        let schema = strict(&json!({ "a": { "type": "string", "pattern": pattern } }));
        let told = json!({ "type": "string", "description": format!("{{pattern: {pattern}}}") });
        let expected = if is_kept { schema.clone() } else { strict(&json!({ "a": told })) };
        check(to_openai_strict_schema, &schema, &expected);
        check(to_anthropic_output_schema, &schema, &expected);
    }
}

#[test]
fn a_reference_with_a_description_is_inlined_unless_it_is_recursive() {
    let mut schema = object(&json!({
        "a": { "$ref": "#/definitions/S", "description": "mine" },
        "b": { "$ref": "#/definitions/S" },
    }));
    schema["required"] = json!(["a", "b"]);
    schema["definitions"] = json!({ "S": { "type": "string", "description": "its own" } });
    let mut expected = strict(&json!({
        "a": { "type": "string", "description": "mine" },
        "b": { "$ref": "#/$defs/S" },
    }));
    expected["$defs"] = schema["definitions"].clone();
    for rewrite in [to_openai_strict_schema as Rewrite, to_anthropic_output_schema] {
        check(rewrite, &schema, &expected);
    }
    let node = |next: Value| {
        let mut node = strict(&json!({ "next": { "anyOf": [next, { "type": "null" }] } }));
        node["$defs"] = json!({ "N": strict(&json!({
            "next": { "anyOf": [{ "$ref": "#/$defs/N" }, { "type": "null" }] },
        })) });
        node
    };
    let worded = node(json!({ "$ref": "#/$defs/N", "description": "the next" }));
    check(to_openai_strict_schema, &worded, &node(json!({ "$ref": "#/$defs/N" })));
}

#[test]
fn recursion_is_accepted_by_strict_mode_and_if_optional_by_gemini() {
    let list = |required: Value| {
        let mut node = object(&json!({ "next": { "$ref": "#/$defs/N" } }));
        node["required"] = required;
        json!({ "$ref": "#/$defs/N", "$defs": { "N": node } })
    };
    assert!(to_openai_strict_schema(&list(json!(["next"]))).is_ok());
    assert!(to_gemini_schema(&list(json!([]))).is_ok());
    refused(to_gemini_schema, &list(json!(["next"])), "#/$defs/N/properties/next");
    refused(to_anthropic_output_schema, &list(json!([])), "#/$defs/N/properties/next");
    let own = object(&json!({ "inner": { "$ref": "#" } }));
    refused(to_anthropic_output_schema, &own, "#/properties/inner");
    assert_eq!(
        to_openai_strict_schema(&own).unwrap()["properties"]["inner"]["anyOf"][0],
        json!({ "$ref": "#" })
    );
}

#[test]
fn gemini_accepts_maps_tuples_and_empty_schemas() {
    let schema = object(&json!({
        "map": { "type": "object", "additionalProperties": { "type": "integer" } },
        "row": { "type": "array", "prefixItems": [{ "type": "string" }, { "type": "null" }] },
        "any": {},
        "free": { "type": "object", "additionalProperties": true },
    }));
    assert!(matches!(to_gemini_schema(&schema).unwrap(), Cow::Borrowed(_)));
    let ids = json!({
        "type": "object",
        "patternProperties": { "^\\d+$": { "type": "string" } },
        "additionalProperties": false,
    });
    let map = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    check(to_gemini_schema, &ids, &map);
}

#[test]
fn gemini_text_and_number_constants_become_enums() {
    let schema = object(&json!({
        "one": { "const": "a" },
        "null": { "type": ["string", "null"], "enum": ["a", null], "description": "d" },
        "yes": { "type": "boolean", "const": true },
        "only": { "const": null },
    }));
    let expected = object(&json!({
        "one": { "type": "string", "enum": ["a"] },
        "null": {
            "description": "d",
            "anyOf": [{ "type": "string", "enum": ["a"] }, { "type": "null" }],
        },
        "yes": { "type": "boolean", "description": "{enum: [true]}" },
        "only": { "type": "null" },
    }));
    check(to_gemini_schema, &schema, &expected);
}

#[test]
fn a_small_schema_that_expands_without_bound_is_rejected() {
    let doubles = |n: usize| {
        let next = json!({ "$ref": format!("#/$defs/D{}", n + 1), "description": "d" });
        object(&json!({ "a": next, "b": next }))
    };
    let mut schema = doubles(0);
    let mut defs: serde_json::Map<_, _> = (1..40).map(|n| (format!("D{n}"), doubles(n))).collect();
    defs.insert("D40".into(), json!({ "type": "null" }));
    schema["$defs"] = Value::Object(defs);
    let inner = json!({ "$ref": "#/$defs/A", "properties": { "t": { "type": "null" } } });
    let mut endless = object(&json!({ "a": inner }));
    endless["$defs"] = json!({ "A": object(&json!({ "x": inner })) });
    let looped = json!({ "$ref": "#/$defs/A", "$defs": { "A": { "$ref": "#/$defs/A" } } });
    let mut all = json!({ "type": "null" });
    all["allOf"] = json!([{ "$ref": "#" }, { "$ref": "#" }]);
    for rewrite in ALL {
        for schema in [&schema, &endless, &looped, &all] {
            let error = rewrite(schema).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }
}

#[test]
fn parameters_for_ollama_have_their_references_inlined() {
    let mut schema = object(&json!({
        "at": { "$ref": "#/$defs/Place", "description": "where" },
        "all": { "type": "array", "items": { "$ref": "#/$defs/Place" }, "minItems": 1 },
        "kind": { "const": "a" },
        "any": true,
    }));
    schema["$defs"] = json!({ "Place": object(&json!({ "x": { "type": "number" } })) });
    let place = object(&json!({ "x": { "type": "number" } }));
    let mut at = place.clone();
    at["description"] = json!("where");
    let all = json!({ "type": "array", "items": place, "description": "{minItems: 1}" });
    let kind = json!({ "type": "string", "enum": ["a"] });
    let expected = object(&json!({ "at": at, "all": all, "kind": kind, "any": {} }));
    check(to_ollama_parameters_schema, &schema, &expected);
}

#[test]
fn parameters_for_ollama_are_an_object() {
    check(to_ollama_parameters_schema, &json!({}), &json!({ "type": "object" }));
    check(to_ollama_parameters_schema, &json!(true), &json!({ "type": "object" }));
    let fields = json!({ "properties": { "a": {} } });
    check(to_ollama_parameters_schema, &fields, &object(&json!({ "a": {} })));
    let nullable = json!({ "type": ["object", "null"] });
    check(to_ollama_parameters_schema, &nullable, &json!({ "type": "object" }));
    let alternatives = json!({ "anyOf": [{ "type": "object" }, { "type": "object" }] });
    let merged = to_ollama_parameters_schema(&alternatives).unwrap();
    assert_eq!((&merged["type"], merged.get("anyOf")), (&json!("object"), None));
    refused(to_ollama_parameters_schema, &json!({ "type": "array" }), "#");
}

#[test]
fn recursive_parameters_for_ollama_are_rejected() {
    let mut tree = object(&json!({ "children": { "$ref": "#/$defs/Tree" } }));
    tree["$defs"] = json!({ "Tree": { "type": "array", "items": { "$ref": "#/$defs/Tree" } } });
    let error = to_ollama_parameters_schema(&tree).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.parameter().unwrap().starts_with("#/properties/children"), "{error}");
}

/// A random schema of at most this depth, with any keywords but often a sensible one.
fn schema(draw: &TestRng, depth: usize) -> Value {
    if depth == 0 || draw.next_bool() {
        return leaf(draw.next_below(14));
    }
    let inner = || schema(draw, depth - 1);
    let list = || -> Vec<Value> { (0..=draw.next_below(2)).map(|_| inner()).collect() };
    let names = || -> Vec<&str> {
        ["a", "b", "c"].into_iter().filter(|_| draw.next_bool()).take(2).collect()
    };
    match draw.next_below(10) {
        0..4 => {
            let field = || ((*draw.pick_one(&["a", "b", "c"])).to_owned(), inner());
            let fields: serde_json::Map<_, _> = draw.random_vec(2, field).into_iter().collect();
            json!({ "type": "object", "properties": fields, "required": names() })
        }
        4 => json!({
            "anyOf": [inner()], "required": names(), "properties": { "b": { "type": "null" } },
        }),
        5 => json!({ "type": "array", "items": inner() }),
        6 => json!({ "additionalProperties": inner() }),
        7 => json!({ "oneOf": list(), "description": "d" }),
        8 => json!({ "allOf": list() }),
        _ => json!({ "prefixItems": list(), "items": false }),
    }
}

/// The schemas without inner schemas, numbered from 0 to 13.
fn leaf(number: usize) -> Value {
    match number {
        0 => json!({ "type": "string" }),
        1 => json!({ "type": "integer", "minimum": 1, "format": "int32" }),
        2 => json!({ "type": ["number", "null"], "multipleOf": 2 }),
        3 => json!({ "enum": ["a", 1, null] }),
        4 => json!({ "const": true, "description": "d" }),
        5 => json!({ "type": "string", "format": "uuid", "default": "x", "title": "T" }),
        6 => json!({ "$ref": "#/$defs/A" }),
        7 => json!({ "$ref": "#/$defs/B", "description": "a b" }),
        8 => json!({ "$ref": "#" }),
        9 => json!({ "nullable": true, "type": "string" }),
        10 => json!({ "type": "string", "pattern": "\\bx", "minLength": 2, "not": {} }),
        11 => json!({ "type": "array" }),
        12 => json!(true),
        _ => json!({}),
    }
}

#[test]
fn a_rewritten_schema_is_not_changed_again() {
    let all: [Rewrite; 4] = [
        to_openai_strict_schema,
        to_anthropic_output_schema,
        to_gemini_schema,
        to_ollama_parameters_schema,
    ];
    let mut rewritten = [0; 4];
    for seed in 0..100 {
        let draw = TestRng::new(seed);
        let mut schema = schema(&draw, 4);
        if let Some(root) = schema.as_object_mut() {
            let (a, b) = (self::schema(&draw, 4), self::schema(&draw, 4));
            root.insert("$defs".into(), json!({ "A": a, "B": b }));
        }
        for (rewrite, rewritten) in all.iter().zip(&mut rewritten) {
            let Ok(once) = rewrite(&schema) else { continue };
            let twice = rewrite(&once).unwrap_or_else(|error| panic!("{seed}: {error}: {once}"));
            assert_eq!(&*twice, &*once, "seed {seed}");
            assert!(matches!(twice, Cow::Borrowed(_)), "seed {seed}");
            *rewritten += 1;
        }
    }
    assert!(rewritten.iter().all(|rewritten| *rewritten >= 5), "{rewritten:?}");
}

#[test]
fn a_valid_schema_of_a_tool_is_unchanged_and_rewriting_is_idempotent() {
    let list = json!({ "type": "array", "items": { "$ref": "#/$defs/a" }, "maxItems": 5 });
    let valid = json!({
        "type": "object",
        "title": "T",
        "properties": {
            "a": list,
            "b": { "type": ["string", "null"], "format": "uri", "pattern": "^(?=a)", "default": "x" },
            "c": { "type": "object", "additionalProperties": { "type": "number" } },
            "d": { "oneOf": [{ "const": 1 }, { "enum": ["x", null] }] },
            "e": {},
        },
        "required": ["a"],
        "additionalProperties": false,
        "$defs": { "a": { "type": "object", "properties": { "a": { "$ref": "#/$defs/a" } } } },
    });
    for rewrite in [to_openai_parameters_schema as Rewrite, to_anthropic_parameters_schema] {
        check(rewrite, &valid, &valid);
    }
    let odd = json!({
        "allOf": [{ "$ref": "#/$defs/x" }, { "properties": { "a": { "format": "uint8" } } }],
        "anyOf": [{ "required": ["b"], "properties": { "b": true } }, { "required": ["c"] }],
        "enum": [1],
        "$defs": { "x": { "type": "object", "required": ["a"], "properties": { "a": false } } },
    });
    for rewrite in [to_openai_parameters_schema as Rewrite, to_anthropic_parameters_schema] {
        let rewritten = rewrite(&odd).unwrap().into_owned();
        check(rewrite, &odd, &rewritten);
        assert_eq!(rewritten["type"], "object");
        assert_eq!(rewritten["required"], json!(["a"]));
        assert_eq!(rewritten["properties"]["b"], json!({}));
        for keyword in ["allOf", "anyOf", "oneOf"] {
            assert!(rewritten.get(keyword).is_none(), "{rewritten}");
        }
    }
}

#[test]
fn alternatives_at_the_root_that_refer_to_each_other_end() {
    let (root, a) = (json!({ "$ref": "#" }), json!({ "$ref": "#/$defs/a" }));
    let schema = json!({ "type": "object", "anyOf": [root, a, root, a],
        "$defs": { "a": { "allOf": [a, root, a, root] } } });
    let rewritten = to_openai_parameters_schema(&schema).unwrap();
    assert_eq!((&rewritten["type"], rewritten.get("anyOf")), (&json!("object"), None));
}
