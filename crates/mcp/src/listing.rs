//! Fetches and checks the tools that a server lists, and the pages of any list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use turnstream::error::{Error, ErrorKind};
use turnstream::request::ToolSpec;

use crate::limits::Limits;
use crate::sdk::connection::Connection;
use crate::sdk::error_context::Refusal;
use crate::tool_name::tool_name;
use crate::truncate::truncate_middle;

/// The maximum length of a note about a tool that was left out.
const MAX_NOTE_BYTES: usize = 300;

/// The maximum number of nodes in a schema, including the nodes in the target of each reference.
const MAX_EXPANDED_NODES: u64 = 100_000;

/// A server's tools, sorted by name. A server may list its tools in any order, but a model, and the
/// cache of its provider, must receive the same tools in the same order, in each process.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<ListedTool>,
    /// Notes about the tools that were left out, with the reasons, sorted.
    pub(crate) left_out: Vec<String>,
    /// A note about how the list ended, if its end is not certain.
    pub(crate) end_note: Option<String>,
}

/// A tool that a server lists.
#[derive(Clone, Debug)]
pub(crate) struct ListedTool {
    /// The server's own name for the tool.
    pub(crate) original_name: String,
    /// The tool definition that is sent to the model.
    pub(crate) spec: ToolSpec,
    /// Whether the server declares the tool to be read-only.
    pub(crate) is_read_only: bool,
    /// A hash of the tool's name, description, schema and hints.
    pub(crate) fingerprint: u128,
}

impl Listing {
    /// Fetches all pages of the tool list.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) if a limit is exceeded, [`Protocol`](ErrorKind::Protocol)
    /// if an answer is not a list, or any error from the connection.
    pub(crate) async fn fetch(
        connection: &Connection,
        server: &str,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let mut listing = Self { tools: Vec::new(), left_out: Vec::new(), end_note: None };
        if !connection.info.has_tools {
            return Ok(listing);
        }
        let mut budget = ListBudget::new(server, "tools", limits);
        let end_note = fetch_pages(connection, "tools/list", &mut budget, |budget, page| {
            listing.add_page(server, budget, page)
        });
        listing.end_note = end_note.await?;
        listing.sort();
        Ok(listing)
    }

    fn add_page(
        &mut self,
        server: &str,
        budget: &mut ListBudget<'_>,
        page: &[Value],
    ) -> Result<(), Error> {
        let earlier = self.tools.len();
        for tool in page {
            match ListedTool::from_json(tool, server) {
                Ok(tool) => {
                    budget.take_schema(&tool.spec)?;
                    budget.take_bytes(tool.original_name.len())?;
                    // A page that is sent twice is not a mistake in the list.
                    if !self.tools[..earlier].iter().any(|known| known.is_same(&tool)) {
                        self.tools.push(tool);
                    }
                }
                Err(why) => {
                    let note = truncate_middle(why, MAX_NOTE_BYTES);
                    budget.take_bytes(note.len())?;
                    self.left_out.push(note);
                }
            }
        }
        Ok(())
    }

    /// Sorts the tools by name, and leaves out all but one of the tools with the same name.
    fn sort(&mut self) {
        let Self { tools, left_out, .. } = self;
        tools.sort_by(|a, b| (&a.spec.name, a.fingerprint).cmp(&(&b.spec.name, b.fingerprint)));
        tools.dedup_by(|tool, first| {
            let is_repeated = tool.spec.name == first.spec.name;
            if is_repeated {
                left_out.push(format!("`{}` is listed twice", tool.spec.name));
            }
            is_repeated
        });
        left_out.sort();
        left_out.dedup();
    }

    /// Returns the earlier listing if it contains the same tools, and this listing otherwise. Tools
    /// that have not changed keep the spelling of their schemas, in which a server may change the
    /// order of the fields.
    pub(crate) fn unified_with(mut self, earlier: Option<Arc<Self>>) -> Arc<Self> {
        let Some(earlier) = earlier else { return Arc::new(self) };
        let is_same = self.tools.len() == earlier.tools.len()
            && self.tools.iter().zip(&earlier.tools).all(|(a, b)| a.is_same(b))
            && self.left_out == earlier.left_out
            && self.end_note == earlier.end_note;
        if is_same {
            return earlier;
        }
        for tool in &mut self.tools {
            if let Some(known) = earlier.tools.iter().find(|known| known.is_same(tool)) {
                tool.clone_from(known);
            }
        }
        Arc::new(self)
    }
}

