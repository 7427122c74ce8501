//! The agent's tools, which work in the working directory.
//!
//! They check paths before they use them. For a directory that other programs change at the same
//! time, open files relative to an open directory instead.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use turnstream::tool::{Tool, Toolkit};

/// The maximum size of a file that is read or written.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The maximum number of listed entries.
const MAX_ENTRIES: usize = 200;

#[derive(Deserialize, schemars::JsonSchema)]
struct PathArgs {
    /// A directory or a file, relative to the working directory.
    path: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct WriteArgs {
    /// The file, relative to the working directory.
    path: String,
    /// The complete new content.
    text: String,
}

/// The tools for this directory, whose path has no links. Read-only tools may run again after a
/// crash.
pub(crate) fn toolkit(root: &Path) -> Toolkit {
    let [list, count, write] = [root.to_owned(), root.to_owned(), root.to_owned()];
    Toolkit::new([
        Tool::new("list_directory", "Lists a directory", move |args: PathArgs, _cx| {
            let root = list.clone();
            run_blocking(move || list_directory(&find(&root, &args.path)?))
        })
        .idempotent(),
        Tool::new(
            "count_lines",
            "Counts the lines of a file, or of all files in a directory",
            move |args: PathArgs, _cx| {
                let root = count.clone();
                run_blocking(move || count_lines(&root, &find(&root, &args.path)?))
            },
        )
        .idempotent(),
        Tool::new("write_file", "Writes a text file", move |args: WriteArgs, _cx| {
            let root = write.clone();
            run_blocking(move || write_file(&root, &args))
        })
        .exclusive()
        .requires_approval(),
    ])
}

/// Runs file operations on a thread where blocking is allowed.
async fn run_blocking<F>(work: F) -> Result<String, String>
where
    F: FnOnce() -> Result<String, String> + Send + 'static,
{
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|_| Err("the tool stopped unexpectedly".to_owned()))
}

/// Returns the path of something that exists in the root, with all links resolved.
fn find(root: &Path, path: &str) -> Result<PathBuf, String> {
    let found = root.join(path).canonicalize().map_err(|error| describe(path, &error))?;
    match found.starts_with(root) {
        true => Ok(found),
        false => Err(format!("`{path}` is not in the working directory")),
    }
}

fn list_directory(directory: &Path) -> Result<String, String> {
    let failed = |error: io::Error| error.to_string();
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)?.take(MAX_ENTRIES) {
        let entry = entry.map_err(failed)?;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name().to_string_lossy().into_owned();
        names.push(if is_directory { name + "/" } else { name });
    }
    names.sort();
    Ok(names.join("\n"))
}

fn count_lines(root: &Path, path: &Path) -> Result<String, String> {
    let mut files = Vec::new();
    collect_files(path, &mut files).map_err(|error| error.to_string())?;
    let mut counted: Vec<(usize, &PathBuf)> =
        files.iter().filter_map(|file| Some((line_count(file)?, file))).collect();
    counted.sort();
    let total: usize = counted.iter().map(|(lines, _)| lines).sum();
    let longest = counted.last().map_or_else(String::new, |(lines, file)| {
        let name = file.strip_prefix(root).unwrap_or(file).display();
        format!(" The longest is `{name}` with {lines} lines.")
    });
    Ok(format!("There are {total} lines in {} files.{longest}", counted.len()))
}

/// Collects the files in a directory, without hidden ones and build output. Links are not followed.
fn collect_files(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_skipped = entry.file_name().to_string_lossy().starts_with('.')
            || entry.file_name() == "target"
            || entry.file_type()?.is_symlink();
        if !is_skipped {
            collect_files(&entry.path(), files)?;
        }
    }
    Ok(())
}

/// The number of lines of a text file. `None` for a file that is large or is not text.
fn line_count(file: &Path) -> Option<usize> {
    let is_small = fs::metadata(file).ok()?.len() <= MAX_FILE_BYTES;
    let text = is_small.then(|| fs::read_to_string(file).ok()).flatten()?;
    Some(text.lines().count())
}

fn write_file(root: &Path, WriteArgs { path, text }: &WriteArgs) -> Result<String, String> {
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err("the text is too large".to_owned());
    }
    let Some(Component::Normal(name)) = Path::new(path).components().next_back() else {
        return Err(format!("`{path}` is not a file"));
    };
    let parent = Path::new(path).parent().and_then(Path::to_str).unwrap_or_default();
    let file = find(root, if parent.is_empty() { "." } else { parent })?.join(name);
    if file.is_symlink() {
        return Err(format!("`{path}` is a link"));
    }
    fs::write(&file, text).map_err(|error| describe(path, &error))?;
    Ok(format!("Wrote {} bytes to `{path}`.", text.len()))
}

fn describe(path: &str, error: &io::Error) -> String {
    format!("`{path}`: {error}")
}
