//! Which call ids a history ever held, told without a look at its entries.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::item::NumberSet;

/// A set of ids by their hashes. It never forgets one, and may take an id for one of its own.
///
/// Clones share it, and a long history costs no more to append to than a short one.
#[derive(Clone, Default)]
pub(super) struct UsedIdFilter(NumberSet);

impl UsedIdFilter {
    pub(super) fn insert(&mut self, id: &str) {
        self.0.insert(hash(id));
    }

    /// Whether the id may be here. If not, it is not.
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
