//! A locked session file.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::error::Error;
use crate::session::backend::{
    FileId, corrupt_data_error, outcome_unknown_error, private_file_options, store_error,
    sync_parent_dir,
};

/// The maximum time to wait while another process holds the lock. Locks are held only during a read
/// or write.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const LOCK_RETRY_DELAY: Duration = Duration::from_millis(1);

#[cfg(test)]
thread_local! {
    /// The number of times that a file has been read in this thread.
    pub(super) static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Determines how a file is opened and locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenMode {
    /// The file is opened with a shared lock, so that other processes can read it at the same time.
    Read,
    /// The file is opened with an exclusive lock.
    Write,
    /// The file is opened with an exclusive lock, and created if it does not exist.
    CreateAndWrite,
}

/// Holds a lock on a file until this value is dropped.
pub(super) struct LockedFile<'a> {
    file: File,
    path: &'a Path,
}

/// The metadata of a file that is compared to detect whether the file has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    id: FileId,
    len: u64,
    pub(super) modified: SystemTime,
}

impl<'a> LockedFile<'a> {
    /// Opens and locks a file. Returns `None` if the file does not exist, unless the mode
    /// `what_for` is `CreateAndWrite`.
    pub(super) fn open(path: &'a Path, what_for: OpenMode) -> Result<Option<Self>, Error> {
        Self::open_with_timeout(LOCK_TIMEOUT, &mut thread::sleep, path, what_for)
    }

    /// Like [`open`](Self::open), but fails if another process holds the lock.
    pub(super) fn try_open(path: &'a Path, what_for: OpenMode) -> Result<Option<Self>, Error> {
        Self::open_with_timeout(Duration::ZERO, &mut thread::sleep, path, what_for)
    }

    /// `sleep` is called between two attempts to lock the file.
    fn open_with_timeout(
        lock_timeout: Duration,
        sleep: &mut dyn FnMut(Duration),
        path: &'a Path,
        what_for: OpenMode,
    ) -> Result<Option<Self>, Error> {
        loop {
            let Some(locked) = Self::open_and_lock(lock_timeout, sleep, path, what_for)? else {
                return Ok(None);
            };
            // The file may have been removed or replaced while this call was waiting for the lock.
            if locked.is_at_path() {
                return Ok(Some(locked));
            }
        }
    }

    fn open_and_lock(
        lock_timeout: Duration,
        sleep: &mut dyn FnMut(Duration),
        path: &'a Path,
        what_for: OpenMode,
    ) -> Result<Option<Self>, Error> {
        let cannot = |error| store_error(format!("cannot open `{}`", path.display()), error);
        match path.metadata() {
            // Opening a named pipe could block forever.
            Ok(there) if !there.is_file() => {
                return Err(corrupt_data_error(format!("`{}` is not a file", path.display())));
            }
            Ok(_) => {}
            Err(error)
                if error.kind() == ErrorKind::NotFound && what_for == OpenMode::CreateAndWrite => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error)),
        }
        let mut options = private_file_options();
        options
            .read(true)
            .write(what_for != OpenMode::Read)
            .create(what_for == OpenMode::CreateAndWrite);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error)
                if error.kind() == ErrorKind::NotFound && what_for != OpenMode::CreateAndWrite =>
            {
                return Ok(None);
            }
            Err(error) => return Err(cannot(error)),
        };
        lock_with_timeout(&file, what_for, lock_timeout, sleep)
            .map_err(|error| store_error(format!("cannot lock `{}`", path.display()), error))?;
        Ok(Some(Self { file, path }))
    }

    /// Returns whether the open file is still the file at its path.
    pub(super) fn is_at_path(&self) -> bool {
        match (FileId::of_file(&self.file), FileId::at_path(self.path)) {
            (Ok((ours, _)), Ok(there)) => ours == there,
            (_, Err(error)) => error.kind() != ErrorKind::NotFound,
            // If the open file's metadata cannot be read, the next operation reports the error.
            (Err(_), Ok(_)) => true,
        }
    }

    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns the open file, whose cursor is at the beginning.
    pub(super) fn rewind(&mut self) -> io::Result<&File> {
        self.file.rewind()?;
        Ok(&self.file)
    }

    pub(super) fn stamp(&self) -> Result<FileStamp, Error> {
        let stamp = FileId::of_file(&self.file).and_then(|(id, metadata)| {
            Ok(FileStamp { id, len: metadata.len(), modified: metadata.modified()? })
        });
        stamp.map_err(|error| self.io_error("read", error))
    }

    /// Reads the entire file.
    pub(super) fn read(&mut self) -> Result<Vec<u8>, Error> {
        #[cfg(test)]
        READS.set(READS.get() + 1);
        let mut text = Vec::new();
        let read = self.rewind().and_then(|mut file| file.read_to_end(&mut text));
        read.map(|_| text).map_err(|error| self.io_error("read", error))
    }

    /// Writes the parts of `text`, one after another, after the first `end` bytes of the file,
    /// replacing everything that followed them. The data is on disk when this method returns.
    ///
    /// # Errors
    ///
    /// Returns an error if any step fails. After a failed write, the file is truncated to its first
    /// `end` bytes. If this fails as well, the error's kind is
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown), because the whole text may be in the
    /// file. A partial write is treated like a write that was cut off by a crash.
    pub(super) fn write(&mut self, end: u64, text: &[&[u8]], now: SystemTime) -> Result<(), Error> {
        let prepared = self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end)));
        prepared.map_err(|error| self.io_error("write", error))?;
        let write = |file: &mut File| -> io::Result<()> {
            write_all_parts(file, text)?;
            // Setting the modification time fails if the file belongs to another user. In this
            // case, the file keeps the actual time of the write.
            let _ = file.set_modified(now);
            file.sync_data()
        };
        let Err(error) = write(&mut self.file) else { return Ok(()) };
        match self.file.set_len(end).and_then(|()| self.file.sync_data()) {
            Ok(()) => Err(self.io_error("write", error)),
            Err(undo) => {
                let what = format!(
                    "cannot write `{}` ({error}), and cannot undo the write",
                    self.path.display()
                );
                Err(outcome_unknown_error(what, undo))
            }
        }
    }

    /// Removes the file from its folder.
    ///
    /// # Errors
    ///
    /// If the file was removed but the folder cannot be written to disk, the error's kind is
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown).
    pub(super) fn remove(self) -> Result<(), Error> {
        fs::remove_file(self.path).map_err(|error| self.io_error("remove", error))?;
        let what = || format!("cannot remove `{}`", self.path.display());
        sync_parent_dir(self.path).map_err(|error| outcome_unknown_error(what(), error))
    }

    fn io_error(&self, what: &str, error: io::Error) -> Error {
        store_error(format!("cannot {what} `{}`", self.path.display()), error)
    }
}

