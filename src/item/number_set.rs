//! A set of numbers that shares its structure with its clones.

use std::sync::Arc;

/// A persistent set of numbers.
///
/// Clones share their structure. Adding a number copies only the path to that number, so the cost
/// is independent of the size of the set.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumberSet(Option<Arc<TrieNode>>);

#[derive(Clone, Debug)]
enum TrieNode {
    Leaf(u64),
    /// The subsets, indexed by the next four bits of a number.
    Branch([NumberSet; 16]),
}

impl NumberSet {
    /// Adds a number. Returns `true` if the number was not already in the set.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        let is_missing = !self.contains(number);
        if is_missing {
            self.insert_at(number, 0);
        }
        is_missing
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let (mut numbers, mut depth) = (self, 0);
        loop {
            match numbers.0.as_deref() {
                None => return false,
                Some(TrieNode::Leaf(held)) => return *held == number,
                Some(TrieNode::Branch(many)) => numbers = &many[slot_index(number, depth)],
            }
            depth += 1;
        }
    }

    /// Adds a number to the subtree at `depth`. The recursion ends after at most sixteen levels,
    /// because two different numbers differ in one of their sixteen four-bit groups.
    fn insert_at(&mut self, number: u64, depth: u32) {
        let Some(node) = &mut self.0 else {
            self.0 = Some(Arc::new(TrieNode::Leaf(number)));
            return;
        };
        match Arc::make_mut(node) {
            TrieNode::Leaf(held) if *held == number => {}
            TrieNode::Leaf(held) => {
                let mut many = <[Self; 16]>::default();
                many[slot_index(*held, depth)] = Self(Some(Arc::new(TrieNode::Leaf(*held))));
                many[slot_index(number, depth)].insert_at(number, depth + 1);
                *node = Arc::new(TrieNode::Branch(many));
            }
            TrieNode::Branch(many) => many[slot_index(number, depth)].insert_at(number, depth + 1),
        }
    }
}

fn slot_index(number: u64, depth: u32) -> usize {
    // Invariant: four bits fit into a `usize`.
    usize::try_from((number >> (4 * depth)) & 15).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_only_in_their_last_bits_are_distinguished() {
        let mut numbers = NumberSet::default();
        assert!(numbers.insert(0));
        assert!(numbers.insert(1 << 63));
        assert!(numbers.insert(1 << 62));
        assert!(!numbers.insert(1 << 63));
        let Some(TrieNode::Branch(_)) = numbers.0.as_deref() else { panic!("there are several") };
    }
}
