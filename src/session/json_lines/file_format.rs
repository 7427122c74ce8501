//! The format of session files.
//!
//! A file contains a header followed by the appends; each line ends with LF only. The first line of
//! an append contains the number of its entries, the total number of bytes in the entries' lines,
//! and the checksum of these bytes. A line for each entry follows. From the first line, a reader
//! can distinguish an append that was cut off by a crash (and was therefore never acknowledged)
//! from an append that was damaged after it was written.
//!
//! The last field in the header, and in the first line of each append, is the checksum of
//! everything in the file before that field. The field therefore protects the rest of its own line
//! and the order of the appends.

use std::ops::Range;

use memchr::memmem;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::crc32::Crc32;
use crate::error::Error;
use crate::json_lines::{self, is_truncated_object};
use crate::session::backend::{corrupt_data_error, entry_to_json_line, store_error};
use crate::session::{Entry, ForkOrigin};

/// The version of the file format.
const FORMAT_VERSION: u32 = 1;

/// The text at the start of every header, in any format version.
const HEADER_PREFIX: &[u8] = br#"{"type":"session","version":"#;
/// The text at the start of the first line of each append.
const APPEND_PREFIX: &[u8] = br#"{"type":"append","#;

/// The start of the header field that refers to a fork's original session.
const FORK_FIELD_PREFIX: &[u8] = br#","fork":{"id":"#;

/// The text before the checksum at the end of a header or of an append's first line.
const CRC_FIELD_PREFIX: &[u8] = br#","file_crc32":""#;
/// The text after the checksum at the end of a header or of an append's first line.
const CRC_FIELD_SUFFIX: &[u8] = br#""}"#;
const CRC_DIGITS: usize = 8;

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename = "session")]
struct Header {
    version: u32,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fork: Option<ForkOrigin>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename = "append")]
pub(super) struct AppendHeader {
    pub(super) entries: usize,
    /// The total number of bytes in the append's entry lines, including their LFs.
    pub(super) bytes: usize,
    /// The checksum of the append's entry lines.
    pub(super) crc32: String,
}

/// The intact part of a parsed file.
#[derive(Debug, Default)]
pub(super) struct ParsedFile {
    /// The header. `None` if the file is empty or contains only a truncated header.
    pub(super) header: Option<ParsedHeader>,
    /// The lines of the entries.
    entry_lines: Vec<Line>,
    /// The length of the intact part in bytes. Any bytes after the intact part are what remains of
    /// a write that was cut off by a crash.
    pub(super) valid_len: usize,
    /// Whether the intact part ends with an LF. If the LF is missing, the next append adds it.
    pub(super) is_terminated: bool,
    /// The checksum of the intact part.
    pub(super) crc: Crc32,
}

#[derive(Debug)]
pub(super) struct ParsedHeader {
    pub(super) id: String,
    pub(super) fork_origin: Option<ForkOrigin>,
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The 1-based line number.
    pub(super) line_number: usize,
    /// The range of the line's bytes in the file, without the LF at the end.
    pub(super) byte_range: Range<usize>,
}

/// Encodes a session's header.
pub(super) fn encode_header(id: &str, fork: Option<&ForkOrigin>) -> Result<Vec<u8>, Error> {
    let header = Header { version: FORMAT_VERSION, id: id.to_owned(), fork: fork.cloned() };
    encode_with_file_crc(Crc32::default(), &header)
}

/// Encodes entries as lines.
pub(super) fn encode_entries(entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let lines = entries.iter().map(entry_to_json_line).collect::<Result<Vec<String>, Error>>()?;
    let len: usize = lines.iter().map(|line| line.len() + 1).sum();
    let mut text = Vec::new();
    for line in lines {
        // Compact JSON contains no LF characters: in a string, an LF is written as `\n`.
        match text.is_empty() {
            // The buffer of the first line is reused: the line of a large text is not copied.
            true => text = line.into_bytes(),
            false => text.extend(line.into_bytes()),
        }
        text.reserve_exact(len - text.len());
        text.push(b'\n');
    }
    Ok(text)
}

/// Encodes the first line of an append that consists of `entries` entries with the encoded lines
/// `lines`. `before` is the checksum of the file before the append.
pub(super) fn encode_append_header(
    before: Crc32,
    entries: usize,
    lines: &[u8],
) -> Result<Vec<u8>, Error> {
    let first =
        AppendHeader { entries, bytes: lines.len(), crc32: Crc32::compute(lines).to_string() };
    encode_with_file_crc(before, &first)
}

