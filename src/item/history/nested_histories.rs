//! The histories of suspended sub-agents, stored under the ids of the calls that run them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::item::history::History;
use crate::item::{EffectReport, Item, ItemKind, PendingCall, ToolCall};

impl History {
    /// Returns the history of the sub-agent that the call `call_id` runs, if that sub-agent was
    /// suspended because it has pending calls. The nested history's id consists of this history's
    /// id, a slash and the call id.
    ///
    /// A nested history is kept until the call that runs the sub-agent has a result. Nested
    /// histories are serialized in this history's `nested` field and are never sent to the parent
    /// agent's model.
    pub fn nested_history(&self, call_id: &str) -> Option<&Self> {
        self.index.nested_histories.get(call_id)
    }

    /// Returns the calls that are waiting for a verdict or an external result, in order. A call
    /// from a completed turn counts as waiting until it has a result. A call whose sub-agent was
    /// suspended is not listed; instead, the sub-agent's pending calls are listed, each with its
    /// path.
    ///
    /// The returned calls contain the arguments as written by the model. If a hook has rewritten
    /// the arguments, [`Outcome::pending`](crate::Outcome::pending) contains the rewritten
    /// arguments.
    pub fn pending_calls(&self) -> Vec<PendingCall> {
        let mut pending = Vec::new();
        for call in self.unanswered_calls() {
            match self.nested_history(&call.call_id) {
                Some(nested) => {
                    let calls = nested.pending_calls().into_iter();
                    pending.extend(calls.map(|inner| inner.with_parent_call(&call.call_id)));
                }
                None => pending.push(call.into()),
            }
        }
        pending
    }

    /// Stores the history of the suspended sub-agent that the call `call_id` runs. Does nothing if
    /// the call is not open.
    pub(crate) fn set_nested_history(&mut self, call_id: &str, nested: Self) {
        let is_it = |call: &ToolCall| call.call_id == call_id;
        if !self.unanswered_calls().iter().any(is_it) {
            return;
        }
        let nested = nested.with_id(format!("{}/{call_id}", self.id).into());
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

    /// Removes the history of the suspended sub-agent that the call `call_id` runs.
    pub(super) fn remove_nested_history(&mut self, call_id: &str) {
        if self.index.nested_histories.contains_key(call_id) {
            self.index_mut().nested_histories.remove(call_id);
        }
    }

    /// Restores the nested histories whose calls are still open.
    pub(super) fn restore_nested_histories(&mut self, nested: BTreeMap<String, Self>) {
        if nested.is_empty() {
            return;
        }
        let open = self.unanswered_calls();
        let is_open = |call_id: &str| open.iter().any(|call| call.call_id == call_id);
        let nested = nested.into_iter().filter(|(call_id, _)| is_open(call_id)).collect();
        self.index_mut().nested_histories = nested;
    }

    /// Changes the history's id, along with the ids of its nested histories, which start with the
    /// history's id.
    pub(super) fn with_id(mut self, id: Arc<str>) -> Self {
        if !self.index.nested_histories.is_empty() {
            for (call_id, history) in &mut self.index_mut().nested_histories {
                *history = history.clone().with_id(format!("{id}/{call_id}").into());
            }
        }
        self.id = id;
        self
    }
}
