//! The lease of a session as a lock on a file.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use crate::error::Error;
use crate::lock::lock_ignoring_poison;
use crate::session::AlreadyLeased;
use crate::session::checks::store_error;
use crate::session::private_files::{FileId, create_private_dir, private_file_options};

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
    /// Its epoch is kept elsewhere.
    #[cfg(feature = "sqlite")]
    Always,
    /// If no file of a session is here.
    WithoutSession(PathBuf),
}

impl LockFile {
    /// Makes the file if it is not there, and locks it. It does not wait.
    ///
    /// # Errors
    ///
    /// One with [`AlreadyLeased`] as its source if it is locked already, also by this process.
    pub(super) fn lock(path: PathBuf, id: &str, removal: LockRemoval) -> Result<Self, Error> {
        let cannot = |error| store_error(format!("cannot lock `{}`", path.display()), error);
        loop {
            if path.metadata().is_ok_and(|there| !there.is_file()) {
                // To open a pipe could wait for ever.
                return Err(cannot(io::Error::new(ErrorKind::InvalidInput, "it is not a file")));
            }
            path.parent().map_or(Ok(()), create_private_dir)?;
            let mut options = private_file_options();
            let file = match options.read(true).write(true).create(true).open(&path) {
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
            // The last holder may have removed it meanwhile.
            if is_at_path(&file, &path) {
                return Ok(Self { file: Mutex::new(file), path, removal });
            }
        }
    }

    /// Whether it is the file that is at its path. Otherwise another process may have locked the one that is.
    pub(super) fn is_at_path(&self) -> bool {
        is_at_path(&self.lock_file(), &self.path)
    }

    /// Raises the number that the file holds, 0 at first, and returns it.
    pub(super) fn raise_epoch(&self) -> Result<u64, Error> {
        let raise = |file: &mut File| {
            let epoch = read_epoch(file)? + 1;
            let text = format!("{epoch}\n");
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

    /// The number that the file holds; `None` if it holds something else.
    pub(super) fn epoch(&self) -> Option<u64> {
        read_epoch(&mut self.lock_file()).ok()
    }

    fn lock_file(&self) -> MutexGuard<'_, File> {
        lock_ignoring_poison(&self.file)
    }
}

fn read_epoch(file: &mut File) -> io::Result<u64> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    // More than the digits of any number.
    file.take(32).read_to_string(&mut text)?;
    match text.trim_end() {
        "" => Ok(0),
        digits => digits.parse().map_err(|error| io::Error::new(ErrorKind::InvalidData, error)),
    }
}

fn is_at_path(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.metadata()) {
        (Ok(ours), Ok(there)) => FileId::from_metadata(&ours) == FileId::from_metadata(&there),
        _ => false,
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        let is_removed = match &self.removal {
            #[cfg(feature = "sqlite")]
            LockRemoval::Always => true,
            LockRemoval::WithoutSession(path) => !path.exists(),
        };
        if is_removed && self.is_at_path() {
            // It is still locked, and who opens it now finds out that it is gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}
