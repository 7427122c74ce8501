//! The working directory, and the invariant that nothing outside of it is read or written.
//!
//! The directory is opened once, and every path from the model is resolved from there: each
//! directory is opened relative to its parent, and never through a link. If a directory is replaced
//! by a link meanwhile, that is an error, not a way out. A link is read, and its target is resolved
//! in the same way, so links that stay inside work for reading; nothing is written through a link.
//! If a directory is moved away meanwhile, the open one is still used.

#[cfg(not(unix))]
#[path = "other.rs"]
mod dir;
#[cfg(unix)]
#[path = "unix.rs"]
mod dir;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use turnstream::tool::ToolContext;

use crate::text::one_line;
use dir::Dir;

/// Longer and deeper paths are refused: a question shows the whole path, and each directory of the
/// path is kept open.
pub(crate) const MAX_PATH_BYTES: usize = 1_024;
const MAX_PATH_PARTS: usize = 64;

/// A path that leads through more links than this is taken for a cycle.
const MAX_LINKS: usize = 40;

/// The directory that tools may access. Cheap to clone.
#[derive(Clone)]
pub struct Root(Arc<OpenRoot>);

struct OpenRoot {
    /// The path as given, and with links resolved: an absolute path has to start with one of them.
    path_prefixes: Vec<PathBuf>,
    dir: Result<Arc<Dir>, String>,
    /// The file in which the conversation is stored, which tools must not write.
    session_file: Option<PathBuf>,
}

/// A file or directory that was found inside of the root.
pub(crate) struct Location {
    path: PathBuf,
    target: LocationTarget,
}

enum LocationTarget {
    Directory(Arc<Dir>),
    /// A file, or something that is neither a file nor a directory, as an entry of its directory.
    Entry(Arc<Dir>, OsString, EntryKind),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum EntryKind {
    /// With its size in bytes.
    File(u64),
    Directory,
    Link,
    /// An entry that is not read, such as a pipe or a device.
    Other,
}

/// How links in a path are handled.
#[derive(Clone, Copy, PartialEq)]
enum LinkPolicy {
    Follow,
    Refuse,
}

impl Root {
    /// Opens the directory. `session` is the file in which the conversation is stored, if any.
    pub fn new(path: PathBuf, session: Option<PathBuf>) -> Self {
        let dir = Dir::open(&path)
            .map(Arc::new)
            .map_err(|error| format!("the working directory cannot be read: {error}"));
        let real = path.canonicalize().ok();
        let names = std::iter::once(path).chain(real).collect();
        Self(Arc::new(OpenRoot { path_prefixes: names, dir, session_file: session }))
    }

    /// Finds the path that a model named; `None` is the working directory itself.
    pub(crate) fn find(&self, given: Option<&str>) -> Result<Location, String> {
        let given = given.filter(|given| !given.trim().is_empty()).unwrap_or(".");
        check_path_limits(given)?;
        self.walk_path(Path::new(given), LinkPolicy::Follow)
    }

