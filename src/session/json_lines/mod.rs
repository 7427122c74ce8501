//! A store of JSON Lines files.

mod crc32;
mod file_format;
mod locked_file;
mod origin_cache;
mod salvage;
mod session_files;
mod session_folder;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt};

use crate::env::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};
use crate::session::blocking_store::{BlockingStore as _, impl_store_from_blocking};
use crate::session::checks::store_error;
use crate::session::file_name;
use crate::session::private_files;
use crate::session::worker::Worker;
use crate::session::{Entry, Lease, SalvageReport, SessionInfo};
use session_files::{Location, SessionFiles};

/// A session store of human-readable files, one for each session.
///
/// A file starts with a header, `{"type":"session","version":1,"id":"…"}`. Each append writes a
/// line `{"type":"append","entries":2}` and then a line for each [`Entry`]. All lines end with LF.
/// Files only grow. A fork's header has the id of the original session, which must be in the same
/// folder. The file name determines the session id, so a copy of a file is a separate session.
///
/// Each append is a single write, and is on disk when its future returns. If the disk is full, the
/// partial write is undone, and a later append works.
///
/// # Damage
///
/// The first line of an append has the length of its entries in bytes, `bytes`, and the checksum of
/// these bytes, `crc32`. The last field of the header and of the first line of an append is
/// `file_crc32`, the checksum of everything in the file before that field. Both checksums are the
/// CRC-32 of zlib in hexadecimal digits.
///
/// If the last append of a file is shorter than its declared length, the append counts as cut off
/// by a crash before it was acknowledged. Such an append is not read, and the next append
/// overwrites it. If only the last LF is missing, for example because an editor removed it, the
/// append is complete, and the next append writes the LF. Any other difference from the written
/// text, such as a single changed byte, is an error of reads and writes. The error names the file
/// and the line, and the file is not changed.
///
/// So data is lost without an error only if the damage looks like such a crash. This happens if the
/// file was shortened later, within its last append or by whole appends at its end, or if lines
/// were removed from the last append. After a power failure, some file systems leave NULs in place
/// of the end of an append. Such NULs are an error, and [`salvage`](Self::salvage) reads the rest
/// of the file.
///
/// Files of earlier versions have no checksums. Such files can be read, even with CRLF and with
/// NULs at their end. The next append to such a file has checksums, and from then on the whole file
/// is checked. Until the next append, changed text in such a file is not detected. An earlier
/// version of this crate must not write to a file with checksums, because it would add appends
/// without checksums, which are errors from then on.
///
/// [`salvage`](Self::salvage) reads the intact part of a damaged session and reports what is lost.
/// A session cannot be deleted if another file has a damaged header that may refer to that session
/// as its original. The error names the damaged file, which can be deleted first.
///
/// On Unix, files and folders are created with the modes 0600 and 0700. Existing files and folders
/// keep their modes.
///
/// Any number of processes can use the same folder. Each file is locked while it is read or written
/// (with `flock` or the system's equivalent), and waiting for the lock takes at most ten seconds.
/// The file system must support such locks, which not every network file system does.
///
/// The [lease](crate::session::Lease) of a session is a lock on a separate file,
/// `{session}.jsonl.lock` next to the session's file. The lock file contains the epoch of the
/// lease. The system releases the lock when the process ends. The lock file exists as long as the
/// session. If the lock file is removed while a run is active, the run's next append fails. Two
/// names of the same file (hard links) have two leases.
///
/// # The worker thread
///
/// The store reads and writes files on its own thread, which all clones share. The thread starts
/// with the first call and processes one operation at a time. Dropping the future of an append
/// after it was polled does not cancel the append, which is written completely or rejected.
/// Dropping the last clone blocks until all submitted operations are done, even in async contexts.
/// This takes milliseconds, and at most five seconds.
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
    sessions: Worker<SessionFiles>,
}

impl JsonLinesStore {
    /// Opens a store in a folder, which is created if it does not exist. Other files in the folder
    /// are not changed. A session id can be any text: bytes that a file system may not support in
    /// names are written as `%` and two digits, and long ids are shortened. A relative path is
    /// resolved against the current directory at the time of this call.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the folder does not exist and cannot be created.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, Error> {
        let folder = to_absolute_path(&folder.into())?;
        private_files::create_private_dir(&folder)?;
        Ok(Self::from_location(Location::Folder(folder)))
    }

    /// Opens a store for one session in the given file. Returns the store and the session's id,
    /// which is the file's name without its extension. The folder is created by this call, and the
    /// file is created by the first append. No other session can be written. If the session is a
    /// fork, the original session is read from the same folder.
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
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the path has no file name, and
    /// [`Store`](ErrorKind::Store) if the folder of the path does not exist and cannot be created.
    pub fn open_file(path: impl Into<PathBuf>) -> Result<(Self, String), Error> {
        let path = path.into();
        let Some(stem) = path.file_stem() else {
            let message = format!("`{}` does not name a file", path.display());
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        };
        let stem = stem.to_string_lossy().into_owned();
        // A store for the whole folder has the same session under the same id.
        let id = file_name::id_from_file_name(&stem).unwrap_or(stem);
        let path = to_absolute_path(&path)?;
        path.parent().map_or(Ok(()), private_files::create_private_dir)?;
        Ok((Self::from_location(Location::File { path, id: id.clone() }), id))
    }

    fn from_location(place: Location) -> Self {
        let sessions = SessionFiles::new(place, Arc::new(SystemClock));
        Self { sessions: Worker::new("turnstream-json-lines", sessions) }
    }

    /// Reads the intact part of a damaged session, and reports the damage. An undamaged session can
    /// also be salvaged. Returns `None` if the session has no file. Nothing is written to the file.
    ///
    /// An append with a correct checksum is intact, regardless of damage to earlier appends. If an
    /// append is damaged, any of its entries may be wrong, so all entries of that append are
    /// [suspect](crate::session::Damage::suspect_entries). Files of earlier versions have no
    /// checksums, so each line that can be parsed counts as intact. An append that a crash has cut
    /// off is also reported, although it was never acknowledged. The inherited entries of a fork
    /// are read from the original session in the same way.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the file cannot be read at all, or if nothing in it looks
    /// like a session.
    pub async fn salvage(&self, id: impl Into<String>) -> Result<Option<SalvageReport>, Error> {
        let id = id.into();
        self.sessions.run(move |sessions| sessions.salvage(&id)).await
    }

    /// Sets the clock for the time of the last write, which is the system clock by default. This
    /// setting has no effect after the first operation of the store or of any clone.
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

impl_store_from_blocking!(JsonLinesStore);
