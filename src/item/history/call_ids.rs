//! What is known of calls, beside the entries.

use std::collections::HashSet;
use std::sync::Arc;

use crate::item::history::node::drop_iteratively;
use crate::item::used_id_filter::UsedIdFilter;

/// The ids of the calls of a history.
#[derive(Clone, Default)]
pub(super) struct CallIds {
    /// Those that were rewritten away.
    retired: Option<Arc<RetiredCallIds>>,
    /// Every one that is there or ever was.
    pub(super) used_ids: UsedIdFilter,
    /// Those without a result; empty where they were not asked for.
    pub(super) open_ids: HashSet<String>,
}

/// Call ids that were rewritten away, newest first.
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

    /// Those that were rewritten away, newest first.
    pub(super) fn retired_ids(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(self.retired.as_deref(), |retired| retired.older.as_deref())
            .map(|retired| retired.call_id.as_str())
    }
}

/// What an entry that is appended is compared with, to find an id that a call has already.
pub(super) enum SeenCallIds {
    /// Nothing was collected yet.
    NotCollected,
    /// The ids of all calls that count.
    Collected(HashSet<String>),
    /// It is known that no two are the same.
    AllDistinct,
}
