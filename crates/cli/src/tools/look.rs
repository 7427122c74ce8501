//! `list_directory` and `read_file`.

use std::fmt::Write;

use serde::Deserialize;
use turnstream::tool::{Tool, ToolContext};

use crate::text::one_line;
use crate::tools::blocking::run_blocking;
use crate::tools::root::{EntryKind, Root, is_binary, read_bounded};

/// The maximum number of listed entries.
const MAX_LISTED_ENTRIES: usize = 500;

/// The limits on the size of a file that is read, and on the text that is returned at once.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
const MAX_SHOWN_BYTES: usize = 32 * 1024;

#[derive(Deserialize, schemars::JsonSchema)]
struct ListDirectoryArgs {
    /// A directory, relative to the working directory; `.` by default.
    #[serde(default)]
    path: Option<String>,
}

pub(crate) fn list_directory(root: Root) -> Tool {
    let about = "Lists a directory: one entry per line, directories with a `/`, files with \
                 their size.";
    Tool::new("list_directory", about, move |args: ListDirectoryArgs, _cx| {
        let root = root.clone();
        run_blocking(move || list_entries(&root, &args))
    })
}

fn list_entries(root: &Root, args: &ListDirectoryArgs) -> Result<String, String> {
    let place = root.find(args.path.as_deref())?;
    let entries = place.entries()?;
    let mut lines: Vec<String> = Vec::new();
    for (name, kind) in entries.iter().take(MAX_LISTED_ENTRIES) {
        let entry = one_line(&name.to_string_lossy(), 255);
        lines.push(match kind {
            EntryKind::Directory => format!("{entry}/"),
            EntryKind::File(bytes) => format!("{entry} ({bytes} bytes)"),
            EntryKind::Link => format!("{entry} (a link)"),
            EntryKind::Other => format!("{entry} (a special file)"),
        });
    }
    match entries.len() {
        0 => lines.push(format!("`{}` is empty.", place.display_name())),
        all if all > MAX_LISTED_ENTRIES => {
            lines.push(format!("… and {} more", all - MAX_LISTED_ENTRIES));
        }
        _ => {}
    }
    Ok(lines.join("\n"))
}

#[derive(Deserialize, schemars::JsonSchema)]
struct ReadFileArgs {
    /// The file, relative to the working directory.
    path: String,
    /// The first line to show, counted from 1; 1 by default.
    #[serde(default)]
    first_line: Option<usize>,
    /// The last line to show; the end of the file by default.
    #[serde(default)]
    last_line: Option<usize>,
}

pub(crate) fn read_file(root: Root) -> Tool {
    let about = "Reads a text file, or a range of its lines, each with its number.";
    Tool::new("read_file", about, move |args: ReadFileArgs, cx| {
        let root = root.clone();
        run_blocking(move || read_lines(&root, &args, &cx))
    })
}

fn read_lines(root: &Root, args: &ReadFileArgs, cx: &ToolContext) -> Result<String, String> {
    let place = root.find(Some(&args.path))?;
    let name = place.display_name();
    let bytes = read_bounded(place.open_file()?, MAX_FILE_BYTES, cx)
        .map_err(|why| why.into_message(&name, MAX_FILE_BYTES))?;
    if is_binary(&bytes) {
        return Err(format!("`{name}` is a binary file."));
    }
    numbered_lines(&name, &String::from_utf8_lossy(&bytes), args)
}

fn numbered_lines(name: &str, text: &str, args: &ReadFileArgs) -> Result<String, String> {
    let first = args.first_line.unwrap_or(1).max(1);
    let last = args.last_line.unwrap_or(usize::MAX);
    let lines = text.lines().count();
    if lines == 0 {
        return Ok(format!("`{name}` is empty."));
    }
    if first > last || first > lines {
        return Err(format!(
            "`{name}` has {lines} lines. The first line must exceed neither that nor the last line."
        ));
    }
    let mut shown = String::new();
    for (at, line) in text.lines().enumerate().take(last).skip(first - 1) {
        let line = format!("{}: {line}\n", at + 1);
        if shown.len() + line.len() > MAX_SHOWN_BYTES {
            let mut next = at + 1;
            if shown.is_empty() {
                let cut: String = line.chars().take(MAX_SHOWN_BYTES / 4).collect();
                shown = format!("{cut}… (the rest of this line cannot be shown)\n");
                // Without this, the next call would show the same line again.
                next += 1;
            }
            if next <= last.min(lines) {
                let _ = write!(
                    shown,
                    "… cut off at line {next} of {lines}. Call `read_file` with `first_line` \
                     {next} for more."
                );
            }
            return Ok(shown);
        }
        shown.push_str(&line);
    }
    Ok(shown)
}
