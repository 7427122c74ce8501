//! `search_text`: in which files and lines a text stands.

use std::fs::File;
use std::io;

use serde::{Deserialize, Serialize};
use turnstream::tool::{Tool, ToolContext, ToolOutput};

use crate::text::one_line;
use crate::tools::per_file::{PerFile, Walk, stream_updates};
use crate::tools::root::{Place, Root, is_binary, read_whole};

/// At most so many hits are shown, and so many of one file. All are counted.
const SHOWN: usize = 40;
const SHOWN_OF_A_FILE: usize = 5;

/// Larger files are not searched.
const LARGEST: u64 = 2 * 1024 * 1024;

#[derive(Deserialize, schemars::JsonSchema)]
struct Args {
    /// The text to look for. It is plain text, no pattern; upper and lower case are the same.
    query: String,
    /// A directory or a file, relative to the working directory; `.` unless given.
    #[serde(default)]
    path: Option<String>,
    /// Searches only files with this extension, for example `rs`.
    #[serde(default)]
    extension: Option<String>,
}

pub(crate) fn search_text(root: Root) -> Tool {
    let about = "Searches the text files in a directory and all below it, or one file, for a \
                 plain text. Hidden directories, build output and binary files are left out. \
                 Gives files, line numbers and lines.";
    Tool::streaming("search_text", about, move |args: Args, cx| {
        let root = root.clone();
        let start = move || {
            if args.query.trim().is_empty() {
                return Err("the query is empty. Give a word or a phrase to look for.".to_owned());
            }
            let place = root.find(args.path.as_deref())?;
            let files = place.files(args.extension.as_deref())?;
            Ok((Search::new(args.query), place, files))
        };
        stream_updates(start, cx)
    })
}

struct Search {
    query: String,
    lowercase: String,
    hits: Vec<Hit>,
    lines: usize,
    files: usize,
    skipped: usize,
}

#[derive(Serialize)]
struct Hit {
    file: String,
    line: usize,
    text: String,
}

impl Search {
    fn new(query: String) -> Self {
        let lowercase = query.to_lowercase();
        Self { query, lowercase, hits: Vec::new(), lines: 0, files: 0, skipped: 0 }
    }
}

impl PerFile for Search {
    fn look_at(&mut self, file: io::Result<File>, path: &str, cx: &ToolContext) {
        let bytes = file.ok().and_then(|file| read_whole(file, LARGEST, cx).ok());
        let Some(bytes) = bytes.filter(|bytes| !is_binary(bytes)) else {
            self.skipped += 1;
            return;
        };
        let mut found = 0;
        for (at, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            if !line.to_lowercase().contains(&self.lowercase) {
                continue;
            }
            found += 1;
            if found <= SHOWN_OF_A_FILE && self.hits.len() < SHOWN {
                let (file, text) = (path.to_owned(), one_line(line, 200));
                self.hits.push(Hit { file, line: at + 1, text });
            }
        }
        self.lines += found;
        self.files += usize::from(found > 0);
    }

    fn so_far(&self) -> String {
        format!("{} lines found", self.lines)
    }

    fn report(self, place: &Place, walk: &Walk) -> Result<ToolOutput, turnstream::Error> {
        ToolOutput::json(&Report {
            query: &self.query,
            path: place.name(),
            lines: self.lines,
            files: self.files,
            searched: walk.seen() - self.skipped,
            skipped: self.skipped,
            more: self.hits.len() < self.lines,
            note: walk.gaps(),
            hits: &self.hits,
        })
    }
}

#[derive(Serialize)]
struct Report<'a> {
    query: &'a str,
    path: String,
    /// How many lines hold the text, in how many files.
    lines: usize,
    files: usize,
    searched: usize,
    /// Files that are binary, too large, or cannot be read.
    skipped: usize,
    /// Whether there are more hits than are shown.
    more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    hits: &'a [Hit],
}
