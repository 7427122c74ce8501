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

/// A session store in a single SQLite file, for programs with many sessions.
///
/// Each entry is a row with its JSON text. A fork refers to its original session and copies
/// nothing. An append is a single transaction, and is on disk when its future returns (write-ahead
/// log, `synchronous=FULL`). A transaction that a crash interrupts has no effect.
///
/// # Copying and replacing the file
///
/// After each append, the write-ahead log is checkpointed into the file and truncated, which makes
/// an append two to five times slower. So between two appends, a copy of the file without its
/// `-wal` has all acknowledged appends. If another connection is reading, a part of an append may
/// stay in the log. The next append, or dropping the last clone, then checkpoints that part. After
/// a crash, the log is checkpointed when the file is opened.
///
/// If the file at the path was replaced or removed, the next call closes the old file and uses the
/// current file, as if the store was opened again. If a session has another version in the new
/// file, an append to the session fails with a [`Conflict`](crate::session::Conflict). A missing
/// file is created only by the first entry of a session. The file also counts as replaced if its
/// `-wal` or `-shm` was removed. The file also counts as replaced if another file was copied over
/// it between two calls while no other connection was open. The store detects such a copy by the
/// file's length and modification time.
///
/// On Unix, the file is created with mode 0600, and SQLite uses the file's mode for the files next
/// to it. An existing file keeps its mode.
///
/// Any number of processes can use the same file, and wait for each other for at most ten seconds.
/// As with every SQLite file, all these processes must be on the same machine.
///
/// The [lease](Lease) of a session is a lock on a file in the folder `{file}.locks` next to the
/// database. The lock file exists while a run holds the lease. The system releases the lock when
/// the process ends. The epoch of the lease is in the database.
///
/// SQLite itself is compiled into the crate. Opening a database fails if it was created by a later
/// version of this crate, or if it contains other data.
///
/// # The worker thread
///
/// The store uses the database on its own thread, which all clones share. The thread starts with
/// the first call and processes one operation at a time. Dropping the future of an append after it
/// was polled does not cancel the append, which is written completely or rejected. Dropping the
/// last clone blocks until all submitted operations are done and the database is closed, even in
/// async contexts. This takes milliseconds, and at most five seconds.
///
/// ```
/// use turnstream::Item;
/// use turnstream::session::{SqliteStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// // To store the sessions in a file, use `SqliteStore::open("sessions.db")?`.
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
    /// Opens the database in a file, which is created if it does not exist, and migrates the
    /// database to the schema of this crate version. This function blocks until the database is
    /// open.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the file cannot be used or contains other data. In
    /// both cases, the file is not changed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Database::open(path.as_ref()).map(Self::from_database)
    }

    /// Creates a store whose database is in memory, which is dropped with the last clone of the
    /// store.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the memory cannot be allocated.
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

    /// Reads the readable entries of a session, and reports the entries that are lost. Returns
    /// `None` if the session does not exist. Nothing is written to the database.
    ///
    /// SQLite has no checksums, so a changed entry text is not detected if it is still a valid
    /// entry. A file that cannot be opened as a database cannot be salvaged.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the database cannot be read at all.
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

impl_store_from_blocking!(SqliteStore);
