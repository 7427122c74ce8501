//! A store that uses JSON Lines files.

mod crc32;
mod file_format;
mod forks;
mod locked_file;
mod salvage;
mod session_files;
mod session_folder;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};
use crate::session::SalvageReport;
use crate::session::backend::{StoreThread, create_private_dir, id_from_file_name, store_error};
use session_files::{Location, SessionFiles};

/// Stores sessions in human-readable files, with one file for each session.
///
/// A file starts with a header, for example `{"type":"session","version":1,"id":"…"}`. Each append
/// writes a line `{"type":"append","entries":2}` and then one line for each
/// [`Entry`](crate::session::Entry). All lines end with LF. Files only grow. A fork's header
/// contains the id of the original session, which must be stored in the same folder. The file name
/// determines the session id, so a copy of a file is a separate session.
///
/// Each append is a single write that is on disk once the returned future completes. If the disk is
/// full, the partial write is undone, and a later append can succeed. If the write cannot be
/// undone, the error's kind is [`OutcomeUnknown`](ErrorKind::OutcomeUnknown): the append may be in
/// the file, but is never there in part.
///
/// # Damage
///
/// The first line of an append contains two fields about the append's entries: `bytes`, their total
/// length in bytes, and `crc32`, a checksum of these bytes. The last field in the header and in the
/// first line of each append is `file_crc32`, a checksum of everything in the file before that
/// field. Both checksums are CRC-32 values as in zlib, written as hexadecimal digits.
///
/// If the last append in a file is shorter than its declared length, the store assumes that a crash
/// cut off the append before it was acknowledged. The truncated append is not read, and the next
/// append overwrites it. If only the last LF is missing, for example because an editor removed it,
/// the append is complete, and the next append writes the LF. Any other change to the file, such as
/// a single changed byte, makes reads and writes fail. The error names the file and the line, and
/// the file is left unchanged.
///
/// As a result, data can be lost without an error only if the damage looks like the result of a
/// crash during an append. Damage of this kind arises if the file is later truncated, either in the
/// middle of its last append or between two appends, or if lines are removed from the last append.
/// After a power failure, some file systems leave NUL bytes in place of the end of an append. NUL
/// bytes at the end of a file cause an error, and [`salvage`](Self::salvage) reads the rest of the
/// file.
///
/// [`salvage`](Self::salvage) reads the intact part of a damaged session and reports which entries
/// are lost. A session cannot be deleted while another file has a damaged header, if that file may
/// contain a fork of the session. The error names the damaged file. Once the session in the damaged
/// file has been deleted, the other session can be deleted as well.
///
/// On Unix, files are created with mode 0600, and folders with mode 0700. Existing files and
/// folders keep their modes.
///
/// Any number of processes can use the same folder. Each file is locked (with `flock` or the
/// system's equivalent) while it is being read or written. A process waits at most ten seconds for
/// a file's lock. The file system must support file locks, which some network file systems do not.
///
/// The [lease](crate::session::Lease) on a session is a lock on a separate file,
/// `{session}.jsonl.lock`, next to the session's file. The lock file contains the lease's epoch.
/// The operating system releases the lock when the process ends. The lock file exists for as long
/// as the session does. If the lock file is removed while a run is active, the run's next append
/// fails. If a file has two names (hard links), each name has its own lease.
///
/// # The worker thread
///
/// The store reads and writes files on its own thread, which all clones share. The thread is
/// started by the first call, and processes one operation at a time. Dropping an append's future
/// does not cancel the append if the future has already been polled; the append is still written
/// completely or rejected. Dropping the last clone blocks until all submitted operations are done,
/// but for at most five seconds. The drop also blocks in async contexts, and usually takes only
/// milliseconds.
///
/// ```
/// use turnstream::Item;
/// use turnstream::session::{JsonLinesStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let folder = std::env::temp_dir().join(format!("turnstream-doc-lines-{}", std::process::id()));
/// let store = JsonLinesStore::open(&folder)?;
/// store.append("chat", 0, vec![Item::user("Hi!").into()]).await?;
///
/// let text = std::fs::read_to_string(folder.join("chat.jsonl")).unwrap();
/// let lines: Vec<&str> = text.split('\n').collect();
/// assert!(lines[0].starts_with(r#"{"type":"session","version":1,"id":"chat","#));
/// assert!(lines[1].starts_with(r#"{"type":"append","entries":1,"bytes":32,"#));
/// assert_eq!(lines[2], r#"{"type":"user","content":"Hi!"}"#);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct JsonLinesStore {
    sessions: StoreThread<SessionFiles>,
}

