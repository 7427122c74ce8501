//! A store in an SQLite database.

mod database;
mod schema;
mod session_tables;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt};

use crate::env::{Clock, SystemClock};
use crate::error::Error;
use crate::session::blocking_store::{BlockingStore as _, impl_store_from_blocking};
use crate::session::local_leases::LocalLeases;
use crate::session::worker::Worker;
use crate::session::{Entry, Lease, SalvageReport, SessionInfo};
use database::Database;
use session_tables::SessionTables;

/// A store in one SQLite file, for programs with many sessions.
///
/// Each entry is a row with its JSON text. A fork names the session it came from and copies nothing.
/// An append is one transaction and is on the disk when it is answered (write-ahead log,
/// `synchronous=FULL`); what a crash has cut never was.
///
/// # The file alone
///
/// After each append the log is taken over into the file and emptied, which makes an append take two to
/// five times as long. So between two appends a copy of the file without its `-wal` has every append
/// that was answered. While another connection reads, some of it may stay in the log; the next append,
/// or the drop of the last clone, takes it over then. After a crash, opening the file does.
///
/// If another file is at the path, or none, the next call closes what was open and uses what is there,
/// as if the store was opened again. An append to a session that has another version there gets a
/// [`Conflict`](crate::session::Conflict), and a file that is not there is only made by the first entry
/// of a session. The same holds if the `-wal` or `-shm` beside the file was removed, and if
/// another file was copied over it while no other connection was open and between two calls, which is
/// seen by its length and the time of its last write.
///
/// The file is made with mode 0600 on unix, and SQLite gives its own mode to the files beside it. A file
/// that is there keeps its mode.
///
/// Any number of processes may use one file. They wait for each other for ten seconds at most. As
/// with every SQLite file, they must be on one machine.
///
/// The [lease](Lease) of a session is a lock on a file in the folder `{file}.locks` beside the database, which exists
/// as long as a run has it; the system releases it when the process ends. Its epoch is in the database.
///
/// SQLite itself is compiled in. A database of a later version of this crate is refused, and so is
/// one that holds something else.
///
/// # What runs
///
/// The database is used on a thread of the store's own, shared by its clones, which starts with the
/// first call and does one thing at a time. Dropping a future that was polled does not take its append
/// back: it is written whole, or refused. The drop of the last clone waits until what was handed over
/// is written and the database is closed, which takes milliseconds, and five seconds at most: so long
/// it blocks, in an async context too.
///
/// ```
/// use turnstream::Item;
/// use turnstream::session::{SqliteStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// // `SqliteStore::open("sessions.db")?` is one that stays.
/// let store = SqliteStore::in_memory()?;
/// store.append("chat", 0, vec![Item::user("Hi!").into()]).await?;
/// store.fork("chat", 1, "another try").await?;
///
/// let entries = store.load("another try", 0).await?.unwrap();
/// assert_eq!(entries, [Item::user("Hi!").into()]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    sessions: Worker<SessionTables>,
}

impl SqliteStore {
    /// Opens the database in a file, which is made if it is not there, and brings it to the form that
    /// this version of the crate uses. It blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the file cannot be used or holds something else; it is
    /// left as it was then.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Database::open(path.as_ref()).map(Self::from_database)
    }

    /// Makes a database in memory, gone with the last clone of the store.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if there is no memory for it.
    pub fn in_memory() -> Result<Self, Error> {
        Database::in_memory().map(Self::from_database)
    }

    fn from_database(database: Database) -> Self {
        let sessions = SessionTables {
            database,
            leases: LocalLeases::default(),
            clock: Arc::new(SystemClock),
        };
        Self { sessions: Worker::new("turnstream-sqlite", sessions) }
    }

    /// Reads the entries of a session that can be read, and tells which are lost. `None` if there is no
    /// such session. Nothing is written.
    ///
    /// SQLite keeps no checksums: a text that was changed in the file and is still an entry is not
    /// noticed. A file that cannot be opened as a database is beyond this.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the database cannot be read at all.
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

impl_store_from_blocking!(SqliteStore);