    /// The target of a file that a model wants to write: an entry, new or existing, of a directory.
    /// A missing directory is created when the file is written.
    pub(crate) fn write_target(&self, given: &str) -> Result<WriteTarget, String> {
        check_path_limits(given)?;
        if given == "~" || given.starts_with("~/") {
            return Err(format!(
                "`{}` is not in the home directory: `~` is not expanded. Give a path relative to \
                 the working directory.",
                one_line(given, 100)
            ));
        }
        let path = Path::new(given);
        let Some(file) = path.file_name().filter(|_| !given.ends_with(['/', '\\'])) else {
            return Err(format!("`{}` does not name a file", one_line(given, 100)));
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let (parent, missing) = self.walk_existing(parent, LinkPolicy::Refuse)?;
        let LocationTarget::Directory(dir) = parent.target else {
            return Err(format!("`{}` is not a directory", parent.display_name()));
        };
        let path = display_path(&parent.path.join(missing.iter().collect::<PathBuf>()).join(file));
        let name = one_line(&path, 200);
        if missing.is_empty() && self.is_session_file(&dir, file) {
            return Err(format!("`{name}` stores this conversation, so it is not written"));
        }
        Ok(WriteTarget {
            dir,
            missing_dirs: missing,
            file_name: file.to_owned(),
            path,
            display_name: name,
        })
    }

    /// Whether the file is the session's, or one that SQLite stores next to it.
    fn is_session_file(&self, dir: &Dir, file: &OsStr) -> bool {
        let Some(given) = &self.0.session_file else { return false };
        // The user may have named a link.
        let real = given.canonicalize().ok();
        std::iter::once(given).chain(&real).any(|session| {
            let Some(name) = session.file_name() else { return false };
            let is_name = |ending| {
                let mut name = name.to_owned();
                name.push(ending);
                // On some systems file names ignore case.
                file.eq_ignore_ascii_case(name)
            };
            let parent = session.parent().filter(|parent| *parent != Path::new(""));
            ["", "-journal", "-shm", "-wal"].into_iter().any(is_name)
                && dir.is_at(parent.unwrap_or(Path::new(".")))
        })
    }

    fn walk_path(&self, given: &Path, links: LinkPolicy) -> Result<Location, String> {
        match self.walk_existing(given, links)? {
            (place, missing) if missing.is_empty() => Ok(place),
            _ => Err(missing_error(given)),
        }
    }

    /// The last existing directory of the path, and the names of the missing ones.
    fn walk_existing(
        &self,
        given: &Path,
        links: LinkPolicy,
    ) -> Result<(Location, Vec<OsString>), String> {
        let named = one_line(&given.to_string_lossy(), 100);
        let outside = || {
            format!(
                "`{named}` is outside the working directory and cannot be read. Give a path \
                 inside it, relative to it, for example `.` or `src`."
            )
        };
        let failed = |error: &io::Error| match error.kind() {
            io::ErrorKind::NotFound => missing_error(given),
            _ => format!("`{named}` cannot be read: {error}"),
        };
        let root = self.0.dir.as_ref().map_err(Clone::clone)?;
        // The directories from the root to the current one, and the rest of the path.
        let mut at: Vec<(OsString, Arc<Dir>)> = Vec::new();
        let mut rest = Vec::new();
        let mut last = None;
        let mut missing = Vec::new();
        let mut followed = 0;
        self.push_path(given, &mut at, &mut rest).ok_or_else(outside)?;
        while let Some(step) = rest.pop() {
            let here = Arc::clone(at.last().map_or(root, |(_, dir)| dir));
            let name = match step {
                PathStep::Up if at.pop().is_none() => return Err(outside()),
                PathStep::Up => continue,
                PathStep::Down(name) => name,
            };
            let kind = match here.entry_kind(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.push(name);
                    for step in rest.drain(..).rev() {
                        let PathStep::Down(name) = step else { return Err(missing_error(given)) };
                        missing.push(name);
                    }
                    break;
                }
                kind => kind.map_err(|error| failed(&error))?,
            };
            match kind {
                EntryKind::Link if links == LinkPolicy::Refuse => {
                    return Err(format!("`{named}` leads through a link, so it is not written"));
                }
                EntryKind::Link => {
                    followed += 1;
                    if followed > MAX_LINKS {
                        return Err(format!("`{named}` leads through too many links"));
                    }
                    let target = here.read_link(&name).map_err(|error| failed(&error))?;
                    self.push_path(&target, &mut at, &mut rest).ok_or_else(outside)?;
                }
                EntryKind::Directory => {
                    // Fails if the directory was replaced meanwhile.
                    let dir = here.open_subdir(&name).map_err(|error| failed(&error))?;
                    at.push((name, Arc::new(dir)));
                }
                EntryKind::File(_) | EntryKind::Other if rest.is_empty() => {
                    last = Some((here, name, kind));
                }
                EntryKind::File(_) | EntryKind::Other => {
                    return Err(format!("`{named}` cannot be read: a parent of it is a file"));
                }
            }
        }
        let mut name: PathBuf = at.iter().map(|(name, _)| name).collect();
        let found = match last {
            Some((dir, file, kind)) => {
                name.push(&file);
                LocationTarget::Entry(dir, file, kind)
            }
            None => {
                LocationTarget::Directory(at.pop().map_or_else(|| Arc::clone(root), |(_, dir)| dir))
            }
        };
        Ok((Location { path: name, target: found }, missing))
    }

