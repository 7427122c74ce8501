//! Quickly decodes a frame that differs from an earlier frame in only a single string.
//!
//! Most frames in a stream are identical to the previous frame, apart from the next piece of text.
//! After a decoder has parsed a frame, a [`FrameTemplate`] keeps the frame's bytes. A later frame
//! that differs from these bytes only in one string literal is decoded without a parser.
//!
//! # Why the result equals the parser's
//!
//! Consider a frame of the form `before + literal + after` that the parser has accepted, where
//! `literal` is the string literal from which the parser borrowed the text. Consider also a second
//! frame of the form `before + other + after`, where `other` is another string literal.
//!
//! - A JSON parser reads from left to right. After reading `before`, the parser is therefore in the
//!   same state for both frames and expects the same kind of token.
//! - A string literal is a single token. It ends at its first unescaped quote, and its content does
//!   not affect how the rest of the frame is parsed. A check ensures that `other` is exactly one
//!   literal: either it contains no quotes, backslashes or control characters, or serde has parsed
//!   it.
//! - The parser is therefore in the same state for both frames when it reaches `after`, and it
//!   parses `after` in the same way.
//!
//! Apart from the text, both frames are therefore the same JSON, with the same keys in the same
//! order, including duplicate keys. The literal is a value and not a key, because the parser passed
//! it to the decoder as text.
//!
//! For the same reason, two more kinds of values may differ. The first kind consists of the values
//! of the outermost object's members that are listed in [`IGNORED`], which no decoder reads. In an
//! ignored member, a string without escapes or an unsigned number may be replaced with another
//! value of the same form. The second kind consists of the numbers in a flat object that the
//! decoder names. The decoder receives these numbers and their keys along with the text.
//!
//! The white space between a frame's closing brackets may differ as well, because Anthropic pads
//! its frames with white space. This white space is never inside a string, because only brackets
//! and more white space follow it.
//!
//! The effect of a frame may depend on earlier frames. A template is therefore valid only until the
//! next frame is parsed: a decoder calls [`forget`](FrameTemplate::forget) before it parses a
//! frame. A decoder calls [`remember`](FrameTemplate::remember) only for a frame that has no
//! effects other than those of its text and counts.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;
use smol_str::SmolStr;

use crate::item::plain_text_len;
use crate::sse::Frame;

/// Members whose values vary from frame to frame and are not read by any decoder. `OpenAI` numbers
/// its events and pads them to hide the length of the text
/// (<https://platform.openai.com/docs/api-reference/responses-streaming>); the other members are
/// timestamps.
const IGNORED: [&str; 4] = ["obfuscation", "sequence_number", "created", "created_at"];

/// The number of consecutive unused templates after which no more templates are kept. This limit
/// avoids copying frames unnecessarily if a server's frames differ in other ways.
pub(super) const MAX_MISSES: u8 = 16;

/// The maximum number of digits in a number that may differ between frames. This limit ensures that
/// the number fits into 64 bits.
const MAX_DIGITS: usize = 19;

/// Stores the most recently parsed frame, and the ranges in which the next frame may differ.
///
/// The decoder uses a value of type `K` to mark the kind of content to which the text belongs.
#[derive(Debug)]
pub(in crate::provider) struct FrameTemplate<K> {
    data: String,
    /// Events with short names are stored without an allocation.
    event: SmolStr,
    /// The range in `data` that contains the text, which is one of the values that may differ.
    text: Range<usize>,
    kind: Option<K>,
    misses: u8,
    /// The values that may differ between frames, ordered by position. The list is empty until a
    /// frame differs from the template in more than its text.
    holes: Vec<Hole>,
    /// The counts from the last decoded frame, in the order of their positions in the frame.
    counts: Vec<u64>,
    /// The range in `data` that contains the text's key.
    text_key: Range<usize>,
    /// The name of the outermost object's member whose numbers are counts, such as token counts.
    counts_member: Option<&'static str>,
    /// The length of `data` without its trailing closing brackets and white space.
    content_len: usize,
}

/// A hole in the template: a value that may differ between frames. The quotes of a string are not
/// part of the hole.
#[derive(Debug)]
struct Hole {
    value: Range<usize>,
    content: HoleContent,
}

#[derive(Debug)]
enum HoleContent {
    Text,
    IgnoredString,
    IgnoredNumber,
    /// A number that the decoder reads, with the range that contains the number's key.
    Count {
        key: Range<usize>,
    },
}

impl<K> Default for FrameTemplate<K> {
    fn default() -> Self {
        Self {
            data: String::new(),
            event: SmolStr::default(),
            text: 0..0,
            kind: None,
            misses: 0,
            holes: Vec::new(),
            counts: Vec::new(),
            text_key: 0..0,
            counts_member: None,
            content_len: 0,
        }
    }
}