/// Fetches all pages of a list and passes the entries of each page to `add_page`. Returns a note if
/// the end of the list is not certain:
///
/// - A cursor that occurs twice leads to a page that has been fetched already.
/// - An empty cursor may be a cursor like any other, but some servers send it on the last page, and
///   reject a request that contains it.
pub(crate) async fn fetch_pages(
    connection: &Connection,
    method: &str,
    budget: &mut ListBudget<'_>,
    mut add_page: impl FnMut(&mut ListBudget<'_>, &[Value]) -> Result<(), Error>,
) -> Result<Option<String>, Error> {
    let mut followed = HashSet::new();
    let mut cursor: Option<String> = None;
    loop {
        let params = cursor.as_ref().map_or_else(|| json!({}), |it| json!({ "cursor": it }));
        let page = match connection.request(method, params).await {
            Err(error)
                if cursor.as_deref() == Some("") && error.find_source::<Refusal>().is_some() =>
            {
                return Ok(Some(budget.end_note("is empty")));
            }
            page => page?,
        };
        let entries = budget.take_page(&page)?;
        add_page(&mut *budget, entries)?;
        let Some(next) = page["nextCursor"].as_str() else { return Ok(None) };
        if !followed.insert(next.to_owned()) {
            return Ok(Some(budget.end_note("repeats an earlier one")));
        }
        cursor = Some(next.to_owned());
    }
}

/// Tracks how much of each limit remains while the pages of a list are fetched.
pub(crate) struct ListBudget<'a> {
    server: &'a str,
    /// The name of the field that contains the list.
    field: &'static str,
    limits: &'a Limits,
    pages: usize,
    entries: usize,
    schema_bytes: usize,
}

impl<'a> ListBudget<'a> {
    pub(crate) fn new(server: &'a str, field: &'static str, limits: &'a Limits) -> Self {
        Self { server, field, limits, pages: 0, entries: 0, schema_bytes: 0 }
    }

    fn end_note(&self, why: &str) -> String {
        let Self { server, field, .. } = self;
        format!(
            "the MCP server `{server}` lists its {field} with a cursor that {why}, and the list \
             ends there"
        )
    }

    /// Returns the entries on a page, and counts them toward the limits.
    fn take_page<'page>(&mut self, page: &'page Value) -> Result<&'page [Value], Error> {
        let Self { server, field, .. } = *self;
        let Some(entries) = page[field].as_array() else {
            let message = format!("the MCP server `{server}` answered without a list of {field}");
            return Err(Error::new(ErrorKind::Protocol, message));
        };
        self.pages += 1;
        self.entries += entries.len();
        self.check(self.pages, self.limits.pages, "pages")?;
        self.check(self.entries, self.limits.tools, field)?;
        Ok(entries)
    }

    fn take_schema(&mut self, spec: &ToolSpec) -> Result<(), Error> {
        self.take_bytes(spec.parameters.as_str().len() + spec.description.len() + spec.name.len())
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), Error> {
        self.schema_bytes += bytes;
        self.check(self.schema_bytes, self.limits.schema_bytes, "bytes of schemas")
    }

    fn check(&self, count: usize, limit: usize, what: &str) -> Result<(), Error> {
        if count <= limit {
            return Ok(());
        }
        let Self { server, field, .. } = self;
        let message =
            format!("the MCP server `{server}` lists its {field} with more than {limit} {what}");
        Err(Error::new(ErrorKind::TooLarge, message))
    }
}

impl ListedTool {
    /// Parses a tool's JSON, or returns the reason for leaving the tool out.
    fn from_json(json: &Value, server: &str) -> Result<Self, String> {
        let Some(original_name) = json["name"].as_str().filter(|name| !name.is_empty()) else {
            return Err("a tool without a name".to_owned());
        };
        let name = tool_name(server, original_name);
        let Some(schema) = json["inputSchema"].as_object() else {
            return Err(format!("`{name}` has no schema of its arguments"));
        };
        let schema = checked_schema(schema).map_err(|why| format!("`{name}` {why}"))?;
        let annotations = &json["annotations"];
        let title = json["title"].as_str().or_else(|| annotations["title"].as_str());
        let description = json["description"].as_str().filter(|text| !text.trim().is_empty());
        let description = description.or(title).unwrap_or(original_name);
        let fingerprint = fingerprint(original_name, description, &schema, annotations);
        let spec = ToolSpec::new(name, description, schema);
        let is_read_only = annotations["readOnlyHint"] == true;
        Ok(Self { original_name: original_name.to_owned(), spec, is_read_only, fingerprint })
    }

    /// Returns whether both are the same tool with the same definition.
    fn is_same(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint && self.original_name == other.original_name
    }
}