    /// Prepends a path to the rest of the path. `None` if it is absolute and outside of the root.
    fn push_path(
        &self,
        path: &Path,
        at: &mut Vec<(OsString, Arc<Dir>)>,
        rest: &mut Vec<PathStep>,
    ) -> Option<()> {
        let path = match path.has_root() {
            false => path,
            true => {
                at.clear();
                self.0.path_prefixes.iter().find_map(|name| path.strip_prefix(name).ok())?
            }
        };
        let before = rest.len();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => rest.push(PathStep::Up),
                Component::Normal(name) => rest.push(PathStep::Down(name.to_owned())),
                Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        rest[before..].reverse();
        Some(())
    }
}

fn check_path_limits(given: &str) -> Result<(), String> {
    let named = one_line(given, 100);
    if given.len() > MAX_PATH_BYTES {
        return Err(format!("`{named}` is longer than {MAX_PATH_BYTES} bytes"));
    }
    match Path::new(given).components().count() > MAX_PATH_PARTS {
        true => Err(format!("`{named}` has more than {MAX_PATH_PARTS} parts")),
        false => Ok(()),
    }
}

fn missing_error(path: &Path) -> String {
    format!(
        "there is no `{}` in the working directory. Call `list_directory` to see its files.",
        one_line(&path.to_string_lossy(), 100)
    )
}

enum PathStep {
    Up,
    Down(OsString),
}

impl Location {
    /// The path as the model names it.
    pub(crate) fn display_name(&self) -> String {
        display_path(&self.path)
    }

    /// The directory's entries, in order; an error if it is not a directory.
    pub(crate) fn entries(&self) -> Result<Vec<(OsString, EntryKind)>, String> {
        match &self.target {
            LocationTarget::Directory(dir) => {
                sorted_entries(dir).map_err(|error| format!("`{}`: {error}", self.display_name()))
            }
            LocationTarget::Entry(..) => {
                let name = self.display_name();
                Err(format!("`{name}` is not a directory. Call `read_file` to read a file."))
            }
        }
    }

    /// Opens the file; an error if it is not a file.
    pub(crate) fn open_file(&self) -> Result<File, String> {
        let name = self.display_name();
        match &self.target {
            LocationTarget::Entry(dir, file, EntryKind::File(_)) => {
                dir.open_file(file).map_err(|error| format!("`{name}` cannot be read: {error}"))
            }
            LocationTarget::Entry(..) | LocationTarget::Directory(_) => {
                let what = "Call `list_directory` to see the existing files.";
                Err(format!("`{name}` is not a file. {what}"))
            }
        }
    }

    /// The files below a directory, sorted, without those in hidden and build directories, and
    /// without following links. For a file, just the file itself.
    pub(crate) fn files(&self, extension: Option<&str>) -> Result<FileIter, String> {
        let mut files = FileIter {
            extension: extension.and_then(plain_extension),
            pending: Vec::new(),
            unreadable_count: 0,
        };
        match &self.target {
            LocationTarget::Entry(dir, file, kind @ EntryKind::File(_)) => {
                files.extension = None;
                files.pending.push(PendingEntry {
                    parent: Arc::clone(dir),
                    path: self.path.clone(),
                    file_name: file.clone(),
                    kind: *kind,
                });
            }
            LocationTarget::Entry(..) => {
                return Err(format!("`{}` is neither a file nor a directory", self.display_name()));
            }
            LocationTarget::Directory(dir) => {
                let entered = files.push_entries(dir, &self.path);
                entered.map_err(|error| {
                    format!("`{}` cannot be read: {error}", self.display_name())
                })?;
            }
        }
        Ok(files)
    }
}

/// An entry of a directory that is kept open, so that the checks and the write refer to the same
/// directory.
pub(crate) struct WriteTarget {
    dir: Arc<Dir>,
    /// The directories below it that have to be created first.
    missing_dirs: Vec<OsString>,
    file_name: OsString,
    path: String,
    display_name: String,
}

impl WriteTarget {
    /// The path relative to the working directory, without `..`.
    pub(crate) fn path(&self) -> String {
        self.path.clone()
    }

