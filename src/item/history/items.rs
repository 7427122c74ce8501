//! The iterator over a history's items.

use crate::item::Item;

/// An iterator over the items in a history, oldest first, created by
/// [`History::iter`](crate::History::iter).
#[derive(Clone, Debug)]
pub struct Items<'a>(std::iter::Rev<std::vec::IntoIter<&'a Item>>);

impl<'a> Items<'a> {
    /// Creates the iterator from `len` items that are given newest first.
    pub(super) fn from_newest_first(
        newest_first: impl Iterator<Item = &'a Item>,
        len: usize,
    ) -> Self {
        let mut items = Vec::with_capacity(len);
        items.extend(newest_first);
        Self(items.into_iter().rev())
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a Item;

    fn next(&mut self) -> Option<&'a Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Items<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

impl ExactSizeIterator for Items<'_> {}
