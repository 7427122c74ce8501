//! Finds a key in a string, in any of the forms in which servers and proxies write keys.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The minimum length of a key that is masked. Masking shorter keys would only garble the text.
pub(crate) const MIN_SECRET_BYTES: usize = 4;
/// The minimum length of a key that is also found in a different case or split across lines.
const LONG_SECRET_BYTES: usize = 8;
/// The minimum length of a part of a key that is masked even without an elision mark. The part must
/// also be at least half as long as the key.
const MIN_PARTIAL_SECRET_BYTES: usize = 12;
/// The maximum number of times a byte may be escaped or encoded.
const MAX_ESCAPE_DEPTH: usize = 8;
/// The maximum length in bytes of an elision mark: the dots or asterisks that replace a part of a
/// key. The mark may be as long as the key.
const MAX_ELISION_BYTES: usize = 4096;
/// The maximum length in bytes of a line break within a key.
const MAX_LINE_BREAK_BYTES: usize = 256;

/// Returns the ranges in which a key occurs in a string, from left to right, including the visible
/// parts of a truncated key.
///
/// The key is found if it appears literally, percent-encoded any number of times, with JSON
/// escapes, in a different case, or interrupted by line breaks or spaces. The key is also found if
/// its middle or end is replaced with dots or asterisks. A key encoded as base64, with either
/// alphabet, is found even as part of a longer text.
pub(super) fn secret_ranges(key: &str, text: &str) -> Vec<Range<usize>> {
    let key = SecretPattern {
        bytes: key.as_bytes(),
        ignores_case: key.len() >= LONG_SECRET_BYTES,
        allows_line_breaks: key.len() >= LONG_SECRET_BYTES,
    };
    if key.bytes.len() < MIN_SECRET_BYTES {
        return Vec::new();
    }
    let encoded = base64_fragments(key.bytes);
    let bytes = text.as_bytes();
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let place = key.match_at(bytes, at).or_else(|| range_in_base64(&encoded, bytes, at));
        match place {
            Some(place) => {
                at = place.end.max(at + 1);
                let (start, end) =
                    (text.floor_char_boundary(place.start), text.ceil_char_boundary(place.end));
                found.push(start..end);
            }
            None => at += 1,
        }
    }
    found
}

/// The bytes to search for, and the ways in which bytes in the text may differ from them.
struct SecretPattern<'a> {
    bytes: &'a [u8],
    /// Whether letters are matched case-insensitively.
    ignores_case: bool,
    /// Whether whitespace is allowed between the bytes of the key.
    allows_line_breaks: bool,
}

impl SecretPattern<'_> {
    /// Returns the range of the key, or of a truncated form of it, that starts at `at`.
    fn match_at(&self, text: &[u8], at: usize) -> Option<Range<usize>> {
        let length = self.bytes.len();
        let (count, end) = self.match_bytes(self.bytes, text, at);
        if count == length {
            return Some(at..end);
        }
        // A dot may belong either to the key or to the elision mark.
        let dots =
            text[at..end].iter().rev().take_while(|byte| matches!(byte, b'.' | b'*')).count();
        if count >= MIN_SECRET_BYTES
            && length >= LONG_SECRET_BYTES
            && let Some(cut) = elision_end(text, end - dots, 2)
        {
            return Some(at..self.suffix_match_end(text, cut, 1, length - count).unwrap_or(cut));
        }
        if count >= MIN_PARTIAL_SECRET_BYTES && count * 2 >= length {
            return Some(at..end);
        }
        // The text may show only the end of the key.
        if length < LONG_SECRET_BYTES || ends_in_elision(&text[..at]) {
            return None;
        }
        let cut = elision_end(text, at, 3)?;
        Some(at..self.suffix_match_end(text, cut, MIN_SECRET_BYTES, length - 1)?)
    }

    /// Matches `bytes` against the text at position `from`. Returns the number of matching bytes,
    /// and the position in the text after the match.
    fn match_bytes(&self, bytes: &[u8], text: &[u8], from: usize) -> (usize, usize) {
        let mut end = from;
        for (count, wanted) in bytes.iter().enumerate() {
            let follows = bytes.get(count + 1..).unwrap_or_default();
            let next = self.match_byte(*wanted, follows, text, end).or_else(|| {
                let behind =
                    line_break_end(text, end).filter(|_| self.allows_line_breaks && count > 0)?;
                self.match_byte(*wanted, follows, text, behind)
            });
            match next {
                Some(next) => end = next,
                None => return (count, end),
            }
        }
        (bytes.len(), end)
    }

    /// Matches a single byte, which may be literal, percent-encoded (`%2F` or `%252f`), or escaped
    /// (`\/` or `\u002f`). Returns the position after the match.
    fn match_byte(&self, wanted: u8, follows: &[u8], text: &[u8], at: usize) -> Option<usize> {
        let is = |byte: u8| match self.ignores_case {
            true => byte.eq_ignore_ascii_case(&wanted),
            false => byte == wanted,
        };
        let first = *text.get(at)?;
        let is_percent = wanted == b'%' && text[at..].starts_with(b"%25");
        if is(first) && (!is_percent || follows.starts_with(b"25")) {
            return Some(at + 1);
        }
        match first {
            b'%' => {
                let mut end = at + 1;
                for _ in 0..MAX_ESCAPE_DEPTH {
                    let byte = hex_value(text.get(end..end + 2)?)?;
                    end += 2;
                    if is(byte) {
                        return Some(end);
                    }
                    if byte != b'%' {
                        break;
                    }
                }
                None
            }
            b'\\' => {
                let end = at + count_backslashes(&text[at..]);
                match *text.get(end)? {
                    b'u' => {
                        let digits = text.get(end + 1..end + 5)?.strip_prefix(b"00")?;
                        is(hex_value(digits)?).then_some(end + 5)
                    }
                    byte => (!byte.is_ascii_alphanumeric() && is(byte)).then_some(end + 1),
                }
            }
            _ => None,
        }
    }

    /// Matches, at position `at` in the text, the longest possible suffix of the key whose length
    /// is between `least` and `most`. Returns the position after the suffix.
    fn suffix_match_end(&self, text: &[u8], at: usize, least: usize, most: usize) -> Option<usize> {
        let tails = (least..=most).rev().map(|len| &self.bytes[self.bytes.len() - len..]);
        tails.into_iter().find_map(|tail| match self.match_bytes(tail, text, at) {
            (count, end) if count == tail.len() => Some(end),
            _ => None,
        })
    }
}

