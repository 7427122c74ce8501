//! Counts iterations that repeat earlier iterations.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::item::{ToolCall, ToolResult, from_bounded_json};
use crate::tool::Rationale;
use crate::turn::Turn;

/// The maximum length of the cycles that are detected.
const MAX_CYCLE_LEN: usize = 4;

/// Counts consecutive iterations that repeat the calls and results of earlier iterations.
///
/// An iteration is a turn whose calls have been answered. An iteration is a repetition if it has
/// the same calls and results as the iteration one cycle earlier, where a cycle consists of one to
/// four iterations. Calls to [pollable](crate::Tool::pollable) tools are ignored. A turn that
/// contains no calls, or only calls to pollable tools, is not counted and does not reset the
/// counter: the iterations before and after such a turn count as consecutive. Arguments are
/// compared as JSON values, so whitespace and the order of fields do not matter. The model's
/// [rationale](crate::tool::Rationale) for a call is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RepeatCounter(
    // `None` before the first iteration. The counts are boxed to save stack space, since each
    // nested sub-agent keeps states on the stack.
    Option<Box<CycleCounts>>,
);

/// The hashes and repeat counts of the iterations up to and including the latest one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CycleCounts {
    /// The hashes of the calls and results of the most recent iterations, newest first.
    recent_hashes: [Option<u64>; MAX_CYCLE_LEN],
    /// For each cycle length, how many consecutive iterations, up to and including the latest,
    /// equal the iteration one cycle earlier.
    repeats_by_cycle_len: [u32; MAX_CYCLE_LEN],
    /// Whether the latest turn was counted.
    includes_newest: bool,
}

impl RepeatCounter {
    /// Returns the number of consecutive repeated iterations, ending with the latest turn and
    /// including the iterations in the first cycle. Returns 1 if the latest iteration does not
    /// repeat an earlier one, and 0 before the first turn or after a turn that is not counted.
    ///
    /// A cycle is counted only after it has been completed twice. For example, if each letter
    /// stands for an iteration, the count is 3 after `AAA`, 4 after `ABAB`, 5 after `ABABA`, and
    /// only 1 after `ABA`.
    pub(crate) fn count(&self) -> u32 {
        let Some(row) = self.0.as_ref().filter(|row| row.includes_newest) else { return 0 };
        let cycles = (1..).zip(row.repeats_by_cycle_len).filter(|(cycle, equal)| equal >= cycle);
        cycles.map(|(cycle, equal)| equal.saturating_add(cycle)).max().unwrap_or(1)
    }

    /// Counts another iteration, which consists of the calls in `turn` and the given results. Calls
    /// whose ids are in `polls` are ignored.
    pub(super) fn with_iteration(
        mut self,
        turn: &Turn,
        results: &[ToolResult],
        polls: &[String],
    ) -> Self {
        let counts = |call_id: &String| !polls.contains(call_id);
        let calls = || turn.tool_calls().filter(|call: &&ToolCall| counts(&call.call_id));
        let results = || results.iter().filter(|result| counts(&result.call_id));
        if results().next().is_none() {
            if let Some(row) = &mut self.0 {
                row.includes_newest = false;
            }
            return self;
        }
        let mut hasher = DefaultHasher::new();
        for call in calls() {
            // The model's rationale for a call is not compared.
            let (_, arguments) = Rationale::split_arguments(call.arguments_or_empty_object());
            call.name.hash(&mut hasher);
            match from_bounded_json::<JsonHash>(&arguments) {
                Ok(JsonHash(hash)) => hash.hash(&mut hasher),
                Err(_) => arguments.hash(&mut hasher),
            }
        }
        for result in results() {
            (result.kind, result.content.text()).hash(&mut hasher);
        }
        self.with_hash(hasher.finish())
    }

    /// Counts another iteration, which has the given hash.
    pub(super) fn with_hash(self, newest: u64) -> Self {
        let mut row = self.0.unwrap_or_default();
        for (equal, before) in row.repeats_by_cycle_len.iter_mut().zip(row.recent_hashes) {
            *equal = if before == Some(newest) { equal.saturating_add(1) } else { 0 };
        }
        row.recent_hashes.rotate_right(1);
        row.recent_hashes[0] = Some(newest);
        row.includes_newest = true;
        Self(Some(row))
    }
}

/// The hash of a JSON value, which does not depend on white space and on the order of keys.
#[derive(Debug, PartialEq)]
struct JsonHash(u64);

