//! Tracks whether a history is settled. The state after each item is computed from the state before
//! that item.

use std::collections::HashSet;
use std::sync::Arc;

use crate::item::history::History;
use crate::item::history::call_ids::SeenCallIds;
use crate::item::history::node::{Node, SettleState, iter_chain};
use crate::item::settle::{PriorCallIds, ends_batch};
use crate::item::{Item, ItemKind};

impl History {
    pub(super) fn settle_state(&self) -> SettleState {
        self.tip.as_ref().map_or(SettleState::default(), |node| node.settle_state)
    }

    /// Returns the settle state after `item` is appended. The ids of all earlier calls are
    /// collected in `seen` only when the first call whose id may already have been used is
    /// appended.
    pub(super) fn settle_state_after(
        &mut self,
        item: &Item,
        seen: &mut SeenCallIds,
    ) -> SettleState {
        let state = self.settle_state();
        if item.tombstone || state.is_invalid {
            return state;
        }
        let broken = SettleState { is_invalid: true, ..state };
        let mut next = state;
        match &item.kind {
            ItemKind::ToolResult(result) => {
                if !state.has_open_calls {
                    return broken;
                }
                let open = self.open_call_ids_mut();
                if !open.remove(&result.call_id) {
                    return broken;
                }
                next.has_open_calls = !open.is_empty();
                next.has_results = true;
            }
            kind => {
                if ends_batch(item, state.has_results, state.turn_ended) {
                    if state.has_open_calls {
                        return broken;
                    }
                    (next.has_results, next.turn_ended) = (false, false);
                }
                if let ItemKind::ToolCall(call) = kind {
                    if item.interrupted || !self.is_first_use_of_id(&call.call_id, seen) {
                        return broken;
                    }
                    self.open_call_ids_mut().insert(call.call_id.clone());
                    next.has_open_calls = true;
                }
            }
        }
        next.turn_ended |= item.turn.is_some();
        next
    }

    /// Returns the ids of the calls that have no result, collecting them first if necessary.
    fn open_call_ids_mut(&mut self) -> &mut HashSet<String> {
        let is_open = self.settle_state().has_open_calls;
        let tip = self.tip.as_ref();
        let open = &mut Arc::make_mut(&mut self.index).call_ids.open_ids;
        match (is_open, open.is_empty()) {
            (true, true) => *open = find_open_call_ids(tip),
            (false, false) => open.clear(),
            (true, false) | (false, true) => {}
        }
        open
    }

    /// Returns whether a call with this id from a completed turn has no result yet. The ids of the
    /// open calls are kept for the next lookup, unless the history is invalid.
    pub(super) fn is_open_call(&mut self, call_id: &str) -> bool {
        let state = self.settle_state();
        match state.is_invalid {
            // Calls from turns that never completed are not open.
            true => self.unanswered_calls().iter().any(|call| call.call_id == call_id),
            false => state.has_open_calls && self.open_call_ids_mut().contains(call_id),
        }
    }

    /// Clears the ids of open calls after items were removed, so that the ids are collected again
    /// when they are needed.
    pub(super) fn clear_open_call_ids(&mut self) {
        if !self.index.call_ids.open_ids.is_empty() {
            self.index_mut().call_ids.open_ids = HashSet::new();
        }
    }

    fn is_first_use_of_id(&self, call_id: &str, seen: &mut SeenCallIds) -> bool {
        match seen {
            SeenCallIds::AllDistinct => true,
            SeenCallIds::Collected(ids) => ids.insert(call_id.to_owned()),
            SeenCallIds::NotCollected if !self.index.call_ids.used_ids.may_contain(call_id) => true,
            SeenCallIds::NotCollected => {
                let mut ids: HashSet<String> = self.live_call_ids().map(str::to_owned).collect();
                let is_first = ids.insert(call_id.to_owned());
                *seen = SeenCallIds::Collected(ids);
                is_first
            }
        }
    }

    /// Iterates over the ids of the calls that are not tombstones.
    fn live_call_ids(&self) -> impl Iterator<Item = &str> {
        self.live_newest_first().filter_map(Item::as_tool_call).map(|call| call.call_id.as_str())
    }

    /// Returns the call ids in this prefix that are needed to settle the subsequent items. `state`
    /// is the settle state after the last of these items. If `state` is not invalid, no call id is
    /// used twice, so no ids are needed.
    pub(super) fn prior_call_ids(&self, state: SettleState) -> PriorCallIds<'_> {
        match state.is_invalid {
            true => PriorCallIds {
                live_call_ids: self.live_call_ids().collect(),
                used_call_ids: self.used_call_ids().collect(),
            },
            false => PriorCallIds::default(),
        }
    }

    /// Returns the longest settled prefix of the history.
    pub(super) fn settled_prefix(&self) -> Self {
        let tip = self.nodes().find(|node| node.settle_state.is_settled()).cloned();
        let mut part = Self { tip, ..self.clone() };
        part.clear_open_call_ids();
        part
    }
}

/// Collects the ids of the unanswered calls, searching back to the newest item after which no call
/// was open.
fn find_open_call_ids(tip: Option<&Arc<Node>>) -> HashSet<String> {
    let items =
        iter_chain(tip).take_while(|node| node.settle_state.has_open_calls).map(|node| &node.item);
    let items: Vec<&Item> = items.collect();
    // All ids are distinct; otherwise, the state would be invalid.
    let mut open = HashSet::new();
    for item in items.into_iter().rev().filter(|item| !item.tombstone) {
        match &item.kind {
            ItemKind::ToolCall(call) => drop(open.insert(call.call_id.clone())),
            ItemKind::ToolResult(result) => drop(open.remove(&result.call_id)),
            _ => {}
        }
    }
    open
}