/// Returns the end of the elision mark that starts at `at`: `…`, or at least `least` dots,
/// asterisks or bullets.
fn elision_end(text: &[u8], at: usize, least: usize) -> Option<usize> {
    let (mut end, mut weight) = (at, 0);
    while end - at < MAX_ELISION_BYTES {
        let rest = &text[end..];
        let (len, counts) = match rest {
            [b'.' | b'*', ..] => (1, 1),
            _ if rest.starts_with("…".as_bytes()) => (3, least),
            _ if rest.starts_with("•".as_bytes()) => (3, 1),
            _ if rest.starts_with(b"\\u2026") => (6, least),
            _ => break,
        };
        (end, weight) = (end + len, weight + counts);
    }
    (weight >= least && weight > 0).then_some(end)
}

/// Returns whether `text` ends in an elision mark. The mark may continue beyond the end of `text`.
fn ends_in_elision(text: &[u8]) -> bool {
    matches!(text, [.., b'.' | b'*'])
        || ["…", "•"].iter().any(|mark| text.ends_with(mark.as_bytes()))
}

/// Returns the end of the whitespace that starts at `at`, including whitespace that is escaped as
/// in JSON or URLs.
fn line_break_end(text: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    while end - at < MAX_LINE_BREAK_BYTES {
        let rest = &text[end..];
        let slashes = count_backslashes(rest);
        end += match rest {
            [byte, ..] if byte.is_ascii_whitespace() => 1,
            [b'%', digits @ ..] if digits.len() >= 2 => match hex_value(&digits[..2]) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => 3,
                _ => break,
            },
            _ if slashes > 0 && matches!(rest.get(slashes), Some(b'n' | b'r' | b't')) => {
                slashes + 1
            }
            _ => break,
        };
    }
    (end > at).then_some(end)
}

/// Counts the backslashes at the start of a string, up to the maximum escape depth.
fn count_backslashes(text: &[u8]) -> usize {
    text.iter().take(MAX_ESCAPE_DEPTH).take_while(|byte| **byte == b'\\').count()
}

fn hex_value(digits: &[u8]) -> Option<u8> {
    let all = digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit);
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok().filter(|_| all)
}

/// Returns the base64 fragments by which an encoded key can be found. Every base64 text that
/// contains the key contains at least one of the fragments. A fragment encodes the complete groups
/// of three bytes within the key. The key may start at any of the three positions in a group, so
/// there is a fragment for each position in each of the two alphabets.
fn base64_fragments(key: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for alphabet in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for skipped in 0..3 {
            let rest = key.get(skipped..).unwrap_or_default();
            let text = alphabet.encode(&rest[..rest.len() / 3 * 3]).into_bytes();
            if text.len() >= LONG_SECRET_BYTES && !all.contains(&text) {
                all.push(text);
            }
        }
    }
    all
}

/// Returns the range of a base64-encoded key of which a fragment starts at `at`. The range includes
/// the adjacent characters, which may encode the key's first and last bytes.
fn range_in_base64(encoded: &[Vec<u8>], text: &[u8], at: usize) -> Option<Range<usize>> {
    let letter =
        |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    encoded.iter().find_map(|bytes| {
        let pattern = SecretPattern { bytes, ignores_case: false, allows_line_breaks: true };
        let (count, end) = pattern.match_bytes(bytes, text, at);
        if count < bytes.len() {
            return None;
        }
        let before = text[..at].iter().rev().take(4).take_while(letter).count();
        let after = text[end..].iter().take(4).take_while(letter).count();
        let padding = text[end + after..].iter().take(2).take_while(|byte| **byte == b'=').count();
        Some(at - before..end + after + padding)
    })
}

#[cfg(all(test, feature = "http"))]
mod tests;