/// Encodes an object as a line. The last field of the line is the checksum of the file up to that
/// field.
fn encode_with_file_crc(before: Crc32, object: &impl Serialize) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec(object);
    let mut text = text.map_err(|error| store_error("a line cannot be written as JSON", error))?;
    text.pop();
    let crc = before.update(&text).to_string();
    for part in [CRC_FIELD_PREFIX, crc.as_bytes(), CRC_FIELD_SUFFIX, b"\n"] {
        text.extend(part);
    }
    Ok(text)
}

/// Splits a line into the bytes before the `file_crc32` field and the checksum in that field.
/// Returns `None` if the line contains no checksum.
pub(super) fn split_file_crc(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let tail = CRC_FIELD_PREFIX.len() + CRC_DIGITS + CRC_FIELD_SUFFIX.len();
    let (before, field) = line.split_at_checked(line.len().checked_sub(tail)?)?;
    let crc = field.strip_prefix(CRC_FIELD_PREFIX)?.strip_suffix(CRC_FIELD_SUFFIX)?;
    Some((before, crc))
}

/// Returns whether the text may be a session file.
pub(super) fn starts_with_header(text: &[u8]) -> bool {
    text.starts_with(HEADER_PREFIX)
}

/// Returns whether the text may be a session file, even if its first line is damaged.
pub(super) fn may_be_session(text: &[u8]) -> bool {
    let is_append = |line_end: usize| starts_with_append(&text[line_end + 1..]);
    starts_with_header(text) || memchr::memchr_iter(b'\n', text).any(is_append)
}

/// Returns whether the text starts with an append.
pub(super) fn starts_with_append(text: &[u8]) -> bool {
    text.starts_with(APPEND_PREFIX)
}

/// Parses the intact part of a file.
///
/// # Errors
///
/// Returns an error if the text is not a session, has a later format version, or differs in any way
/// from the text that was written. However, an append that was cut off by a crash is skipped,
/// provided that it is the last append in the file and is shorter than its declared length. If only
/// the last LF is missing, the append counts as intact, because an editor may have removed the LF.
pub(super) fn parse_file(text: &[u8]) -> Result<ParsedFile, Error> {
    if text.ends_with(b"}")
        && let Ok(lines) = parse_terminated_file(&[text, b"\n"].concat())
        && lines.valid_len > text.len()
    {
        return Ok(ParsedFile {
            valid_len: text.len(),
            is_terminated: false,
            crc: Crc32::compute(text),
            ..lines
        });
    }
    parse_terminated_file(text)
}

fn parse_terminated_file(text: &[u8]) -> Result<ParsedFile, Error> {
    let Some(first) = next_line(text, 0, 1) else {
        // The text is a truncated header, or an empty file.
        return match starts_with_header(text) {
            true if is_truncated_object(text) => Ok(ParsedFile::default()),
            true => Err(damaged_line_error(1, "it does not end where it should")),
            false if HEADER_PREFIX.starts_with(text) => Ok(ParsedFile::default()),
            false => Err(not_a_session_error()),
        };
    };
    let head = parse_header(&text[first.byte_range.clone()])?;
    let end = first.byte_range.end + 1;
    let crc = Crc32::compute(&text[..end]);
    let mut lines = ParsedFile {
        header: Some(head),
        entry_lines: Vec::new(),
        valid_len: end,
        is_terminated: true,
        crc,
    };
    let mut number = 2;
    while lines.valid_len < text.len() {
        let Some(append) = ParsedAppend::parse(text, lines.valid_len, number, lines.crc)? else {
            break;
        };
        number = append.next;
        lines.crc = lines.crc.update(&text[lines.valid_len..append.end_offset]);
        lines.valid_len = append.end_offset;
        lines.entry_lines.extend(append.entry_lines);
    }
    Ok(lines)
}

/// Returns the line that starts at the offset `from`, or `None` if the line does not end with an
/// LF.
pub(super) fn next_line(text: &[u8], from: usize, number: usize) -> Option<Line> {
    split_complete_lines(text, from..text.len(), number).next()
}

pub(super) fn parse_header(line: &[u8]) -> Result<ParsedHeader, Error> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }

    if !starts_with_header(line) {
        return Err(not_a_session_error());
    }
    let wrong = |error| store_error("line 1 is not a session header", error);
    let Version { version } = serde_json::from_slice(line).map_err(wrong)?;
    if version > FORMAT_VERSION {
        let message =
            format!("the session has format {version}; this version reads up to {FORMAT_VERSION}");
        return Err(corrupt_data_error(message));
    }
    let Some((before, crc)) = split_file_crc(line) else {
        return Err(damaged_line_error(1, "the checksum is missing"));
    };
    if !Crc32::compute(before).matches_hex(crc) {
        return Err(damaged_line_error(1, "the checksum is wrong"));
    }
    let Header { id, fork, .. } = serde_json::from_slice(line).map_err(wrong)?;
    Ok(ParsedHeader { id, fork_origin: fork })
}

