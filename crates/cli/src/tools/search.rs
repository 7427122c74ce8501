//! `search_text`: finds the files and lines that contain a text.

use std::fs::File;
use std::future::ready;
use std::io;

use serde::{Deserialize, Serialize};
use turnstream::tool::{Tool, ToolContext, ToolOutput};

use crate::text::one_line;
use crate::tools::per_file::{FileVisitor, FileWalk, stream_updates};
use crate::tools::root::{Location, Root, is_binary, read_bounded};

/// The maximum number of hits that are shown in total, and per file. All hits are counted.
const MAX_SHOWN_HITS: usize = 40;
const MAX_SHOWN_HITS_PER_FILE: usize = 5;

/// Larger files are not searched.
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;

#[derive(Deserialize, schemars::JsonSchema)]
struct Args {
    /// The text to search for: plain text, not a pattern. Case is ignored.
    query: String,
    /// A directory or a file, relative to the working directory; `.` by default.
    #[serde(default)]
    path: Option<String>,
    /// Searches only files with this extension, for example `rs`.
    #[serde(default)]
    extension: Option<String>,
}

pub(crate) fn search_text(root: Root) -> Tool {
    let about = "Searches the text files in a directory and its subdirectories, or one file, for \
                 a plain text. Hidden directories, build output and binary files are skipped. \
                 Returns files, line numbers and lines.";
    Tool::new("search_text", about, move |args: Args, cx| {
        let root = root.clone();
        let start = move || {
            if args.query.trim().is_empty() {
                return Err("the query is empty. Give a word or a phrase to search for.".to_owned());
            }
            let place = root.find(args.path.as_deref())?;
            let files = place.files(args.extension.as_deref())?;
            Ok((TextSearch::new(args.query), place, files))
        };
        ready(stream_updates(start, cx))
    })
}

struct TextSearch {
    query: String,
    lowercase_query: String,
    hits: Vec<Hit>,
    line_count: usize,
    file_count: usize,
    skipped_count: usize,
}

#[derive(Serialize)]
struct Hit {
    file: String,
    line: usize,
    text: String,
}

impl TextSearch {
    fn new(query: String) -> Self {
        let lowercase = query.to_lowercase();
        Self {
            query,
            lowercase_query: lowercase,
            hits: Vec::new(),
            line_count: 0,
            file_count: 0,
            skipped_count: 0,
        }
    }
}

impl FileVisitor for TextSearch {
    fn visit_file(&mut self, file: io::Result<File>, path: &str, cx: &ToolContext) {
        let bytes = file.ok().and_then(|file| read_bounded(file, MAX_FILE_BYTES, cx).ok());
        let Some(bytes) = bytes.filter(|bytes| !is_binary(bytes)) else {
            self.skipped_count += 1;
            return;
        };
        let mut found = 0;
        for (at, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            if !line.to_lowercase().contains(&self.lowercase_query) {
                continue;
            }
            found += 1;
            if found <= MAX_SHOWN_HITS_PER_FILE && self.hits.len() < MAX_SHOWN_HITS {
                let (file, text) = (path.to_owned(), one_line(line, 200));
                self.hits.push(Hit { file, line: at + 1, text });
            }
        }
        self.line_count += found;
        self.file_count += usize::from(found > 0);
    }

    fn progress_text(&self) -> String {
        format!("{} lines found", self.line_count)
    }

    fn into_report(
        self,
        place: &Location,
        walk: &FileWalk,
    ) -> Result<ToolOutput, turnstream::Error> {
        ToolOutput::json(&Report {
            query: &self.query,
            path: place.display_name(),
            lines: self.line_count,
            files: self.file_count,
            searched: walk.seen_count() - self.skipped_count,
            skipped: self.skipped_count,
            more: self.hits.len() < self.line_count,
            note: walk.incomplete_note(),
            hits: &self.hits,
        })
    }
}

#[derive(Serialize)]
struct Report<'a> {
    query: &'a str,
    path: String,
    /// The number of matching lines, and the number of files that have them.
    lines: usize,
    files: usize,
    searched: usize,
    /// The number of files that are binary, too large, or cannot be read.
    skipped: usize,
    /// Whether there are more hits than are shown.
    more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    hits: &'a [Hit],
}
