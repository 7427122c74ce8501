//! `count_lines`: counts lines, and finds the file with the most lines.

use std::fs::File;
use std::future::ready;
use std::io;

use serde::{Deserialize, Serialize};
use turnstream::tool::{Tool, ToolContext, ToolOutput};

use crate::tools::per_file::{FileVisitor, FileWalk, stream_updates};
use crate::tools::root::{Location, Root, is_binary, read_in_pieces};

#[derive(Deserialize, schemars::JsonSchema)]
struct Args {
    /// A directory or a file, relative to the working directory; `.` by default.
    #[serde(default)]
    path: Option<String>,
    /// Counts only files with this extension, for example `rs`.
    #[serde(default)]
    extension: Option<String>,
}

pub(crate) fn count_lines(root: Root) -> Tool {
    let about = "Counts the lines of the text files in a directory and its subdirectories, or of \
                 one file. Hidden directories and build output are skipped. Returns the total, the \
                 number of files, and the longest file with its number of lines.";
    Tool::new("count_lines", about, move |args: Args, cx| {
        let root = root.clone();
        let start = move || {
            let place = root.find(args.path.as_deref())?;
            let files = place.files(args.extension.as_deref())?;
            Ok((LineCounter::default(), place, files))
        };
        ready(stream_updates(start, cx))
    })
}

#[derive(Default)]
struct LineCounter {
    line_count: u64,
    file_count: usize,
    longest_file: Option<(String, u64)>,
    skipped_count: usize,
}

impl FileVisitor for LineCounter {
    fn visit_file(&mut self, file: io::Result<File>, path: &str, cx: &ToolContext) {
        let Ok(Some(lines)) = file.and_then(|file| count_text_lines(file, cx)) else {
            self.skipped_count += 1;
            return;
        };
        self.line_count += lines;
        self.file_count += 1;
        if self.longest_file.as_ref().is_none_or(|(_, most)| lines > *most) {
            self.longest_file = Some((path.to_owned(), lines));
        }
    }

    fn progress_text(&self) -> String {
        format!("{} lines", self.line_count)
    }

    fn into_report(
        self,
        place: &Location,
        walk: &FileWalk,
    ) -> Result<ToolOutput, turnstream::Error> {
        let (longest_file, longest_lines) = self.longest_file.unzip();
        ToolOutput::json(&Report {
            path: place.display_name(),
            extension: walk.extension(),
            total: self.line_count,
            files: self.file_count,
            longest_file,
            longest_lines,
            skipped: self.skipped_count,
            note: walk.incomplete_note(),
        })
    }
}

#[derive(Serialize)]
struct Report<'a> {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    extension: Option<&'a str>,
    total: u64,
    files: usize,
    longest_file: Option<String>,
    longest_lines: Option<u64>,
    /// The number of files that are binary or cannot be read.
    skipped: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// The number of lines in a file, including a last one without a line break; `None` if it is not
/// text.
fn count_text_lines(file: File, cx: &ToolContext) -> io::Result<Option<u64>> {
    let (mut lines, mut last, mut binary, mut first) = (0, b'\n', false, true);
    read_in_pieces(file, cx, |bytes| {
        binary = std::mem::take(&mut first) && is_binary(bytes);
        lines += bytes.iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
        last = bytes.last().copied().unwrap_or(last);
        !binary
    })?;
    Ok((!binary).then(|| lines + u64::from(last != b'\n')))
}
