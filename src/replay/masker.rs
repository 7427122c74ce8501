//! Masks secrets in text, including text that arrives in pieces.
//!
//! [`Secret::mask_in`](crate::http::Secret::mask_in) also masks what only resembles a key, such as
//! a truncated key, because the text of an error is not read again. A recording is replayed: a
//! masker replaces only the secret itself, so that the same text is always masked in the same way,
//! however it was divided.

use std::ops::Range;

use crate::http::{MASK, MIN_SECRET_BYTES};

/// Masks secrets in text. A masker never exposes its secrets.
#[derive(Clone, Default)]
pub(super) struct Masker {
    /// The secrets to find. Each secret is included in plain form, escaped once, and escaped twice,
    /// as in nested JSON strings.
    patterns: Vec<String>,
}

impl Masker {
    pub(super) fn add_secret(&mut self, secret: &str) {
        let secret = secret.trim();
        if secret.len() < MIN_SECRET_BYTES {
            return;
        }
        let once = json_escaped(secret);
        let twice = json_escaped(&once);
        for pattern in [twice, once, secret.to_owned()] {
            if !self.patterns.contains(&pattern) {
                self.patterns.push(pattern);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns the number of patterns to find, including the escaped forms of the secrets.
    pub(super) fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Masks secrets in the strings of a JSON text. Strings without secrets remain unchanged.
    pub(super) fn mask_json(&self, json: String) -> String {
        if self.is_empty() {
            return json;
        }
        let mut out = String::with_capacity(json.len());
        let mut rest = json.as_str();
        while let Some(begin) = rest.find('"') {
            let (before, string) = rest.split_at(begin);
            let (string, behind) = string.split_at(json_string_len(string));
            out.push_str(before);
            match serde_json::from_str::<String>(string).ok().and_then(|text| self.text(&text)) {
                Some(masked) => {
                    out.push('"');
                    out.push_str(&json_escaped(&masked));
                    out.push('"');
                }
                None => out.push_str(string),
            }
            rest = behind;
        }
        out.push_str(rest);
        out
    }

    /// Returns the text with its secrets masked, or `None` if it contains no secrets.
    fn text(&self, text: &str) -> Option<String> {
        let found = self.find_matches(text);
        let mut masked = text.to_owned();
        replace_ranges(std::slice::from_mut(&mut masked), &found);
        (!found.is_empty()).then_some(masked)
    }

    /// Masks secrets in a text that is split into pieces. The last `tail` bytes of the text are
    /// also masked.
    pub(super) fn mask_pieces(&self, pieces: &mut [String], tail: usize) {
        let text: String = pieces.concat();
        let mut found = self.find_matches(&text);
        let end = text.len();
        let covered = found.last().map_or(0, |last| last.end);
        let from = covered.max(end.saturating_sub(tail));
        if from < end && tail > 0 {
            found.push(from..end);
        }
        replace_ranges(pieces, &found);
    }

    /// Returns the longest suffix of the text that is a prefix of a secret.
    pub(super) fn partial_secret_suffix<'a>(&self, text: &'a str) -> &'a str {
        let begins = |end: &&str| {
            let longer = |pattern: &String| pattern.len() > end.len() && pattern.starts_with(end);
            self.patterns.iter().any(longer)
        };
        let longest = self.patterns.iter().map(String::len).max().unwrap_or_default();
        let from = text.len().saturating_sub(longest);
        let ends = text.char_indices().map(|(at, _)| at).filter(|at| *at >= from);
        ends.map(|at| &text[at..]).find(begins).unwrap_or_default()
    }

    /// Returns the ranges in which secrets occur in a text, from left to right. If two secrets
    /// start at the same position, only the range of the longer secret is returned.
    fn find_matches(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        loop {
            let next = self.patterns.iter().filter_map(|pattern| {
                let at = from + text[from..].find(pattern.as_str())?;
                Some(at..at + pattern.len())
            });
            let first = |range: &Range<usize>| (range.start, std::cmp::Reverse(range.end));
            let Some(range) = next.min_by_key(first) else { return found };
            from = range.end;
            found.push(range);
        }
    }
}

/// Replaces each of the given ranges with the mask. The ranges refer to the concatenation of the
/// pieces; if a range spans several pieces, the mask is inserted in the piece in which the range
/// starts.
fn replace_ranges(pieces: &mut [String], ranges: &[Range<usize>]) {
    let mut begin = 0;
    for piece in pieces {
        let end = begin + piece.len();
        let hit = |range: &&Range<usize>| range.start < end && range.end > begin;
        if ranges.iter().any(|range| hit(&range)) {
            let mut left = String::new();
            let mut at = begin;
            for range in ranges.iter().filter(hit) {
                // Invariant: both ends of a range are character boundaries in the whole text.
                left.push_str(&piece[at - begin..range.start.max(at) - begin]);
                if range.start >= begin {
                    left.push_str(MASK);
                }
                at = range.end.min(end);
            }
            left.push_str(&piece[at - begin..]);
            *piece = left;
        }
        begin = end;
    }
}

/// Escapes text for use in a JSON string.
fn json_escaped(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}

/// Returns the length in bytes of the JSON string at the start of a text.
fn json_string_len(text: &str) -> usize {
    let mut bytes = text.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::draw::TestRng;

    fn masker(secrets: &[&str]) -> Masker {
        let mut masker = Masker::default();
        for secret in secrets {
            masker.add_secret(secret);
        }
        masker
    }

    #[test]
    fn a_secret_is_masked_in_json_strings_only() {
        let masker = masker(&["1234", "pa\"ss"]);
        let check =
            |json: &str, expected: &str| assert_eq!(masker.mask_json(json.into()), expected);
        check(r#"{"a":1234,"b":"x1234y","1234":[]}"#, r#"{"a":1234,"b":"x…y","…":[]}"#);
        check(r#"{"z":"\u0041","a":"\\"}"#, r#"{"z":"\u0041","a":"\\"}"#);
        check(r#""my pa\"ss""#, r#""my …""#);
        // The secret, escaped once and twice more.
        check(r#""{\"k\":\"pa\\\"ss\"}""#, r#""{\"k\":\"…\"}""#);
        check(r#""\u0031234""#, r#""…""#);
        check(r#""cut off in 1234"#, r#""cut off in 1234"#);
    }

    #[test]
    fn a_secret_of_fewer_than_four_bytes_is_not_masked() {
        let json = r#"["123","1234"]"#;
        assert_eq!(masker(&["123"]).mask_json(json.into()), json);
        assert_eq!(masker(&["1234"]).mask_json(json.into()), r#"["123","…"]"#);
    }

    #[test]
    fn masking_text_in_pieces_equals_masking_it_whole() {
        let masker = masker(&["abab", "äabc", "cabäc"]);
        for seed in 0..2_000 {
            let draw = TestRng::new(seed);
            let text = draw.text(&['a', 'ä', 'b', 'c'], 30);
            let whole = masker.text(&text).unwrap_or_else(|| text.clone());
            let mut cuts = draw.random_vec(5, || draw.next_below(40));
            cuts.retain(|at| text.is_char_boundary(*at));
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for at in cuts {
                pieces.push(text[from..at].to_owned());
                from = at;
            }
            masker.mask_pieces(&mut pieces, 0);
            assert_eq!(pieces.concat(), whole, "seed {seed}");
        }
    }

    #[test]
    fn a_possible_start_of_a_secret_is_found_incrementally() {
        let masker = masker(&["abab b", "bbbb"]);
        for seed in 0..2_000 {
            let text = TestRng::new(seed).text(&['a', 'b', ' '], 20);
            let mut tail = String::new();
            for c in text.chars() {
                tail.push(c);
                tail = masker.partial_secret_suffix(&tail).to_owned();
            }
            assert_eq!(tail.as_str(), masker.partial_secret_suffix(&text), "seed {seed}");
            let begins = "abab b".starts_with(&*tail) || "bbbb".starts_with(&*tail);
            assert!(text.is_empty() || begins, "seed {seed}: {tail}");
        }
    }
}
