//! A map that is stored as a list while it contains only a few entries.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// The maximum number of entries in a map that is stored as a list. Larger maps are stored as hash
/// maps.
const MAX_LISTED: usize = 16;

/// A map that usually contains only a few entries. An empty map allocates no memory. A small map is
/// stored as a list, in which lookups are faster than in a hash map. A large map is stored as a
/// hash map.
#[derive(Clone, Debug)]
pub(crate) enum SmallMap<K, V> {
    List(Vec<(K, V)>),
    #[expect(clippy::box_collection, reason = "the map alone is twice as large as the list")]
    Hashed(Box<HashMap<K, V>>),
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl<K: Hash + Eq, V> SmallMap<K, V> {
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match self {
            Self::List(list) => {
                let mut newest_first = list.iter().rev();
                newest_first.find(|(other, _)| other.borrow() == key).map(|(_, value)| value)
            }
            Self::Hashed(map) => map.get(key),
        }
    }

    pub(crate) fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match self {
            Self::List(list) => {
                let mut newest_first = list.iter_mut().rev();
                newest_first.find(|(other, _)| (*other).borrow() == key).map(|(_, value)| value)
            }
            Self::Hashed(map) => map.get_mut(key),
        }
    }

    /// Inserts an entry, or replaces the value if the key already exists.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(old) = self.get_mut(&key) {
            *old = value;
            return;
        }
        match self {
            Self::List(list) if list.len() < MAX_LISTED => list.push((key, value)),
            Self::List(list) => {
                let entries = std::mem::take(list).into_iter().chain([(key, value)]);
                *self = Self::Hashed(Box::new(entries.collect()));
            }
            Self::Hashed(map) => drop(map.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::draw::TestRng;

    #[test]
    fn small_and_large_maps_behave_like_a_hash_map() {
        let rng = TestRng::new(7);
        for keys in [5, 17, 40] {
            let (mut small, mut hashed) = (SmallMap::default(), HashMap::new());
            for value in 0..100 {
                let key = rng.next_below(keys).to_string();
                small.insert(key.clone(), value);
                hashed.insert(key, value);
                for key in (0..keys).map(|key| key.to_string()) {
                    assert_eq!(small.get(key.as_str()), hashed.get(&key));
                    assert_eq!(small.get_mut(key.as_str()), hashed.get_mut(&key));
                }
            }
        }
    }

    #[test]
    fn a_map_with_few_entries_is_not_hashed() {
        let mut map = SmallMap::default();
        (0..MAX_LISTED).for_each(|key| map.insert(key, ()));
        map.insert(0, ());
        assert!(matches!(&map, SmallMap::List(list) if list.len() == MAX_LISTED));
        map.insert(MAX_LISTED, ());
        assert!(matches!(&map, SmallMap::Hashed(map) if map.len() == MAX_LISTED + 1));
    }
}
