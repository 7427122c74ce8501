//! Implements session leases as file locks.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::lock::lock_ignoring_poison;
use crate::session::AlreadyLeased;
use crate::session::backend::checks::store_error;
use crate::session::backend::private_files::{FileId, create_private_dir, private_file_options};

/// The text at the start of every lock file. A file without this prefix belongs to another program.
const PREFIX: &str = "turnstream lease ";

/// The maximum number of attempts to open and lock a file that is repeatedly removed by other
/// processes.
const MAX_ATTEMPTS: usize = 100;

/// Holds an exclusive lock on a file for as long as this value exists (using `flock` or the
/// system's equivalent). The operating system releases the lock no matter how the process ends.
///
/// A store on a file system can use a lock as the `hold` of a [`Lease`](crate::session::Lease).
#[derive(Debug)]
pub struct LockFile {
    /// The locked file. The mutex guards the file's cursor. No code blocks while it holds the
    /// mutex.
    file: Mutex<File>,
    path: PathBuf,
    removal: LockRemoval,
}

/// Determines whether the lock file is removed when the lock is released.
#[derive(Debug)]
pub(in crate::session) enum LockRemoval {
    Always,
    /// The lock file is removed only if no session file exists at this path.
    WithoutSession(PathBuf),
}

impl LockFile {
    /// Locks the file at `path` for the session `id`, without waiting. If the file does not exist,
    /// it is created with the same permissions as `like`. The file is removed when the lock is
    /// released.
    ///
    /// # Errors
    ///
    /// Returns an error with [`AlreadyLeased`] as its source if this process or another process has
    /// already locked the file. Also returns an error if the file is not a lock file; the file is
    /// then left unchanged.
    pub fn lock(path: PathBuf, id: &str, like: &Path) -> Result<Self, Error> {
        Self::lock_with_removal(path, id, like, LockRemoval::Always)
    }

    /// Like [`lock`](Self::lock). `removal` determines when the file is removed.
    pub(in crate::session) fn lock_with_removal(
        path: PathBuf,
        id: &str,
        like: &Path,
        removal: LockRemoval,
    ) -> Result<Self, Error> {
        let cannot = |error| store_error(format!("cannot lock `{}`", path.display()), error);
        for _ in 0..MAX_ATTEMPTS {
            if path.metadata().is_ok_and(|there| !there.is_file()) {
                // Opening a named pipe could block forever.
                return Err(cannot(io::Error::new(ErrorKind::InvalidInput, "it is not a file")));
            }
            if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
                create_private_dir(folder)?;
                copy_rights(like, folder, Rights::OfFolder);
            }
            let is_new = !path.exists();
            let mut options = private_file_options();
            let mut file = match options.read(true).write(true).create(true).open(&path) {
                Ok(file) => file,
                // The folder was removed concurrently.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(cannot(error)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(AlreadyLeased { id: id.to_owned() }.into());
                }
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
            // The previous owner may have removed the file in the meantime.
            if !is_at_path(&file, &path) {
                continue;
            }
            read_epoch(&mut file).map_err(cannot)?;
            if is_new {
                copy_rights(like, &path, Rights::OfFile);
            }
            return Ok(Self { file: Mutex::new(file), path, removal });
        }
        Err(cannot(io::Error::new(ErrorKind::NotFound, "it is removed repeatedly")))
    }

    /// Returns whether the locked file is still the file at `path`. If this method returns `false`,
    /// another process may have locked the file that is now at `path`, and the lease is lost.
    pub fn is_at(&self, path: &Path) -> bool {
        self.path == path && is_at_path(&self.lock_file(), path)
    }

    /// Increments the epoch in the file and returns the new epoch. The first epoch is a timestamp,
    /// so that it is higher than any epoch in an earlier file that has since been removed.
    pub(in crate::session) fn raise_epoch(&self, now: SystemTime) -> Result<u64, Error> {
        let raise = |file: &mut File| {
            let epoch = match read_epoch(file)? {
                Some(epoch) => epoch.saturating_add(1),
                None => first_epoch(now),
            };
            let text = format!("{PREFIX}{epoch}\n");
            file.rewind()?;
            file.write_all(text.as_bytes())?;
            // The epoch need not be durable, because no lease survives a restart of the system.
            file.set_len(text.len() as u64)?;
            Ok(epoch)
        };
        let mut file = self.lock_file();
        raise(&mut file).map_err(|error: io::Error| {
            // The file may contain a part of the epoch. A file without an epoch gets a higher one.
            let _ = file.set_len(0);
            store_error(format!("cannot write `{}`", self.path.display()), error)
        })
    }

    /// Reads the epoch from the file. Returns `None` if the file contains no epoch.
    pub(in crate::session) fn epoch(&self) -> Option<u64> {
        read_epoch(&mut self.lock_file()).ok().flatten()
    }

    fn lock_file(&self) -> MutexGuard<'_, File> {
        lock_ignoring_poison(&self.file)
    }
}