/// Checks a schema and returns it unchanged, except that a missing top-level `type` is added.
fn checked_schema(schema: &Map<String, Value>) -> Result<Value, String> {
    let mut schema = schema.clone();
    match schema.get("type") {
        None => drop(schema.insert("type".to_owned(), "object".into())),
        Some(Value::String(kind)) if kind == "object" => {}
        Some(kind) => return Err(format!("takes arguments of the type {kind}, not an object")),
    }
    let schema = Value::Object(schema);
    if let Some(reference) = remote_reference(&schema) {
        return Err(format!("has a schema that refers to `{reference}`, which is not fetched"));
    }
    match (ExpandedSize { schema: &schema, of_targets: HashMap::new() }).of(&schema) {
        0..=MAX_EXPANDED_NODES => Ok(schema),
        _ => Err("has a schema that expands without bound through its references".to_owned()),
    }
}

/// Counts the nodes in a schema, including the nodes in each reference's target.
struct ExpandedSize<'a> {
    schema: &'a Value,
    /// The size of each reference's target. While a target is being counted, its size is 0, so that
    /// recursive references are not followed.
    of_targets: HashMap<&'a str, u64>,
}

impl<'a> ExpandedSize<'a> {
    fn of(&mut self, node: &'a Value) -> u64 {
        match node {
            Value::Object(fields) => {
                let nodes = fields.iter().map(|(key, value)| match value {
                    Value::String(target) if key == "$ref" => self.of_target(target),
                    value => self.of(value),
                });
                nodes.fold(1, u64::saturating_add)
            }
            Value::Array(values) => {
                values.iter().map(|value| self.of(value)).fold(1, u64::saturating_add)
            }
            _ => 1,
        }
    }

    fn of_target(&mut self, target: &'a str) -> u64 {
        if let Some(size) = self.of_targets.get(target) {
            return *size;
        }
        let node = target.strip_prefix('#').and_then(|pointer| self.schema.pointer(pointer));
        let Some(node) = node else { return 1 };
        self.of_targets.insert(target, 0);
        let size = self.of(node);
        self.of_targets.insert(target, size);
        size
    }
}

/// Returns a `$ref` that points outside the document, if any.
fn remote_reference(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match value {
            Value::String(target) if matches!(key.as_str(), "$ref" | "$dynamicRef") => {
                (!target.starts_with('#')).then_some(target.as_str())
            }
            value => remote_reference(value),
        }),
        Value::Array(values) => values.iter().find_map(remote_reference),
        _ => None,
    }
}

/// Returns a hash of everything that a model or an approver sees of a tool, except for the order of
/// fields and sets. The hash is collision-resistant, so a server cannot find another definition
/// with the same hash.
fn fingerprint(
    original_name: &str,
    description: &str,
    schema: &Value,
    annotations: &Value,
) -> u128 {
    let mut hash = Sha256::new();
    let (schema, hints) = (normalized(schema).to_string(), normalized(annotations).to_string());
    for part in [original_name, description, &schema, &hints] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// The keywords of a JSON Schema whose value is a set of strings.
const SETS: [&str; 3] = ["enum", "required", "type"];

/// Returns a schema with its fields and its sets of strings in a fixed order. Servers that keep
/// definitions in hash tables list them in another order in each process.
fn normalized(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let normalize = |(name, value): (&String, &Value)| {
                let value = match value {
                    Value::Array(values) if SETS.contains(&name.as_str()) => sorted_set(values),
                    value => normalized(value),
                };
                (name.clone(), value)
            };
            Value::Object(fields.into_iter().map(normalize).collect())
        }
        Value::Array(values) => values.iter().map(normalized).collect(),
        value => value.clone(),
    }
}

