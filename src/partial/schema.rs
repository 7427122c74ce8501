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
    /// The variants of an enum with data, if the part is one. Its tag determines the variant.
    variants: Option<Variants>,
    /// The fields of an object with their schemas, and those that must not be absent.
    fields: HashMap<String, usize>,
    required: Vec<String>,
    /// The schema of all other fields.
    other_fields: Option<usize>,
    /// The schema of the elements of a list.
    elements: Option<usize>,
}

/// The variants of an enum whose values are objects, and how an object states its variant. See
/// <https://serde.rs/enum-representations.html>.
#[derive(Clone, Debug)]
enum Variants {
    /// A field of the object is the tag: the name of the field, and the variants by its values.
    ByField(String, HashMap<String, Variant>),
    /// The name of the object's only field is the tag.
    ByName(HashMap<String, Variant>),
}

#[derive(Clone, Debug)]
struct Variant {
    /// The schema of the object.
    node: usize,
    /// The fields of the object without which the variant is not shown.
    needed: Vec<String>,
    /// Whether the variant is shown only once it has ended.
    is_whole: bool,
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
    /// required, except in a part that is shown only once it has ended. The variants of an enum are
    /// not shown before their required fields have begun, and not before their end if these fields
    /// do not accept a value that has not ended.
    ///
    /// # Errors
    ///
    /// Returns a description of the first part that must be complete, with its path.
    #[cfg(feature = "schemars")]
    pub(super) fn check(&mut self) -> Result<(), String> {
        for at in 0..self.nodes.len() {
            let Some(mut variants) = self.nodes[at].variants.take() else { continue };
            let tag = variants.tag().map(str::to_owned);
            for variant in variants.iter_mut() {
                let node = &self.nodes[variant.node];
                let needed = node.required.iter().filter(|name| Some(*name) != tag.as_ref());
                let needed: Vec<_> =
                    needed.filter(|name| !variant.needed.contains(name)).cloned().collect();
                variant.needed.extend(needed);
                let mut seen = HashSet::from([variant.node]);
                variant.is_whole =
                    node.is_whole || self.check_members(variant.node, "", &mut seen).is_err();
            }
            self.nodes[at].variants = Some(variants);
        }
        match self.nodes.first() {
            Some(root) if root.is_whole || root.has_only_whole_variants() => {
                Err("it has no parts that can be shown before its end".to_owned())
            }
            _ => self.check_node(0, "", &mut HashSet::new()),
        }
    }

    #[cfg(feature = "schemars")]
    fn check_node(&self, at: usize, path: &str, seen: &mut HashSet<usize>) -> Result<(), String> {
        let is_checked = |node: &&Node| !node.is_whole && node.variants.is_none();
        let Some(node) = self.nodes.get(at).filter(is_checked).filter(|_| seen.insert(at)) else {
            return Ok(());
        };
        if let Some(name) = node.required.first() {
            return Err(format!(
                "the field `{}` is required; make it an `Option`, or add `#[serde(default)]`",
                join_path(path, name)
            ));
        }
        self.check_members(at, path, seen)
    }

    /// Checks the fields of an object and the elements of a list.
    #[cfg(feature = "schemars")]
    fn check_members(
        &self,
        at: usize,
        path: &str,
        seen: &mut HashSet<usize>,
    ) -> Result<(), String> {
        let node = &self.nodes[at];
        let mut fields: Vec<_> = node.fields.iter().collect();
        fields.sort();
        for (name, field) in fields {
            self.check_node(*field, &join_path(path, name), seen)?;
        }
        if let Some(field) = node.other_fields {
            self.check_node(field, &join_path(path, "*"), seen)?;
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
        // The number of containers that are shown if the innermost open value is not.
        let mut shown_alone = 0;
        for (depth, container) in containers.iter().enumerate() {
            let Some(known) = at else {
                shown_alone = depth + 1;
                continue;
            };
            let (node, needs_member) = match self.visibility(known, container) {
                Visibility::Hidden => return Self::shown_containers(containers, shown_alone),
                Visibility::Shown(node) => (node, false),
                Visibility::ShownWithMember(node) => (node, true),
            };
            if !needs_member {
                shown_alone = depth + 1;
            }
            at = self.open_member(node, container);
        }
        // The beginning of a variant's name may itself be the name of a variant.
        let is_name_or_whole =
            |at: usize| self.nodes[at].is_whole || self.nodes[at].variants.is_some();
        let is_whole = at.is_some_and(is_name_or_whole);
        let string = parser.open_string().filter(|_| !is_whole);
        if string.is_none() && shown_alone < containers.len() {
            return Self::shown_containers(containers, shown_alone);
        }
        let additions = parser.additions(string.is_none());
        let is_shown = !containers.is_empty() || string.is_some();
        is_shown.then_some(Shown { value: OpenValue { containers, string }, additions })
    }

    /// Returns the outermost containers as the part that is shown.
    fn shown_containers(containers: &[Container], count: usize) -> Option<Shown<'_>> {
        let additions = containers.get(count)?.additions_before;
        let value = OpenValue { containers: &containers[..count], string: None };
        (count > 0).then_some(Shown { value, additions })
    }

