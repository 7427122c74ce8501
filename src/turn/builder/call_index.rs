//! Where the calls of a turn are found, however many there are.

use std::collections::{HashMap, HashSet};

use crate::item::{History, unused_call_id};

/// The places of calls by what a wire calls them, and the ids that were given out.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The newest call of a key.
    keys: HashMap<u32, usize>,
    wire_ids: HashMap<String, Vec<usize>>,
    given: HashSet<String>,
    /// How far the numbers behind an id are used up.
    numbers: HashMap<String, usize>,
    /// The ids of the settled history. Settled, because that renames too.
    held: Option<HashSet<String>>,
}

impl Places {
    pub(super) fn put(&mut self, key: u32, wire_id: &str, at: usize) {
        self.keys.insert(key, at);
        match self.wire_ids.get_mut(wire_id) {
            Some(places) => places.push(at),
            None => {
                self.wire_ids.insert(wire_id.to_owned(), vec![at]);
            }
        }
    }

    /// The newest call of a key.
    pub(super) fn of_key(&self, key: u32) -> Option<usize> {
        self.keys.get(&key).copied()
    }

    /// All calls of an id of the wire, the oldest first.
    pub(super) fn of_wire_id(&self, wire_id: &str) -> &[usize] {
        self.wire_ids.get(wire_id).map_or(&[], Vec::as_slice)
    }

    /// Whether a call of this turn has the id.
    pub(super) fn holds(&self, call_id: &str) -> bool {
        self.given.contains(call_id)
    }

    pub(super) fn give(&mut self, call_id: &str) {
        self.given.insert(call_id.to_owned());
    }

    /// Gives out a new id in place of one that is taken.
    pub(super) fn rename(&mut self, taken: &str, history: Option<&History>) -> String {
        let held = self.held.get_or_insert_with(|| {
            let settled = history.map(History::settled);
            settled.iter().flat_map(History::used_call_ids).map(str::to_owned).collect()
        });
        let last = self.numbers.entry(taken.to_owned()).or_default();
        let given = &self.given;
        let id = unused_call_id(taken, last, |id| held.contains(id) || given.contains(id));
        self.give(&id);
        id
    }
}
