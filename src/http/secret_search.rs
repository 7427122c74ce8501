//! Where a key is in a text, in any form in which servers and proxies write one.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Shorter ones are not keys, and masking them would only garble a text.
const SHORTEST: usize = 4;
/// A key of this length may be written in another case, or over several lines.
const LONG: usize = 8;
/// So much of a key is masked also where no mark says that it was cut off, if it is half of the key.
const LONG_PIECE: usize = 12;
/// How many times a byte may be escaped or encoded.
const MAX_ESCAPES: usize = 8;
/// How many bytes a mark for what was left out may have: some have as many as the key.
const MAX_CUT: usize = 4096;
/// How many bytes a break within a key may have.
const MAX_BREAK: usize = 256;

/// The places of a key in a text, from left to right, and the pieces of it where it was cut off.
///
/// It is found as it is, percent-encoded any number of times, escaped as in JSON, in another case, with
/// line breaks or spaces in it, with its middle or end replaced by dots or asterisks, and in base64 of
/// either alphabet, also as a part of a longer text.
pub(super) fn places_of(key: &str, text: &str) -> Vec<Range<usize>> {
    let key =
        Pattern { bytes: key.as_bytes(), folds: key.len() >= LONG, breaks: key.len() >= LONG };
    if key.bytes.len() < SHORTEST {
        return Vec::new();
    }
    let encoded = in_base64(key.bytes);
    let bytes = text.as_bytes();
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let place = key.place(bytes, at).or_else(|| place_in_base64(&encoded, bytes, at));
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

/// Bytes to be found, and what may be different about them.
struct Pattern<'a> {
    bytes: &'a [u8],
    /// Letters may be of the other case.
    folds: bool,
    /// White space may be in between.
    breaks: bool,
}

impl Pattern<'_> {
    /// Where the key is, or a piece of it that was cut off, if that begins here.
    fn place(&self, text: &[u8], at: usize) -> Option<Range<usize>> {
        let length = self.bytes.len();
        let (count, end) = self.walk(self.bytes, text, at);
        if count == length {
            return Some(at..end);
        }
        // A dot of the key may as well be one of those that stand for its rest.
        let dots =
            text[at..end].iter().rev().take_while(|byte| matches!(byte, b'.' | b'*')).count();
        if count >= SHORTEST
            && length >= LONG
            && let Some(cut) = cut_end(text, end - dots, 2)
        {
            return Some(at..self.tail_end(text, cut, 1, length - count).unwrap_or(cut));
        }
        if count >= LONG_PIECE && count * 2 >= length {
            return Some(at..end);
        }
        // Only the end of the key is shown.
        if length < LONG || ends_in_cut(&text[..at]) {
            return None;
        }
        let cut = cut_end(text, at, 3)?;
        Some(at..self.tail_end(text, cut, SHORTEST, length - 1)?)
    }

    /// How many of these bytes are written from here on, and where they end.
    fn walk(&self, bytes: &[u8], text: &[u8], from: usize) -> (usize, usize) {
        let mut end = from;
        for (count, wanted) in bytes.iter().enumerate() {
            let follows = bytes.get(count + 1..).unwrap_or_default();
            let next = self.byte(*wanted, follows, text, end).or_else(|| {
                let behind = break_end(text, end).filter(|_| self.breaks && count > 0)?;
                self.byte(*wanted, follows, text, behind)
            });
            match next {
                Some(next) => end = next,
                None => return (count, end),
            }
        }
        (bytes.len(), end)
    }

    /// Where a byte ends that is written here: as it is, as `%2F` or `%252f`, as `\/` or `\u002f`.
    fn byte(&self, wanted: u8, follows: &[u8], text: &[u8], at: usize) -> Option<usize> {
        let is = |byte: u8| match self.folds {
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
                for _ in 0..MAX_ESCAPES {
                    let byte = hex(text.get(end..end + 2)?)?;
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
                let end = at + slashes(&text[at..]);
                match *text.get(end)? {
                    b'u' => {
                        let digits = text.get(end + 1..end + 5)?.strip_prefix(b"00")?;
                        is(hex(digits)?).then_some(end + 5)
                    }
                    byte => (!byte.is_ascii_alphanumeric() && is(byte)).then_some(end + 1),
                }
            }
            _ => None,
        }
    }

    /// Where the longest end of the key is over that is written here.
    fn tail_end(&self, text: &[u8], at: usize, least: usize, most: usize) -> Option<usize> {
        let tails = (least..=most).rev().map(|len| &self.bytes[self.bytes.len() - len..]);
        tails.into_iter().find_map(|tail| match self.walk(tail, text, at) {
            (count, end) if count == tail.len() => Some(end),
            _ => None,
        })
    }
}

/// Where the mark is over that begins here and says that something was left out: `…`, or at least this
/// many dots, asterisks or bullets.
fn cut_end(text: &[u8], at: usize, least: usize) -> Option<usize> {
    let (mut end, mut weight) = (at, 0);
    while end - at < MAX_CUT {
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

/// Whether what begins here goes on with a mark that began before.
fn ends_in_cut(text: &[u8]) -> bool {
    matches!(text, [.., b'.' | b'*'])
        || ["…", "•"].iter().any(|mark| text.ends_with(mark.as_bytes()))
}

/// Where white space is over that begins here, also as it is escaped in JSON or in an address.
fn break_end(text: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    while end - at < MAX_BREAK {
        let rest = &text[end..];
        let slashes = slashes(rest);
        end += match rest {
            [byte, ..] if byte.is_ascii_whitespace() => 1,
            [b'%', digits @ ..] if digits.len() >= 2 => match hex(&digits[..2]) {
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

/// How many backslashes a text begins with, as far as anything is escaped.
fn slashes(text: &[u8]) -> usize {
    text.iter().take(MAX_ESCAPES).take_while(|byte| **byte == b'\\').count()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let all = digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit);
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok().filter(|_| all)
}

/// What is the same in every text in base64 that holds the key: its whole groups of three bytes, from
/// each of the three places at which it may begin in a group, in both alphabets.
fn in_base64(key: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for alphabet in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for skipped in 0..3 {
            let rest = key.get(skipped..).unwrap_or_default();
            let text = alphabet.encode(&rest[..rest.len() / 3 * 3]).into_bytes();
            if text.len() >= LONG && !all.contains(&text) {
                all.push(text);
            }
        }
    }
    all
}

/// Where a key in base64 is, with the groups before and after it that may hold its first and last bytes.
fn place_in_base64(encoded: &[Vec<u8>], text: &[u8], at: usize) -> Option<Range<usize>> {
    let letter =
        |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    encoded.iter().find_map(|bytes| {
        let pattern = Pattern { bytes, folds: false, breaks: true };
        let (count, end) = pattern.walk(bytes, text, at);
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
