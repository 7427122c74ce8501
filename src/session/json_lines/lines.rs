//! What stands in the file of a session.
//!
//! A header, then an entry a line, each line ended by LF and by nothing else. Several entries that were
//! appended together stand behind a line that tells how many they are, so that a reader sees all of
//! them or, where a crash has cut the last append, none.

use std::ops::Range;

use memchr::memchr;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::super::line;
use super::super::refusal::{broken, failed};
use crate::error::Error;
use crate::session::{Entry, Fork};

/// The version of the format.
const VERSION: u32 = 1;

/// How every header begins, whatever its version, and a line before several entries.
const HEADER: &[u8] = br#"{"type":"session","version":"#;
const BATCH: &[u8] = br#"{"type":"append","#;

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename = "session")]
struct Header {
    version: u32,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fork: Option<ForkedFrom>,
}

#[derive(Serialize, Deserialize)]
struct ForkedFrom {
    id: String,
    at: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename = "append")]
struct Batch {
    entries: usize,
}

/// A file, read: what is whole in it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// What the header says; `None` if there is none, as at the very beginning.
    pub(super) head: Option<Head>,
    /// Where the entries are.
    entries: Vec<Line>,
    /// The bytes that are whole. What stands behind them was cut by a crash.
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) fork: Option<Fork>,
}

#[derive(Debug)]
struct Line {
    /// Counted from one.
    number: usize,
    bytes: Range<usize>,
}

/// The header of a session.
pub(super) fn header(id: &str, fork: Option<&Fork>) -> Result<Vec<u8>, Error> {
    let fork = fork.map(|fork| ForkedFrom { id: fork.id.clone(), at: fork.at });
    let mut text = Vec::new();
    write(&mut text, &Header { version: VERSION, id: id.to_owned(), fork })?;
    Ok(text)
}

/// The lines of one append.
pub(super) fn batch(entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    if entries.len() > 1 {
        write(&mut text, &Batch { entries: entries.len() })?;
    }
    for entry in entries {
        // Compact JSON holds no LF: inside of a string it is `\n`.
        text.extend(line::write(entry)?.into_bytes());
        text.push(b'\n');
    }
    Ok(text)
}

fn write(text: &mut Vec<u8>, line: &impl Serialize) -> Result<(), Error> {
    serde_json::to_writer(&mut *text, line)
        .map_err(|error| failed("a line cannot be written as JSON", error))?;
    text.push(b'\n');
    Ok(())
}

/// Whether this may be a session at all.
pub(super) fn begin_with_header(text: &[u8]) -> bool {
    text.starts_with(HEADER)
}

/// Reads what is whole.
///
/// # Errors
///
/// If it is no session or one of a later version, or if a line is broken that is not the end of the
/// file. A crash breaks only the last append.
pub(super) fn read(text: &[u8]) -> Result<Lines, Error> {
    let Some(first) = next_line(text, 0, 1) else {
        // A header that was cut, or nothing.
        let cut = HEADER.starts_with(text) || begin_with_header(text);
        return if cut { Ok(Lines::default()) } else { Err(no_session()) };
    };
    let head = Some(read_header(&text[first.bytes.clone()])?);
    let mut lines = Lines { head, entries: Vec::new(), end: first.bytes.end + 1 };
    let mut number = 2;
    while lines.end < text.len() {
        let Some(append) = Append::read(text, lines.end, number) else { break };
        let end = append.end;
        number = append.next;
        match append.refuse_broken(text) {
            Ok(entries) => lines.entries.extend(entries),
            Err(_) if end == text.len() => break,
            Err(error) => return Err(error),
        }
        lines.end = end;
    }
    Ok(lines)
}

/// The next line, without its LF; `None` if it has none.
fn next_line(text: &[u8], from: usize, number: usize) -> Option<Line> {
    let len = memchr(b'\n', text.get(from..)?)?;
    Some(Line { number, bytes: from..from + len })
}

