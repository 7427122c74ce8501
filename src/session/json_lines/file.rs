//! The file of a session: opened, locked, read, written.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::super::files::{FileId, private, sync_parent};
use super::super::refusal::{broken, failed};
use crate::error::Error;

/// How long somebody else may hold the lock. Nobody holds it for longer than a write.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// What for a file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Others may read beside it.
    Reading,
    /// Nobody else reads or writes.
    Writing,
    /// The same, and it is made if it is not there.
    Making,
}

/// A file that is locked until it is dropped.
pub(super) struct Locked<'a> {
    file: File,
    path: &'a Path,
}

/// What tells that a file is as it was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    id: FileId,
    len: u64,
    pub(super) modified: SystemTime,
}

impl Stamp {
    pub(super) fn of(file: &Metadata) -> io::Result<Self> {
        Ok(Self { id: FileId::of(file), len: file.len(), modified: file.modified()? })
    }
}

impl<'a> Locked<'a> {
    /// Opens and locks it; `None` if there is no file and it is not to be made.
    pub(super) fn open(path: &'a Path, what_for: For) -> Result<Option<Self>, Error> {
        Self::open_within(PATIENCE, path, what_for)
    }

    /// The same, but an error if the lock is held elsewhere.
    pub(super) fn open_now(path: &'a Path, what_for: For) -> Result<Option<Self>, Error> {
        Self::open_within(Duration::ZERO, path, what_for)
    }

    fn open_within(
        patience: Duration,
        path: &'a Path,
        what_for: For,
    ) -> Result<Option<Self>, Error> {
        loop {
            let Some(locked) = Self::open_once(patience, path, what_for)? else { return Ok(None) };
            // Whoever waits for the lock may get it when another file stands there, or none.
            if locked.is_there() {
                return Ok(Some(locked));
            }
        }
    }

    fn open_once(patience: Duration, path: &'a Path, what_for: For) -> Result<Option<Self>, Error> {
        let cannot = |error| failed(format!("cannot open `{}`", path.display()), error);
        match path.metadata() {
            // To open a pipe could wait for ever.
            Ok(there) if !there.is_file() => {
                return Err(broken(format!("`{}` is not a file", path.display())));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound && what_for == For::Making => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error)),
        }
        let mut options = private();
        options.read(true).write(what_for != For::Reading).create(what_for == For::Making);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && what_for != For::Making => {
                return Ok(None);
            }
            Err(error) => return Err(cannot(error)),
        };
        lock(&file, what_for, patience)
            .map_err(|error| failed(format!("cannot lock `{}`", path.display()), error))?;
        Ok(Some(Self { file, path }))
    }

    /// Whether it is the file that is at its path.
    pub(super) fn is_there(&self) -> bool {
        match (self.file.metadata(), self.path.metadata()) {
            (Ok(ours), Ok(there)) => FileId::of(&ours) == FileId::of(&there),
            (_, Err(error)) => error.kind() != ErrorKind::NotFound,
            // What is wrong shows with the next use.
            (Err(_), Ok(_)) => true,
        }
    }

    pub(super) fn stamp(&self) -> Result<Stamp, Error> {
        let stamp = self.file.metadata().and_then(|there| Stamp::of(&there));
        stamp.map_err(|error| self.cannot("read", error))
    }

    /// All of it.
    pub(super) fn read(&mut self) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_end(&mut text));
        read.map(|_| text).map_err(|error| self.cannot("read", error))
    }

    /// Writes behind the first `end` bytes, and cuts off what stood there. It is on the disk
    /// afterwards.
    ///
    /// # Errors
    ///
    /// If any of it fails. Then only the first `end` bytes are there, as far as that can be had from a
    /// disk that fails: a write that was begun and could not be taken back is one that was cut.
    pub(super) fn write(&mut self, end: u64, text: &[u8], now: SystemTime) -> Result<(), Error> {
        let write = |file: &mut File| -> io::Result<()> {
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            file.write_all(text)?;
            // Of somebody else's file it cannot be set, and then is the time of the write anyhow.
            let _ = file.set_modified(now);
            file.sync_data()
        };
        write(&mut self.file).map_err(|error| {
            let _ = self.file.set_len(end).and_then(|()| self.file.sync_data());
            self.cannot("write", error)
        })
    }

    /// Removes it from its folder.
    pub(super) fn remove(self) -> Result<(), Error> {
        fs::remove_file(self.path).map_err(|error| self.cannot("remove", error))?;
        sync_parent(self.path)
    }

    fn cannot(&self, what: &str, error: io::Error) -> Error {
        failed(format!("cannot {what} `{}`", self.path.display()), error)
    }
}

fn lock(file: &File, what_for: For, patience: Duration) -> io::Result<()> {
    // A process that was stopped while it holds the lock must not stop all others.
    let since = Instant::now();
    loop {
        let locked = match what_for {
            For::Reading => file.try_lock_shared(),
            For::Writing | For::Making => file.try_lock(),
        };
        match locked {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if since.elapsed() < patience => {
                thread::sleep(BETWEEN_TRIES);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(ErrorKind::TimedOut, "another process holds the lock"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
