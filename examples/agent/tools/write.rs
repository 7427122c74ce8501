//! `write_file`, the one tool that changes something, and so one that needs approval.

use serde::Deserialize;
use turnstream::tool::{Tool, ToolContext};

use crate::text::{exactly, head_and_tail, quoted};
use crate::tools::blocking;
use crate::tools::root::{Entry, LONGEST_PATH, Root};

pub(super) const NAME: &str = "write_file";

/// Longer texts are not written.
const LARGEST: usize = 1024 * 1024;

#[derive(Deserialize, schemars::JsonSchema)]
pub(super) struct File {
    /// The file, relative to the working directory. A directory that is not there is made.
    pub(super) path: String,
    /// The whole new content, or what comes at the end.
    pub(super) text: String,
    /// Keeps what is there, and puts the text at its end.
    #[serde(default)]
    pub(super) append: bool,
}

pub(crate) fn write_file(root: Root) -> Tool {
    let about = "Writes a text file: a new one, or the whole or the end of one that is there. \
                 Links are not followed. The user is asked first.";
    let tool = Tool::new(NAME, about, move |file: File, cx| {
        let root = root.clone();
        blocking(move || write(&root, &file, &cx))
    });
    tool.exclusive().requires_approval()
}

/// The text, and below it, next to the question, the file as it would be opened.
/// Those in `earlier` are written before it.
pub(super) fn describe(root: &Root, file: &File, earlier: &[File]) -> Vec<String> {
    let (lines, characters) = (file.text.lines().count(), file.text.chars().count());
    let mut shown = vec![match characters {
        0 => format!("{NAME}, with an empty text"),
        _ => format!("{NAME}, with this text (lines: {lines}, characters: {characters}):"),
    }];
    shown.extend(head_and_tail(&file.text).into_iter().map(|line| format!("| {line}")));
    let entry = root.entry(&file.path);
    let makes_a_directory = entry.as_ref().is_ok_and(Entry::makes_a_directory);
    let found = entry.and_then(|entry| Ok((entry.path(), entry.size()?)));
    let is_earlier = |path: &str| {
        let mut entries = earlier.iter().filter_map(|file| root.entry(&file.path).ok());
        entries.any(|entry| entry.path() == path)
    };
    let (path, what) = match found {
        Ok((path, _)) if is_earlier(&path) => {
            let what = match file.append {
                true => "at the end of what an earlier call writes, which you allowed",
                false => "it replaces what an earlier call writes, which you allowed",
            };
            (path, what.to_owned())
        }
        Ok((path, None)) if makes_a_directory => (path, "in a new directory".to_owned()),
        Ok((path, None)) => (path, "a new file".to_owned()),
        Ok((path, Some(bytes))) if file.append => {
            (path, format!("at the end of its {bytes} bytes"))
        }
        Ok((path, Some(bytes))) => (path, format!("it is there, {bytes} bytes are replaced")),
        // A path that is too long is one of the reasons.
        Err(why) => {
            let path = file.path.chars().take(LONGEST_PATH).collect();
            (path, format!("this will fail: {}", exactly(&why, LONGEST_PATH)))
        }
    };
    shown.push(format!("to the file: {} ({what})", quoted(&path)));
    shown
}

pub(super) fn write(root: &Root, file: &File, cx: &ToolContext) -> Result<String, String> {
    let entry = root.entry(&file.path)?;
    let name = entry.name();
    let was_there = entry.size()?.is_some();
    let mut content = match was_there && file.append {
        true => entry.read(LARGEST as u64, cx)?,
        false => Vec::new(),
    };
    content.extend_from_slice(file.text.as_bytes());
    if content.len() > LARGEST {
        return Err(format!("the text for `{name}` is longer than {LARGEST} bytes"));
    }
    entry.write(&content)?;
    match was_there {
        true => cx.record_change(name),
        false => cx.record_creation(name),
    }
    let word = match (was_there, file.append) {
        (false, _) => "created",
        (true, true) => "longer now",
        (true, false) => "replaced",
    };
    Ok(format!("`{name}` is {word}; its size in bytes: {}", content.len()))
}