fn read_header(line: &[u8]) -> Result<Head, Error> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }

    if !begin_with_header(line) {
        return Err(no_session());
    }
    let wrong = |error| failed("line 1 is no header of a session", error);
    let Version { version } = serde_json::from_slice(line).map_err(wrong)?;
    if version > VERSION {
        let message =
            format!("the session has format {version}; this version reads up to {VERSION}");
        return Err(broken(message));
    }
    let Header { id, fork, .. } = serde_json::from_slice(line).map_err(wrong)?;
    Ok(Head { id, fork: fork.map(|ForkedFrom { id, at }| Fork { id, at }) })
}

fn no_session() -> Error {
    broken("this is no file of a session: it does not begin with a header")
}

/// The lines of one append.
struct Append {
    lines: Vec<Line>,
    /// The number of the line behind it, and where that begins.
    next: usize,
    end: usize,
}

impl Append {
    /// Finds those that begin at a place; `None` if they are cut.
    fn read(text: &[u8], from: usize, number: usize) -> Option<Self> {
        let first = next_line(text, from, number)?;
        let (next, end) = (number + 1, first.bytes.end + 1);
        let bytes = &text[first.bytes.clone()];
        let of_several = bytes.starts_with(BATCH).then(|| serde_json::from_slice(bytes));
        let Some(Ok(Batch { entries })) = of_several else {
            return Some(Self { lines: vec![first], next, end });
        };
        let mut append = Self { lines: Vec::new(), next, end };
        while append.lines.len() < entries {
            let line = next_line(text, append.end, append.next)?;
            append.next += 1;
            append.end = line.bytes.end + 1;
            // It is no entry: a line is missing, and `refuse_broken` tells.
            let begins_another = text[line.bytes.clone()].starts_with(BATCH);
            append.lines.push(line);
            if begins_another {
                break;
            }
        }
        Some(append)
    }

    fn refuse_broken(self, text: &[u8]) -> Result<Vec<Line>, Error> {
        for line in &self.lines {
            let bytes = &text[line.bytes.clone()];
            let what = format!("line {} of the session is broken", line.number);
            if bytes.starts_with(BATCH) {
                return Err(broken(format!("{what}: no append may begin there")));
            }
            let text = str::from_utf8(bytes).map_err(|error| failed(&what, error))?;
            serde_json::from_str::<IgnoredAny>(text).map_err(|error| failed(&what, error))?;
        }
        Ok(self.lines)
    }
}

impl Lines {
    /// What was taken over from another session.
    pub(super) fn inherited(&self) -> u64 {
        self.head.as_ref().and_then(|head| head.fork.as_ref()).map_or(0, |fork| fork.at)
    }

    /// How many entries the session has, inherited ones included; `None` if there is no session. One
    /// is there with its first entry or with its fork: what was cut in its first append never was.
    pub(super) fn version(&self) -> Option<u64> {
        let forked = self.head.as_ref().is_some_and(|head| head.fork.is_some());
        let own = self.entries.len() as u64;
        (forked || own > 0).then(|| self.inherited().saturating_add(own))
    }

    /// Reads some of its own entries, by their numbers in the session. `text` is what the lines were
    /// read from.
    pub(super) fn entries(&self, text: &[u8], numbers: Range<u64>) -> Result<Vec<Entry>, Error> {
        let own = |number: u64| {
            let at = usize::try_from(number.saturating_sub(self.inherited()));
            at.unwrap_or(usize::MAX).min(self.entries.len())
        };
        let lines = self.entries.get(own(numbers.start)..own(numbers.end)).unwrap_or_default();
        let read = |line: &Line| {
            let number = line.number;
            serde_json::from_slice(&text[line.bytes.clone()])
                .map_err(|error| failed(format!("line {number} of the session is no entry"), error))
        };
        lines.iter().map(read).collect()
    }
}
