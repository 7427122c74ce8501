//! The JSON schemas in the guide, the README, the examples and the docs are accepted, without a
//! change, by every vendor. A reader copies them.
//!
//! Two kinds of schemas are collected from the text: JSON that is a schema, and types that derive
//! `JsonSchema`. JSON is sent on each wire, as the parameters of a tool or as the schema of an
//! answer. The wire's encoder must not change it, and the [lint](turnstream_testing::lint) of the
//! vendor must accept it. A type may only have fields of the types that `EveryType` has, which is
//! sent in the same way.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
#[cfg(feature = "schemars")]
use turnstream::Tool;
use turnstream::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::request::{Options, Output, OutputSchema, ToolSpec};
use turnstream::{Error, History, Item, Request};
use turnstream_testing::{Wire, lint};

/// The models of a wire, and the encoder of its requests.
const MODEL: &str = "any";

fn encode(wire: Wire, request: &Request) -> Result<Vec<u8>, Error> {
    match wire {
        Wire::Anthropic => anthropic::encode(request, MODEL),
        Wire::OpenAiChat => openai_chat::encode(request, MODEL, &openai_chat::Dialect::OPENAI),
        Wire::OpenAiResponses => openai_responses::encode(request, MODEL),
        Wire::Gemini => gemini::encode(request, MODEL),
        Wire::Ollama => ollama::encode(request, MODEL, &ollama::Chat::default()),
        wire => panic!("there is no encoder for {wire:?}"),
    }
}

/// The values that a schema describes: arguments or answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SchemaUse {
    Parameters,
    Answer,
}

/// Whether an encoder may rewrite a schema for its vendor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rewriting {
    #[cfg(feature = "schemars")]
    Allowed,
    Forbidden,
}

/// Returns the reasons for which vendors do not accept a schema.
fn faults(schema: &Value, used_for: SchemaUse, rewriting: Rewriting) -> Vec<String> {
    let mut faults = Vec::new();
    if schema["type"] != "object" {
        faults.push("the root is not of the type `object`".to_owned());
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if schema["properties"].get(name).is_none() {
            faults.push(format!("the required property `{name}` has no schema"));
        }
    }
    let mut history = History::empty("guide");
    history.push(Item::user("hello"));
    let request = match used_for {
        SchemaUse::Parameters => {
            Request::new(history).with_tools([ToolSpec::new("tool", "A tool", schema.clone())])
        }
        SchemaUse::Answer => {
            let schema = OutputSchema { name: "answer".to_owned(), schema: schema.clone() };
            let output = Output::Schema(schema);
            Request::new(history).with_options(Options { output, ..Options::default() })
        }
    };
    for wire in Wire::ALL {
        match encode(wire, &request) {
            Err(error) => faults.push(format!("{wire:?}: {error}")),
            Ok(body) => {
                let body: Value = serde_json::from_slice(&body).unwrap();
                let complaints = lint::request(wire, MODEL, &body);
                faults.extend(complaints.iter().map(|complaint| format!("{wire:?}: {complaint}")));
                if rewriting == Rewriting::Forbidden && !contains(&body, schema) {
                    faults.push(format!("{wire:?}: the vendor needs another form of the schema"));
                }
            }
        }
    }
    faults
}

fn contains(json: &Value, wanted: &Value) -> bool {
    json == wanted
        || match json {
            Value::Array(items) => items.iter().any(|item| contains(item, wanted)),
            Value::Object(fields) => fields.values().any(|field| contains(field, wanted)),
            _ => false,
        }
}

/// A text that readers copy from: a block of code in a page, the docs in a file, or an example.
struct Source {
    file: String,
    /// The number of its first line.
    line: usize,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|it| it == extension) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// The texts, each with its place.