/// Writes parts one after another, in a single write unless the system splits it.
fn write_all_parts(file: &mut File, parts: &[&[u8]]) -> io::Result<()> {
    let mut left: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut left[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match file.write_vectored(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn lock_with_timeout(
    file: &File,
    what_for: OpenMode,
    lock_timeout: Duration,
    sleep: &mut dyn FnMut(Duration),
) -> io::Result<()> {
    // A process that was suspended while holding the lock must not block other processes forever.
    let since = Instant::now();
    loop {
        let locked = match what_for {
            OpenMode::Read => file.try_lock_shared(),
            OpenMode::Write | OpenMode::CreateAndWrite => file.try_lock(),
        };
        match locked {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if since.elapsed() < lock_timeout => {
                sleep(LOCK_RETRY_DELAY);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(ErrorKind::TimedOut, "another process holds the lock"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process};

    use super::*;

    /// Opens a file that is locked. While the call waits for the lock, `change` is applied to the
    /// path, and the lock is released. Returns the text of the file that is opened.
    #[cfg(unix)]
    fn text_after_wait(name: &str, change: impl FnOnce(&Path)) -> Option<Vec<u8>> {
        let path = env::temp_dir().join(format!("turnstream-lock-{name}-{}", process::id()));
        fs::write(&path, "old").unwrap();
        let lock = File::open(&path).unwrap();
        lock.lock().unwrap();
        let mut change = Some(change);
        let mut sleep = |_| {
            if let Some(change) = change.take() {
                change(&path);
                lock.unlock().unwrap();
            }
        };
        let mode = OpenMode::Write;
        let opened = LockedFile::open_with_timeout(Duration::MAX, &mut sleep, &path, mode).unwrap();
        let text = opened.map(|mut file| file.read().unwrap());
        assert!(change.is_none(), "the call waits for the lock");
        let _ = fs::remove_file(&path);
        text
    }

    // Wine, with which the Windows program is tested, neither replaces nor removes an open file.
    #[cfg(unix)]
    #[test]
    fn a_file_replaced_while_its_lock_is_awaited_is_opened_again() {
        let text = text_after_wait("replaced", |path| {
            let new = path.with_extension("new");
            fs::write(&new, "new").unwrap();
            fs::rename(&new, path).unwrap();
        });
        assert_eq!(text.as_deref(), Some(&b"new"[..]));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_removed_while_its_lock_is_awaited_is_missing() {
        assert_eq!(text_after_wait("removed", |path| fs::remove_file(path).unwrap()), None);
    }

    #[test]
    fn a_file_that_stays_locked_is_an_error_after_the_time_limit() {
        let path = env::temp_dir().join(format!("turnstream-lock-held-{}", process::id()));
        fs::write(&path, "old").unwrap();
        let lock = File::open(&path).unwrap();
        lock.lock().unwrap();
        let mut sleep = |_| panic!("it waits longer than the limit");
        let mode = OpenMode::Write;
        let opened = LockedFile::open_with_timeout(Duration::ZERO, &mut sleep, &path, mode);
        assert_eq!(opened.map(|_| ()).unwrap_err().kind(), crate::error::ErrorKind::Store);
        fs::remove_file(&path).unwrap();
    }
}