impl JsonLinesStore {
    /// Opens a store in the given folder, and creates the folder if it does not exist. Files in the
    /// folder that are not sessions are not changed. A session id can be any non-empty string. In
    /// file names, bytes that a file system may not support are written as `%` followed by two
    /// hexadecimal digits, and long ids are shortened. A relative path is resolved against the
    /// current directory when this method is called.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the folder does not exist and cannot be
    /// created.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, Error> {
        let folder = to_absolute_path(&folder.into())?;
        create_private_dir(&folder)?;
        Ok(Self::from_location(Location::Folder(folder)))
    }

    /// Opens a store for a single session in the given file. Returns the store and the session's
    /// id, which is the file name without its extension. This call creates the folder, and the
    /// first append creates the file. No other session can be written to this store. If the session
    /// is a fork, the original session is read from the same folder.
    ///
    /// ```
    /// use turnstream::session::JsonLinesStore;
    ///
    /// let (_store, id) = JsonLinesStore::open_file("chat.jsonl")?;
    /// assert_eq!(id, "chat");
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the path has no file name,
    /// and a [`Store`](ErrorKind::Store) error if the file's folder does not exist and cannot be
    /// created.
    pub fn open_file(path: impl Into<PathBuf>) -> Result<(Self, String), Error> {
        let path = path.into();
        let Some(stem) = path.file_stem() else {
            let message = format!("`{}` does not name a file", path.display());
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        };
        let stem = stem.to_string_lossy().into_owned();
        // The id is the same as the id that a store for the entire folder gives this session.
        let id = id_from_file_name(&stem).unwrap_or(stem);
        let path = to_absolute_path(&path)?;
        path.parent().map_or(Ok(()), create_private_dir)?;
        Ok((Self::from_location(Location::File { path, id: id.clone() }), id))
    }

    fn from_location(place: Location) -> Self {
        let sessions = SessionFiles::new(place, Arc::new(SystemClock));
        Self { sessions: StoreThread::new("turnstream-json-lines", sessions) }
    }

    /// Reads the intact part of a damaged session, and reports the damage. This method also accepts
    /// undamaged sessions. Returns `None` if the session has no file. Nothing is written to the
    /// file.
    ///
    /// An append with a correct checksum is intact, regardless of damage to earlier appends. If an
    /// append is damaged, any of its entries may be wrong, so all entries in that append are
    /// [suspect](crate::session::Damage::suspect_entries). An append that was cut off by a crash is
    /// also reported, although it was never acknowledged. A fork's inherited entries are read from
    /// the original session in the same way.
    ///
    /// Dropping the future after its first poll does not stop the thread that reads the file, but
    /// discards the report.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the file cannot be read at all, or if nothing
    /// in the file looks like a session.
    pub async fn salvage(&self, id: impl Into<String>) -> Result<Option<SalvageReport>, Error> {
        let id = id.into();
        self.sessions.run(move |sessions| sessions.salvage(&id)).await
    }

    /// Sets the clock used to timestamp each write. The default is the system clock. Calling this
    /// method has no effect after the first operation on the store or any of its clones.
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.sessions.configure(|sessions| sessions.clock = Arc::new(clock));
        self
    }
}

/// Makes a path absolute, so that it stays valid if the process changes its current directory.
fn to_absolute_path(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path)
        .map_err(|error| store_error(format!("cannot use the path `{}`", path.display()), error))
}

crate::session::backend::impl_blocking_store!(JsonLinesStore, sessions);