fn texts() -> Vec<Source> {
    let mut texts = Vec::new();
    let mut pages = files("src/guide", "md");
    pages.extend(files("crates", "md"));
    pages.push(root().join("README.md"));
    for path in pages {
        push_blocks(&path, |line| Some(line), &mut texts);
    }
    let is_in = |path: &Path, folder: &str| path.components().any(|it| it.as_os_str() == folder);
    let crates = files("crates", "rs").into_iter().filter(|path| !is_in(path, "tests"));
    let (programs, sources): (Vec<_>, Vec<_>) =
        crates.partition(|path| is_in(path, "examples") || is_in(path, "cli"));
    for path in files("src", "rs").into_iter().chain(sources) {
        push_blocks(&path, doc_line, &mut texts);
    }
    for path in files("examples", "rs").into_iter().chain(programs) {
        let text = fs::read_to_string(&path).unwrap();
        texts.push(Source { file: relative_path(&path), line: 1, text });
    }
    texts
}

fn relative_path(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// Returns the text of a line of docs.
fn doc_line(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(doc.strip_prefix(' ').unwrap_or(doc))
}

/// Adds the blocks of code in the lines that `read` returns.
fn push_blocks(path: &Path, read: fn(&str) -> Option<&str>, texts: &mut Vec<Source>) {
    let content = fs::read_to_string(path).unwrap();
    let mut block: Option<Source> = None;
    for (at, line) in content.lines().enumerate() {
        let Some(line) = read(line) else {
            block = None;
            continue;
        };
        match (&mut block, line.trim_start().starts_with("```")) {
            (None, true) => {
                let (file, line) = (relative_path(path), at + 2);
                block = Some(Source { file, line, text: String::new() });
            }
            (Some(_), true) => texts.extend(block.take()),
            (Some(block), false) => writeln!(block.text, "{line}").unwrap(),
            (None, false) => {}
        }
    }
}

/// A schema in a text.
struct FoundSchema {
    /// The position of the schema in the text.
    begin: usize,
    schema: Value,
    used_for: SchemaUse,
}

/// Finds the JSON objects that are schemas, and the JSON that a tool's specification has as its
/// schema.
fn find_schemas(text: &str) -> Vec<FoundSchema> {
    let used_for = match text.contains("OutputSchema {") {
        true => SchemaUse::Answer,
        false => SchemaUse::Parameters,
    };
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = text[at..].find('{').map(|begin| at + begin) {
        at = begin + 1;
        let mut reader = JsonReader { rest: &text[begin..] };
        let Some(value) = reader.read_value() else { continue };
        let end = text.len() - reader.rest.len();
        let schema = match root_use(text, begin) {
            Some(used_for) => Some((value, used_for)),
            None => as_object_schema(value).map(|schema| (schema, used_for)),
        };
        if let Some((schema, used_for)) = schema {
            at = end;
            found.push(FoundSchema { begin, schema, used_for });
        }
    }
    found
}

/// Returns what the JSON at `begin` describes, if it is the schema of a tool or an answer: an
/// argument of `ToolSpec::new(name, description, json!(…))`, or a variable that is passed as such.
fn root_use(text: &str, begin: usize) -> Option<SchemaUse> {
    let before = text[..begin].trim_end().strip_suffix("json!(")?;
    let before = before.strip_suffix("serde_json::").unwrap_or(before).trim_end();
    let constructors = ["ToolSpec::new(", "McpTool::new("];
    let is_argument = constructors.iter().any(|constructor| {
        let arguments = before.rsplit_once(constructor).map(|(_, arguments)| arguments);
        // The name and the description, which contain neither JSON nor the end of a call.
        arguments
            .is_some_and(|text| text.matches(',').count() >= 2 && !text.contains([';', '{', ')']))
    });
    let variable = before
        .strip_suffix('=')
        .and_then(|before| before.trim_end().rsplit_once("let "))
        .map(|(_, name)| name)
        .filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
    let is_variable = |argument: &String| {
        let is_part = |c: char| !c.is_alphanumeric() && c != '_';
        argument.split(is_part).any(|word| Some(word) == variable)
    };
    let is_third_argument = constructors.iter().any(|constructor| {
        argument_lists(text, constructor).any(|list| list.get(2).is_some_and(is_variable))
    });
    if is_argument || is_third_argument {
        return Some(SchemaUse::Parameters);
    }
    let is_field = argument_lists(text, "OutputSchema {").any(|list| list.iter().any(is_variable));
    is_field.then_some(SchemaUse::Answer)
}

/// Returns the arguments of each call of a constructor, up to the first closure, without strings.
fn argument_lists<'a>(
    text: &'a str,
    constructor: &'a str,
) -> impl Iterator<Item = Vec<String>> + 'a {
    text.split(constructor).skip(1).map(|call| {
        let call = &call[..call.find(['|', ';', '}']).unwrap_or(call.len())];
        let without_strings: String = call.split('"').step_by(2).collect();
        without_strings.split(',').map(str::to_owned).collect()
    })
}

