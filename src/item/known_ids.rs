//! Which call ids a history ever held, told without a look at its entries.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A set of ids by their hashes. It never forgets one, and may take an id for one of its own.
///
/// Clones share it; adding an id copies the path to it and nothing else, so that a long history
/// costs no more to append to than a short one.
#[derive(Clone, Default)]
pub(super) struct KnownIds(Option<Arc<Node>>);

#[derive(Clone)]
enum Node {
    One(u64),
    /// By the next four bits of the hash.
    Many([KnownIds; 16]),
}

impl KnownIds {
    pub(super) fn insert(&mut self, id: &str) {
        self.insert_hash(hash(id), 0);
    }

    /// Whether the id may be here. If not, it is not.
    pub(super) fn may_hold(&self, id: &str) -> bool {
        let hash = hash(id);
        let (mut ids, mut depth) = (self, 0);
        loop {
            match ids.0.as_deref() {
                None => return false,
                Some(Node::One(held)) => return *held == hash,
                Some(Node::Many(many)) => ids = &many[slot(hash, depth)],
            }
            depth += 1;
        }
    }

    /// Two hashes differ in one of their sixteen slots, so that it ends there at the latest.
    fn insert_hash(&mut self, hash: u64, depth: u32) {
        let Some(node) = &mut self.0 else {
            self.0 = Some(Arc::new(Node::One(hash)));
            return;
        };
        match Arc::make_mut(node) {
            Node::One(held) if *held == hash => {}
            Node::One(held) => {
                let mut many = <[Self; 16]>::default();
                many[slot(*held, depth)] = Self(Some(Arc::new(Node::One(*held))));
                many[slot(hash, depth)].insert_hash(hash, depth + 1);
                *node = Arc::new(Node::Many(many));
            }
            Node::Many(many) => many[slot(hash, depth)].insert_hash(hash, depth + 1),
        }
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

fn slot(hash: u64, depth: u32) -> usize {
    // Law: four bits fit.
    usize::try_from((hash >> (4 * depth)) & 15).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_held_and_a_clone_goes_its_own_way() {
        let mut ids = KnownIds::default();
        for n in 0..5_000 {
            ids.insert(&format!("call_{n}"));
        }
        let before = ids.clone();
        for n in 5_000..10_000 {
            ids.insert(&format!("call_{n}"));
        }
        assert!((0..10_000).all(|n| ids.may_hold(&format!("call_{n}"))));
        assert!((0..5_000).all(|n| before.may_hold(&format!("call_{n}"))));
        assert!((5_000..10_000).all(|n| !before.may_hold(&format!("call_{n}"))));
    }

    #[test]
    fn hashes_that_differ_in_their_last_bits_only_are_told_apart() {
        let mut ids = KnownIds::default();
        ids.insert_hash(0, 0);
        ids.insert_hash(1 << 63, 0);
        ids.insert_hash(1 << 62, 0);
        let Some(Node::Many(_)) = ids.0.as_deref() else { panic!("there are several") };
    }
}
