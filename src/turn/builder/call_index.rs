//! Where the calls of a turn are found, however many there are.

use std::collections::{HashMap, HashSet};

use crate::item::{History, unused_call_id};

/// The places of calls by what a wire calls them, and the ids that were given out.
#[derive(Debug, Default)]
pub(super) struct CallIndex {
    /// The newest call of a key.
    by_key: HashMap<u32, usize>,
    by_wire_id: HashMap<String, Vec<usize>>,
    used_ids: HashSet<String>,
    /// How far the numbers behind an id are used up.
    last_suffixes: HashMap<String, usize>,
    /// The ids of the settled history. Settled, because that renames too.
    history_ids: Option<HashSet<String>>,
}

impl CallIndex {
    pub(super) fn insert(&mut self, key: u32, wire_id: &str, at: usize) {
        self.by_key.insert(key, at);
        match self.by_wire_id.get_mut(wire_id) {
            Some(places) => places.push(at),
            None => {
                self.by_wire_id.insert(wire_id.to_owned(), vec![at]);
            }
        }
    }

    /// The newest call of a key.
    pub(super) fn find_by_key(&self, key: u32) -> Option<usize> {
        self.by_key.get(&key).copied()
    }

    /// All calls of an id of the wire, the oldest first.
    pub(super) fn find_by_wire_id(&self, wire_id: &str) -> &[usize] {
        self.by_wire_id.get(wire_id).map_or(&[], Vec::as_slice)
    }

    /// Whether a call of this turn has the id.
    pub(super) fn is_used_id(&self, call_id: &str) -> bool {
        self.used_ids.contains(call_id)
    }

    pub(super) fn add_id(&mut self, call_id: &str) {
        self.used_ids.insert(call_id.to_owned());
    }

    /// Gives out a new id in place of one that is taken.
    pub(super) fn issue_replacement_id(
        &mut self,
        taken: &str,
        history: Option<&History>,
    ) -> String {
        let held = self.history_ids.get_or_insert_with(|| {
            let settled = history.map(History::settled);
            settled.iter().flat_map(History::used_call_ids).map(str::to_owned).collect()
        });
        let last = self.last_suffixes.entry(taken.to_owned()).or_default();
        let given = &self.used_ids;
        let id = unused_call_id(taken, last, |id| held.contains(id) || given.contains(id));
        self.add_id(&id);
        id
    }
}