/// Returns the schema of an object, if JSON outside of a specification is a schema. The schema of a
/// value becomes the schema of an object with such a field, because examples build schemas from
/// those of fields.
fn as_object_schema(value: Value) -> Option<Value> {
    const VALUE_TYPES: [&str; 6] = ["array", "string", "number", "integer", "boolean", "null"];
    let are_schemas = |fields: &Value| {
        fields.as_object().is_some_and(|fields| fields.values().all(Value::is_object))
    };
    let has_alternatives = ["anyOf", "oneOf", "allOf"].iter().any(|it| value[it].is_array());
    let kind = value["type"].as_str().unwrap_or_default();
    match kind == "object" || are_schemas(&value["properties"]) {
        true => Some(value),
        false if VALUE_TYPES.contains(&kind) || has_alternatives => {
            Some(json!({ "type": "object", "properties": { "field": value } }))
        }
        false => None,
    }
}

/// Reads JSON, or the argument of `json!`. Rust expressions in it are read as the schema of a
/// string.
struct JsonReader<'a> {
    rest: &'a str,
}

impl JsonReader<'_> {
    fn take(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn read_value(&mut self) -> Option<Value> {
        if self.take('{') {
            let mut fields = Map::new();
            while !self.take('}') {
                let Value::String(name) = self.read_value()? else { return None };
                if !self.take(':') {
                    return None;
                }
                fields.insert(name, self.read_value()?);
                if !self.take(',') && !self.rest.trim_start().starts_with('}') {
                    return None;
                }
            }
            return Some(Value::Object(fields));
        }
        if self.take('[') {
            let mut items = Vec::new();
            while !self.take(']') {
                items.push(self.read_value()?);
                if !self.take(',') && !self.rest.trim_start().starts_with(']') {
                    return None;
                }
            }
            return Some(Value::Array(items));
        }
        self.rest = self.rest.trim_start();
        let mut stream = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        if let Some(Ok(value)) = stream.next() {
            self.rest = &self.rest[stream.byte_offset()..];
            return Some(value);
        }
        let end = self.rest.find([',', '}', ']', ';', '{'])?;
        let expression = self.rest[..end].trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '(' | ')' | '.');
        if expression.is_empty() || !expression.chars().all(is_name) {
            return None;
        }
        self.rest = &self.rest[end..];
        Some(json!({ "type": "string" }))
    }
}

#[test]
fn every_schema_in_the_docs_and_examples_is_accepted_by_every_vendor() {
    let (mut count, mut report) = (0, String::new());
    for Source { file, line, text } in texts() {
        for FoundSchema { begin, schema, used_for } in find_schemas(&text) {
            count += 1;
            let line = line + text[..begin].matches('\n').count();
            for fault in faults(&schema, used_for, Rewriting::Forbidden) {
                writeln!(report, "{file}:{line}, {used_for:?}: {schema}\n    {fault}").unwrap();
            }
        }
    }
    assert!(report.is_empty(), "{report}");
    assert!(count >= 50, "only {count} schemas were found");
}