    /// The path in one line.
    pub(crate) fn display_name(&self) -> &str {
        &self.display_name
    }

    pub(crate) fn has_missing_dirs(&self) -> bool {
        !self.missing_dirs.is_empty()
    }

    /// The size of the existing file in bytes, if there is one; an error if it must not be written.
    pub(crate) fn existing_size(&self) -> Result<Option<u64>, String> {
        if !self.missing_dirs.is_empty() {
            return Ok(None);
        }
        match self.dir.entry_kind(&self.file_name) {
            // The file is replaced, which would not need write permission on the file itself.
            Ok(EntryKind::File(bytes)) => match self.dir.is_writable(&self.file_name) {
                Ok(true) => Ok(Some(bytes)),
                Ok(false) => Err(format!("`{}` is write-protected", self.display_name)),
                Err(error) => Err(format!("`{}` cannot be written: {error}", self.display_name)),
            },
            Ok(EntryKind::Directory | EntryKind::Link | EntryKind::Other) => {
                Err(format!("`{}` already exists and is not a regular file", self.display_name))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("`{}` cannot be written: {error}", self.display_name)),
        }
    }

    /// Reads the existing content of the file.
    pub(crate) fn read(&self, limit: u64, cx: &ToolContext) -> Result<Vec<u8>, String> {
        let file = self.dir.open_file(&self.file_name).map_err(ReadError::Io);
        let read = file.and_then(|file| read_bounded(file, limit, cx));
        read.map_err(|why| why.into_message(&self.display_name, limit))
    }

    /// Writes the file completely or not at all.
    pub(crate) fn write(&self, text: &[u8]) -> Result<(), String> {
        let write = || {
            let mut made = None;
            for name in &self.missing_dirs {
                let dir = made.as_ref().unwrap_or(&*self.dir);
                made = Some(dir.create_subdir(name)?);
            }
            made.as_ref().unwrap_or(&*self.dir).replace_file(&self.file_name, text)
        };
        write().map_err(|error| format!("`{}` could not be written: {error}", self.display_name))
    }
}

fn display_path(path: &Path) -> String {
    match path.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => path.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/"),
    }
}

fn sorted_entries(dir: &Dir) -> io::Result<Vec<(OsString, EntryKind)>> {
    let mut entries = dir.entries()?;
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(entries)
}

/// The files below a directory, in order; each directory is read when it is reached.
pub(crate) struct FileIter {
    extension: Option<String>,
    /// In reverse order: the next entry is the last.
    pending: Vec<PendingEntry>,
    unreadable_count: usize,
}

struct PendingEntry {
    parent: Arc<Dir>,
    /// Relative to the root.
    path: PathBuf,
    file_name: OsString,
    kind: EntryKind,
}

impl FileIter {
    pub(crate) fn extension(&self) -> Option<&str> {
        self.extension.as_deref()
    }

    /// The number of directories that could not be read so far.
    pub(crate) fn unreadable_count(&self) -> usize {
        self.unreadable_count
    }

    fn push_entries(&mut self, dir: &Arc<Dir>, path: &Path) -> io::Result<()> {
        let entries = sorted_entries(dir)?;
        self.pending.extend(entries.into_iter().rev().map(|(file, kind)| PendingEntry {
            parent: Arc::clone(dir),
            path: path.join(&file),
            file_name: file,
            kind,
        }));
        Ok(())
    }

