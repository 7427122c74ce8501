//! A store in files of JSON lines.

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

/// A store in files that people can read, one for each session.
///
/// A file begins with a header, `{"type":"session","version":1,"id":"…"}`. Each append is a line
/// `{"type":"append","entries":2}` and an [`Entry`] a line, all ended by LF. Files only grow; a fork's
/// file names the session that it came from, which is in the same folder. Its name tells the session: a
/// file that is copied is a session of its own.
///
/// An append is one write, and is on the disk when it is answered. If the disk is full, what was
/// begun is taken back, and a later append works.
///
/// # Damage
///
/// The line of an append has the length of its entries in bytes, `bytes`, and their checksum, `crc32`.
/// The header's and the append's last field, `file_crc32`, is the checksum of all the file before it.
/// Both are the CRC-32 of zlib in hexadecimal digits.
///
/// An append at the end of the file that is shorter than it says is taken for one that a crash has cut
/// before it was acknowledged: it is not read, and the next append writes over it. If only its last LF is
/// missing, which an editor may have taken, it is whole, and the next append writes the LF. Anything else
/// that is not as it was written, such as a single changed byte anywhere, is an error that names the file
/// and the line, of reading and of writing, and nothing is changed.
///
/// So what is lost without an error is what looks like such a crash: a file that was shortened later, by
/// the end of its last append or by whole appends at its end, and lines that were taken out of the last
/// append. After a power failure some file systems leave NULs where the end of an append should be: that
/// is an error, and [`salvage`](Self::salvage) reads the rest.
///
/// Files of earlier versions have no checksums. They are read, also with CRLF and with NULs at their end,
/// and their next append has checksums: from then on the whole file is checked. Until then a changed text
/// is not noticed. An earlier version of the crate must not write to a file with checksums: it adds
/// appends that have none, which is an error from then on.
///
/// [`salvage`](Self::salvage) reads what is whole of a damaged session, and tells what is lost. A session
/// is not removed while the damaged header of another file may name it as what that was forked from: the
/// error names that file, which can be removed first.
///
/// Files and folders are made with modes 0600 and 0700 on unix; those that are there keep theirs.
///
/// Any number of processes may use one folder: each file is locked while it is read or written
/// (`flock` or what the system has like it), for ten seconds at most. The file system has to support
/// that; not every network's does.
///
/// The [lease](crate::session::Lease) of a session is a lock on a file of its own, `{session}.jsonl.lock` beside the
/// file of the session, which holds the epoch. The system releases it when the process ends. The file stays as long as
/// the session does. If it is removed while a run is active, the run is refused its next append. Two names of one file
/// (hard links) have two leases.
///
/// # What runs
///
/// The files are read and written on a thread of the store's own, shared by its clones, which starts
/// with the first call and does one thing at a time. Dropping a future that was polled does not take
/// its append back: it is written whole, or refused. The drop of the last clone waits until what was
/// handed over is written, which takes milliseconds, and five seconds at most: so long it blocks, in an
/// async context too.
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
    /// Keeps sessions in a folder, which is made if it is not there. What else is in it stays as it
    /// is. An id may be any text: what a file system may not like in a name is written as `%` and two
    /// digits, and a long one is shortened. A relative path is one of the folder that the process is in
    /// now.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if there is no such folder and it cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, Error> {
        let folder = to_absolute_path(&folder.into())?;
        private_files::create_private_dir(&folder)?;
        Ok(Self::from_location(Location::Folder(folder)))
    }

    /// Keeps one session in the file given, and tells its id: the file's name without its ending. The
    /// file is made by the first append, and its folder here. No other session can be written; a
    /// session that this one was forked from is read beside it.
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
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the path names no file, and
    /// [`Store`](ErrorKind::Store) if its folder is not there and cannot be made.
    pub fn open_file(path: impl Into<PathBuf>) -> Result<(Self, String), Error> {
        let path = path.into();
        let Some(stem) = path.file_stem() else {
            let message = format!("`{}` names no file", path.display());
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        };
        let stem = stem.to_string_lossy().into_owned();
        // In the folder it is the same session.
        let id = file_name::id_from_file_name(&stem).unwrap_or(stem);
        let path = to_absolute_path(&path)?;
        path.parent().map_or(Ok(()), private_files::create_private_dir)?;
        Ok((Self::from_location(Location::File { path, id: id.clone() }), id))
    }

    fn from_location(place: Location) -> Self {
        let sessions = SessionFiles::new(place, Arc::new(SystemClock));
        Self { sessions: Worker::new("turnstream-json-lines", sessions) }
    }

    /// Reads what is whole of a session that is damaged, or of one that is not, and tells what is lost.
    /// `None` if there is no file of it. Nothing is written.
    ///
    /// An append is whole if its checksum is right, and is read whatever became of those before it. Of an
    /// append that is damaged no entry is known to be right, so all of them are
    /// [doubtful](crate::session::Damage::suspect_entries). Files of earlier versions have no checksums: each
    /// line that can be parsed counts. An append that a crash has cut is named, too; it was never
    /// acknowledged. What a fork has inherited is read from its origin in the same way.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the file cannot be read at all, or nothing in it looks like a
    /// session.
    pub async fn salvage(&self, id: impl Into<String>) -> Result<Option<SalvageReport>, Error> {
        let id = id.into();
        self.sessions.run(move |sessions| sessions.salvage(&id)).await
    }

    /// Sets the clock by which sessions are listed, the system's unless set. It is for the first clone,
    /// before its first call.
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.sessions.configure(|sessions| sessions.clock = Arc::new(clock));
        self
    }
}

/// The same after the process has changed its folder.
fn to_absolute_path(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path)
        .map_err(|error| store_error(format!("cannot use the path `{}`", path.display()), error))
}

impl_store_from_blocking!(JsonLinesStore);
