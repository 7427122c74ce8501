//! A directory that is kept open, and its entries, none of which is reached through a link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::EntryKind;

pub(super) struct Dir(OwnedFd);

/// Makes the names of temporary files unique.
static NEXT_TEMP_NUMBER: AtomicU64 = AtomicU64::new(0);

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Dir {
    /// Opens a directory that the user named, following links.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(fs::open(path, DIRECTORY_FLAGS, Mode::empty())?))
    }

    /// Whether this is the directory at a path.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        match (fs::fstat(&self.0), fs::stat(path)) {
            (Ok(this), Ok(other)) => identity(this) == identity(other),
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    pub(super) fn open_subdir(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(fs::openat(&self.0, name, DIRECTORY_FLAGS | OFlags::NOFOLLOW, Mode::empty())?))
    }

    /// Creates a directory if it does not exist, and opens it.
    pub(super) fn create_subdir(&self, name: &OsStr) -> io::Result<Self> {
        match fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open_subdir(name),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn entry_kind(&self, name: &OsStr) -> io::Result<EntryKind> {
        Ok(kind_from_stat(&fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Whether a file's permissions allow writing. A file without any write permission is protected
    /// even from a privileged user.
    pub(super) fn is_writable(&self, name: &OsStr) -> io::Result<bool> {
        let stat = fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !Mode::from_raw_mode(stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) {
            return Ok(false);
        }
        match fs::accessat(&self.0, name, Access::WRITE_OK, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The target of a link.
    pub(super) fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let target = fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Opens a file for reading. If another kind of entry has replaced it, that is an error;
    /// opening a pipe, for example, does not block.
    pub(super) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = fs::openat(&self.0, name, flags | OFlags::CLOEXEC, Mode::empty())?;
        match kind_from_stat(&fs::fstat(&file)?) {
            EntryKind::File(_) => Ok(file.into()),
            EntryKind::Directory | EntryKind::Link | EntryKind::Other => Err(not_a_file_error()),
        }
    }

    pub(super) fn entries(&self) -> io::Result<Vec<(OsString, EntryKind)>> {
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == OsStr::new(".") || name == OsStr::new("..") {
                continue;
            }
            // An entry that was deleted meanwhile is left out.
            if let Ok(kind) = self.entry_kind(name) {
                entries.push((name.to_owned(), kind));
            }
        }
        Ok(entries)
    }

    /// Creates a temporary file, and returns it with its name.
    fn create_temp_file(&self) -> io::Result<(File, String)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o666);
        loop {
            let number = NEXT_TEMP_NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!(".turnstream-{}-{number}.new", process::id());
            match fs::openat(&self.0, &name, flags | OFlags::CLOEXEC, mode) {
                // A killed process with the same id has left it.
                Err(Errno::EXIST) => {}
                opened => return Ok((opened?.into(), name)),
            }
        }
    }

    /// Creates a file with this content, or replaces the existing one. The content is written to a
    /// temporary file first, so that it is never written through a link or to another hard link of
    /// the old file, and the old content stays until the new one is complete.
    pub(super) fn replace_file(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        let old = match fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) if matches!(kind_from_stat(&old), EntryKind::File(_)) => Some(old),
            Ok(_) => return Err(not_a_file_error()),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        let (mut file, new) = self.create_temp_file()?;
        let mut put = || {
            if let Some(old) = old {
                fs::fchmod(&file, Mode::from_raw_mode(old.st_mode) & Mode::from_raw_mode(0o777))?;
            }
            file.write_all(content)?;
            fs::renameat(&self.0, &new, &self.0, name)?;
            Ok(())
        };
        let done = put();
        if done.is_err() {
            let _ = fs::unlinkat(&self.0, &new, AtFlags::empty());
        }
        done
    }
}

fn kind_from_stat(meta: &Stat) -> EntryKind {
    match FileType::from_raw_mode(meta.st_mode) {
        FileType::RegularFile => EntryKind::File(u64::try_from(meta.st_size).unwrap_or(0)),
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

fn not_a_file_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}
