//! The store, and its docs.

use std::path::Path;
use std::sync::Arc;

use turnstream::Error;
use turnstream::env::{Clock, SystemClock};
use turnstream::session::SalvageReport;
use turnstream::session::backend::{StoreThread, impl_blocking_store};

use crate::database::Database;
use crate::session_tables::SessionTables;

/// Stores sessions in a single SQLite file, for programs with many sessions.
///
/// Each entry is stored as JSON text in its own row. A fork refers to the entries of its original
/// session instead of copying them. Each append is a single transaction that is on disk once the
/// returned future completes (write-ahead log, `synchronous=FULL`). A transaction that is
/// interrupted by a crash has no effect.
///
/// # Copying and replacing the file
///
/// After each append, the write-ahead log is checkpointed into the file and truncated, which makes
/// an append two to five times slower. As a result, a copy of the file made between two appends
/// contains all acknowledged appends, even without the `-wal` file. If another connection is
/// reading during an append, part of the append may stay in the log until the next append or until
/// the last clone of the store is dropped. After a crash, the log is checkpointed when the file is
/// opened.
///
/// If the file at the path has been replaced or removed, the next call closes the old file and
/// opens the current file, as if the store had been reopened. If a session has a different version
/// in the current file, an append to that session fails with a
/// [`Conflict`](turnstream::session::Conflict). A missing file is created only when a session's first
/// entry is written. The file also counts as replaced if its `-wal` or `-shm` file has been
/// removed. In addition, the file counts as replaced if another file was copied over it between two
/// calls while no other connection was open. The store uses the file's length and modification time
/// to detect that another file was copied over it.
///
/// On Unix, the file is created with mode 0600, and SQLite uses the file's mode for the files that
/// it creates next to the database. An existing file keeps its mode.
///
/// If the file cannot be written to, for example because it is on a read-only file system, the
/// store reads sessions, and each write fails. SQLite then requires that no process writes to the
/// file, unless the file's `-shm` file exists. The database cannot be opened if its `-wal` file is
/// not empty, because the log must first be written into the database.
///
/// If a commit fails, the store removes the transaction from the log. If this fails as well, for
/// example because another connection is reading the log, the error's kind is
/// [`OutcomeUnknown`](turnstream::ErrorKind::OutcomeUnknown).
///
/// Any number of processes can use the same file. A process waits at most ten seconds for a lock
/// that another process holds on the database. As with every SQLite file, all processes that use
/// the file must run on the same machine.
///
/// The [lease](turnstream::session::Lease) on a session is a lock on a file in the folder
/// `{file}.locks` next to the database. The lock file exists while a run holds the lease. The
/// operating system releases the lock when the process ends. The lease's epoch is stored in the
/// database.
///
/// SQLite itself is compiled into the crate. A database cannot be opened if it was created by a
/// later version of this crate, or if it contains other data.
///
/// # The worker thread
///
/// The store accesses the database on a dedicated thread, which all clones share. The thread is
/// started by the first call, and processes one operation at a time. Dropping an append's future
/// does not cancel the append if the future has already been polled; the append is still written
/// completely or rejected. Dropping the last clone blocks until all submitted operations are done
/// and the database is closed, even in async contexts. The drop usually takes milliseconds, and
/// never more than five seconds.
///
/// ```
/// use turnstream::Item;
/// use turnstream::session::Store;
/// use turnstream_sqlite::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// # let folder = std::env::temp_dir().join(format!("sqlite-store-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("sessions.db");
/// let store = SqliteStore::open(path)?;
/// store.append("chat", 0, vec![Item::user("Hi!").into()]).await?;
/// store.fork("chat", 1, "another try").await?;
///
/// let entries = store.load("another try", 0).await?.unwrap();
/// assert_eq!(entries, [Item::user("Hi!").into()]);
/// # drop(store);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    sessions: StoreThread<SessionTables>,
}

impl SqliteStore {
    /// Opens the database in the given file, and migrates the database to the schema of this crate
    /// version. The file is created if it does not exist. This function blocks until the database
    /// is open.
    ///
    /// # Errors
    ///
    /// [`Store`](turnstream::ErrorKind::Store) if the file cannot be used or contains other data. In
    /// both cases, the file is left unchanged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let database = Database::open(path.as_ref())?;
        let sessions = SessionTables { database, clock: Arc::new(SystemClock) };
        Ok(Self { sessions: StoreThread::new("turnstream-sqlite", sessions) })
    }

    /// Reads all readable entries in a session, and reports which entries are lost. Returns `None`
    /// if the session does not exist. Nothing is written to the database.
    ///
    /// SQLite has no checksums, so a change to an entry's text is not detected if the result is
    /// still a valid entry. A file that cannot be opened as a database cannot be salvaged.
    ///
    /// Dropping the future after its first poll does not stop the thread that reads the database,
    /// but discards the report.
    ///
    /// # Errors
    ///
    /// [`Store`](turnstream::ErrorKind::Store) if the database cannot be read at all.
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

impl_blocking_store!(SqliteStore, sessions);
