//! Collects a session's items for display. Compacted items are included, and items that were marked
//! as tombstones are left out.

use std::collections::HashMap;

use crate::event::{AppendReason, EndReason, RewriteReason};
use crate::item::{History, Item};
use crate::session::Entry;

/// A session's items, each with the number of its entry.
pub(super) struct StoredItems {
    items: Vec<StoredItem>,
    /// The numbers of the entries that marked items as tombstones.
    voided_at: Vec<u64>,
    /// The histories of sub-agents and the reasons why they ended, by the ids of the calls that ran
    /// them.
    sub_agents: HashMap<String, (History, Option<EndReason>)>,
}

/// An item of a session.
pub(super) struct StoredItem {
    /// The number of the item's entry.
    pub(super) number: u64,
    pub(super) item: Item,
    /// The source of the item, if a run that had already started added it.
    pub(super) appended: Option<AppendedBy>,
}

/// The source of an item that a run added.
#[derive(Clone)]
pub(super) struct AppendedBy {
    pub(super) why: AppendReason,
    /// The id of the event that added the item and others.
    id: String,
    /// The position of the item among those that were added together.
    index: usize,
    /// The number of the entry after those that were added together.
    pub(super) next_entry: u64,
}

impl AppendedBy {
    /// Returns whether the item is input that the user sent during the run. Other items, such as
    /// corrections and messages from hooks, are not shown to the user.
    pub(super) fn is_user_input(&self) -> bool {
        matches!(self.why, AppendReason::Steer | AppendReason::FollowUp)
    }

    /// Returns an id for the item. A part with a reused id would replace the earlier part, so each
    /// of several items has its own id.
    pub(super) fn item_id(&self) -> String {
        appended_item_id(&self.id, self.index)
    }
}

/// Returns the id of one of the items that an event with this id has added.
pub(super) fn appended_item_id(event_id: &str, index: usize) -> String {
    match index {
        0 => event_id.to_owned(),
        _ => format!("{event_id}.{index}"),
    }
}

impl StoredItems {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let mut stored =
            Self { items: Vec::new(), voided_at: Vec::new(), sub_agents: HashMap::new() };
        // The numbers of the entries with items, including items that are not shown.
        let mut item_numbers: Vec<u64> = Vec::new();
        for (number, entry) in (0..).zip(entries) {
            match entry {
                Entry::Item(item) => {
                    item_numbers.push(number);
                    if !item.tombstone {
                        stored.items.push(StoredItem { number, item, appended: None });
                    }
                }
                Entry::Appended { why, id, count } => {
                    let first = item_numbers.len().saturating_sub(count);
                    for (index, item_number) in item_numbers.split_off(first).iter().enumerate() {
                        let (id, next_entry) = (id.clone(), number + 1);
                        let appended = AppendedBy { why, id, index, next_entry };
                        stored.set_appended(*item_number, appended);
                    }
                }
                // The entry contains the items' positions in an earlier state of the history, so
                // the items are found by their content instead.
                Entry::Rewritten { why: RewriteReason::Tombstoned, items: void, .. } => {
                    stored.voided_at.push(number);
                    for void in void.into_iter().filter(|item| item.tombstone) {
                        let is_it = |stored: &StoredItem| stored.item.kind == void.kind;
                        if let Some(at) = stored.items.iter().rposition(is_it) {
                            stored.items.remove(at);
                        }
                    }
                }
                Entry::Nested { call_id, history, reason } => {
                    stored.sub_agents.insert(call_id, (history, reason));
                }
                _ => {}
            }
        }
        stored
    }

    fn set_appended(&mut self, number: u64, appended: AppendedBy) {
        let found = self.items.binary_search_by_key(&number, |stored| stored.number);
        if let Ok(at) = found {
            self.items[at].appended = Some(appended);
        }
    }

    /// Returns the number of the last entry before `number` that marked items as tombstones.
    pub(super) fn voided_before(&self, number: u64) -> Option<u64> {
        self.voided_at.iter().copied().filter(|at| *at < number).max()
    }

    /// Returns the stored history of the sub-agent that a call ran, and the reason why its run
    /// ended, if the run was not cut off.
    pub(super) fn sub_agent(&self, call_id: &str) -> Option<(&History, Option<EndReason>)> {
        self.sub_agents.get(call_id).map(|(history, reason)| (history, *reason))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &StoredItem> {
        self.items.iter()
    }
}
