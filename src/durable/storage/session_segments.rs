//! Stores a session's entries as small values in a key-value store.

use std::fmt::{Display, Write as _};
use std::mem;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::session::Entry;

/// The maximum size of a value, in bytes.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// The key of the head value, which lists the other values.
const HEAD_KEY: &str = "head";

/// Stores a session's entries in a key-value store, in values of at most 64 KiB.
///
/// The entries are stored as lines of JSON. While a run is active, entries are appended as small
/// values, called pieces, so that each write is small. At the end of the run, the pieces are merged
/// into larger values, called segments. All segments except the last are full, so the number of
/// values to read stays small.
///
/// Except for the head, which lists the other values, each value is written only once. As long as
/// the caller applies the writes in order, the entries can be read at any time, even between two
/// writes from the same list.
///
/// The [module](crate::durable::storage) has an example.
#[derive(Clone, Debug, Default)]
pub struct SessionSegments {
    head: Head,
    /// The content of the last segment.
    tail: String,
    /// The content of all pieces, which are the small values written during a run.
    pieces: String,
}

/// A single write that sets or clears a value in the key-value store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentWrite {
    /// The key to write.
    pub key: String,
    /// The key's new value. `None` clears the key.
    pub value: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Head {
    v: u32,
    /// The number of entries in the session.
    entry_count: u64,
    /// The numbers of the segments, in the order of their entries.
    segments: Vec<u32>,
    pieces: Vec<u32>,
    /// The number to assign to the next value.
    next_number: u32,
}

impl SessionSegments {
    /// Returns the key of the head. The head is the stored value that lists the keys of all other
    /// values. Pass it to [`open`](Self::open).
    pub fn head_key() -> &'static str {
        HEAD_KEY
    }

    /// Opens a session from the head, the value that lists all other values. If `head` is `None`,
    /// the session is empty.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the head cannot be parsed or was written in a
    /// later version of the format.
    pub fn open(head: Option<&str>) -> Result<Self, Error> {
        let head = match head {
            Some(head) => {
                serde_json::from_str(head).map_err(|error| unreadable(HEAD_KEY, &error))?
            }
            None => Head { v: 1, ..Head::default() },
        };
        if head.v != 1 {
            return Err(unreadable(HEAD_KEY, &format!("its format version is {}", head.v)));
        }
        Ok(Self { head, tail: String::new(), pieces: String::new() })
    }

    /// Returns the number of entries in the session, from which the next append starts.
    pub fn version(&self) -> u64 {
        self.head.entry_count
    }

    /// Returns the keys whose values must be passed to [`read`](Self::read), in the order in which
    /// they must be passed.
    pub fn keys(&self) -> Vec<String> {
        self.head
            .segments
            .iter()
            .chain(&self.head.pieces)
            .map(|number| value_key(*number))
            .collect()
    }

    /// Parses the session's entries. `values` must contain the values of all [keys](Self::keys), in
    /// the same order as the keys.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the values do not contain entries, or if the
    /// number of entries differs from the [version](Self::version).
    pub fn read(&mut self, values: impl IntoIterator<Item = String>) -> Result<Vec<Entry>, Error> {
        let (mut all, mut count) = (String::new(), 0);
        for value in values {
            count += 1;
            all.push_str(&value);
            if count == self.head.segments.len() {
                self.tail.clone_from(&value);
            } else if count > self.head.segments.len() {
                self.pieces.push_str(&value);
            }
        }
        let entry =
            |line: &str| serde_json::from_str(line).map_err(|error| unreadable("an entry", &error));
        let entries = all.lines().map(entry).collect::<Result<Vec<Entry>, Error>>()?;
        if entries.len() as u64 != self.head.entry_count {
            let what = format!("only {} of {} entries exist", entries.len(), self.head.entry_count);
            return Err(unreadable("a session", &what));
        }
        Ok(entries)
    }

    /// Appends entries as new small values, called pieces. Returns the resulting writes, which the
    /// caller must apply in order.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if an entry cannot be serialized to JSON.
    pub fn append(&mut self, entries: &[Entry]) -> Result<Vec<SegmentWrite>, Error> {
        let mut text = String::new();
        for entry in entries {
            let line =
                serde_json::to_string(entry).map_err(|error| unreadable("an entry", &error))?;
            let _ = writeln!(text, "{line}");
        }
        let mut writes = Vec::new();
        for value in chunks(&text) {
            let number = self.head.next_number();
            writes.push(SegmentWrite::set(value_key(number), value.to_owned()));
            self.head.pieces.push(number);
        }
        self.pieces.push_str(&text);
        self.head.entry_count += entries.len() as u64;
        writes.push(self.write_head()?);
        Ok(writes)
    }

    /// Merges all pieces (the small values that [`append`](Self::append) added) and the last
    /// segment into larger values. Returns the resulting writes, which the caller must apply in
    /// order.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the head cannot be serialized to JSON.
    pub fn merge(&mut self) -> Result<Vec<SegmentWrite>, Error> {
        if self.head.pieces.is_empty() {
            return Ok(Vec::new());
        }
        let mut replaced = mem::take(&mut self.head.pieces);
        replaced.extend(self.head.segments.pop());
        let text = mem::take(&mut self.tail) + &mem::take(&mut self.pieces);
        let mut writes = Vec::new();
        for value in chunks(&text) {
            let number = self.head.next_number();
            writes.push(SegmentWrite::set(value_key(number), value.to_owned()));
            self.head.segments.push(number);
            value.clone_into(&mut self.tail);
        }
        writes.push(self.write_head()?);
        writes.extend(replaced.into_iter().map(|number| SegmentWrite::clear(value_key(number))));
        Ok(writes)
    }

    fn write_head(&self) -> Result<SegmentWrite, Error> {
        let head =
            serde_json::to_string(&self.head).map_err(|error| unreadable(HEAD_KEY, &error))?;
        Ok(SegmentWrite::set(HEAD_KEY.to_owned(), head))
    }
}