/// Describes a fork's original session, as read from the first line of the fork's file.
pub(super) enum Origin {
    /// The session is not a fork, or the file is not a session.
    None,
    Session(String),
    /// The first line is damaged.
    Damaged {
        line: Vec<u8>,
    },
}

impl Origin {
    /// Parses the first line of a file, including the line's LF.
    pub(super) fn from_header_line(line: Vec<u8>) -> Self {
        match parse_file(&line) {
            Ok(lines) => {
                let fork = lines.header.and_then(|head| head.fork_origin);
                fork.map_or(Self::None, |fork| Self::Session(fork.id))
            }
            Err(_) if starts_with_header(&line) || contains_fork_field(&line) => {
                Self::Damaged { line }
            }
            Err(_) => Self::None,
        }
    }

    /// Returns the original session's id from a damaged header. The returned id may differ from the
    /// id that was written.
    pub(super) fn suspect_origin_id(line: &[u8]) -> Option<String> {
        let header: Header = serde_json::from_slice(line).ok()?;
        header.fork.map(|fork| fork.id)
    }

    /// Returns whether a damaged line may be the header of a fork of the session `id`. A single
    /// wrong byte can damage either the beginning of the header and the session's id, or the text
    /// between them, but not both.
    pub(super) fn may_reference(line: &[u8], id: &str) -> bool {
        let after = line.strip_prefix(HEADER_PREFIX).unwrap_or_default();
        let names = |id: String| memmem::find(after, id.as_bytes()).is_some();
        contains_fork_field(line) || serde_json::to_string(id).is_ok_and(names)
    }
}

fn contains_fork_field(line: &[u8]) -> bool {
    memmem::find(line, FORK_FIELD_PREFIX).is_some()
}

fn not_a_session_error() -> Error {
    corrupt_data_error("this is not a session file: it does not begin with a header")
}

pub(super) fn damaged_line_error(number: usize, why: &str) -> Error {
    corrupt_data_error(format!("line {number} of the session is broken: {why}"))
}

/// A parsed append.
pub(super) struct ParsedAppend {
    entry_lines: Vec<Line>,
    /// The number of the line after the append.
    next: usize,
    /// The offset of the line after the append.
    end_offset: usize,
}

impl ParsedAppend {
    /// Parses the append at an offset. Returns `None` if the append was cut off by a crash. `crc`
    /// is the checksum of the file before the append.
    pub(super) fn parse(
        text: &[u8],
        from: usize,
        number: usize,
        crc: Crc32,
    ) -> Result<Option<Self>, Error> {
        let Some(first) = next_line(text, from, number) else {
            return match may_be_truncated_append(&text[from..]) {
                true => Ok(None),
                false => Err(damaged_line_error(number, "it does not end where it should")),
            };
        };
        let line = &text[first.byte_range.clone()];
        match split_file_crc(line) {
            Some((before, file_crc)) if starts_with_append(line) => {
                if !crc.update(before).matches_hex(file_crc) {
                    let why = "the checksum of the file up to that point is wrong";
                    return Err(damaged_line_error(number, why));
                }
                Self::parse_entries(text, &first)
            }
            Some(_) | None => Err(damaged_line_error(number, "no append begins there")),
        }
    }

    fn parse_entries(text: &[u8], first: &Line) -> Result<Option<Self>, Error> {
        let AppendHeader { entries, bytes, crc32 } = first.parse_append_header(text)?;
        let from = first.byte_range.end + 1;
        let next = first.line_number + 1;
        let rest = &text[from..];
        let Some(lines) = rest.get(..bytes) else {
            return match are_entries_truncated(text, from, next, entries) {
                true => Ok(None),
                // The append was not cut off, but bytes were removed from its middle.
                false => Err(damaged_lines_error(next, entries, "bytes are missing")),
            };
        };
        if !Crc32::compute(lines).matches_hex(crc32.as_bytes()) {
            return Err(damaged_lines_error(next, entries, "the checksum is wrong"));
        }
        let entries: Vec<Line> = split_complete_lines(text, from..from + bytes, next).collect();
        let (next, end) = (next + entries.len(), from + bytes);
        Ok(Some(Self { entry_lines: entries, next, end_offset: end }))
    }
}

