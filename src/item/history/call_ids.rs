//! The index of a history's call ids.

use std::collections::HashSet;
use std::sync::Arc;

use crate::item::history::node::drop_iteratively;
use crate::item::used_id_filter::UsedIdFilter;

/// The call ids in a history.
#[derive(Clone, Default)]
pub(super) struct CallIds {
    /// The ids of calls that have been removed by rewrites.
    retired: Option<Arc<RetiredCallIds>>,
    /// Every call id that the history contains or ever contained.
    pub(super) used_ids: UsedIdFilter,
    /// The ids of calls that have no result. The set remains empty until these ids are first
    /// needed.
    pub(super) open_ids: HashSet<String>,
}

/// A linked list of the call ids that were removed by rewrites, newest first.
struct RetiredCallIds {
    call_id: String,
    older: Option<Arc<RetiredCallIds>>,
}

impl Drop for RetiredCallIds {
    fn drop(&mut self) {
        drop_iteratively(self.older.take(), |link| link.older.take());
    }
}

impl CallIds {
    pub(super) fn retire(&mut self, call_id: String) {
        self.used_ids.insert(&call_id);
        let parent = self.retired.take();
        self.retired = Some(Arc::new(RetiredCallIds { call_id, older: parent }));
    }

    /// Iterates over the ids of calls that were removed by rewrites, newest first.
    pub(super) fn retired_ids(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(self.retired.as_deref(), |retired| retired.older.as_deref())
            .map(|retired| retired.call_id.as_str())
    }
}

/// The known call ids, which are used to detect a duplicate id in an appended item.
pub(super) enum SeenCallIds {
    /// The call ids have not been collected yet.
    NotCollected,
    /// The ids of all calls in the history, except calls that were marked as tombstones.
    Collected(HashSet<String>),
    /// The caller guarantees that all call ids are distinct.
    AllDistinct,
}
