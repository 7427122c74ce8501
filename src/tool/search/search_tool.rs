//! Implements `search_tools`, the tool that finds other tools.

use std::sync::{Arc, OnceLock};

use futures::StreamExt;
use futures::stream;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::item::RawJson;
use crate::tool::search::rank::RankedTools;
use crate::tool::search::settings::{SEARCH_TOOLS, ToolSearch};
use crate::tool::{PreparedCall, Tool, ToolOutput, ToolSpec, ToolUpdate};

/// The maximum length of a query, in bytes. The time for a search is proportional to the number of
/// words in the query.
const MAX_QUERY_BYTES: usize = 500;

/// Holds the tools that a search can find. The specs of the tools are indexed during the first
/// search.
#[derive(Debug)]
pub(super) struct ToolIndex {
    specs: Vec<ToolSpec>,
    ranked: OnceLock<RankedTools>,
}

impl ToolIndex {
    pub(super) fn new(specs: Vec<ToolSpec>) -> Self {
        Self { specs, ranked: OnceLock::new() }
    }

    /// Returns the specs of the tools that best match the query, with the best match first.
    pub(super) fn search(&self, query: &str, limit: usize) -> impl Iterator<Item = &ToolSpec> {
        let ranked = self.ranked.get_or_init(|| RankedTools::new(&self.specs));
        ranked.best_matches(query, limit).into_iter().filter_map(|at| self.specs.get(at))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchToolsArgs {
    query: String,
    #[serde(default)]
    limit: Option<usize>,
}

/// A search result, in the form that the model reads.
#[derive(Serialize)]
struct Found<'a> {
    tools: Vec<FoundTool<'a>>,
    /// The names of the matching tools whose specs did not fit into the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<&'a str>,
}

#[derive(Serialize)]
struct FoundTool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawJson,
}

/// Creates the `search_tools` tool. The tool only reads data, so it supports dry runs and can run
/// again after a crash. The tool is not [pollable](Tool::pollable): the same search always returns
/// the same result, so a model that repeats the search makes no progress.
pub(super) fn search_tool(index: Arc<ToolIndex>, settings: &ToolSearch) -> Tool {
    let spec = ToolSpec::new(
        SEARCH_TOOLS,
        "Finds tools by what they do. Most of your tools are not listed here: before you say that something cannot \
         be done, search for a tool that does it. The result has the name, the description and the parameters of \
         each matching tool, the best match first. Then call the tool with `call_tool`. Tools that were found once can \
         be called again without another search.",
        json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What the tool should do, in a few words, for example `create \
                     calendar event`; \
                                    or a tool's name",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "The maximum number of tools; a few by default",
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        }),
    );
    let (max_results, max_bytes) = (settings.max_results, settings.max_result_bytes);
    let tool = Tool::from_prepare_fn(spec, move |_, arguments| {
        let args: SearchToolsArgs =
            serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        if args.query.trim().is_empty() {
            return Err("`query` is empty: describe what the tool should do".to_owned());
        }
        if args.query.len() > MAX_QUERY_BYTES {
            return Err(format!(
                "`query` is longer than {MAX_QUERY_BYTES} bytes: describe in a few words what the \
                 tool should do"
            ));
        }
        let limit = args.limit.map_or(max_results, |limit| limit.clamp(1, max_results));
        let index = Arc::clone(&index);
        Ok(PreparedCall::new(move |_| {
            let found = stream::once(async move {
                ToolUpdate::Output(ToolOutput::ok(found_text(
                    &index,
                    &args.query,
                    limit,
                    max_bytes,
                )))
            });
            found.boxed()
        }))
    });
    tool.with_dry_run_support().idempotent()
}

fn found_text(index: &ToolIndex, query: &str, limit: usize, max_bytes: usize) -> String {
    let mut found = Found { tools: Vec::new(), also: Vec::new() };
    let mut len = 0;
    for spec in index.search(query, limit) {
        let ToolSpec { name, description, parameters, .. } = spec;
        len += name.len() + description.len() + parameters.as_str().len();
        match found.tools.is_empty() || len <= max_bytes {
            true => found.tools.push(FoundTool { name, description, parameters }),
            false => found.also.push(name),
        }
    }
    if found.tools.is_empty() {
        return "No tool matches. Search with other words: the action, its object, or the name of \
        the service."
            .to_owned();
    }
    // Invariant: names, strings and raw JSON always serialize to JSON.
    serde_json::to_string(&found).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_docs_list_the_limit() {
        let row = format!("| length of a search's query | {MAX_QUERY_BYTES} bytes |");
        assert!(include_str!("../mod.rs").contains(&row), "{row}");
    }

    #[test]
    fn a_long_query_is_refused_before_the_search() {
        let index = Arc::new(ToolIndex::new(vec![ToolSpec::new("t", "", json!({}))]));
        let tool = search_tool(Arc::clone(&index), &ToolSearch::new());
        let prepare = |len: usize| {
            let arguments = json!({ "query": "x".repeat(len) }).to_string();
            tool.handler.prepare(&arguments).map(drop)
        };
        assert!(prepare(MAX_QUERY_BYTES).is_ok());
        let error = prepare(MAX_QUERY_BYTES + 1).unwrap_err();
        assert!(error.starts_with("`query` is longer than 500 bytes"), "{error}");
        assert!(index.ranked.get().is_none(), "the search has started");
    }
}
