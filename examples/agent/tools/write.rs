//! `write_file`, the one tool that changes something, and so one that needs approval.

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
    let about = "Writes a text file: a new one, or the whole of one that is there. Links are not \
                 followed. The user is asked first.";
    let tool = Tool::new("write_file", about, move |file: File, cx| {
        let root = root.clone();
        blocking(move || write(&root, &file, &cx))
    });
    tool.exclusive().needs_approval()
}

pub(super) fn write(root: &Root, file: &File, cx: &ToolContext) -> Result<String, String> {
    let entry = root.entry(&file.path)?;
    let name = entry.name();
    if file.text.len() > LARGEST {
        return Err(format!("the text for `{name}` is longer than {LARGEST} bytes"));
    }
    let was_there = entry.size()?.is_some();
    entry.write(file.text.as_bytes())?;
    match was_there {
        true => cx.changed(name),
        false => cx.created(name),
    }
    let word = if was_there { "replaced" } else { "created" };
    Ok(format!("`{name}` is {word}; its size in bytes: {}", file.text.len()))
}
