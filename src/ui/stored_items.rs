//! The items of a session as they are shown: with all that was compacted, without what is void.

use crate::event::RewriteReason;
use crate::item::Item;
use crate::session::Entry;

/// Items with the numbers of their entries.
pub(super) struct StoredItems(Vec<(u64, Item)>);

impl StoredItems {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let mut items: Vec<(u64, Item)> = Vec::new();
        for (number, entry) in (0..).zip(entries) {
            match entry {
                Entry::Item(item) if !item.tombstone => items.push((number, item)),
                // An entry says where its items stood in the history of then: they are found by what they say.
                Entry::Rewritten { why: RewriteReason::Tombstoned, items: void, .. } => {
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
        Self(items)
    }
}

impl IntoIterator for StoredItems {
    type Item = (u64, Item);
    type IntoIter = std::vec::IntoIter<(u64, Item)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
