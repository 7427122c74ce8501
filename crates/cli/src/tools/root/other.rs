//! A directory by its path, for platforms where directories cannot be kept open. Links are checked
//! before each step, but a program that replaces a directory by a link at that very moment is not
//! detected.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType};
use std::io;
use std::path::{Path, PathBuf};

use super::EntryKind;

pub(super) struct Dir(PathBuf);

impl Dir {
    /// Opens a directory that the user named, following links.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        fs::read_dir(path)?;
        Ok(Self(path.canonicalize()?))
    }

    /// Whether this is the directory at a path.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|path| path == self.0)
    }

    pub(super) fn open_subdir(&self, name: &OsStr) -> io::Result<Self> {
        match self.entry_kind(name)? {
            EntryKind::Directory => Ok(Self(self.0.join(name))),
            EntryKind::File(_) | EntryKind::Link | EntryKind::Other => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a directory"))
            }
        }
    }

    /// Creates a directory if it does not exist, and opens it.
    pub(super) fn create_subdir(&self, name: &OsStr) -> io::Result<Self> {
        match fs::create_dir(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => self.open_subdir(name),
        }
    }

    pub(super) fn entry_kind(&self, name: &OsStr) -> io::Result<EntryKind> {
        let meta = fs::symlink_metadata(self.0.join(name))?;
        Ok(kind_from_metadata(meta.file_type(), meta.len()))
    }

    /// Whether a file's permissions allow writing.
    pub(super) fn is_writable(&self, name: &OsStr) -> io::Result<bool> {
        Ok(!fs::symlink_metadata(self.0.join(name))?.permissions().readonly())
    }

    /// The target of a link.
    pub(super) fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        fs::read_link(self.0.join(name))
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        match self.entry_kind(name)? {
            EntryKind::File(_) => File::open(self.0.join(name)),
            EntryKind::Directory | EntryKind::Link | EntryKind::Other => Err(not_a_file_error()),
        }
    }

    pub(super) fn entries(&self) -> io::Result<Vec<(OsString, EntryKind)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            // An entry that was deleted meanwhile is left out.
            if let Ok(kind) = self.entry_kind(&name) {
                entries.push((name, kind));
            }
        }
        Ok(entries)
    }

    /// Creates a file with this content, or replaces the existing one.
    pub(super) fn replace_file(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        match self.entry_kind(name) {
            Ok(EntryKind::File(_)) => {}
            Ok(EntryKind::Directory | EntryKind::Link | EntryKind::Other) => {
                return Err(not_a_file_error());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::write(self.0.join(name), content)
    }
}

fn kind_from_metadata(kind: FileType, bytes: u64) -> EntryKind {
    match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
        (true, _, _) => EntryKind::File(bytes),
        (_, true, _) => EntryKind::Directory,
        (_, _, true) => EntryKind::Link,
        (false, false, false) => EntryKind::Other,
    }
}

fn not_a_file_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}
