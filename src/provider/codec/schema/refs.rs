//! Resolves the references in a schema.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The prefixes of references to definitions, in the current and in older JSON Schema drafts.
const DEFINITION_PREFIXES: [&str; 2] = ["#/$defs/", "#/definitions/"];

/// Returns the name of the definition to which a reference points, or an empty name for a reference
/// to the root.
pub(super) fn definition_name(reference: &str) -> Option<&str> {
    if reference == "#" {
        return Some("");
    }
    let name = DEFINITION_PREFIXES.iter().find_map(|home| reference.strip_prefix(home))?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Returns the reference to a definition, in the form that is sent to the vendor.
pub(super) fn reference_to(name: &str) -> String {
    match name {
        "" => "#".to_owned(),
        name => format!("#/$defs/{name}"),
    }
}

/// Returns the part of `root` to which a reference points.
pub(super) fn resolve_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = percent_decode(reference.strip_prefix('#')?)?;
    root.pointer(&pointer)
}

/// Returns a definition's schema, from whichever of `definitions` and `$defs` contains it.
pub(super) fn definition<'a>(root: &'a Value, name: &str) -> Option<&'a Value> {
    match name {
        "" => Some(root),
        name => DEFINITION_PREFIXES
            .iter()
            .find_map(|home| resolve_reference(root, &format!("{home}{name}"))),
    }
}

/// Returns the definition or other part of `root` to which a reference points.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    match definition_name(reference) {
        Some(name) => definition(root, name),
        None => resolve_reference(root, reference),
    }
}

/// Returns whether a schema contains a reference that points to nothing in the schema.
pub(super) fn has_unresolved_reference(root: &Value) -> bool {
    fn is_in(value: &Value, root: &Value) -> bool {
        match value {
            Value::Object(fields) => {
                fields.iter().any(|(key, value)| match (key.as_str(), value) {
                    ("$ref", Value::String(reference)) => resolve(root, reference).is_none(),
                    (_, value) => is_in(value, root),
                })
            }
            Value::Array(values) => values.iter().any(|value| is_in(value, root)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
    is_in(root, root)
}

/// Decodes the key of a definition from its name in a reference.
pub(super) fn definition_key(name: &str) -> String {
    let decoded = percent_decode(name).unwrap_or(Cow::Borrowed(name));
    decoded.replace("~1", "/").replace("~0", "~")
}

/// Escapes a name for use in a JSON pointer.
pub(super) fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Decodes percent-encoded bytes, as in a URI.
fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Returns whether a definition refers to itself, directly or indirectly.
pub(super) fn is_recursive(root: &Value, name: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![name];
    while let Some(at) = next.pop() {
        let Some(definition) = definition(root, at) else { continue };
        let mut found = Vec::new();
        collect_references(definition, at.is_empty(), &mut found);
        for found in found {
            if found == name {
                return true;
            }
            if seen.insert(found) {
                next.push(found);
            }
        }
    }
    false
}

/// Collects the names of all definitions to which a schema refers.
fn collect_references<'a>(schema: &'a Value, is_root: bool, found: &mut Vec<&'a str>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("$ref", Value::String(reference)) => found.extend(definition_name(reference)),
                    ("$defs" | "definitions", _) if is_root => {}
                    (_, value) => collect_references(value, false, found),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                collect_references(value, false, found);
            }
        }
        _ => {}
    }
}

/// A reference inside a definition.
struct ReferenceEdge {
    target: String,
    path: String,
    /// Whether the reference is inside a property that is not required.
    is_optional: bool,
}

/// Returns the location of a reference that closes a cycle in a rewritten schema, if there is a
/// cycle. References inside optional properties are considered only if `optional_too` is `true`.
pub(super) fn find_cycle(whole: &Value, optional_too: bool) -> Option<String> {
    let mut edges = BTreeMap::new();
    let mut of = |name: &str, schema: &Value| {
        let mut found = Vec::new();
        collect_edges(schema, &reference_to(name), false, &mut found);
        found.retain(|edge| optional_too || !edge.is_optional);
        edges.insert(name.to_owned(), found);
    };
    of("", whole);
    if let Some(Value::Object(defs)) = whole.get("$defs") {
        defs.iter().for_each(|(name, schema)| of(name, schema));
    }
    edges.keys().find_map(|start| {
        let mut seen = BTreeSet::new();
        let mut next = vec![start];
        while let Some(name) = next.pop() {
            for edge in edges.get(name).into_iter().flatten() {
                if edge.target == *start {
                    return Some(edge.path.clone());
                }
                if seen.insert(&edge.target) {
                    next.push(&edge.target);
                }
            }
        }
        None
    })
}

fn collect_edges(schema: &Value, at: &str, optional: bool, found: &mut Vec<ReferenceEdge>) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str).and_then(definition_name)
            {
                found.push(ReferenceEdge {
                    target: definition_key(name),
                    path: at.to_owned(),
                    is_optional: optional,
                });
            }
            let required = fields.get("required").and_then(Value::as_array);
            let is_required = |name: &str| {
                required.is_some_and(|required| required.iter().any(|field| field == name))
            };
            for (keyword, value) in fields {
                let at = format!("{at}/{keyword}");
                match (keyword.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        for (name, property) in properties {
                            let optional = optional || !is_required(name);
                            let at = format!("{at}/{}", escape_pointer(name));
                            collect_edges(property, &at, optional, found);
                        }
                    }
                    ("$defs" | "enum" | "const" | "default", _) => {}
                    (_, value) => collect_edges(value, &at, optional, found),
                }
            }
        }
        Value::Array(values) => {
            for (n, value) in values.iter().enumerate() {
                collect_edges(value, &format!("{at}/{n}"), optional, found);
            }
        }
        _ => {}
    }
}
