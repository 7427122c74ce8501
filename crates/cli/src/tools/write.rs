//! `write_file`, the only tool that changes files, and so the only one that needs approval.

use serde::Deserialize;
use turnstream::tool::{Tool, ToolContext};

use crate::text::{escape_invisible, head_and_tail, quote_path};
use crate::tools::blocking::run_blocking;
use crate::tools::root::{MAX_PATH_BYTES, Root, WriteTarget};

pub(super) const TOOL_NAME: &str = "write_file";

/// Longer texts are not written.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

#[derive(Deserialize, schemars::JsonSchema)]
pub(super) struct WriteFileArgs {
    /// The file, relative to the working directory. A missing directory is created.
    pub(super) path: String,
    /// The complete new content, or the text to append.
    pub(super) text: String,
    /// Appends the text to the existing content.
    #[serde(default)]
    pub(super) append: bool,
}

pub(crate) fn write_file(root: Root) -> Tool {
    let about = "Writes a text file: creates it, replaces it or appends to it. Links are not \
                 followed. The user is asked for approval first.";
    let tool = Tool::new(TOOL_NAME, about, move |file: WriteFileArgs, cx| {
        let root = root.clone();
        run_blocking(move || perform_write(&root, &file, &cx))
    });
    tool.exclusive().requires_approval()
}

/// Describes the text, and below it, next to the question, the file as it would be opened. The
/// calls in `earlier` write before this one.
pub(super) fn describe_write(
    root: &Root,
    file: &WriteFileArgs,
    earlier: &[WriteFileArgs],
) -> Vec<String> {
    let (lines, characters) = (file.text.lines().count(), file.text.chars().count());
    let mut shown = vec![match characters {
        0 => format!("{TOOL_NAME}, with an empty text"),
        _ => format!("{TOOL_NAME}, with this text (lines: {lines}, characters: {characters}):"),
    }];
    shown.extend(head_and_tail(&file.text).into_iter().map(|line| format!("| {line}")));
    let entry = root.write_target(&file.path);
    let makes_a_directory = entry.as_ref().is_ok_and(WriteTarget::has_missing_dirs);
    let found = entry.and_then(|entry| Ok((entry.path(), entry.existing_size()?)));
    let is_earlier = |path: &str| {
        let mut entries = earlier.iter().filter_map(|file| root.write_target(&file.path).ok());
        entries.any(|entry| entry.path() == path)
    };
    let (path, what) = match found {
        Ok((path, _)) if is_earlier(&path) => {
            let what = match file.append {
                true => "appended to the text of an earlier call that you approved",
                false => "replaces the text of an earlier call that you approved",
            };
            (path, what.to_owned())
        }
        Ok((path, None)) if makes_a_directory => (path, "in a new directory".to_owned()),
        Ok((path, None)) => (path, "a new file".to_owned()),
        Ok((path, Some(bytes))) if file.append => (path, format!("appended to its {bytes} bytes")),
        Ok((path, Some(bytes))) => (path, format!("replaces {bytes} bytes of an existing file")),
        // A path that is too long is one of the reasons.
        Err(why) => {
            let path = file.path.chars().take(MAX_PATH_BYTES).collect();
            (path, format!("this will fail: {}", escape_invisible(&why, MAX_PATH_BYTES)))
        }
    };
    shown.push(format!("to the file: {} ({what})", quote_path(&path)));
    shown
}

pub(super) fn perform_write(
    root: &Root,
    file: &WriteFileArgs,
    cx: &ToolContext,
) -> Result<String, String> {
    let entry = root.write_target(&file.path)?;
    let name = entry.display_name();
    let was_there = entry.existing_size()?.is_some();
    let mut content = match was_there && file.append {
        true => entry.read(MAX_TEXT_BYTES as u64, cx)?,
        false => Vec::new(),
    };
    content.extend_from_slice(file.text.as_bytes());
    if content.len() > MAX_TEXT_BYTES {
        return Err(format!("the text for `{name}` is longer than {MAX_TEXT_BYTES} bytes"));
    }
    entry.write(&content)?;
    match was_there {
        true => cx.record_change(name),
        false => cx.record_creation(name),
    }
    let word = match (was_there, file.append) {
        (false, _) => "created",
        (true, true) => "extended",
        (true, false) => "replaced",
    };
    Ok(format!("`{name}` was {word}; its size in bytes: {}", content.len()))
}
