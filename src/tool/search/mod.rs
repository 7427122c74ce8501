//! Tool search. Instead of all tools, the model sees two tools that never change: one for finding
//! tools and one for calling them.

mod call_tool;
mod rank;
mod search_tool;
mod settings;
mod synonyms;

use std::collections::HashSet;
use std::sync::Arc;

pub(crate) use call_tool::unwrapped_call;
pub(crate) use rank::RankedTools;
pub(crate) use settings::CALL_TOOL;
pub use settings::ToolSearch;

use self::search_tool::ToolIndex;
use self::settings::SEARCH_TOOLS;
use crate::request::{ToolSpec, ToolSpecs};
use crate::tool::Tool;

/// The maximum number of similar tools named in the result of a call to an unknown tool.
const MAX_SUGGESTIONS: usize = 3;

/// The search index and settings of a searchable toolkit.
pub(super) struct SearchState {
    pub(super) settings: ToolSearch,
    index: Arc<ToolIndex>,
    search_tools: Tool,
    call_tool: Tool,
    /// The specs of all tools, with the specs of unlisted tools marked as deferred.
    pub(super) deferred_specs: ToolSpecs,
}

impl SearchState {
    pub(super) fn new(settings: ToolSearch, tools: &[Tool]) -> Self {
        let hidden = tools.iter().filter(|tool| !settings.lists(tool.name()));
        let index = Arc::new(ToolIndex::new(hidden.map(|tool| tool.spec().clone()).collect()));
        let search_tools = search_tool::search_tool(Arc::clone(&index), &settings);
        let call_tool = call_tool::call_tool();
        let mut deferred: Vec<ToolSpec> = tools
            .iter()
            .map(|tool| tool.spec().clone().with_deferred(!settings.lists(tool.name())))
            .collect();
        // The duplicate name makes the request fail, so that the conflict is reported.
        for own in [&search_tools, &call_tool] {
            if tools.iter().any(|tool| tool.name() == own.name()) {
                deferred.push(own.spec().clone());
            }
        }
        Self { settings, index, search_tools, call_tool, deferred_specs: deferred.into() }
    }

    /// Returns the specs that every request lists: those of the always-listed tools, and those of
    /// `search_tools` and `call_tool`. Tools with duplicate names are listed as well, so that the
    /// request fails.
    pub(super) fn listed_specs(&self, tools: &[Tool]) -> ToolSpecs {
        let mut names = HashSet::from([SEARCH_TOOLS, CALL_TOOL]);
        let (mut listed, mut doubled) = (Vec::new(), Vec::new());
        for tool in tools {
            let is_first = names.insert(tool.name());
            if !is_first {
                let first = tools.iter().find(|other| other.name() == tool.name());
                doubled.extend(first.filter(|_| !self.settings.lists(tool.name())));
                doubled.push(tool);
            } else if self.settings.lists(tool.name()) {
                listed.push(tool);
            }
        }
        let constant = [&self.search_tools, &self.call_tool];
        let all = listed.into_iter().chain(constant).chain(doubled);
        all.map(|tool| tool.spec().clone()).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        [&self.search_tools, &self.call_tool].into_iter().find(|tool| tool.name() == name)
    }

    /// Returns a list of similar tools, as text for the result of a call to an unknown tool.
    pub(super) fn suggestions(&self, name: &str) -> String {
        let alike: Vec<String> = self
            .index
            .search(name, MAX_SUGGESTIONS)
            .map(|spec| format!("`{}`", spec.name))
            .collect();
        let others = format!("Find tools with `{SEARCH_TOOLS}`.");
        match alike.is_empty() {
            true => others,
            false => format!("Tools with similar names are: {}. {others}", alike.join(", ")),
        }
    }
}

impl ToolSearch {
    /// Returns whether the model sees the tool named `name` without searching for it.
    pub(super) fn lists(&self, name: &str) -> bool {
        self.always_listed.iter().any(|listed| listed == name)
    }
}

impl_debug!(SearchState(it), settings = it.settings);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn at_most_three_similar_tools_are_suggested() {
        let tools: Vec<Tool> = (0..9)
            .map(|n| {
                let spec = ToolSpec::new(format!("count_{n}"), "", json!({ "type": "object" }));
                Tool::raw(spec, |_, _| async { "counted" }).unwrap()
            })
            .collect();
        let suggestions = SearchState::new(ToolSearch::new(), &tools).suggestions("count");
        assert_eq!(suggestions.matches("`count_").count(), 3, "{suggestions}");
    }
}
