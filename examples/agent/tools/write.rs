//! `write_file`, the one tool that changes something, and so one that needs approval.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use turnstream::tool::{Tool, ToolContext};

use crate::tools::blocking;
use crate::tools::root::Root;

/// Longer texts are not written.
const LARGEST: usize = 1024 * 1024;

#[derive(Deserialize, schemars::JsonSchema)]
pub(super) struct File {
    /// The file, relative to the working directory. Its directory exists already.
    pub(super) path: String,
    /// The whole new content.
    pub(super) text: String,
}

pub(crate) fn write_file(root: Root) -> Tool {
    let about = "Writes a text file: a new one, or the whole of one that is there. The user is \
                 asked first.";
    let tool = Tool::new("write_file", about, move |file: File, cx| {
        let root = root.clone();
        blocking(move || write(&root, &file, &cx))
    });
    tool.exclusive().needs_approval()
}

pub(super) fn write(root: &Root, file: &File, cx: &ToolContext) -> Result<String, String> {
    let (place, name) = root.place_for(&file.path)?;
    if file.text.len() > LARGEST {
        return Err(format!("the text for `{name}` is longer than {LARGEST} bytes"));
    }
    let was_there = is_plain_file(&place, &name)?;
    fs::write(&place, &file.text).map_err(|error| format!("`{name}` is not written: {error}"))?;
    match was_there {
        true => cx.changed(&name),
        false => cx.created(&name),
    }
    let word = if was_there { "replaced" } else { "created" };
    Ok(format!("`{name}` is {word}; its size in bytes: {}", file.text.len()))
}

/// Whether there is a file already. A link could lead outside, and so is not written through.
fn is_plain_file(path: &Path, name: &str) -> Result<bool, String> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => Ok(true),
        Ok(_) => Err(format!("`{name}` is there already, and not a plain file")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(format!("`{name}` cannot be written: {error}")),
    }
}