fn sorted_set(values: &[Value]) -> Value {
    let mut sorted: Vec<Value> = values.to_vec();
    if sorted.iter().all(Value::is_string) {
        sorted.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
    sorted.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(json: &Value) -> Result<ListedTool, String> {
        ListedTool::from_json(json, "s")
    }

    #[test]
    fn a_tool_schema_keeps_its_field_order() {
        let schema =
            json!({ "type": "object", "properties": { "z": {}, "a": { "$ref": "#/$defs/b" } } });
        let tool = listed(&json!({
            "name": "x", "title": "X", "description": "Does x", "inputSchema": schema,
            "annotations": { "readOnlyHint": true },
        }));
        let tool = tool.unwrap();
        assert_eq!((tool.spec.name.as_str(), tool.spec.description.as_str()), ("s__x", "Does x"));
        assert_eq!(tool.spec.parameters.as_str(), schema.to_string());
        assert!(tool.is_read_only);
    }

    #[test]
    fn an_uncallable_tool_is_omitted_with_the_reason() {
        let schema = json!({ "type": "object" });
        for (tool, reason) in [
            (json!({ "inputSchema": schema }), "a tool without a name"),
            (json!({ "name": "", "inputSchema": schema }), "a tool without a name"),
            (json!({ "name": "x" }), "`s__x` has no schema of its arguments"),
            (json!({ "name": "x", "inputSchema": [] }), "`s__x` has no schema of its arguments"),
            (
                json!({ "name": "x", "inputSchema": { "type": "string" } }),
                "`s__x` takes arguments of the type \"string\", not an object",
            ),
            (
                json!({ "name": "x", "inputSchema": { "properties": { "a": [{ "$ref": "http://a.example/b" }] } } }),
                "`s__x` has a schema that refers to `http://a.example/b`, which is not fetched",
            ),
        ] {
            assert_eq!(listed(&tool).unwrap_err(), reason);
        }
    }

    #[test]
    fn a_missing_type_of_the_schema_is_added_and_a_missing_description_is_the_title() {
        let tool = listed(&json!({ "name": "x", "title": "X", "inputSchema": {} })).unwrap();
        assert_eq!(tool.spec.parameters.as_str(), r#"{"type":"object"}"#);
        assert_eq!(tool.spec.description, "X");
    }

    fn listing(tools: &[Value]) -> Listing {
        let mut listing = Listing { tools: Vec::new(), left_out: Vec::new(), end_note: None };
        let limits = Limits::default();
        let mut budget = ListBudget::new("s", "tools", &limits);
        listing.add_page("s", &mut budget, tools).unwrap();
        listing.sort();
        listing
    }

    #[test]
    fn the_fingerprint_ignores_the_order_of_fields_and_of_sets() {
        let definition = |schema: &str, hints: &str| {
            let json = format!(
                r#"{{"name":"x","description":"d","inputSchema":{schema},"annotations":{hints}}}"#
            );
            listed(&serde_json::from_str(&json).unwrap()).unwrap().fingerprint
        };
        let original = definition(
            r#"{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{}},"required":["a","b"]}"#,
            r#"{"readOnlyHint":true,"title":"X"}"#,
        );
        let reordered = definition(
            r#"{"required":["b","a"],"properties":{"b":{},"a":{"enum":["y","x"]}},"type":"object"}"#,
            r#"{"title":"X","readOnlyHint":true}"#,
        );
        assert_eq!(original, reordered);
        let changed = definition(
            r#"{"required":["a"],"properties":{"b":{},"a":{"enum":["y","x"]}},"type":"object"}"#,
            r#"{"title":"X","readOnlyHint":true}"#,
        );
        assert_ne!(original, changed);
    }

    #[test]
    fn a_listing_is_sorted_and_a_repeated_name_has_the_same_definition_in_any_order() {
        let tool = |name: &str, description: &str| json!({ "name": name, "description": description, "inputSchema": {} });
        let tools = [tool("b", "1"), tool("a", "2"), tool("b", "3"), json!({ "name": "c" })];
        let reversed: Vec<_> = tools.iter().rev().cloned().collect();
        let (listing, reversed) = (listing(&tools), listing(&reversed));
        let names: Vec<_> = listing.tools.iter().map(|tool| &*tool.original_name).collect();
        assert_eq!(names, ["a", "b"]);
        let notes = ["`s__b` is listed twice", "`s__c` has no schema of its arguments"];
        assert_eq!(listing.left_out, notes);
        let listing = Arc::new(listing);
        assert!(Arc::ptr_eq(&reversed.unified_with(Some(Arc::clone(&listing))), &listing));
    }

    #[test]
    fn an_unchanged_tool_keeps_the_spelling_of_its_schema() {
        let tool = |schema: &str| {
            let schema: Value = serde_json::from_str(schema).unwrap();
            json!({ "name": "a", "inputSchema": schema })
        };
        let earlier = listing(&[tool(r#"{"type":"object","properties":{"a":{},"b":{}}}"#)]);
        let spelling = earlier.tools[0].spec.clone();
        let later = listing(&[
            tool(r#"{"properties":{"b":{},"a":{}},"type":"object"}"#),
            json!({ "name": "new", "inputSchema": {} }),
        ]);
        assert_eq!(later.unified_with(Some(Arc::new(earlier))).tools[0].spec, spelling);
    }

    #[test]
    fn the_fingerprint_changes_with_description_schema_and_hints() {
        let tool = json!({ "name": "x", "description": "d", "inputSchema": {}, "annotations": {} });
        let original = listed(&tool).unwrap().fingerprint;
        assert_eq!(listed(&tool.clone()).unwrap().fingerprint, original);
        for (field, value) in [
            ("description", json!("e")),
            ("inputSchema", json!({ "properties": {} })),
            ("annotations", json!({ "readOnlyHint": true })),
        ] {
            let mut changed = tool.clone();
            changed[field] = value;
            assert_ne!(listed(&changed).unwrap().fingerprint, original, "{field}");
        }
    }
}