impl Head {
    fn next_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}

impl SegmentWrite {
    fn set(key: String, value: String) -> Self {
        Self { key, value: Some(value) }
    }

    fn clear(key: String) -> Self {
        Self { key, value: None }
    }
}

fn value_key(number: u32) -> String {
    format!("entries/{number:06}")
}

/// Splits a string into parts of at most [`MAX_VALUE_BYTES`] bytes.
fn chunks(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = text.floor_char_boundary(MAX_VALUE_BYTES);
        let (chunk, rest) = text.split_at(end);
        text = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

fn unreadable(what: &str, why: &impl Display) -> Error {
    Error::new(ErrorKind::Store, format!("the state of the session cannot be used: {what}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::item::Item;

    #[derive(Default)]
    struct State(BTreeMap<String, String>);

    impl State {
        fn open(&self) -> (SessionSegments, Vec<Entry>) {
            let head = self.0.get(SessionSegments::head_key()).map(String::as_str);
            let mut segments = SessionSegments::open(head).unwrap();
            let values: Vec<_> = segments.keys().iter().map(|key| self.0[key].clone()).collect();
            let entries = segments.read(values).unwrap();
            (segments, entries)
        }

        fn apply(&mut self, writes: Vec<SegmentWrite>) {
            let last = writes.len();
            for (at, SegmentWrite { key, value }) in writes.into_iter().enumerate() {
                if at < last {
                    // A reader between two writes finds every value that the head lists.
                    self.open();
                }
                match value {
                    Some(value) => {
                        assert!(
                            value.len() <= MAX_VALUE_BYTES,
                            "`{key}` has {} bytes",
                            value.len()
                        );
                        self.0.insert(key, value);
                    }
                    None => assert!(self.0.remove(&key).is_some(), "`{key}` was not there"),
                }
            }
        }
    }

    fn entry(number: usize) -> Entry {
        // Characters of three bytes, whose length does not divide the maximum size of a value.
        Item::user(format!("{number} {}", "€".repeat(number * number * 97 % 70_000))).into()
    }

    #[test]
    fn a_session_written_in_many_appends_round_trips() {
        let mut state = State::default();
        let mut all = Vec::new();
        for run in 0..7 {
            let (mut segments, entries) = state.open();
            assert_eq!(entries, all, "before run {run}");
            for piece in 0..run {
                let new: Vec<Entry> = (0..piece % 3).map(|_| entry(all.len())).collect();
                state.apply(segments.append(&new).unwrap());
                all.extend(new);
                // A reader between two appends sees the entries, too.
                assert_eq!(state.open().1, all);
            }
            // A run that was killed leaves its pieces unmerged.
            if run % 4 != 3 {
                state.apply(segments.merge().unwrap());
            }
            assert_eq!(segments.version(), all.len() as u64);
        }
        let bytes: usize = state.0.values().map(String::len).sum();
        let least = bytes.div_ceil(MAX_VALUE_BYTES);
        assert!(state.0.len() <= 2 * least + 2, "{} values for {bytes} bytes", state.0.len());
    }

    #[test]
    fn a_missing_or_invalid_value_is_an_error() {
        let mut segments = SessionSegments::open(None).unwrap();
        let writes = segments.append(&[entry(1), entry(2)]).unwrap();
        let head = writes.last().unwrap().value.clone().unwrap();
        let error = SessionSegments::open(Some(&head)).unwrap().read(Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
        let mut reader = SessionSegments::open(Some(&head)).unwrap();
        assert!(reader.read(["no entry".to_owned()]).is_err());
        assert!(SessionSegments::open(Some(r#"{"v":2}"#)).is_err());
    }
}
