//! A filter for the call ids that a history has ever used, which avoids a search through all of the
//! history's items.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::item::NumberSet;

/// A set of call ids, stored as hashes. Ids are never removed, and hash collisions can cause false
/// positives.
///
/// Clones share their structure, and the cost of adding an id is independent of the length of the
/// history.
#[derive(Clone, Default)]
pub(super) struct UsedIdFilter(NumberSet);

impl UsedIdFilter {
    pub(super) fn insert(&mut self, id: &str) {
        self.0.insert(hash(id));
    }

    /// Returns whether the id may be in the set. If this method returns `false`, the id is not in
    /// the set.
    pub(super) fn may_contain(&self, id: &str) -> bool {
        self.0.contains(hash(id))
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_ids_are_contained_and_clones_are_independent() {
        let mut ids = UsedIdFilter::default();
        for n in 0..5_000 {
            ids.insert(&format!("call_{n}"));
        }
        let before = ids.clone();
        for n in 5_000..10_000 {
            ids.insert(&format!("call_{n}"));
        }
        assert!((0..10_000).all(|n| ids.may_contain(&format!("call_{n}"))));
        assert!((0..5_000).all(|n| before.may_contain(&format!("call_{n}"))));
        assert!((5_000..10_000).all(|n| !before.may_contain(&format!("call_{n}"))));
    }
}
