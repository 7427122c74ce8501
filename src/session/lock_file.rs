//! The lease of a session as a lock on a file.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::lock::lock_ignoring_poison;
use crate::session::AlreadyLeased;
use crate::session::checks::store_error;
use crate::session::private_files::{FileId, create_private_dir, private_file_options};

/// The beginning of each of these files. A file that begins otherwise belongs to another program.
const PREFIX: &str = "turnstream lease ";

/// How often a file is opened again that was removed meanwhile.
const MAX_ATTEMPTS: usize = 100;

/// A file that is locked exclusively (`flock` or what the system has like it) for as long as this exists. The
/// system unlocks it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct LockFile {
    /// The mutex is for the place in the file. Nothing waits while it is held.
    file: Mutex<File>,
    path: PathBuf,
    removal: LockRemoval,
}

/// When the file of a lock is removed with it.
#[derive(Debug)]
pub(super) enum LockRemoval {
    Always,
    /// If no file of a session is here.
    WithoutSession(PathBuf),
}

impl LockFile {
    /// Makes the file if it is not there, with the rights of `like`, and locks it. It does not wait.
    ///
    /// # Errors
    ///
    /// One with [`AlreadyLeased`] as its source if it is locked already, also by this process. A file that is not one
    /// of these is an error, and stays as it is.
    pub(super) fn lock(
        path: PathBuf,
        id: &str,
        like: &Path,
        removal: LockRemoval,
    ) -> Result<Self, Error> {
        let cannot = |error| store_error(format!("cannot lock `{}`", path.display()), error);
        for _ in 0..MAX_ATTEMPTS {
            if path.metadata().is_ok_and(|there| !there.is_file()) {
                // To open a pipe could wait for ever.
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
                // The folder was removed just now.
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
            // The last owner may have removed it meanwhile.
            if !is_at_path(&file, &path) {
                continue;
            }
            read_epoch(&mut file).map_err(cannot)?;
            if is_new {
                copy_rights(like, &path, Rights::OfFile);
            }
            return Ok(Self { file: Mutex::new(file), path, removal });
        }
        Err(cannot(io::Error::new(ErrorKind::NotFound, "it is removed again and again")))
    }

    /// Whether it is the file at this path. Otherwise another process may have locked the one that is.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.path == path && is_at_path(&self.lock_file(), path)
    }

    /// Raises the number that the file holds, and returns it. The first one is a time, so that it is higher than those
    /// of a file that was removed.
    pub(super) fn raise_epoch(&self, now: SystemTime) -> Result<u64, Error> {
        let raise = |file: &mut File| {
            let epoch = match read_epoch(file)? {
                Some(epoch) => epoch.saturating_add(1),
                None => first_epoch(now),
            };
            let text = format!("{PREFIX}{epoch}\n");
            file.rewind()?;
            file.write_all(text.as_bytes())?;
            // It need not be on the disk: no lease outlives the system.
            file.set_len(text.len() as u64)?;
            Ok(epoch)
        };
        raise(&mut self.lock_file()).map_err(|error: io::Error| {
            store_error(format!("cannot write `{}`", self.path.display()), error)
        })
    }

    /// The number that the file holds; `None` if it has none.
    pub(super) fn epoch(&self) -> Option<u64> {
        read_epoch(&mut self.lock_file()).ok().flatten()
    }

    fn lock_file(&self) -> MutexGuard<'_, File> {
        lock_ignoring_poison(&self.file)
    }
}

/// The first epoch: the microseconds since 1970.
pub(super) fn first_epoch(now: SystemTime) -> u64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Epochs are kept as signed numbers, too.
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX).unsigned_abs().max(1)
}

/// The number in a file; `None` in one that was just made, or lost its text with the system's power.
///
/// # Errors
///
/// If it is not a file of ours.
fn read_epoch(file: &mut File) -> io::Result<Option<u64>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    // More than the prefix and the digits of any number.
    file.take(64).read_to_end(&mut text)?;
    if text.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&text);
    match text.strip_prefix(PREFIX) {
        Some(digits) => Ok(digits.trim_end().parse().ok()),
        None => Err(io::Error::new(ErrorKind::InvalidData, "it is a file of another program")),
    }
}

/// Removes the file of a lock whose session was removed, unless a run has it: then it goes with the run.
pub(super) fn remove_unused_lock(path: &Path, id: &str) {
    if path.exists() {
        drop(LockFile::lock(path.to_owned(), id, path, LockRemoval::Always));
    }
}

fn is_at_path(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.metadata()) {
        (Ok(ours), Ok(there)) => FileId::from_metadata(&ours) == FileId::from_metadata(&there),
        _ => false,
    }
}

/// The rights that are copied.
#[derive(Clone, Copy)]
enum Rights {
    OfFile,
    OfFolder,
}

/// Who may write the session may take its lease. It is an attempt: the rights of the session decide.
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

/// Elsewhere the folder says who may write.
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
            // It is still locked, and who opens it now finds out that it is gone.
            let _ = fs::remove_file(&self.path);
        }
        // A process that is being started has the file open as well for a moment.
        let _ = file.unlock();
    }
}