    fn has_wanted_extension(&self, path: &Path) -> bool {
        let Some(wanted) = &self.extension else { return true };
        path.extension().is_some_and(|has| has.eq_ignore_ascii_case(wanted))
    }
}

/// Opens the directory, unless it is hidden or has build output.
fn open_unless_ignored(
    PendingEntry { parent, path, file_name: file, .. }: &PendingEntry,
) -> Option<io::Result<Dir>> {
    if file.as_encoded_bytes().starts_with(b".") {
        return None;
    }
    let is_in_root = path.as_os_str() == file;
    let has = |dir: &Dir, name: &str| dir.entry_kind(OsStr::new(name)).is_ok();
    // A source folder may also be called `target`.
    let may_be_output = file == OsStr::new("target");
    if may_be_output && (is_in_root || has(parent, "Cargo.toml")) {
        return None;
    }
    match parent.open_subdir(file) {
        Ok(dir) if may_be_output && has(&dir, "CACHEDIR.TAG") => None,
        entered => Some(entered),
    }
}

impl Iterator for FileIter {
    /// The result of opening the file, and its path.
    type Item = (io::Result<File>, String);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(next) = self.pending.pop() {
            match next.kind {
                EntryKind::File(_) if self.has_wanted_extension(&next.path) => {
                    return Some((
                        next.parent.open_file(&next.file_name),
                        display_path(&next.path),
                    ));
                }
                EntryKind::Directory => {
                    let Some(dir) = open_unless_ignored(&next) else { continue };
                    let read = dir.and_then(|dir| self.push_entries(&Arc::new(dir), &next.path));
                    self.unreadable_count += usize::from(read.is_err());
                }
                EntryKind::File(_) | EntryKind::Link | EntryKind::Other => {}
            }
        }
        None
    }
}

/// Returns `rs` for `rs`, `.rs` and `*.rs`.
fn plain_extension(given: &str) -> Option<String> {
    let plain = given.trim().trim_start_matches('*').trim_start_matches('.');
    (!plain.is_empty()).then(|| plain.to_owned())
}

/// The reason why a file was not read completely.
pub(crate) enum ReadError {
    /// With its size in bytes, as far as it is known.
    TooLarge(u64),
    Io(io::Error),
}

impl ReadError {
    /// The message for the model.
    pub(crate) fn into_message(self, name: &str, limit: u64) -> String {
        match self {
            Self::TooLarge(bytes) => {
                format!("`{name}` has {bytes} bytes, which exceeds the limit of {limit} bytes.")
            }
            Self::Io(error) => format!("`{name}` cannot be read: {error}"),
        }
    }
}

/// Reads a whole file of at most `limit` bytes, and stops early if the call is cancelled.
pub(crate) fn read_bounded(file: File, limit: u64, cx: &ToolContext) -> Result<Vec<u8>, ReadError> {
    let size = file.metadata().map_err(ReadError::Io)?.len();
    if size > limit {
        return Err(ReadError::TooLarge(size));
    }
    let mut bytes = Vec::new();
    read_in_pieces(file, cx, |piece| {
        bytes.extend_from_slice(piece);
        // The file may have grown since its size was read, and some files report no size.
        bytes.len() as u64 <= limit
    })
    .map_err(ReadError::Io)?;
    match bytes.len() as u64 {
        read if read > limit => Err(ReadError::TooLarge(read.max(size))),
        _ => Ok(bytes),
    }
}

/// Reads a file in pieces, until `each` returns `false` or the call is cancelled.
pub(crate) fn read_in_pieces(
    mut file: impl Read,
    cx: &ToolContext,
    mut each: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if cx.is_cancelled() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the call was cancelled"));
        }
        let read = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 || !each(&buffer[..read]) {
            return Ok(());
        }
    }
}

/// Whether the first bytes of a file show that it is not text.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8_000).any(|byte| *byte == 0)
}
