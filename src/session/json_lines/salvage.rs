//! What is whole in a damaged file.

use std::ops::Range;
use std::path::Path;

use memchr::{memchr_iter, memmem};

use super::super::salvage::SalvageReport;
use super::crc::Crc;
use super::lines::{self, AppendLine, LegacyAppendLine, Line, ParsedAppend};
use crate::session::ForkOrigin;

/// What a file says: its own entries, and what it was forked from.
pub(super) struct SalvagedFile {
    pub(super) fork: Option<ForkOrigin>,
    pub(super) own: SalvageReport,
}

/// Reads all that is whole, also if only the last LF is missing. Where something is not whole, it goes
/// on with the next append that is.
pub(super) fn read(text: &[u8], path: &Path) -> SalvagedFile {
    let found = read_ended(text, path);
    if !text.ends_with(b"}") {
        return found;
    }
    let ended = read_ended(&[text, b"\n"].concat(), path);
    match ended.own.damage.len() < found.own.damage.len() {
        true => ended,
        false => found,
    }
}

fn read_ended(text: &[u8], path: &Path) -> SalvagedFile {
    let mut reader = Reader {
        text,
        path,
        at: 0,
        number: 1,
        crc: Crc::default(),
        is_checked: false,
        is_known: true,
        own: SalvageReport::default(),
    };
    let fork = reader.header();
    while reader.at < text.len() {
        reader.append();
    }
    SalvagedFile { fork, own: reader.own }
}

struct Reader<'a> {
    text: &'a [u8],
    path: &'a Path,
    /// Where the next append begins, and the number of its line.
    at: usize,
    number: usize,
    /// The checksum of the file until there.
    crc: Crc,
    /// Whether every append from here on has a checksum.
    is_checked: bool,
    /// Whether all before is as it was written, or the damage was noted.
    is_known: bool,
    own: SalvageReport,
}