impl JsonHash {
    /// Returns the hash of a value of the JSON type with this number.
    fn new(json_type: u8, value: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        (json_type, value).hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl<'de> Deserialize<'de> for JsonHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HashVisitor)
    }
}

struct HashVisitor;

impl<'de> Visitor<'de> for HashVisitor {
    type Value = JsonHash;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonHash, E> {
        Ok(JsonHash::new(0, ()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonHash, E> {
        Ok(JsonHash::new(1, value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonHash, E> {
        Ok(JsonHash::new(2, value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonHash, E> {
        Ok(JsonHash::new(3, value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonHash, E> {
        Ok(JsonHash::new(4, value.to_bits()))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonHash, E> {
        Ok(JsonHash::new(5, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<JsonHash, A::Error> {
        let mut hash = JsonHash::new(6, ());
        while let Some(JsonHash(element)) = array.next_element()? {
            hash = JsonHash::new(6, (hash.0, element));
        }
        Ok(hash)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<JsonHash, A::Error> {
        let mut sum = 0_u64;
        while let Some((JsonHash(key), JsonHash(value))) = object.next_entry()? {
            sum = sum.wrapping_add(JsonHash::new(7, (key, value)).0);
        }
        Ok(JsonHash::new(8, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_equal_only_for_equal_json_values() {
        let equal = [
            [r#"{"a":1,"b":[true,null]}"#, r#" {"b": [true, null], "a": 1} "#],
            [r#""\u00e9""#, r#""é""#],
            ["[1,2]", "[ 1, 2 ]"],
        ];
        let hash = |json: &str| serde_json::from_str::<JsonHash>(json).unwrap();
        for [one, other] in equal {
            assert_eq!(hash(one), hash(other), "{one}");
        }
        let different = [
            "null",
            "false",
            "true",
            "0",
            "1",
            "-1",
            "1.0",
            "1.5",
            r#""""#,
            r#""1""#,
            "[]",
            "{}",
            "[[]]",
            "[1,2]",
            "[2,1]",
            "[[1],2]",
            r#"{"a":1}"#,
            r#"{"b":1}"#,
            r#"{"a":2}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"a":{"b":2}}"#,
            r#"["a",1]"#,
        ];
        for (at, one) in different.iter().enumerate() {
            for other in &different[..at] {
                assert_ne!(hash(one), hash(other), "{one} {other}");
            }
        }
    }

    fn times(iterations: &[u8]) -> u32 {
        let counted = |repeats: RepeatCounter, it: &u8| repeats.with_hash(u64::from(*it));
        iterations.iter().fold(RepeatCounter::default(), counted).count()
    }

    /// A second implementation of [`RepeatCounter::count`]: returns the length of the longest
    /// suffix that consists of at least two cycles and in which each item equals the item one cycle
    /// earlier.
    fn counted(iterations: &[u8]) -> u32 {
        let mut most = usize::from(!iterations.is_empty());
        for cycle in 1..=4 {
            for from in 0..iterations.len() {
                let end = &iterations[from..];
                let repeats = end.iter().skip(cycle).zip(end).all(|(it, before)| it == before);
                if end.len() >= 2 * cycle && repeats {
                    most = most.max(end.len());
                }
            }
        }
        u32::try_from(most).unwrap()
    }

    #[test]
    fn cycles_of_up_to_four_iterations_count_from_their_second_completion() {
        for (iterations, expected) in [
            ("", 0),
            ("A", 1),
            ("AB", 1),
            ("AA", 2),
            ("AAA", 3),
            ("AAAAAAAAA", 9),
            ("ABA", 1),
            ("ABAB", 4),
            ("ABABA", 5),
            ("ABABC", 1),
            ("ABABB", 2),
            ("XABAB", 4),
            ("ABCAB", 1),
            ("ABCABC", 6),
            ("ABCDABC", 1),
            ("ABCDABCD", 8),
            ("ABCDABCDA", 9),
            ("AABAAB", 6),
            ("ABCDEABCDE", 1),
        ] {
            assert_eq!(times(iterations.as_bytes()), expected, "{iterations}");
        }
    }

    #[test]
    fn the_count_is_the_longest_repeating_suffix_of_any_ten_iterations() {
        let mut rows = vec![Vec::new()];
        for _ in 0..10 {
            let longer = |row: &Vec<u8>| {
                let row = row.clone();
                (0..3).map(move |it| [&row[..], &[it]].concat())
            };
            rows = rows.iter().flat_map(longer).collect();
            for row in &rows {
                assert_eq!(times(row), counted(row), "{row:?}");
            }
        }
    }
}
