//! Frames that differ from an earlier one in one string.
//!
//! Most frames of a stream repeat the frame before them, apart from the next piece of text. Once a decoder
//! has parsed such a frame, a [`FrameTemplate`] keeps its bytes. A later frame with the same bytes around
//! another string literal is read without a parser.
//!
//! # Why this reads what the parser would read
//!
//! A frame that the parser has accepted is `before + literal + after`, where `literal` is the string literal
//! that the parser borrowed the text from. Let another frame be `before + other + after`, where `other` is a
//! string literal as well.
//!
//! - A JSON parser reads from left to right, so after the same `before` it is in the same state and expects
//!   the same kind of token.
//! - A string literal is one token. It ends at its first quote that is not escaped, and nothing in it changes
//!   how the rest is read. `other` is checked to be one whole literal: either it has no quote, backslash or
//!   control character, or serde has read it.
//! - The parser is then in the same state before `after`, and reads the same from it.
//!
//! Both frames are therefore the same JSON apart from that one value, with the same keys in the same order,
//! equal keys included. It is a value and not a key, because the parser gave it to the decoder as a text.
//!
//! Two more kinds of value may differ, and the same argument holds for them. Members named in [`IGNORED`] are
//! recognised only in the outermost object, where no decoder reads them: a string without escapes or an
//! unsigned number may be another one. The numbers of one flat object that the decoder names may differ too;
//! the decoder gets them with the text, by their keys.
//!
//! White space between the brackets that end a frame may differ as well, since Anthropic pads its frames with
//! it. It stands outside of all strings there: no string ends in a bracket.
//!
//! The effect of a frame may depend on the frames before it. So a template stands for the frame
//! that was parsed last: a decoder calls [`forget`](FrameTemplate::forget) before it parses one. And it calls
//! [`remember`](FrameTemplate::remember) only for a frame whose repetition does nothing but hand on the text.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use crate::sse::Frame;

/// Members of a frame that change from frame to frame and that no decoder reads. `OpenAI` numbers its events
/// and pads them to hide the length of the text
/// (<https://platform.openai.com/docs/api-reference/responses-streaming>); the others are times.
const IGNORED: [&str; 4] = ["obfuscation", "sequence_number", "created", "created_at"];

/// How many remembered frames in a row may be of no use before no more are remembered: a server whose frames
/// differ in another way would pay for each.
const MAX_MISSES: u8 = 16;

/// The longest number that may differ, in digits: it fits into 64 bits.
const MAX_DIGITS: usize = 19;

/// The frame that was parsed last, and where the next one may differ from it.
///
/// `K` says what the text is to the decoder.
#[derive(Debug)]
pub(super) struct FrameTemplate<K> {
    kind: Option<K>,
    misses: u8,
    event: String,
    data: String,
    /// The text in `data`, which is one of the holes.
    text: Range<usize>,
    /// Where the key of the text is in `data`.
    text_key: Range<usize>,
    /// The member of the outermost object whose numbers are counts.
    counts_member: Option<&'static str>,
    /// From left to right; empty until they are needed.
    holes: Vec<Hole>,
    /// Up to where `data` is compared as it is: only brackets and white space follow.
    content_len: usize,
    /// The counts of the frame that was read last, in the order of their holes.
    counts: Vec<u64>,
}

/// A value of the remembered frame, without the quotes of a string.
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
    /// A number that the decoder reads, and where its key is.
    Count {
        key: Range<usize>,
    },
}

impl<K> Default for FrameTemplate<K> {
    fn default() -> Self {
        Self {
            kind: None,
            misses: 0,
            event: String::new(),
            data: String::new(),
            text: 0..0,
            text_key: 0..0,
            counts_member: None,
            holes: Vec::new(),
            content_len: 0,
            counts: Vec::new(),
        }
    }
}

