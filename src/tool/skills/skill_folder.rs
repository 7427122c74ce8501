//! Reads files in the folder of a skill.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, MAIN_SEPARATOR, Path, PathBuf};

/// The maximum number of bytes that are read from a file at once.
pub(super) const MAX_READ_BYTES: u64 = 48 * 1024;

/// The maximum number of files that are listed.
const MAX_LISTED_FILES: usize = 100;

/// The maximum number of files and folders that are visited to list a skill's files.
const MAX_VISITED: usize = 1_000;

/// A part of a text file.
#[derive(Debug, PartialEq)]
pub(super) struct TextPart {
    pub(super) text: String,
    /// The offset of the rest of the file, or `None` if the text ends at the end of the file.
    pub(super) rest: Option<u64>,
}

/// Reads the text of a file from an offset, up to [`MAX_READ_BYTES`]. The path is relative to the
/// folder.
///
/// # Errors
///
/// Returns a message if the file is not inside of the folder, not a text, or cannot be read.
pub(super) fn read_text(folder: &Path, path: &str, offset: u64) -> Result<TextPart, String> {
    let real_path = resolve_inside(folder, path)?;
    let cannot = |error: io::Error| format!("`{path}` cannot be read: {error}");
    // A pipe would block when it is opened.
    if !fs::metadata(&real_path).map_err(cannot)?.is_file() {
        return Err(format!("`{path}` is not a file"));
    }
    let mut file = File::open(&real_path).map_err(cannot)?;
    let len = file.metadata().map_err(cannot)?.len();
    if offset > len {
        return Err(format!("`{path}` has only {len} bytes"));
    }
    file.seek(SeekFrom::Start(offset)).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES).read_to_end(&mut bytes).map_err(cannot)?;
    let end = offset + bytes.len() as u64;
    text_part(&bytes, offset, end < len)
        .ok_or_else(|| format!("`{path}` is not a text, but {len} bytes of binary data"))
}

/// Returns the text in a part of a file, without the bytes of characters that the part cuts at its
/// beginning or end. Returns `None` if the bytes are not text.
fn text_part(bytes: &[u8], offset: u64, has_rest: bool) -> Option<TextPart> {
    let is_continuation = |byte: &&u8| (0x80..0xC0).contains(*byte);
    let skipped = match offset {
        0 => 0,
        _ => bytes.iter().take(3).take_while(is_continuation).count(),
    };
    let part = &bytes[skipped..];
    let valid = match str::from_utf8(part) {
        Ok(_) => part.len(),
        Err(error) if has_rest && error.error_len().is_none() => error.valid_up_to(),
        Err(_) => return None,
    };
    let text = String::from_utf8(part[..valid].to_vec()).ok()?;
    let rest = has_rest.then_some(offset + (skipped + valid) as u64);
    (!text.contains('\0')).then_some(TextPart { text, rest })
}

/// Resolves a path that is relative to a folder, including all links.
///
/// # Errors
///
/// Returns a message if the path does not exist, or if it is not inside of the folder.
fn resolve_inside(folder: &Path, path: &str) -> Result<PathBuf, String> {
    let is_inside = |part: Component<'_>| match part {
        Component::Normal(_) | Component::CurDir => true,
        Component::Prefix(_) | Component::RootDir | Component::ParentDir => false,
    };
    let outside = || format!("`{path}` is outside of the skill's folder");
    if !Path::new(path).components().all(is_inside) {
        return Err(outside());
    }
    let cannot = |error| format!("`{path}` cannot be read: {error}");
    let folder = fs::canonicalize(folder).map_err(cannot)?;
    let real_path = fs::canonicalize(folder.join(path)).map_err(cannot)?;
    match real_path.starts_with(&folder) {
        true => Ok(real_path),
        false => Err(outside()),
    }
}

/// Returns whether a path, including all links, leads to something inside of a folder.
pub(super) fn is_inside(folder: &Path, path: &Path) -> io::Result<bool> {
    Ok(fs::canonicalize(path)?.starts_with(fs::canonicalize(folder)?))
}

/// Returns the metadata of the file at a path, or `None` if there is no file.
pub(super) fn file_metadata(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_file().then_some(metadata)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

/// The files in a skill's folder, other than `SKILL.md`.
pub(super) struct FileList {
    /// The paths, relative to the folder and in order. Their parts are separated by `/` on every
    /// system.
    pub(super) paths: Vec<String>,
    /// Whether the folder contains further files.
    pub(super) has_more: bool,
}

/// Lists the files in a skill's folder, without hidden files and links.
pub(super) fn list_files(folder: &Path) -> FileList {
    let mut list = FileList { paths: Vec::new(), has_more: false };
    let mut folders = vec![PathBuf::new()];
    let mut visited = 0;
    while let Some(inside) = folders.pop() {
        // A folder that cannot be read has no files that the model could read.
        let Ok(entries) = fs::read_dir(folder.join(&inside)) else { continue };
        for entry in entries.filter_map(Result::ok) {
            visited += 1;
            if visited > MAX_VISITED {
                list.has_more = true;
                folders.clear();
                break;
            }
            let (name, file_type) = (entry.file_name(), entry.file_type());
            let path = inside.join(&name);
            let (Some(text), Ok(file_type)) = (path.to_str(), file_type) else { continue };
            let text = text.replace(MAIN_SEPARATOR, "/");
            if name.as_encoded_bytes().starts_with(b".") || text == "SKILL.md" {
                continue;
            }
            if file_type.is_dir() {
                folders.push(path);
            } else if file_type.is_file() {
                list.paths.push(text);
            }
        }
    }
    list.paths.sort_unstable();
    list.has_more |= list.paths.len() > MAX_LISTED_FILES;
    list.paths.truncate(MAX_LISTED_FILES);
    list
}
