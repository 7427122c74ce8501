//! What comes from outside and must be repeatable in a test: ids.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where new ids come from: histories and what is appended to them are named by it.
///
/// Everything that draws an id takes it as an argument, so that the same script with the same
/// ids gives the same bytes.
///
/// ```
/// use turnstream::env::{CountingIds, Ids};
///
/// let ids = CountingIds::new("test");
/// assert_eq!(ids.draw(), "test-1");
/// assert_eq!(ids.draw(), "test-2");
/// ```
pub trait Ids: Send + Sync {
    /// Returns an id that this source never returned before.
    fn draw(&self) -> String;
}

/// Random ids of 32 hexadecimal digits, from the randomness that std seeds its hash maps with.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIds;

impl Ids for SystemIds {
    fn draw(&self) -> String {
        // A new `RandomState` has new keys each time; hashing nothing tells 64 bits of them.
        let word = || RandomState::new().build_hasher().finish();
        format!("{:016x}{:016x}", word(), word())
    }
}

/// Ids that count up from one behind a prefix, for tests.
#[derive(Debug, Default)]
pub struct CountingIds {
    prefix: String,
    last: AtomicU64,
}

impl CountingIds {
    /// Makes a source whose first id is `{prefix}-1`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), last: AtomicU64::new(0) }
    }
}

impl Ids for CountingIds {
    fn draw(&self) -> String {
        let n = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}-{n}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn system_ids_do_not_repeat() {
        let drawn: HashSet<_> = (0..10_000).map(|_| SystemIds.draw()).collect();
        assert_eq!(drawn.len(), 10_000);
        assert!(drawn.iter().all(|id| id.len() == 32));
    }
}