#[track_caller]
fn check_found(text: &str, expected: &[(SchemaUse, Value)]) {
    let found: Vec<_> =
        find_schemas(text).into_iter().map(|found| (found.used_for, found.schema)).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn schemas_are_found_in_rust_and_in_json() {
    use SchemaUse::{Answer, Parameters};
    let object = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    check_found(
        r#"let a = json!({ "type": "object", "properties": { "a": text } });"#,
        &[(Parameters, object.clone())],
    );
    check_found(
        r#"OutputSchema { name, schema: json!({ "type": "object", "properties": { "a": text(), }, }) }"#,
        &[(Answer, object.clone())],
    );
    check_found(
        r#"{"type": "text", "inputSchema": {"type": "object"}} "#,
        &[(Parameters, json!({ "type": "object" }))],
    );
    let field = json!({ "type": "array", "items": { "type": "string" } });
    check_found(
        r#"let list = json!({ "type": "array", "items": item });"#,
        &[(Parameters, json!({ "type": "object", "properties": { "field": field } }))],
    );
    check_found(r#"ToolSpec::new("now", "The time", json!({}))"#, &[(Parameters, json!({}))]);
    check_found(
        r#"let a = json!({ "type": "array" }); ToolSpec::new("now", "The time", a.clone());"#,
        &[(Parameters, json!({ "type": "array" }))],
    );
    check_found(
        r"let schema = json!([1, {}]); let schema = json!({}); OutputSchema { name, schema };",
        &[(Answer, json!({}))],
    );
    check_found(r#"Reply::new().call("now", json!({ "a": 1, "type": "text" }))"#, &[]);
}

#[track_caller]
fn check_fault(schema: &Value, used_for: SchemaUse, expected: &str) {
    let faults = faults(schema, used_for, Rewriting::Forbidden);
    assert!(faults.iter().any(|fault| fault.contains(expected)), "{schema}: {faults:?}");
}

#[test]
fn a_schema_that_a_vendor_rejects_is_a_fault() {
    use SchemaUse::{Answer, Parameters};
    check_fault(&json!({}), Parameters, "not of the type `object`");
    check_fault(&json!({ "type": "array", "items": {} }), Parameters, "not of the type `object`");
    let required = json!({ "type": "object", "properties": {}, "required": ["a"] });
    check_fault(&required, Parameters, "the required property `a` has no schema");
    check_fault(&json!({ "type": "object" }), Parameters, "OpenAiChat: the vendor needs another");
    let with = |field: Value| json!({ "type": "object", "properties": { "a": field } });
    for field in
        [json!({ "type": "integer", "format": "uint64" }), json!({ "type": "array" }), json!(true)]
    {
        check_fault(&with(field), Parameters, "the vendor needs another form");
    }
    check_fault(&with(json!({ "type": "string" })), Answer, "the vendor needs another form");
}

/// The types that every vendor accepts, beside structs and enums without data.
const FIELD_TYPES: [&str; 15] = [
    "String", "bool", "char", "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64",
    "isize", "f32", "f64",
];

/// Has a field of each of the types that are allowed in the docs.
#[cfg(feature = "schemars")]
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct EveryType {
    string: String,
    /// With a comment.
    bool: bool,
    char: char,
    u8: u8,
    u16: u16,
    u32: u32,
    u64: u64,
    usize: usize,
    i8: i8,
    i16: i16,
    i32: i32,
    i64: i64,
    isize: isize,
    f32: f32,
    f64: f64,
    list: Vec<Inner>,
    option: Option<Choice>,
    nested: Option<Vec<Option<u32>>>,
}

#[cfg(feature = "schemars")]
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Inner {
    text: Option<String>,
    choice: Choice,
}

#[cfg(feature = "schemars")]
#[derive(serde::Deserialize, schemars::JsonSchema)]
enum Choice {
    /// With a comment.
    #[serde(rename = "one")]
    One,
    Two,
}

#[cfg(feature = "schemars")]
#[test]
fn types_without_maps_and_data_in_enums_are_accepted_by_every_vendor() {
    assert_eq!(type_faults(include_str!("guide_schemas.rs")), <[String; 0]>::default());
    let tool = Tool::new("tool", "A tool", |_args: EveryType, _cx| async {});
    let parameters = tool.spec().parameters.to_value();
    assert_eq!(
        faults(&parameters, SchemaUse::Parameters, Rewriting::Allowed),
        Vec::<String>::new()
    );
    let Output::Schema(answer) = Output::for_type::<EveryType>() else { panic!("it is a schema") };
    assert_eq!(faults(&answer.schema, SchemaUse::Answer, Rewriting::Allowed), Vec::<String>::new());
}

#[test]
fn every_type_in_the_docs_and_examples_is_accepted_by_every_vendor() {
    let (mut count, mut report) = (0, String::new());
    // The programs of a page use the types of the programs above them.
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for Source { file, text, .. } in texts() {
        files.entry(file).or_default().push_str(&text);
    }
    for (file, text) in files {
        count += derived_types(&text).len();
        for fault in type_faults(&text) {
            writeln!(report, "{file}: {fault}").unwrap();
        }
    }
    assert!(report.is_empty(), "{report}");
    assert!(count >= 30, "only {count} types were found");
}

#[track_caller]
fn check_type(text: &str, expected: &[&str]) {
    assert_eq!(type_faults(text), expected, "{text}");
}

#[test]
fn maps_values_of_any_type_and_data_in_enums_are_found() {
    let derive = "#[derive(Deserialize, JsonSchema)]\n";
    check_type(
        &format!("{derive}struct A {{ a: Vec<Option<u32>>, b: B }}\n{derive}enum B {{ C, D }}"),
        &[],
    );
    check_type(
        &format!(
            "{derive}struct A {{\n    a: HashMap<String, u32>,\n    /// A, b.\n    b: Value,\n}}"
        ),
        &["`A`: a: HashMap<String", "`A`: b: Value"],
    );
    check_type(&format!("{derive}enum B {{\n    C(u32),\n    D,\n}}"), &["`B`: C(u32)"]);
}

/// Returns the reasons for which a type that derives `JsonSchema` may not be accepted.
fn type_faults(text: &str) -> Vec<String> {
    let types: Vec<DerivedType<'_>> = derived_types(text);
    let is_accepted = |name: &str| {
        FIELD_TYPES.contains(&name) || types.iter().any(|derived| derived.name == name)
    };
    let mut faults = Vec::new();
    for DerivedType { name, kind, body } in &types {
        for member in members(body) {
            let accepted = match kind {
                TypeKind::Enum => !member.contains(['(', '{']),
                TypeKind::Struct => {
                    let (_, field) = member.split_once(':').unwrap_or_default();
                    inner_types(field).all(is_accepted)
                }
            };
            if !accepted {
                faults.push(format!("`{name}`: {member}"));
            }
        }
    }
    faults
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TypeKind {
    Struct,
    Enum,
}

/// A type that derives `JsonSchema`.
struct DerivedType<'a> {
    name: &'a str,
    kind: TypeKind,
    /// The text between its braces.
    body: &'a str,
}

fn derived_types(text: &str) -> Vec<DerivedType<'_>> {
    let derives = text.match_indices("JsonSchema").map(|(at, _)| &text[at..]);
    let declared = derives.filter_map(|rest| {
        let (attribute, rest) = rest.split_once(")]")?;
        let (kind, begin, keyword) = [(TypeKind::Struct, "struct "), (TypeKind::Enum, "enum ")]
            .into_iter()
            .filter_map(|(kind, keyword)| Some((kind, rest.find(keyword)?, keyword.len())))
            .min_by_key(|(_, begin, _)| *begin)?;
        let (name, body) = rest[begin + keyword..].split_once('{')?;
        let is_derive = !attribute.contains(['{', ';']) && !rest[..begin].contains(['{', ';']);
        // Tuples and units have no braces.
        let has_fields = !name.contains([';', '(']);
        let body = before_brace(body);
        (is_derive && has_fields).then(|| DerivedType { name: name.trim(), kind, body })
    });
    declared.collect()
}

/// Returns the text before the brace that closes an open one.
fn before_brace(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth < 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns the fields or variants, without their docs and attributes.
fn members(body: &str) -> impl Iterator<Item = &str> {
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with(['#', '/']));
    lines
        .flat_map(|line| line.split(", "))
        .map(|it| it.trim_matches(','))
        .filter(|it| !it.is_empty())
}

/// Returns the types in a type that consists of lists and options.
fn inner_types(field: &str) -> impl Iterator<Item = &str> {
    field.split(['<', '>']).map(str::trim).filter(|name| !matches!(*name, "" | "Vec" | "Option"))
}
