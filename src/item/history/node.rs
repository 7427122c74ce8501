//! An entry in the chain of them.

use std::iter::successors;
use std::sync::Arc;

use crate::item::Item;

/// An entry and all before it.
pub(super) struct Node {
    pub(super) item: Item,
    pub(super) parent: Option<Arc<Node>>,
    pub(super) len: usize,
    /// How many completed turns are here and before.
    pub(super) completed_turns: usize,
    /// Whether an entry here or before is marked as compacted.
    pub(super) has_compacted_items: bool,
    /// Whether all up to here is lawful.
    pub(super) settle_state: SettleState,
}

impl Drop for Node {
    fn drop(&mut self) {
        drop_iteratively(self.parent.take(), |link| link.parent.take());
    }
}

/// What is known of an entry and all before it, by the law of [`settle`](crate::item::settle).
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and they are small")]
pub(super) struct SettleState {
    /// No entry that follows can make it lawful.
    pub(super) is_invalid: bool,
    /// A call has no result yet.
    pub(super) has_open_calls: bool,
    pub(super) has_results: bool,
    pub(super) turn_ended: bool,
}

impl SettleState {
    pub(super) fn is_settled(self) -> bool {
        !self.is_invalid && !self.has_open_calls
    }
}

/// The entries of a chain, newest first.
pub(super) fn iter_chain(tip: Option<&Arc<Node>>) -> impl Iterator<Item = &Arc<Node>> {
    successors(tip, |node| node.parent.as_ref())
}

/// Drops a chain link by link: by recursion a long one would overflow the stack.
pub(super) fn drop_iteratively<T>(
    first: Option<Arc<T>>,
    take_next: impl Fn(&mut T) -> Option<Arc<T>>,
) {
    let mut next = first;
    while let Some(mut link) = next.and_then(Arc::into_inner) {
        next = take_next(&mut link);
    }
}