impl<K: Copy> FrameTemplate<K> {
    /// The text of a frame that is the remembered one but for its text. An empty text is left to the parser,
    /// since some wires give it a meaning.
    pub(super) fn read<'a>(&mut self, frame: &Frame<'a>) -> Option<(K, Cow<'a, str>)> {
        let kind = self.kind?;
        let text = self.match_text(frame)?;
        self.misses = 0;
        Some((kind, text))
    }

    /// The counts of the frame that [`read`](Self::read) has read last, by their keys.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let keys = self.holes.iter().filter_map(|hole| match &hole.content {
            HoleContent::Count { key } => Some(&self.data[key.clone()]),
            _ => None,
        });
        keys.zip(self.counts.iter().copied())
    }

    /// The text of a frame that has the event type and the beginning of the remembered one.
    fn match_text<'a>(&mut self, frame: &Frame<'a>) -> Option<Cow<'a, str>> {
        let Frame { event, data } = *frame;
        if event != self.event {
            return None;
        }
        self.counts.clear();
        // Most often nothing but the text is another one.
        if let Some(rest) = data.strip_prefix(&self.data[..self.text.start])
            && let Some((text, len)) = read_literal(rest)
            && rest[len..] == self.data[self.text.end..]
        {
            return Some(text);
        }
        self.match_holes(data)
    }

    fn match_holes<'a>(&mut self, data: &'a str) -> Option<Cow<'a, str>> {
        if self.holes.is_empty() {
            // No value that may differ is in the key of the text: a frame without it is another one.
            if !data.contains(&self.data[self.text_key.clone()]) {
                return None;
            }
            self.find_holes();
        }
        let (known, bytes) = (self.data.as_bytes(), data.as_bytes());
        let mut text = None;
        // Up to where both are read.
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
                // With the byte after it, so that it is known to end there.
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

    /// Forgets the remembered frame. To be called before a frame is parsed.
    pub(super) fn forget(&mut self) {
        self.kind = None;
    }

    /// Remembers a frame that was parsed, and that says nothing but `text`, and the numbers in the member of
    /// its outermost object that is named `counts`.
    ///
    /// A text that was not borrowed from the frame cannot be found there again: it has escapes, or the frame
    /// was repaired. Nothing is remembered then, and neither is an empty text.
    pub(super) fn remember(
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
        self.counts_member = counts;
        frame.event.clone_into(&mut self.event);
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

/// Where the key of the string literal is whose text begins at `text`, up to the literal's quote. Of a key
/// with a quote in it, its end.
fn key_before(data: &str, text: usize) -> Range<usize> {
    let quote = text.saturating_sub(1);
    let mut quotes = data[..quote].bytes().rev().enumerate().filter(|(_, byte)| *byte == b'"');
    let len = quotes.nth(1).map_or(0, |(at, _)| at + 1);
    quote - len..quote
}

/// Where `part` is in `data`, if it was borrowed from it.
pub(super) fn borrowed_range(data: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
    let range = start..start.checked_add(part.len())?;
    (data.get(range.clone())? == part).then_some(range)
}

/// Where `text` is in `data`, if it was borrowed from a string literal that it is the whole of.
fn literal_range(data: &str, text: &str) -> Option<Range<usize>> {
    let range = borrowed_range(data, text)?;
    let bytes = data.as_bytes();
    let is_quoted = range.start > 0
        && bytes[range.start - 1] == b'"'
        && bytes.get(range.end) == Some(&b'"')
        && !text.is_empty();
    is_quoted.then_some(range)
}

/// Reads what follows the opening quote of a string literal: the text, and how many bytes it has up to the
/// closing quote. `None` if it is empty, or if it is not certain that the parser would accept it.
fn read_literal(data: &str) -> Option<(Cow<'_, str>, usize)> {
    // Texts are short: a search with wide registers would cost more than it gains.
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | ..b' ');
    let len = data.as_bytes().iter().position(ends)?;
    match data.as_bytes()[len] {
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

/// How many bytes follow the opening quote of a string literal, up to its closing quote.
fn literal_len(bytes: &[u8]) -> Option<usize> {
    let mut end = memchr2(b'"', b'\\', bytes)?;
    while bytes[end] == b'\\' {
        // The escaped byte is passed over. The digits of `\u` are neither quote nor backslash.
        end += 2;
        end += memchr2(b'"', b'\\', bytes.get(end..)?)?;
    }
    Some(end)
}

/// How long a string without escapes is, up to its closing quote.
fn plain_string_len(bytes: &[u8]) -> Option<usize> {
    let end = memchr2(b'"', b'\\', bytes)?;
    (bytes[end] == b'"' && has_no_control(&bytes[..end])).then_some(end)
}

fn has_no_control(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte >= b' ')
}

/// The length of an unsigned number that a comma or the end of its object follows.
fn number_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_number = (1..=MAX_DIGITS).contains(&len) && (bytes[0] != b'0' || len == 1);
    (is_number && matches!(bytes.get(len), Some(b',' | b'}'))).then_some(len)
}

/// How long a frame is without the brackets and the white space at its end.
fn content_len(data: &str) -> usize {
    data.trim_end_matches(['}', ']', ' ', '\t', '\n', '\r']).len()
}

/// The end of a frame without its white space.
fn brackets(end: &[u8]) -> impl Iterator<Item = &u8> {
    end.iter().filter(|byte| !is_space(**byte))
}

/// Whether it is white space of JSON.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Finds the values that may differ beside the text.
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

/// The value of an ignored member that begins at `start`, if it may differ.
fn ignored_value(bytes: &[u8], start: usize) -> Option<Hole> {
    if bytes.get(start) == Some(&b'"') {
        let value = start + 1..start + 1 + plain_string_len(&bytes[start + 1..])?;
        return Some(Hole { value, content: HoleContent::IgnoredString });
    }
    let value = start..start + number_len(bytes.get(start..)?)?;
    Some(Hole { value, content: HoleContent::IgnoredNumber })
}

/// Calls `f` with the key of each member of the object that begins at `start`, and with where its value begins.
fn for_each_member(bytes: &[u8], start: usize, mut f: impl FnMut(Range<usize>, usize)) {
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