    /// Returns whether a container that has not ended is shown.
    fn visibility(&self, at: usize, container: &Container) -> Visibility {
        let node = &self.nodes[at];
        let (Some(variants), false) = (&node.variants, node.is_whole) else {
            return if node.is_whole { Visibility::Hidden } else { Visibility::Shown(at) };
        };
        let Members::Object { fields, name } = &container.members else {
            return Visibility::Hidden;
        };
        let Some(variant) = variants.of_object(fields, name.as_deref()) else {
            return Visibility::Hidden;
        };
        let mut missing = variant.needed.iter().filter(|name| !fields.contains_key(*name));
        match (missing.next(), missing.next()) {
            _ if variant.is_whole || self.nodes[variant.node].is_whole => Visibility::Hidden,
            (None, _) => Visibility::Shown(variant.node),
            (Some(only), None) if Some(only) == name.as_ref() => {
                Visibility::ShownWithMember(variant.node)
            }
            (Some(_), _) => Visibility::Hidden,
        }
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

#[cfg(feature = "schemars")]
impl Node {
    fn has_only_whole_variants(&self) -> bool {
        self.variants.as_ref().is_some_and(|variants| variants.iter().all(|it| it.is_whole))
    }
}

/// Whether a container that has not ended is shown, and the schema that it matches.
enum Visibility {
    Hidden,
    Shown(usize),
    /// The container is shown if its member that has not ended is.
    ShownWithMember(usize),
}

impl Variants {
    /// Returns the name of the field that is the tag, if a field is.
    #[cfg(feature = "schemars")]
    fn tag(&self) -> Option<&str> {
        match self {
            Self::ByField(tag, _) => Some(tag),
            Self::ByName(_) => None,
        }
    }

    #[cfg(feature = "schemars")]
    fn iter(&self) -> impl Iterator<Item = &Variant> {
        match self {
            Self::ByField(_, variants) | Self::ByName(variants) => variants.values(),
        }
    }

    #[cfg(feature = "schemars")]
    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Variant> {
        match self {
            Self::ByField(_, variants) | Self::ByName(variants) => variants.values_mut(),
        }
    }

    /// Returns the variant of an object with these fields, the last of which has not ended.
    fn of_object(&self, fields: &Map<String, Value>, open: Option<&str>) -> Option<&Variant> {
        match self {
            Self::ByField(tag, variants) => variants.get(fields.get(tag)?.as_str()?),
            Self::ByName(variants) => {
                let name = fields.keys().next().map(String::as_str).or(open)?;
                variants.get(name)
            }
        }
    }
}

#[cfg(feature = "schemars")]
fn join_path(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
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
        let all = self.collect_parts(schema);
        let mut node = Node::default();
        for part in &all.parts {
            self.add_part(&mut node, part);
        }
        if !all.alternatives.is_empty() {
            // The fields beside an enum are those of a struct into which it is flattened.
            node.variants = match node.fields.is_empty() && node.other_fields.is_none() {
                true => self.read_variants(&all.alternatives),
                false => None,
            };
            node.is_whole |= node.variants.is_none();
        }
        self.nodes[at] = node;
        at
    }

    /// Reads the alternatives for a value as the variants of an enum. Returns `None` if their
    /// objects have no tag.
    fn read_variants(&mut self, alternatives: &[Vec<&'a Value>]) -> Option<Variants> {
        let [alternatives] = alternatives else { return None };
        let mut objects = Vec::new();
        for schema in alternatives {
            let parts = self.collect_parts(schema).parts;
            let has = |name: &str, value: &str| {
                parts.iter().any(|part| part.get(name).is_some_and(|it| it == value))
            };
            let is_fixed_text = has("type", "string")
                && parts.iter().any(|part| part.contains_key("const") || part.contains_key("enum"));
            if has("type", "object") {
                objects.push((*schema, parts));
            } else if !is_fixed_text {
                return None;
            }
        }
        let (_, first) = objects.first()?;
        let names: Vec<_> = properties_of(first).map(|(name, _)| name).collect();
        let by_field = names.into_iter().find_map(|tag| {
            let values = objects.iter().map(|(_, parts)| self.fixed_text(parts, tag));
            Some((tag.to_owned(), values.collect::<Option<Vec<_>>>()?))
        });
        let (tag, values) = match by_field {
            Some((tag, values)) => (Some(tag), values),
            None => {
                let only_name = |parts: &[&'a Map<String, Value>]| {
                    let mut properties = properties_of(parts);
                    let (name, _) = properties.next()?;
                    properties.next().is_none().then_some(name)
                };
                let names = objects.iter().map(|(_, parts)| only_name(parts));
                (None, names.collect::<Option<Vec<_>>>()?)
            }
        };
        let mut variants = HashMap::new();
        for ((schema, _), value) in objects.iter().zip(values) {
            let needed = if tag.is_none() { vec![value.to_owned()] } else { Vec::new() };
            let variant = Variant { node: self.add(schema), needed, is_whole: false };
            // Two variants with the same tag cannot be told apart.
            if variants.insert(value.to_owned(), variant).is_some() {
                return None;
            }
        }
        Some(match tag {
            Some(tag) => Variants::ByField(tag, variants),
            None => Variants::ByName(variants),
        })
    }

    /// Returns the only text that a field of an object may have.
    fn fixed_text(&self, parts: &[&'a Map<String, Value>], name: &str) -> Option<&'a str> {
        let (_, schema) = properties_of(parts).find(|(field, _)| *field == name)?;
        self.collect_parts(schema).parts.into_iter().find_map(|part| {
            match (part.get("const"), part.get("enum").and_then(Value::as_array)) {
                (Some(text), _) => text.as_str(),
                (None, Some(texts)) => {
                    texts.first().filter(|_| texts.len() == 1).and_then(Value::as_str)
                }
                (None, None) => None,
            }
        })
    }

    /// Collects the schemas that a value must match, through references.
    fn collect_parts(&self, schema: &'a Value) -> AllParts<'a> {
        let mut all = AllParts::default();
        self.collect_into(schema, &mut all);
        all
    }

    fn collect_into(&self, schema: &'a Value, all: &mut AllParts<'a>) {
        let Value::Object(part) = schema else { return };
        if all.parts.iter().any(|known| std::ptr::eq(*known, part)) {
            return;
        }
        all.parts.push(part);
        if let Some(target) = self.target(part) {
            self.collect_into(target, all);
        }
        for schema in schemas_in(part, "allOf") {
            self.collect_into(schema, all);
        }
        for keyword in ["anyOf", "oneOf"] {
            let alternatives: Vec<_> =
                schemas_in(part, keyword).filter(|it| it["type"] != "null").collect();
            match alternatives.as_slice() {
                [] => {}
                [only] => self.collect_into(only, all),
                _ => all.alternatives.push(alternatives),
            }
        }
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

/// The schemas that a value must match.
#[derive(Default)]
struct AllParts<'a> {
    parts: Vec<&'a Map<String, Value>>,
    /// Lists of schemas. The value must also match at least one schema of each list.
    alternatives: Vec<Vec<&'a Value>>,
}

fn properties_of<'a>(
    parts: &[&'a Map<String, Value>],
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let objects = parts.iter().filter_map(|part| part.get("properties")?.as_object());
    objects.flatten().map(|(name, schema)| (name.as_str(), schema))
}

fn schemas_in<'a>(part: &'a Map<String, Value>, keyword: &str) -> impl Iterator<Item = &'a Value> {
    part.get(keyword).and_then(Value::as_array).into_iter().flatten()
}
