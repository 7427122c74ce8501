//! Looks up a turn's calls by their key or id.

use std::collections::{HashMap, HashSet};

use crate::item::{History, unused_call_id};
use crate::small_map::SmallMap;

/// Indexes calls by their key and by their id in the wire format, and tracks which call ids are in
/// use.
#[derive(Debug, Default)]
pub(super) struct CallIndex {
    /// The index of the newest call for each key.
    by_key: SmallMap<u32, usize>,
    by_wire_id: SmallMap<String, Vec<usize>>,
    used_ids: SmallMap<String, ()>,
    replacements: Option<Box<Replacements>>,
}

/// State that is needed only once an id has been replaced.
#[derive(Debug)]
struct Replacements {
    /// The number that was last appended to each replaced id.
    last_suffixes: HashMap<String, usize>,
    /// The call ids that are in use in the [settled](crate::History::settled) history. They can
    /// differ from the ids in the history itself, because duplicate ids are renamed when a history
    /// is settled.
    history_ids: HashSet<String>,
}

impl CallIndex {
    pub(super) fn insert(&mut self, key: u32, wire_id: &str, at: usize) {
        self.by_key.insert(key, at);
        match self.by_wire_id.get_mut(wire_id) {
            Some(positions) => positions.push(at),
            None => {
                self.by_wire_id.insert(wire_id.to_owned(), vec![at]);
            }
        }
    }

    /// Returns the index of the newest call with this key.
    pub(super) fn find_by_key(&self, key: u32) -> Option<usize> {
        self.by_key.get(&key).copied()
    }

    /// Returns the indices of all calls with this id in the wire format, oldest first.
    pub(super) fn find_by_wire_id(&self, wire_id: &str) -> &[usize] {
        self.by_wire_id.get(wire_id).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a call in this turn has this id.
    pub(super) fn is_used_id(&self, call_id: &str) -> bool {
        self.used_ids.get(call_id).is_some()
    }

    pub(super) fn add_id(&mut self, call_id: &str) {
        self.used_ids.insert(call_id.to_owned(), ());
    }

    /// Issues a new id to replace one that is already in use.
    pub(super) fn issue_replacement_id(
        &mut self,
        taken: &str,
        history: Option<&History>,
    ) -> String {
        let Replacements { last_suffixes, history_ids } =
            &mut **self.replacements.get_or_insert_with(|| {
                let settled = history.map(History::settled);
                let ids = settled.iter().flat_map(History::used_call_ids).map(str::to_owned);
                Box::new(Replacements { last_suffixes: HashMap::new(), history_ids: ids.collect() })
            });
        let last = last_suffixes.entry(taken.to_owned()).or_default();
        let used = &self.used_ids;
        let is_taken = |id: &str| history_ids.contains(id) || used.get(id).is_some();
        let id = unused_call_id(taken, last, is_taken);
        self.add_id(&id);
        id
    }
}