/// Returns the first epoch of a new lock file: the time `now` in microseconds since 1970.
fn first_epoch(now: SystemTime) -> u64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Some stores keep epochs as signed integers.
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX).unsigned_abs().max(1)
}

/// Reads the epoch from a file. Returns `None` if the file is new, if a power failure erased the
/// file's contents, or if writing the epoch failed.
///
/// # Errors
///
/// Returns an error if the file is not a lock file of this crate.
fn read_epoch(file: &mut File) -> io::Result<Option<u64>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    // The limit is longer than the prefix and the digits of any epoch.
    file.take(64).read_to_end(&mut text)?;
    if text.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&text);
    match text.strip_prefix(PREFIX) {
        Some(digits) => Ok(digits.strip_suffix('\n').and_then(|digits| digits.parse().ok())),
        None if PREFIX.starts_with(&*text) => Ok(None),
        None => Err(io::Error::new(ErrorKind::InvalidData, "it belongs to another program")),
    }
}

/// Removes the lock file of a deleted session. If a run holds the lock, the file is kept, and that
/// run removes the file when it releases the lock.
pub(in crate::session) fn remove_unused_lock(path: &Path, id: &str) {
    if path.exists() {
        drop(LockFile::lock(path.to_owned(), id, path));
    }
}

fn is_at_path(file: &File, path: &Path) -> bool {
    match (FileId::of_file(file), FileId::at_path(path)) {
        (Ok((ours, _)), Ok(there)) => ours == there,
        _ => false,
    }
}

/// The kind of file whose permissions are copied.
#[derive(Clone, Copy)]
enum Rights {
    OfFile,
    OfFolder,
}

/// Copies the permissions from one file to another, so that users who can write to a session can
/// also acquire the session's lease. Errors are ignored.
#[cfg(unix)]
fn copy_rights(like: &Path, to: &Path, rights: Rights) {
    use std::os::unix::fs::PermissionsExt;

    let Ok(there) = like.metadata() else { return };
    let mode = there.permissions().mode() & 0o666;
    let mode = match rights {
        Rights::OfFile => mode,
        Rights::OfFolder => mode | (mode & 0o444) >> 2,
    };
    let _ = fs::set_permissions(to, fs::Permissions::from_mode(mode));
}

/// Does nothing, because on systems other than Unix, the folder's permissions apply to its files.
#[cfg(not(unix))]
fn copy_rights(_like: &Path, _to: &Path, _rights: Rights) {}

impl Drop for LockFile {
    fn drop(&mut self) {
        let is_removed = match &self.removal {
            LockRemoval::Always => true,
            LockRemoval::WithoutSession(path) => !path.exists(),
        };
        let file = self.lock_file();
        if is_removed && is_at_path(&file, &self.path) {
            // The file is still locked, and a process that opens it now will detect that it has
            // been removed.
            let _ = fs::remove_file(&self.path);
        }
        // A child process that is being started may briefly share the open file, so dropping the
        // file is not enough to unlock it.
        let _ = file.unlock();
    }
}
