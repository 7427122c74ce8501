//! A set of numbers that is shared by its clones.

use std::sync::Arc;

/// A set of numbers.
///
/// Clones share it; adding a number copies the path to it and nothing else, so that a large set
/// costs no more to add to than a small one.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumberSet(Option<Arc<Node>>);

#[derive(Clone, Debug)]
enum Node {
    One(u64),
    /// By the next four bits of the number.
    Many([NumberSet; 16]),
}

impl NumberSet {
    /// Adds a number. Whether it was not there.
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
                Some(Node::One(held)) => return *held == number,
                Some(Node::Many(many)) => numbers = &many[slot(number, depth)],
            }
            depth += 1;
        }
    }

    /// Two numbers differ in one of their sixteen slots, so that it ends there at the latest.
    fn insert_at(&mut self, number: u64, depth: u32) {
        let Some(node) = &mut self.0 else {
            self.0 = Some(Arc::new(Node::One(number)));
            return;
        };
        match Arc::make_mut(node) {
            Node::One(held) if *held == number => {}
            Node::One(held) => {
                let mut many = <[Self; 16]>::default();
                many[slot(*held, depth)] = Self(Some(Arc::new(Node::One(*held))));
                many[slot(number, depth)].insert_at(number, depth + 1);
                *node = Arc::new(Node::Many(many));
            }
            Node::Many(many) => many[slot(number, depth)].insert_at(number, depth + 1),
        }
    }
}

fn slot(number: u64, depth: u32) -> usize {
    // Law: four bits fit.
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
        let Some(Node::Many(_)) = numbers.0.as_deref() else { panic!("there are several") };
    }
}