impl<K: Copy> FrameTemplate<K> {
    /// Returns the text from a frame that matches the template, that is, a frame in which only
    /// variable values differ. A frame whose text is empty is left to the parser, because empty
    /// text has a special meaning in some wire formats.
    pub(in crate::provider) fn read<'a>(&mut self, frame: &Frame<'a>) -> Option<(K, Cow<'a, str>)> {
        let kind = self.kind?;
        let text = self.match_text(frame)?;
        self.misses = 0;
        Some((kind, text))
    }

    /// Returns the keys and values of the counts in the frame most recently decoded by
    /// [`read`](Self::read).
    pub(in crate::provider) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let keys = self.holes.iter().filter_map(|hole| match &hole.content {
            HoleContent::Count { key } => Some(&self.data[key.clone()]),
            _ => None,
        });
        keys.zip(self.counts.iter().copied())
    }

    /// Returns the text from a frame that matches the template and has the same event type.
    fn match_text<'a>(&mut self, frame: &Frame<'a>) -> Option<Cow<'a, str>> {
        let Frame { event, data } = *frame;
        if event != self.event {
            return None;
        }
        // In most wire formats, only the text differs.
        if self.holes.is_empty()
            && let Some(rest) = data.strip_prefix(&self.data[..self.text.start])
            && let Some((text, len)) = read_literal(rest)
            && rest[len..] == self.data[self.text.end..]
        {
            return Some(text);
        }
        self.match_holes(data)
    }

    fn match_holes<'a>(&mut self, data: &'a str) -> Option<Cow<'a, str>> {
        if self.holes.is_empty() {
            // The text's key never overlaps a value that may differ, so a frame without the key
            // cannot match.
            if !data.contains(&self.data[self.text_key.clone()]) {
                return None;
            }
            self.find_holes();
        }
        self.counts.clear();
        let (known, bytes) = (self.data.as_bytes(), data.as_bytes());
        let mut text = None;
        // The positions in the template and in the frame up to which they have been compared.
        let (mut known_at, mut at) = (0, 0);
        for Hole { value, content } in &self.holes {
            let same = &known[known_at..value.start];
            if !bytes.get(at..)?.starts_with(same) {
                return None;
            }
            at += same.len();
            known_at = value.end;
            at += match content {
                HoleContent::Text => {
                    let (literal, len) = read_literal(&data[at..])?;
                    text = Some(literal);
                    len
                }
                // Comparing the byte after the value makes sure that the value ends before that
                // byte.
                HoleContent::IgnoredString | HoleContent::IgnoredNumber
                    if bytes[at..].starts_with(&known[value.start..=value.end]) =>
                {
                    value.len()
                }
                HoleContent::IgnoredString => plain_string_len(&bytes[at..])?,
                HoleContent::IgnoredNumber => number_len(&bytes[at..])?,
                HoleContent::Count { .. } => {
                    let len = number_len(&bytes[at..])?;
                    self.counts.push(data[at..at + len].parse().ok()?);
                    len
                }
            };
        }
        let end = bytes.get(at..)?.strip_prefix(&known[known_at..self.content_len])?;
        let known_end = &known[self.content_len..];
        if brackets(end).eq(brackets(known_end)) { text } else { None }
    }

    /// Discards the template. A decoder must call this method before it parses a frame.
    pub(in crate::provider) fn forget(&mut self) {
        self.kind = None;
    }

    /// Makes a template from a parsed frame. The decoder must not need anything from the frame
    /// except `text` and the numbers in the `counts` member of its outermost object.
    ///
    /// Does nothing if the text is empty or was not borrowed from the frame. Text that contains
    /// escapes or comes from a repaired frame is not borrowed, so its position is unknown.
    pub(in crate::provider) fn remember(
        &mut self,
        frame: &Frame<'_>,
        text: &str,
        counts: Option<&'static str>,
        kind: K,
    ) {
        if self.misses == MAX_MISSES {
            return;
        }
        let Some(text) = literal_range(frame.data, text) else { return };
        self.misses += 1;
        self.text_key = key_before(frame.data, text.start);
        self.text = text;
        self.holes.clear();
        self.counts.clear();
        self.counts_member = counts;
        if self.event != frame.event {
            self.event = frame.event.into();
        }
        frame.data.clone_into(&mut self.data);
        self.kind = Some(kind);
    }

    fn find_holes(&mut self) {
        self.holes.push(Hole { value: self.text.clone(), content: HoleContent::Text });
        find_values(&self.data, self.counts_member, &mut self.holes);
        self.holes.sort_unstable_by_key(|hole| hole.value.start);
        self.content_len = content_len(&self.data);
    }
}

/// Returns the range from the start of a key to the opening quote of its string value, whose
/// content starts at position `text`. If the key contains a quote, only the end of the key is
/// included.
fn key_before(data: &str, text: usize) -> Range<usize> {
    let quote = text.saturating_sub(1);
    let mut quotes = data[..quote].bytes().rev().enumerate().filter(|(_, byte)| *byte == b'"');
    let len = quotes.nth(1).map_or(0, |(at, _)| at + 1);
    quote - len..quote
}

