//! Random parts of a test case, the same for the same seed.

use crate::env::{Random, SeededRandom};

/// Draws the parts of one test case.
pub(crate) struct Draw(SeededRandom);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// One of `0..below`.
    pub(crate) fn number(&self, below: usize) -> usize {
        let number = self.0.next_u64() % u64::try_from(below).expect("a small number");
        usize::try_from(number).expect("it is below a `usize`")
    }

    pub(crate) fn flag(&self) -> bool {
        self.number(2) == 0
    }

    pub(crate) fn one_of<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.number(all.len())]
    }

    /// At most `max` elements.
    pub(crate) fn list<T>(&self, max: usize, mut element: impl FnMut() -> T) -> Vec<T> {
        (0..self.number(max + 1)).map(|_| element()).collect()
    }

    /// At most `max` of these characters.
    pub(crate) fn text(&self, characters: &[char], max: usize) -> String {
        self.list(max, || *self.one_of(characters)).into_iter().collect()
    }
}
