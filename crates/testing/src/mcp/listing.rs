//! Lists tools, resources and prompts in pages.

use serde_json::{Map, Value, json};

use crate::mcp::fault::McpFault;
use crate::mcp::state::State;

/// Returns a page of the tool list. An `Err` describes why the cursor is invalid.
pub(super) fn list_tools(state: &State, cursor: Option<&str>) -> Result<Value, String> {
    let (faults, page_size, mut tools) = {
        let settings = state.settings();
        let tools = settings.tools.iter().map(|tool| tool.listed.clone());
        (settings.faults.clone(), settings.page_size, tools.map(Value::Object).collect::<Vec<_>>())
    };
    if faults.contains(&McpFault::EndlessList) {
        return endless_page(cursor, tools);
    }
    tools.extend(tools_of_faults(&faults).map(Value::Object));
    if faults.contains(&McpFault::ChangingList) {
        let count = state.next_listing();
        tools.push(Value::Object(extra_tool(&format!("changing_{count}"))));
        if count % 2 == 1 {
            tools.reverse();
        }
    }
    page("tools", tools, page_size, cursor)
}

/// Returns a page of a list. An `Err` describes why the cursor is invalid.
pub(super) fn page(
    kind: &str,
    mut entries: Vec<Value>,
    page_size: Option<usize>,
    cursor: Option<&str>,
) -> Result<Value, String> {
    let start = match cursor {
        None => 0,
        Some(cursor) => read_cursor(cursor)
            .filter(|start| *start < entries.len())
            .ok_or_else(|| format!("the server never sent the cursor {cursor:?}"))?,
    };
    let end = page_size.map_or(entries.len(), |size| entries.len().min(start + size.max(1)));
    let next = (end < entries.len()).then(|| write_cursor(end));
    entries.truncate(end);
    let mut result = json!({ kind: entries.split_off(start) });
    if let Some(next) = next {
        result["nextCursor"] = json!(next);
    }
    Ok(result)
}

/// Returns whether `name` is a tool that an injected fault adds to the list. The server itself
/// answers calls to such tools.
pub(super) fn is_tool_of_fault(faults: &[McpFault], name: &str) -> bool {
    (faults.contains(&McpFault::EndlessList) && name.starts_with("endless_"))
        || (faults.contains(&McpFault::ChangingList) && name.starts_with("changing_"))
        || tools_of_faults(faults)
            .any(|tool| tool.get("name").and_then(Value::as_str) == Some(name))
}

fn endless_page(cursor: Option<&str>, mut tools: Vec<Value>) -> Result<Value, String> {
    let number = match cursor {
        None => 0,
        Some(cursor) => {
            tools.clear();
            read_cursor(cursor)
                .ok_or_else(|| format!("the server never sent the cursor {cursor:?}"))?
        }
    };
    tools.push(Value::Object(extra_tool(&format!("endless_{number}"))));
    Ok(json!({ "tools": tools, "nextCursor": write_cursor(number + 1) }))
}

/// Returns a cursor that does not look like a number and that contains characters that clients must
/// send back unchanged.
fn write_cursor(start: usize) -> String {
    format!("from {start} +/=")
}

fn read_cursor(cursor: &str) -> Option<usize> {
    cursor.strip_prefix("from ")?.strip_suffix(" +/=")?.parse().ok()
}

fn tools_of_faults(faults: &[McpFault]) -> impl Iterator<Item = Map<String, Value>> {
    faults.iter().flat_map(|fault| -> Box<dyn Iterator<Item = Map<String, Value>>> {
        match *fault {
            McpFault::ManyTools(count) => {
                Box::new((0..count).map(|index| extra_tool(&format!("tool_{index}"))))
            }
            McpFault::LargeSchema(bytes) => {
                let schema = json!({ "type": "object", "description": "a".repeat(bytes) });
                Box::new([with_schema("large_schema", Some(schema))].into_iter())
            }
            McpFault::BadSchemas => Box::new(bad_schemas().into_iter()),
            McpFault::BadNames => Box::new(bad_names().into_iter().map(|name| extra_tool(&name))),
            _ => Box::new([].into_iter()),
        }
    })
}

fn extra_tool(name: &str) -> Map<String, Value> {
    with_schema(name, Some(json!({ "type": "object" })))
}

fn with_schema(name: &str, schema: Option<Value>) -> Map<String, Value> {
    let mut tool = Map::new();
    tool.insert("name".into(), json!(name));
    tool.insert("description".into(), json!("A tool of a server that misbehaves."));
    tool.extend(schema.map(|schema| ("inputSchema".to_owned(), schema)));
    tool
}

fn bad_schemas() -> Vec<Map<String, Value>> {
    // RFC 5737 reserves this address for documentation.
    let remote = json!({
        "type": "object",
        "properties": { "a": { "$ref": "http://192.0.2.1/schema.json" } },
    });
    vec![
        with_schema("schema_is_text", Some(json!("an object, please"))),
        with_schema("schema_is_missing", None),
        with_schema("schema_is_null", Some(Value::Null)),
        with_schema("schema_of_an_array", Some(json!({ "type": "array" }))),
        with_schema("schema_is_elsewhere", Some(remote)),
    ]
}

fn bad_names() -> Vec<String> {
    let names = [
        "",
        "a.b/c",
        "twice",
        "twice",
        "größe",
        "工具",
        "same.name",
        "same name",
        "same_name",
        "line\nbreak",
        "<|tool|>",
    ];
    let mut names: Vec<_> = names.map(str::to_owned).into();
    names.push("n".repeat(300));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_on_exactly_one_page() {
        let entries: Vec<Value> = (0..5).map(|n| json!(n)).collect();
        let mut cursor = None;
        let mut seen = Vec::new();
        loop {
            let page = page("tools", entries.clone(), Some(2), cursor.as_deref()).unwrap();
            seen.extend(page["tools"].as_array().unwrap().clone());
            match page["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        assert_eq!(seen, entries);
    }

    #[test]
    fn an_unknown_cursor_is_an_error() {
        for cursor in ["", "2", "from 9 +/=", "from 2"] {
            assert!(page("tools", vec![json!(1)], Some(1), Some(cursor)).is_err(), "{cursor}");
        }
    }
}
