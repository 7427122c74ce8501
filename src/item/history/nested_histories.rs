//! The histories of suspended sub-agents, stored under the ids of the calls that run them.

use std::sync::Arc;

use crate::item::history::History;
use crate::item::{EffectReport, Item, ItemKind, join_call_id};

impl History {
    /// Returns the history of the sub-agent that the call `call_id` runs, if that sub-agent was
    /// suspended because it has pending calls. The nested history's id consists of this history's
    /// id, a slash and the call id, in which `~` and `/` are written as `~0` and `~1`.
    ///
    /// A nested history is kept until the call that runs the sub-agent has a result. Nested
    /// histories are serialized in this history's `nested` field and are never sent to the parent
    /// agent's model.
    pub fn nested_history(&self, call_id: &str) -> Option<&Self> {
        self.index.nested_histories.get(call_id)
    }

    /// Stores the history of the suspended sub-agent that the call `call_id` runs. Does nothing if
    /// the call is not open.
    pub(crate) fn set_nested_history(&mut self, call_id: &str, nested: Self) {
        // A nested history exists only while its call is open.
        if self.nested_history(call_id).is_none() && !self.is_open_call(call_id) {
            return;
        }
        let nested = nested.with_id(join_call_id(&self.id, call_id).into());
        self.index_mut().nested_histories.insert(call_id.to_owned(), nested);
    }

    /// Iterates over the ids of the calls whose sub-agents are suspended.
    pub(crate) fn suspended_call_ids(&self) -> impl Iterator<Item = &str> {
        self.index.nested_histories.keys().map(String::as_str)
    }

    /// Collects the effects that the suspended sub-agent of the call `call_id` has reported so far.
    pub(crate) fn nested_effect_report(&self, call_id: &str) -> EffectReport {
        let mut report = EffectReport::default();
        if let Some(nested) = self.nested_history(call_id) {
            nested.collect_side_effects(&mut report);
        }
        report
    }

    fn collect_side_effects(&self, report: &mut EffectReport) {
        let results = self.iter().filter_map(Item::as_tool_result);
        for nested_report in results.filter_map(|result| result.report.as_deref()) {
            report.side_effects.extend(nested_report.side_effects.iter().cloned());
        }
        self.index.nested_histories.values().for_each(|nested| nested.collect_side_effects(report));
    }

    /// Adds the effects reported by suspended sub-agents to the results of the calls that run them.
    pub(super) fn attach_nested_reports(&self, items: &mut [Item]) {
        if self.index.nested_histories.is_empty() {
            return;
        }
        for item in items {
            if let ItemKind::ToolResult(result) = &mut item.kind
                && result.report.is_none()
            {
                let report = self.nested_effect_report(&result.call_id);
                *result = result.clone().with_report(report);
            }
        }
    }

    /// Changes the history's id, along with the ids of its nested histories, which start with the
    /// history's id.
    pub(super) fn with_id(mut self, id: Arc<str>) -> Self {
        if !self.index.nested_histories.is_empty() {
            for (call_id, history) in &mut self.index_mut().nested_histories {
                *history = history.clone().with_id(join_call_id(&id, call_id).into());
            }
        }
        self.id = id;
        self
    }
}
