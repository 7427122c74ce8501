//! Fetches and checks the tools that a server lists.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};
use crate::item::truncate_middle;
use crate::mcp::limits::Limits;
use crate::mcp::sdk::Connection;
use crate::mcp::tool_name::tool_name;
use crate::request::ToolSpec;

/// The maximum length of a note about a tool that was left out.
const MAX_NOTE_BYTES: usize = 300;

/// The maximum number of nodes in a schema, including the nodes in the target of each reference.
const MAX_EXPANDED_NODES: u64 = 100_000;

/// A server's tools, in the order in which the server listed them.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) tools: Vec<ListedTool>,
    /// Notes about the tools that were left out, with the reasons.
    pub(super) left_out: Vec<String>,
    /// The revision of the tool list just before the tools were requested.
    pub(super) revision: u64,
}

/// A tool that a server lists.
#[derive(Clone, Debug)]
pub(super) struct ListedTool {
    /// The server's own name for the tool.
    pub(super) original_name: String,
    /// The tool definition that is sent to the model.
    pub(super) spec: ToolSpec,
    /// Whether the server declares the tool to be read-only.
    pub(super) is_read_only: bool,
    /// A hash of the tool's name, description, schema and hints.
    pub(super) fingerprint: u128,
}

impl Listing {
    /// Fetches all pages of the tool list.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) if a limit is exceeded, [`Protocol`](ErrorKind::Protocol)
    /// if an answer is not a list, or any error from the connection.
    pub(super) async fn fetch(
        connection: &Connection,
        server: &str,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let revision = connection.tools_revision();
        let mut listing = Self { tools: Vec::new(), left_out: Vec::new(), revision };
        if !connection.info.has_tools {
            return Ok(listing);
        }
        let mut budget = ListBudget::new(server, "tools", limits);
        let mut cursor = None;
        loop {
            let page = connection.request("tools/list", page_params(cursor)).await?;
            let tools = budget.take_page(&page)?;
            for tool in tools {
                match ListedTool::from_json(tool, server) {
                    Ok(tool) => {
                        budget.take_schema(&tool.spec)?;
                        budget.take_bytes(tool.original_name.len())?;
                        listing.push(tool);
                    }
                    Err(why) => {
                        let note = truncate_middle(why, MAX_NOTE_BYTES);
                        budget.take_bytes(note.len())?;
                        listing.left_out.push(note);
                    }
                }
            }
            cursor = next_cursor(&page);
            if cursor.is_none() {
                return Ok(listing);
            }
        }
    }

    fn push(&mut self, tool: ListedTool) {
        match self.tools.iter().any(|known| known.spec.name == tool.spec.name) {
            true => self.left_out.push(format!("`{}` is listed twice", tool.spec.name)),
            false => self.tools.push(tool),
        }
    }
}

/// Returns the parameters for requesting a page of a list.
pub(super) fn page_params(cursor: Option<String>) -> Value {
    cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }))
}

/// Returns the cursor for the next page, if any.
pub(super) fn next_cursor(page: &Value) -> Option<String> {
    page["nextCursor"].as_str().map(str::to_owned)
}

/// Tracks how much of each limit remains while the pages of a list are fetched.
pub(super) struct ListBudget<'a> {
    server: &'a str,
    /// The name of the field that contains the list.
    field: &'static str,
    limits: &'a Limits,
    pages: usize,
    entries: usize,
    schema_bytes: usize,
}

impl<'a> ListBudget<'a> {
    pub(super) fn new(server: &'a str, field: &'static str, limits: &'a Limits) -> Self {
        Self { server, field, limits, pages: 0, entries: 0, schema_bytes: 0 }
    }

    /// Returns the entries on a page, and counts them toward the limits.
    pub(super) fn take_page<'page>(&mut self, page: &'page Value) -> Result<&'page [Value], Error> {
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
        let spec = ToolSpec::new(name, description, schema);
        let fingerprint = fingerprint(original_name, &spec, annotations);
        let is_read_only = annotations["readOnlyHint"] == true;
        Ok(Self { original_name: original_name.to_owned(), spec, is_read_only, fingerprint })
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

/// Returns a hash of everything that a model or an approver sees of a tool. The hash is
/// collision-resistant, so a server cannot find another definition with the same hash.
fn fingerprint(original_name: &str, spec: &ToolSpec, annotations: &Value) -> u128 {
    let mut hash = Sha256::new();
    let hints = annotations.to_string();
    for part in [original_name, &spec.description, spec.parameters.as_str(), &hints] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
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
