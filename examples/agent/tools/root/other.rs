//! A directory by its path, where none can be held open. Links are looked for before each step, but a
//! program that swaps a directory for a link at just that moment is not noticed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType};
use std::io;
use std::path::{Path, PathBuf};

use super::Kind;

pub(super) struct Dir(PathBuf);

impl Dir {
    /// Opens a directory of the user's, links and all.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        fs::read_dir(path)?;
        Ok(Self(path.canonicalize()?))
    }

    /// Whether it is the directory at a path.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|path| path == self.0)
    }

    pub(super) fn enter(&self, name: &OsStr) -> io::Result<Self> {
        match self.kind(name)? {
            Kind::Directory => Ok(Self(self.0.join(name))),
            Kind::File(_) | Kind::Link | Kind::Other => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a directory"))
            }
        }
    }

    /// Makes a directory, unless it is there by now, and opens it.
    pub(super) fn make(&self, name: &OsStr) -> io::Result<Self> {
        match fs::create_dir(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => self.enter(name),
        }
    }

    pub(super) fn kind(&self, name: &OsStr) -> io::Result<Kind> {
        let meta = fs::symlink_metadata(self.0.join(name))?;
        Ok(kind(meta.file_type(), meta.len()))
    }

    /// Whether a file may be written as it is.
    pub(super) fn is_writable(&self, name: &OsStr) -> io::Result<bool> {
        Ok(!fs::symlink_metadata(self.0.join(name))?.permissions().readonly())
    }

    /// Where a link leads.
    pub(super) fn link(&self, name: &OsStr) -> io::Result<PathBuf> {
        fs::read_link(self.0.join(name))
    }

    /// Opens a file for reading.
    pub(super) fn file(&self, name: &OsStr) -> io::Result<File> {
        match self.kind(name)? {
            Kind::File(_) => File::open(self.0.join(name)),
            Kind::Directory | Kind::Link | Kind::Other => Err(not_a_file()),
        }
    }

    pub(super) fn entries(&self) -> io::Result<Vec<(OsString, Kind)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            // One that is gone by now is left out.
            if let Ok(kind) = self.kind(&name) {
                entries.push((name, kind));
            }
        }
        Ok(entries)
    }

    /// Puts a file with this content in the place of the one that is there, if any.
    pub(super) fn replace(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        match self.kind(name) {
            Ok(Kind::File(_)) => {}
            Ok(Kind::Directory | Kind::Link | Kind::Other) => return Err(not_a_file()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::write(self.0.join(name), content)
    }
}

fn kind(kind: FileType, bytes: u64) -> Kind {
    match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
        (true, _, _) => Kind::File(bytes),
        (_, true, _) => Kind::Directory,
        (_, _, true) => Kind::Link,
        (false, false, false) => Kind::Other,
    }
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file")
}