impl Reader<'_> {
    fn header(&mut self) -> Option<ForkOrigin> {
        let first = lines::next_line(self.text, 0, 1);
        let line = first.as_ref().map_or(self.text, |line| &self.text[line.bytes.clone()]);
        match lines::read_header(line) {
            Ok(head) if first.is_some() => {
                self.is_checked = head.is_checked;
                self.skip_to(line.len() + 1);
                head.fork
            }
            Ok(_) => {
                self.record_damage(self.text.len(), "the header was cut", Some(0));
                None
            }
            Err(error) => {
                self.is_checked = memmem::find(line, b"file_crc32").is_some();
                let end = match self.is_checked {
                    true => self.next_append(),
                    false => first.map_or(self.text.len(), |line| line.bytes.end + 1),
                };
                self.record_damage(end, error.message(), None);
                None
            }
        }
    }

    fn append(&mut self) {
        let first = lines::next_line(self.text, self.at, self.number);
        let checked = first.as_ref().and_then(|first| self.checked(first));
        match (checked, first) {
            (Some(entries), Some(first)) => self.checked_append(&first, entries),
            (None, Some(first)) if !self.is_checked && !self.is_of_append(&first) => {
                let end = first.bytes.end + 1;
                match first.entry(self.text) {
                    Ok(entry) => {
                        self.own.entries.push(entry);
                        self.skip_to(end);
                    }
                    Err(error) => self.record_damage(end, error.message(), Some(1)),
                }
            }
            (None, Some(first))
                if !self.is_checked && LegacyAppendLine::read(self.text, &first).is_some() =>
            {
                self.skip_to(first.bytes.end + 1);
            }
            (None, _) | (Some(_), None) => {
                let read =
                    ParsedAppend::read(self.text, self.at, self.number, self.crc, self.is_checked);
                let reason = match read {
                    Ok(_) => "it was cut, as by a crash before it was acknowledged".to_owned(),
                    Err(error) => error.message().to_owned(),
                };
                let declared = self.declared_counts();
                // Also where the LF before the next append is damaged.
                let end = declared.map(|(_, end)| end).filter(|end| {
                    let rest = self.text.get(*end..);
                    rest.is_some_and(|rest| rest.is_empty() || lines::starts_with_append(rest))
                });
                let lost = declared.map(|(entries, _)| entries);
                self.record_damage(end.unwrap_or_else(|| self.next_append()), &reason, lost);
            }
        }
    }

    /// Whether a line is of the file itself, and no entry.
    fn is_of_append(&self, line: &Line) -> bool {
        let line = &self.text[line.bytes.clone()];
        lines::starts_with_append(line) || lines::split_file_crc(line).is_some()
    }

    /// Where the entries of an append are that has a first line and a right checksum.
    fn checked(&self, first: &Line) -> Option<Range<usize>> {
        let line = &self.text[first.bytes.clone()];
        lines::split_file_crc(line).filter(|_| lines::starts_with_append(line))?;
        let AppendLine { bytes, crc32, .. } = first.append(self.text).ok()?;
        let from = first.bytes.end + 1;
        let range = from..from.checked_add(bytes)?;
        let entries = self.text.get(range.clone())?;
        Crc::of(entries).matches_hex(crc32.as_bytes()).then_some(range)
    }

    fn checked_append(&mut self, first: &Line, entries: Range<usize>) {
        let line = &self.text[first.bytes.clone()];
        if let Some((before, file_crc)) = lines::split_file_crc(line)
            && !self.crc.update(before).matches_hex(file_crc)
        {
            if self.is_known {
                let reason = "something before it is missing, or is not as it was written";
                self.own.push_damage(
                    self.line_range(first.number..first.number + 1),
                    reason.to_owned(),
                    None,
                );
            }
            // What comes after is checked from here on.
            if let Some(written) = Crc::parse_hex(file_crc) {
                self.crc = written;
                self.at = first.bytes.start + before.len();
            }
        }
        (self.is_checked, self.is_known) = (true, true);
        for line in lines::split(self.text, entries.clone(), first.number + 1) {
            match line.entry(self.text) {
                Ok(entry) => self.own.entries.push(entry),
                Err(error) => {
                    let place = self.line_range(line.number..line.number + 1);
                    self.own.push_damage(place, error.message().to_owned(), Some(1));
                }
            }
        }
        self.skip_to(entries.end);
        self.number = first.number + 1 + memchr_iter(b'\n', &self.text[entries]).count();
    }

    /// Notes that the lines until `end` are damaged, with the entries in them that can be parsed.
    fn record_damage(&mut self, end: usize, reason: &str, lost: Option<u64>) {
        let range = self.at..end;
        let ended = memchr_iter(b'\n', &self.text[range.clone()]).count();
        let has_more = !self.text[range.clone()].ends_with(b"\n");
        let numbers = self.number..self.number + ended + usize::from(has_more);
        let lines = lines::split(self.text, range.clone(), self.number);
        let is_entry = |line: &Line| !self.is_of_append(line) && line.number > 1;
        let entries: Vec<Line> = lines.filter(is_entry).collect();
        let doubtful = entries.iter().filter_map(|line| line.entry(self.text).ok()).collect();
        self.own.push_damage(self.line_range(numbers), reason.to_owned(), lost);
        if let Some(damage) = self.own.damage.last_mut() {
            damage.suspect_entries = doubtful;
        }
        self.is_known = false;
        self.skip_to(end);
    }

    /// How many entries the append that begins here says that it has, and where it says that it ends, if
    /// that is as it was written.
    fn declared_counts(&self) -> Option<(u64, usize)> {
        let first = lines::next_line(self.text, self.at, self.number)?;
        let (before, file_crc) = lines::split_file_crc(&self.text[first.bytes.clone()])?;
        let line = first.append(self.text).ok()?;
        let end = (first.bytes.end + 1).checked_add(line.bytes)?;
        self.crc.update(before).matches_hex(file_crc).then_some((line.entries as u64, end))
    }

    fn skip_to(&mut self, end: usize) {
        let passed = &self.text[self.at..end];
        self.number += memchr_iter(b'\n', passed).count();
        self.crc = self.crc.update(passed);
        self.at = end;
    }

    /// Where the next append begins after the line that begins here; no entry looks like one.
    fn next_append(&self) -> usize {
        let ends = memchr_iter(b'\n', &self.text[self.at..]).map(|end| self.at + end + 1);
        let mut ends = ends.filter(|end| lines::starts_with_append(&self.text[*end..]));
        ends.next().unwrap_or(self.text.len())
    }

    fn line_range(&self, numbers: Range<usize>) -> String {
        let path = self.path.display();
        match numbers.len() {
            0 | 1 => format!("`{path}`, line {}", numbers.start),
            _ => format!("`{path}`, lines {} to {}", numbers.start, numbers.end - 1),
        }
    }
}
