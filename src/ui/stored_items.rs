//! Collects a session's items for display. Compacted items are included, and items that were marked
//! as tombstones are left out.

use crate::event::RewriteReason;
use crate::item::Item;
use crate::session::Entry;

/// A session's items, each with the number of its entry.
pub(super) struct StoredItems {
    items: Vec<(u64, Item)>,
    /// The numbers of the entries that marked items as tombstones.
    voided_at: Vec<u64>,
}

impl StoredItems {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let mut items: Vec<(u64, Item)> = Vec::new();
        let mut voided_at = Vec::new();
        for (number, entry) in (0..).zip(entries) {
            match entry {
                Entry::Item(item) if !item.tombstone => items.push((number, item)),
                // The entry contains the items' positions in an earlier state of the history, so
                // the items are found by their content instead.
                Entry::Rewritten { why: RewriteReason::Tombstoned, items: void, .. } => {
                    voided_at.push(number);
                    for void in void.into_iter().filter(|item| item.tombstone) {
                        let is_it = |(_, item): &(u64, Item)| item.kind == void.kind;
                        if let Some(at) = items.iter().rposition(is_it) {
                            items.remove(at);
                        }
                    }
                }
                _ => {}
            }
        }
        Self { items, voided_at }
    }

    /// Returns the number of the last entry before `number` that marked items as tombstones.
    pub(super) fn voided_before(&self, number: u64) -> Option<u64> {
        self.voided_at.iter().copied().filter(|at| *at < number).max()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Item)> {
        self.items.iter().map(|(number, item)| (*number, item))
    }
}
