//! Salvages the intact parts of a damaged file.

use std::ops::Range;
use std::path::Path;

use memchr::memchr_iter;

use super::super::salvage::SalvageReport;
use super::crc32::Crc32;
use super::file_format::{self, AppendHeader, Line, ParsedAppend};
use crate::session::ForkOrigin;

/// The salvaged contents of a file: the session's own entries and, if the session is a fork, its
/// `ForkOrigin`.
pub(super) struct SalvagedFile {
    pub(super) fork_origin: Option<ForkOrigin>,
    pub(super) own_report: SalvageReport,
}

/// Reads all intact appends, even if the last LF is missing. After a damaged part, reading
/// continues at the next intact append.
pub(super) fn salvage_file(text: &[u8], path: &Path) -> SalvagedFile {
    let found = salvage_terminated_file(text, path);
    if !text.ends_with(b"}") {
        return found;
    }
    let ended = salvage_terminated_file(&[text, b"\n"].concat(), path);
    match ended.own_report.damage.len() < found.own_report.damage.len() {
        true => ended,
        false => found,
    }
}

fn salvage_terminated_file(text: &[u8], path: &Path) -> SalvagedFile {
    let mut reader = SalvageReader {
        text,
        path,
        offset: 0,
        line_number: 1,
        crc: Crc32::default(),
        is_prefix_intact: true,
        report: SalvageReport::default(),
    };
    let fork = reader.read_header();
    while reader.offset < text.len() {
        reader.read_append();
    }
    SalvagedFile { fork_origin: fork, own_report: reader.report }
}

struct SalvageReader<'a> {
    text: &'a [u8],
    path: &'a Path,
    /// The offset of the next append to read. `line_number` is the number of the append's first
    /// line.
    offset: usize,
    line_number: usize,
    /// The checksum of the file up to `offset`.
    crc: Crc32,
    /// Whether the part before `offset` is intact, or the damage in that part has already been
    /// recorded.
    is_prefix_intact: bool,
    report: SalvageReport,
}

