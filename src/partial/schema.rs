//! How the parts of a value may be shown before they have ended, from the JSON Schema of the value.

use std::collections::HashMap;
#[cfg(feature = "schemars")]
use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::partial::open_value::OpenValue;
use crate::partial::parser::{Container, JsonParser, Members};

/// The keywords that restrict a string to some texts. A string with one of them may be deserialized
/// into a type that rejects the beginning of a text.
const TEXT_KEYWORDS: [&str; 4] = ["const", "enum", "format", "pattern"];

/// A JSON Schema, reduced to the parts that matter for a value that has not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialSchema {
    /// The schemas of all parts of the value. The first one is that of the value itself.
    nodes: Vec<Node>,
}

/// The schema of a part of a value. The default accepts any JSON.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Whether the part is shown only once it has ended.
    is_whole: bool,
    /// The fields of an object with their schemas, and those that must not be absent.
    fields: HashMap<String, usize>,
    required: Vec<String>,
    /// The schema of all other fields.
    other_fields: Option<usize>,
    /// The schema of the elements of a list.
    elements: Option<usize>,
}

/// The part of a value that has not ended that is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) value: OpenValue<'a>,
    /// A number that grows whenever something is added to the shown part.
    pub(super) additions: usize,
}

impl PartialSchema {
    pub(super) fn new(schema: &Value) -> Self {
        let mut reader = SchemaReader { root: schema, nodes: Vec::new(), indices: HashMap::new() };
        reader.add(schema);
        Self { nodes: reader.nodes }
    }

    /// Checks that a type with this schema accepts a value that has not ended: that no field is
    /// required, except in a part that is shown only once it has ended.
    ///
    /// # Errors
    ///
    /// Returns a description of the first part that must be complete, with its path.
    #[cfg(feature = "schemars")]
    pub(super) fn check(&self) -> Result<(), String> {
        match self.nodes.first() {
            Some(root) if root.is_whole => {
                Err("it has no parts that can be shown before its end".to_owned())
            }
            _ => self.check_node(0, "", &mut HashSet::new()),
        }
    }

    #[cfg(feature = "schemars")]
    fn check_node(&self, at: usize, path: &str, seen: &mut HashSet<usize>) -> Result<(), String> {
        let Some(node) = self.nodes.get(at).filter(|node| !node.is_whole && seen.insert(at)) else {
            return Ok(());
        };
        let inner = |name: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        if let Some(name) = node.required.first() {
            return Err(format!(
                "the field `{}` is required; make it an `Option`, or add `#[serde(default)]`",
                inner(name)
            ));
        }
        let mut fields: Vec<_> = node.fields.iter().collect();
        fields.sort();
        for (name, field) in fields {
            self.check_node(*field, &inner(name), seen)?;
        }
        if let Some(field) = node.other_fields {
            self.check_node(field, &inner("*"), seen)?;
        }
        match node.elements {
            Some(element) => self.check_node(element, &format!("{path}[]"), seen),
            None => Ok(()),
        }
    }

    /// Returns the part of a value that is shown, if the value has not ended and any part of it is
    /// shown.
    pub(super) fn shown<'a>(&self, parser: &'a JsonParser) -> Option<Shown<'a>> {
        let containers = parser.open_containers();
        let mut at = (!self.nodes.is_empty()).then_some(0);
        for (depth, container) in containers.iter().enumerate() {
            if self.is_whole(at) {
                let value = OpenValue { containers: &containers[..depth], string: None };
                let additions = container.additions_before;
                return (depth > 0).then_some(Shown { value, additions });
            }
            at = at.and_then(|at| self.open_member(at, container));
        }
        let string = parser.open_string().filter(|_| !self.is_whole(at));
        let additions = parser.additions(string.is_none());
        let is_shown = !containers.is_empty() || string.is_some();
        is_shown.then_some(Shown { value: OpenValue { containers, string }, additions })
    }

    fn is_whole(&self, at: Option<usize>) -> bool {
        at.is_some_and(|at| self.nodes[at].is_whole)
    }

    /// Returns the schema of the member of a container that has not ended.
    fn open_member(&self, at: usize, container: &Container) -> Option<usize> {
        let node = &self.nodes[at];
        match &container.members {
            Members::List(_) => node.elements,
            Members::Object { name, .. } => {
                let field = name.as_ref().and_then(|name| node.fields.get(name));
                field.copied().or(node.other_fields)
            }
        }
    }
}

