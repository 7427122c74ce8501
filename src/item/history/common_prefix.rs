//! Compares the prefixes of two histories. The cost of a comparison depends only on the number of
//! items that the histories do not share.

use std::sync::Arc;

use crate::item::history::History;

impl History {
    /// Returns a history with the same items, but without the index and caches.
    pub(crate) fn without_caches(&self) -> Self {
        Self { tip: self.tip.clone(), ..Self::empty(Arc::clone(&self.id)) }
    }

    /// Counts the leading items that both histories share in memory.
    pub(crate) fn shared_prefix_len(&self, other: &Self) -> usize {
        let most = self.len().min(other.len());
        let ours = self.nodes().skip(self.len() - most);
        let mut both = ours.zip(other.nodes().skip(other.len() - most));
        both.find(|(ours, theirs)| Arc::ptr_eq(ours, theirs)).map_or(0, |(node, _)| node.len)
    }

    /// Counts the leading items that are equal in both histories.
    pub(crate) fn common_prefix_len(&self, other: &Self) -> usize {
        let shared = self.shared_prefix_len(other);
        let mut both = self.entries_after(shared).zip(other.entries_after(shared));
        let differ = both.position(|((_, ours), (_, theirs))| ours != theirs);
        shared + differ.unwrap_or((self.len() - shared).min(other.len() - shared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Item;

    fn history(items: &[&str]) -> History {
        History::from_items("h", items.iter().map(|text| Item::user(*text)))
    }

    #[test]
    fn forked_histories_share_their_common_entries() {
        let check = |ours: &History, theirs: &History, shared: usize, common: usize| {
            assert_eq!(
                (ours.shared_prefix_len(theirs), ours.common_prefix_len(theirs)),
                (shared, common)
            );
            assert_eq!(
                (theirs.shared_prefix_len(ours), theirs.common_prefix_len(ours)),
                (shared, common)
            );
        };
        let base = history(&["a", "b"]);
        let with = |item: &str| {
            let mut longer = base.clone();
            longer.push(Item::user(item));
            longer
        };
        check(&base, &base, 2, 2);
        check(&base, &with("c"), 2, 2);
        check(&with("c"), &with("c"), 2, 3);
        check(&with("c"), &with("d"), 2, 2);
        check(&base, &history(&["a", "b", "c"]), 0, 2);
        check(&base, &history(&["x", "b"]), 0, 0);
        check(&base, &history(&[]), 0, 0);
        let mut rewritten = with("c");
        rewritten.rewrite(1..2, [Item::user("x")]);
        check(&rewritten, &with("c"), 1, 1);
    }
}