impl SalvageReader<'_> {
    fn read_header(&mut self) -> Option<ForkOrigin> {
        let first = file_format::next_line(self.text, 0, 1);
        let line = first.as_ref().map_or(self.text, |line| &self.text[line.byte_range.clone()]);
        match file_format::parse_header(line) {
            Ok(head) if first.is_some() => {
                self.skip_to(line.len() + 1);
                head.fork_origin
            }
            Ok(_) => {
                self.record_damage(self.text.len(), "the header was truncated", Some(0));
                None
            }
            Err(error) => {
                self.record_damage(self.next_append_offset(), error.message(), None);
                None
            }
        }
    }

    fn read_append(&mut self) {
        let first = file_format::next_line(self.text, self.offset, self.line_number);
        let checked = first.as_ref().and_then(|first| self.checked_entry_range(first));
        match (checked, first) {
            (Some(entries), Some(first)) => self.read_checked_append(&first, entries),
            (None, _) | (Some(_), None) => {
                let read = ParsedAppend::parse(self.text, self.offset, self.line_number, self.crc);
                let reason = match read {
                    Ok(_) => "it was truncated, as by a crash before it was \
                    acknowledged"
                        .to_owned(),
                    Err(error) => error.message().to_owned(),
                };
                let declared = self.declared_entries_and_end();
                // The declared end is also correct if the LF before the next append is damaged.
                let end = declared.map(|(_, end)| end).filter(|end| {
                    let rest = self.text.get(*end..);
                    rest.is_some_and(|rest| {
                        rest.is_empty() || file_format::starts_with_append(rest)
                    })
                });
                let lost = declared.map(|(entries, _)| entries);
                self.record_damage(end.unwrap_or_else(|| self.next_append_offset()), &reason, lost);
            }
        }
    }

    /// Returns whether a line is the file's header or the first line of an append, rather than an
    /// entry.
    fn is_append_header(&self, line: &Line) -> bool {
        let line = &self.text[line.byte_range.clone()];
        file_format::starts_with_append(line) || file_format::split_file_crc(line).is_some()
    }

    /// Returns the range of an append's entries, if the append's first line can be parsed and its
    /// checksum is correct.
    fn checked_entry_range(&self, first: &Line) -> Option<Range<usize>> {
        let line = &self.text[first.byte_range.clone()];
        file_format::split_file_crc(line).filter(|_| file_format::starts_with_append(line))?;
        let AppendHeader { bytes, crc32, .. } = first.parse_append_header(self.text).ok()?;
        let from = first.byte_range.end + 1;
        let range = from..from.checked_add(bytes)?;
        let entries = self.text.get(range.clone())?;
        Crc32::compute(entries).matches_hex(crc32.as_bytes()).then_some(range)
    }

    fn read_checked_append(&mut self, first: &Line, entries: Range<usize>) {
        let line = &self.text[first.byte_range.clone()];
        if let Some((before, file_crc)) = file_format::split_file_crc(line)
            && !self.crc.update(before).matches_hex(file_crc)
        {
            if self.is_prefix_intact {
                let reason = "something before it is missing or was changed";
                self.report.push_damage(
                    self.describe_lines(first.line_number..first.line_number + 1),
                    reason.to_owned(),
                    None,
                );
            }
            // The rest of the file is checked relative to the checksum that is stored in this line.
            if let Some(written) = Crc32::parse_hex(file_crc) {
                self.crc = written;
                self.offset = first.byte_range.start + before.len();
            }
        }
        self.is_prefix_intact = true;
        for line in
            file_format::split_complete_lines(self.text, entries.clone(), first.line_number + 1)
        {
            match line.parse_entry(self.text) {
                Ok(entry) => self.report.entries.push(entry),
                Err(error) => {
                    let place = self.describe_lines(line.line_number..line.line_number + 1);
                    self.report.push_damage(place, error.message().to_owned(), Some(1));
                }
            }
        }
        self.skip_to(entries.end);
        self.line_number = first.line_number + 1 + memchr_iter(b'\n', &self.text[entries]).count();
    }

    /// Records that the lines up to the offset `end` are damaged. Entries in these lines that can
    /// be parsed are recorded as suspect.
    fn record_damage(&mut self, end: usize, reason: &str, lost: Option<u64>) {
        let range = self.offset..end;
        let ended = memchr_iter(b'\n', &self.text[range.clone()]).count();
        let has_more = !self.text[range.clone()].ends_with(b"\n");
        let numbers = self.line_number..self.line_number + ended + usize::from(has_more);
        let lines = file_format::split_complete_lines(self.text, range.clone(), self.line_number);
        let is_entry = |line: &Line| !self.is_append_header(line) && line.line_number > 1;
        let entries: Vec<Line> = lines.filter(is_entry).collect();
        let doubtful = entries.iter().filter_map(|line| line.parse_entry(self.text).ok()).collect();
        self.report.push_damage(self.describe_lines(numbers), reason.to_owned(), lost);
        if let Some(damage) = self.report.damage.last_mut() {
            damage.suspect_entries = doubtful;
        }
        self.is_prefix_intact = false;
        self.skip_to(end);
    }

    /// Returns the number of entries and the end offset that the append at `offset` declares.
    /// Returns `None` if the append's first line is not intact.
    fn declared_entries_and_end(&self) -> Option<(u64, usize)> {
        let first = file_format::next_line(self.text, self.offset, self.line_number)?;
        let (before, file_crc) = file_format::split_file_crc(&self.text[first.byte_range.clone()])?;
        let line = first.parse_append_header(self.text).ok()?;
        let end = (first.byte_range.end + 1).checked_add(line.bytes)?;
        self.crc.update(before).matches_hex(file_crc).then_some((line.entries as u64, end))
    }

    fn skip_to(&mut self, end: usize) {
        let passed = &self.text[self.offset..end];
        self.line_number += memchr_iter(b'\n', passed).count();
        self.crc = self.crc.update(passed);
        self.offset = end;
    }

    /// Returns the offset of the next append after the current line. No entry starts with the
    /// prefix of an append.
    fn next_append_offset(&self) -> usize {
        let ends = memchr_iter(b'\n', &self.text[self.offset..]).map(|end| self.offset + end + 1);
        let mut ends = ends.filter(|end| file_format::starts_with_append(&self.text[*end..]));
        ends.next().unwrap_or(self.text.len())
    }

    fn describe_lines(&self, numbers: Range<usize>) -> String {
        let path = self.path.display();
        match numbers.len() {
            0 | 1 => format!("`{path}`, line {}", numbers.start),
            _ => format!("`{path}`, lines {} to {}", numbers.start, numbers.end - 1),
        }
    }
}