/// Reads a schema into nodes. A schema that is used several times has one node.
struct SchemaReader<'a> {
    /// The whole schema, which references point into.
    root: &'a Value,
    nodes: Vec<Node>,
    /// The nodes of the schemas, by their addresses in the whole schema.
    indices: HashMap<*const Value, usize>,
}

impl<'a> SchemaReader<'a> {
    fn add(&mut self, schema: &'a Value) -> usize {
        if let Some(at) = self.indices.get(&std::ptr::from_ref(schema)) {
            return *at;
        }
        let at = self.nodes.len();
        self.indices.insert(std::ptr::from_ref(schema), at);
        self.nodes.push(Node::default());
        let mut parts = Vec::new();
        let has_alternatives = self.collect_parts(schema, &mut parts);
        let mut node = Node { is_whole: has_alternatives, ..Node::default() };
        for part in parts {
            self.add_part(&mut node, part);
        }
        self.nodes[at] = node;
        at
    }

    /// Collects the schemas that a value must match, through references. Returns whether the value
    /// must also match one of several alternatives.
    fn collect_parts(&self, schema: &'a Value, parts: &mut Vec<&'a Map<String, Value>>) -> bool {
        let Value::Object(part) = schema else { return false };
        if parts.iter().any(|known| std::ptr::eq(*known, part)) {
            return false;
        }
        parts.push(part);
        let mut has_alternatives = false;
        if let Some(target) = self.target(part) {
            has_alternatives |= self.collect_parts(target, parts);
        }
        for schema in schemas_in(part, "allOf") {
            has_alternatives |= self.collect_parts(schema, parts);
        }
        for keyword in ["anyOf", "oneOf"] {
            let mut alternatives = schemas_in(part, keyword).filter(|it| it["type"] != "null");
            match (alternatives.next(), alternatives.next()) {
                (Some(only), None) => has_alternatives |= self.collect_parts(only, parts),
                (Some(_), Some(_)) => has_alternatives = true,
                (None, _) => {}
            }
        }
        has_alternatives
    }

    /// Returns the schema that a local reference points to.
    fn target(&self, part: &Map<String, Value>) -> Option<&'a Value> {
        self.root.pointer(part.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    fn add_part(&mut self, node: &mut Node, part: &'a Map<String, Value>) {
        let accepts_text = match part.get("type") {
            Some(Value::String(only)) => only == "string",
            _ => true,
        };
        let is_restricted = accepts_text && TEXT_KEYWORDS.iter().any(|it| part.contains_key(*it));
        let min_items = part.get("minItems").and_then(Value::as_u64).filter(|min| *min > 0);
        let has_fixed_len = min_items.is_some() && part.get("minItems") == part.get("maxItems");
        let patterns = part.get("patternProperties").and_then(Value::as_object);
        let has_patterns = patterns.is_some_and(|patterns| patterns.len() > 1);
        node.is_whole |=
            is_restricted || has_fixed_len || has_patterns || part.contains_key("prefixItems");

        for (name, schema) in
            part.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let at = self.add(schema);
            node.fields.entry(name.clone()).or_insert(at);
        }
        let required = part.get("required").and_then(Value::as_array).into_iter().flatten();
        node.required.extend(required.filter_map(Value::as_str).map(str::to_owned));
        let other = patterns.and_then(|patterns| patterns.values().next());
        let other = other.or_else(|| part.get("additionalProperties"));
        if let Some(schema) = other {
            node.other_fields = Some(self.add(schema));
        }
        if let Some(schema) = part.get("items") {
            node.elements = Some(self.add(schema));
        }
    }
}

fn schemas_in<'a>(part: &'a Map<String, Value>, keyword: &str) -> impl Iterator<Item = &'a Value> {
    part.get(keyword).and_then(Value::as_array).into_iter().flatten()
}