/// Returns whether `tail` may be the truncated first line of an append.
fn may_be_truncated_append(tail: &[u8]) -> bool {
    APPEND_PREFIX.starts_with(tail) || starts_with_append(tail) && is_truncated_object(tail)
}

/// Returns whether the text after the offset `from` may consist of an append's entries that were
/// cut off by a crash. Such a text contains only entries, and fewer complete entries than declared.
/// If another append starts within the text, the cause is not a crash: lines have been removed.
fn are_entries_truncated(text: &[u8], from: usize, number: usize, entries: usize) -> bool {
    let whole: Vec<Line> = split_complete_lines(text, from..text.len(), number).collect();
    let tail = &text[whole.last().map_or(from, |line| line.byte_range.end + 1)..];
    whole.len() < entries
        && whole.iter().all(|line| ensure_is_entry(text, line).is_ok())
        && (tail.is_empty() || is_truncated_object(tail) && !starts_with_append(tail))
}

/// Checks that a line is a valid entry.
fn ensure_is_entry(text: &[u8], line: &Line) -> Result<(), Error> {
    let bytes = &text[line.byte_range.clone()];
    if starts_with_append(bytes) || split_file_crc(bytes).is_some() {
        return Err(damaged_line_error(line.line_number, "no append may begin there"));
    }
    let what = || format!("line {} of the session is broken", line.line_number);
    let text = str::from_utf8(bytes).map_err(|error| store_error(what(), error))?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| store_error(what(), error))?;
    Ok(())
}

fn damaged_lines_error(number: usize, lines: usize, why: &str) -> Error {
    match lines {
        0 | 1 => damaged_line_error(number, why),
        _ => {
            let last = number.saturating_add(lines - 1);
            corrupt_data_error(format!("lines {number} to {last} of the session are broken: {why}"))
        }
    }
}

/// Returns the lines in a range of the file, up to the last LF.
pub(super) fn split_complete_lines(
    text: &[u8],
    range: Range<usize>,
    number: usize,
) -> impl Iterator<Item = Line> {
    let mut from = range.start;
    let ended = json_lines::split_lines(text.get(range).unwrap_or_default())
        .take_while(|line| line.is_terminated);
    ended.zip(number..).map(move |(line, number)| {
        let bytes = from..from + line.text.len();
        from = bytes.end + 1;
        Line { line_number: number, byte_range: bytes }
    })
}

impl ParsedFile {
    /// Returns the number of entries inherited from the original session.
    pub(super) fn inherited_entry_count(&self) -> u64 {
        self.header.as_ref().and_then(|head| head.fork_origin.as_ref()).map_or(0, |fork| fork.at)
    }

    /// Returns the number of entries in the session, including inherited entries, or `None` if
    /// there is no session. A session exists if it contains at least one entry or was created as a
    /// fork. If the first append was cut off, the session does not exist.
    pub(super) fn version(&self) -> Option<u64> {
        let forked = self.header.as_ref().is_some_and(|head| head.fork_origin.is_some());
        let own = self.entry_lines.len() as u64;
        (forked || own > 0).then(|| self.inherited_entry_count().saturating_add(own))
    }

    /// Parses some of the session's own entries, selected by their numbers in the session. `text`
    /// must be the text of the parsed file.
    pub(super) fn parse_entries(
        &self,
        text: &[u8],
        numbers: Range<u64>,
    ) -> Result<Vec<Entry>, Error> {
        let own = |number: u64| {
            let at = usize::try_from(number.saturating_sub(self.inherited_entry_count()));
            at.unwrap_or(usize::MAX).min(self.entry_lines.len())
        };
        let lines = self.entry_lines.get(own(numbers.start)..own(numbers.end)).unwrap_or_default();
        lines.iter().map(|line| line.parse_entry(text)).collect()
    }
}

impl Line {
    pub(super) fn parse_entry(&self, text: &[u8]) -> Result<Entry, Error> {
        self.parse_json(text, "no entry")
    }

    pub(super) fn parse_append_header(&self, text: &[u8]) -> Result<AppendHeader, Error> {
        self.parse_json(text, "broken")
    }

    fn parse_json<T: DeserializeOwned>(&self, text: &[u8], otherwise: &str) -> Result<T, Error> {
        let number = self.line_number;
        serde_json::from_slice(&text[self.byte_range.clone()]).map_err(|error| {
            store_error(format!("line {number} of the session is {otherwise}"), error)
        })
    }
}
