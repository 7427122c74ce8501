//! A node in a history's chain of items.

use std::iter::successors;
use std::sync::Arc;

use crate::item::Item;

/// An item, with a link to the preceding items.
pub(super) struct Node {
    pub(super) item: Item,
    pub(super) parent: Option<Arc<Node>>,
    pub(super) len: usize,
    /// The number of completed turns up to and including this item.
    pub(super) completed_turns: usize,
    /// Whether this item or an earlier item is marked as compacted.
    pub(super) has_compacted_items: bool,
    /// The settle state of the items up to and including this item.
    pub(super) settle_state: SettleState,
}

impl Drop for Node {
    fn drop(&mut self) {
        drop_iteratively(self.parent.take(), |link| link.parent.take());
    }
}

/// The facts that determine whether the items up to and including an item are
/// [settled](crate::item::settle).
#[derive(Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact, and they are \
small"
)]
pub(super) struct SettleState {
    /// Whether the items are invalid in a way that no later item can repair.
    pub(super) is_invalid: bool,
    /// Whether at least one call has no result yet.
    pub(super) has_open_calls: bool,
    pub(super) has_results: bool,
    pub(super) turn_ended: bool,
}

impl SettleState {
    pub(super) fn is_settled(self) -> bool {
        !self.is_invalid && !self.has_open_calls
    }
}

/// Iterates over the nodes of a chain, newest first.
pub(super) fn iter_chain(tip: Option<&Arc<Node>>) -> impl Iterator<Item = &Arc<Node>> {
    successors(tip, |node| node.parent.as_ref())
}

/// Drops a chain iteratively, because recursion would overflow the stack for a long chain.
pub(super) fn drop_iteratively<T>(
    first: Option<Arc<T>>,
    take_next: impl Fn(&mut T) -> Option<Arc<T>>,
) {
    let mut next = first;
    while let Some(mut link) = next.and_then(Arc::into_inner) {
        next = take_next(&mut link);
    }
}
