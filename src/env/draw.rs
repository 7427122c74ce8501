//! Random values for test cases, which can be reproduced from a seed.

use crate::env::{Random, SeededRandom};

/// Generates the random values for a single test case.
pub(crate) struct TestRng(SeededRandom);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// Returns a random number in `0..below`.
    pub(crate) fn next_below(&self, below: usize) -> usize {
        let number = self.0.next_u64() % u64::try_from(below).expect("a small number");
        usize::try_from(number).expect("it fits into a `usize`")
    }

    pub(crate) fn next_bool(&self) -> bool {
        self.next_below(2) == 0
    }

    pub(crate) fn pick_one<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.next_below(all.len())]
    }

    /// Returns a vector with a random length of at most `max` elements.
    pub(crate) fn random_vec<T>(&self, max: usize, mut element: impl FnMut() -> T) -> Vec<T> {
        (0..self.next_below(max + 1)).map(|_| element()).collect()
    }

    /// Returns a random string of at most `max` characters, all taken from `characters`.
    pub(crate) fn text(&self, characters: &[char], max: usize) -> String {
        self.random_vec(max, || *self.pick_one(characters)).into_iter().collect()
    }
}