/// Returns the range of `part` in `data`, if `part` was borrowed from `data`.
pub(in crate::provider) fn borrowed_range(data: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
    let range = start..start.checked_add(part.len())?;
    (data.get(range.clone())? == part).then_some(range)
}

/// Returns the range of `text` in `data`, if `text` was borrowed from a string literal and is the
/// entire content of the literal.
fn literal_range(data: &str, text: &str) -> Option<Range<usize>> {
    let range = borrowed_range(data, text)?;
    let bytes = data.as_bytes();
    let is_quoted = range.start > 0
        && bytes[range.start - 1] == b'"'
        && bytes.get(range.end) == Some(&b'"')
        && !text.is_empty();
    is_quoted.then_some(range)
}

/// Reads a string literal whose opening quote precedes `data`. Returns the text and the number of
/// bytes before the closing quote, or `None` if the literal is empty or the parser might reject it.
fn read_literal(data: &str) -> Option<(Cow<'_, str>, usize)> {
    let len = plain_text_len(data.as_bytes());
    match data.as_bytes().get(len)? {
        b'"' if len > 0 => Some((Cow::Borrowed(&data[..len]), len)),
        b'\\' => read_escaped_literal(data),
        _ => None,
    }
}

fn read_escaped_literal(data: &str) -> Option<(Cow<'_, str>, usize)> {
    let end = literal_len(data.as_bytes())?;
    let mut literal = String::with_capacity(end + 2);
    literal.push('"');
    literal.push_str(&data[..=end]);
    let text: String = serde_json::from_str(&literal).ok()?;
    (!text.is_empty()).then_some((Cow::Owned(text), end))
}

/// Returns the number of bytes between a string literal's quotes. `bytes` starts after the opening
/// quote.
fn literal_len(bytes: &[u8]) -> Option<usize> {
    let mut end = memchr2(b'"', b'\\', bytes)?;
    while bytes[end] == b'\\' {
        // Skips the escaped byte. The hexadecimal digits after `\u` are neither quotes nor
        // backslashes.
        end += 2;
        end += memchr2(b'"', b'\\', bytes.get(end..)?)?;
    }
    Some(end)
}

/// Returns the length of a string without escapes, not including its closing quote.
fn plain_string_len(bytes: &[u8]) -> Option<usize> {
    let end = memchr2(b'"', b'\\', bytes)?;
    (bytes[end] == b'"' && has_no_control(&bytes[..end])).then_some(end)
}

fn has_no_control(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte >= b' ')
}

/// Returns the length of an unsigned number that is followed by a comma or the end of its object.
fn number_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_number = (1..=MAX_DIGITS).contains(&len) && (bytes[0] != b'0' || len == 1);
    (is_number && matches!(bytes.get(len), Some(b',' | b'}'))).then_some(len)
}

/// Returns the length of a frame without its trailing brackets and white space.
fn content_len(data: &str) -> usize {
    data.trim_end_matches(['}', ']', ' ', '\t', '\n', '\r']).len()
}

/// Returns the bytes of `end`, the end of a frame, without any white space.
fn brackets(end: &[u8]) -> impl Iterator<Item = &u8> {
    end.iter().filter(|byte| !is_space(**byte))
}

/// Returns whether the byte is JSON white space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Finds the values, other than the text, that may differ between frames.
fn find_values(data: &str, counts: Option<&str>, holes: &mut Vec<Hole>) {
    let bytes = data.as_bytes();
    for_each_member(bytes, 0, |key, start| {
        let name = &data[key];
        if Some(name) == counts && bytes.get(start) == Some(&b'{') {
            for_each_member(bytes, start, |key, start| {
                if let Some(len) = number_len(&bytes[start..]) {
                    let content = HoleContent::Count { key };
                    holes.push(Hole { value: start..start + len, content });
                }
            });
        } else if IGNORED.contains(&name) {
            holes.extend(ignored_value(bytes, start));
        }
    });
}

/// Returns the [`Hole`] for the value that starts at `start` in an ignored member, if the value may
/// differ.
fn ignored_value(bytes: &[u8], start: usize) -> Option<Hole> {
    if bytes.get(start) == Some(&b'"') {
        let value = start + 1..start + 1 + plain_string_len(&bytes[start + 1..])?;
        return Some(Hole { value, content: HoleContent::IgnoredString });
    }
    let value = start..start + number_len(bytes.get(start..)?)?;
    Some(Hole { value, content: HoleContent::IgnoredNumber })
}

/// Calls `f` for each member of the object that starts at `start`. `f` receives the range of the
/// member's key and the position of the member's value.
pub(super) fn for_each_member(bytes: &[u8], start: usize, mut f: impl FnMut(Range<usize>, usize)) {
    let (mut depth, mut at) = (0_usize, start);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let Some(len) = literal_len(&bytes[at + 1..]) else { return };
                let key = at + 1..at + 1 + len;
                at = key.end;
                if depth == 1
                    && let Some(value) = bytes[at + 1..].strip_prefix(b":")
                {
                    let space = value.iter().take_while(|byte| is_space(**byte)).count();
                    f(key, at + 2 + space);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests;
