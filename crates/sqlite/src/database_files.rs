//! The files of a database.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The identities of an open database's files: the database file, its log, and the log's index. If
/// one of these files has been replaced or removed, later writes by SQLite are lost when the
/// database is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatabaseFileIds([Option<FileId>; 3]);

impl DatabaseFileIds {
    /// Reads the ids of the files that exist.
    pub(crate) fn from_path(path: &Path) -> io::Result<Self> {
        let target = link_target(path)?;
        let id = |ending| match fs::metadata(with_ending(&target, ending)) {
            Ok(file) => Ok(Some(FileId::from_metadata(&file))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        };
        Ok(Self([id("")?, id("-wal")?, id("-shm")?]))
    }

    /// Returns whether the database files are the same, regardless of the other files.
    pub(crate) fn is_same_database(&self, other: &Self) -> bool {
        self.0[0] == other.0[0]
    }
}

/// Identifies a file independently of its path. On systems other than Unix, a file cannot be
/// replaced while it is open, so all files have the same id.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    fn from_metadata(file: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        Self(file.dev(), file.ino())
    }

    #[cfg(not(unix))]
    fn from_metadata(_file: &Metadata) -> Self {
        Self(0, 0)
    }
}

/// Returns the path to the log of the database at a path.
pub(crate) fn wal_path(path: &Path) -> io::Result<PathBuf> {
    Ok(with_ending(&link_target(path)?, "-wal"))
}

/// If the path is a link, returns the link's target, next to which SQLite creates other files.
fn link_target(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if is_missing(&error) => Ok(path.to_owned()),
        target => target,
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Returns whether a file operation failed because the file does not exist.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
