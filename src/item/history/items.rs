//! The iterator over the entries.

use crate::item::Item;
use crate::item::history::History;

impl<'a> IntoIterator for &'a History {
    type Item = &'a Item;
    type IntoIter = Items<'a>;

    fn into_iter(self) -> Items<'a> {
        self.iter()
    }
}

/// Iterator for the [`iter`](History::iter) method of [`History`].
#[derive(Clone, Debug)]
pub struct Items<'a>(std::iter::Rev<std::vec::IntoIter<&'a Item>>);

impl<'a> Items<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut items = Vec::with_capacity(history.len());
        items.extend(history.newest_first());
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
