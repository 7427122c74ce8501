//! Opens the database at a path, and reopens the database if its files change.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rusqlite::{Connection, Error as Sqlite, Transaction, TransactionBehavior};
use turnstream::Error;
use turnstream::session::backend::{
    corrupt_data_error, outcome_unknown_error, resolve_links, store_error,
};

use crate::database_files::{DatabaseFileIds, is_missing, wal_path};
use crate::schema;

/// Opens a database, and reopens it if the file at its path has been replaced or if other
/// connections have written to the file.
pub(crate) struct Database {
    /// The absolute path of the database file.
    path: PathBuf,
    /// The open database, or `None` if its file is missing or could not be opened.
    open_database: Option<OpenDatabase>,
}

struct OpenDatabase {
    connection: Connection,
    files: DatabaseFileIds,
    /// The metadata of the database file after the last operation.
    last_write_stamp: Option<WriteStamp>,
}

/// File metadata that changes when another connection writes to the file, or when another file is
/// copied over it. SQLite itself does not detect that another file was copied over a database.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WriteStamp {
    len: u64,
    modified: Option<SystemTime>,
}

/// The action to take if the database file does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    ReturnNone,
    Create,
}

/// An error from a database operation.
pub(crate) enum DatabaseError {
    Sqlite(Sqlite),
    /// A commit failed. The log may contain the whole transaction.
    Commit(Sqlite),
    Store(Error),
}

impl DatabaseError {
    pub(crate) fn into_read_error(self) -> Error {
        self.into_store_error("cannot read the session")
    }

    fn into_store_error(self, what: &str) -> Error {
        match self {
            Self::Sqlite(error) | Self::Commit(error) => store_error(what, error),
            Self::Store(error) => error,
        }
    }
}

impl From<Sqlite> for DatabaseError {
    fn from(error: Sqlite) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Error> for DatabaseError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Database {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // SQLite treats an empty name as a temporary database, and gives a special meaning to names
        // that start with `:` or `file:`. An absolute path never has a special meaning, and stays
        // valid if the process changes its current directory.
        let path = std::path::absolute(path).map_err(|error| {
            store_error(format!("cannot open the database `{}`", path.display()), error)
        })?;
        let open = OpenDatabase::open_at(&path)?;
        let mut database = Self { path, open_database: Some(open) };
        // Checkpoint any log that was left by a crash.
        database.checkpoint_wal();
        Ok(database)
    }

    /// Returns the connection to the database that is currently at the path, or `None` if the
    /// database does not exist.
    pub(crate) fn ensure_connection(
        &mut self,
        missing: IfMissing,
    ) -> Result<Option<&mut Connection>, Error> {
        if !self.is_unchanged() {
            // Closing the old database does not change the files that are now at the path.
            self.open_database = None;
            let there = self.path.metadata();
            let is_missing = there.is_err_and(|error| error.kind() == ErrorKind::NotFound);
            if is_missing && missing == IfMissing::ReturnNone {
                return Ok(None);
            }
            self.open_database = Some(OpenDatabase::open_at(&self.path)?);
            self.record_write_stamp();
        }
        Ok(self.open_database.as_mut().map(|open| &mut open.connection))
    }

    /// Reads from the database at the path in a single transaction. Returns `None` if the database
    /// does not exist.
    pub(crate) fn read<R>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<R, DatabaseError>,
    ) -> Result<Option<R>, Error> {
        let Some(connection) = self.ensure_connection(IfMissing::ReturnNone)? else {
            return Ok(None);
        };
        let read = || work(&*connection.transaction()?);
        read().map(Some).map_err(DatabaseError::into_read_error)
    }

    /// Runs `work` in a write transaction on the database at the path. `work` receives `None` if
    /// the database does not exist.
    pub(crate) fn write<R>(
        &mut self,
        missing: IfMissing,
        work: impl FnOnce(Option<Transaction<'_>>) -> Result<R, DatabaseError>,
    ) -> Result<R, Error> {
        let cannot_write =
            |failed: DatabaseError| failed.into_store_error("cannot write the session");
        loop {
            // The database may have become writable since it was opened.
            self.open_database.take_if(|open| open.is_read_only());
            self.ensure_connection(missing)?;
            let Some(open) = &mut self.open_database else {
                return work(None).map_err(cannot_write);
            };
            let transaction =
                open.connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let transaction = transaction.map_err(|error| cannot_write(error.into()))?;
            // While this call waited for a lock, the file at the path may have been replaced or
            // removed.
            let files = DatabaseFileIds::from_path(&self.path);
            let files = files.map_err(|error| store_error("cannot write the session", error))?;
            if files == open.files {
                let worked = match work(Some(transaction)) {
                    Ok(worked) => worked,
                    Err(DatabaseError::Commit(error)) => return Err(self.undo_commit(error)),
                    Err(failed) => return Err(cannot_write(failed)),
                };
                self.checkpoint_wal();
                return Ok(worked);
            }
        }
    }

    /// Returns the path to the file, with links resolved.
    pub(crate) fn target_path(&self) -> PathBuf {
        resolve_links(&self.path)
    }

    /// Returns whether the open database is still the database at its path.
    pub(crate) fn is_at_path(&self) -> io::Result<bool> {
        match &self.open_database {
            Some(open) => Ok(DatabaseFileIds::from_path(&self.path)? == open.files),
            None => Ok(false),
        }
    }

    /// Returns whether the open database is still the database at its path and has not been written
    /// to by other connections.
    fn is_unchanged(&self) -> bool {
        let left = self.open_database.as_ref().and_then(|open| open.last_write_stamp);
        self.is_at_path().unwrap_or(false) && WriteStamp::from_path(&self.path) == left
    }

    fn record_write_stamp(&mut self) {
        if let Some(open) = &mut self.open_database {
            open.last_write_stamp = WriteStamp::from_path(&self.path);
        }
    }

    /// Checkpoints the log into the database file. As a result, a copy of the file alone is
    /// complete, and no log remains that SQLite could apply to another database at this path. This
    /// method does not wait for other connections. While another connection reads or writes, part
    /// of the data stays in the log until the next checkpoint.
    fn checkpoint_wal(&mut self) {
        let Some(OpenDatabase { connection, .. }) = &self.open_database else { return };
        // If the checkpoint fails, the data is still durable in the log.
        let _ = schema::without_busy_timeout(connection, |connection| {
            connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?.query_row((), |_| Ok(()))
        });
        self.record_write_stamp();
    }
}

impl Database {
    /// Undoes a failed commit, and returns the error to report. The log may contain the whole
    /// transaction, which SQLite would apply if the process were killed now, although it has
    /// reported an error.
    fn undo_commit(&self, error: Sqlite) -> Error {
        let what = "cannot write the session";
        match self.truncate_wal() {
            Ok(()) => store_error(what, error),
            Err(undo) => {
                outcome_unknown_error(format!("{what} ({error}), and cannot undo the write"), undo)
            }
        }
    }

    /// Removes everything from the log that does not belong to a committed transaction.
    fn truncate_wal(&self) -> io::Result<()> {
        let Some(open) = &self.open_database else { return Ok(()) };
        let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = open
            .connection
            .query_row(truncate, (), |row| row.get(0))
            .map_err(|error| io::Error::other(error.to_string()))?;
        if is_busy {
            return Err(io::Error::other("another connection is reading the log"));
        }
        // Windows syncs only files that are open for writing.
        match OpenOptions::new().write(true).open(wal_path(&self.path)?) {
            Ok(log) => log.sync_all(),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SQLite itself checkpoints the log when the database's last connection is closed, but not
        // when any other connection is closed.
        if self.is_at_path().unwrap_or(false) {
            self.checkpoint_wal();
        }
    }
}

impl OpenDatabase {
    fn is_read_only(&self) -> bool {
        self.connection.is_readonly(rusqlite::MAIN_DB).unwrap_or(false)
    }

    fn open_at(path: &Path) -> Result<Self, Error> {
        loop {
            create_file(path)?;
            let cannot = |error| {
                store_error(format!("cannot open the database `{}`", path.display()), error)
            };
            let before = DatabaseFileIds::from_path(path).map_err(cannot)?;
            let connection = schema::open_connection(path)?;
            let files = DatabaseFileIds::from_path(path).map_err(cannot)?;
            // If the file identities differ, the file has been replaced in the meantime.
            if before.is_same_database(&files) {
                return Ok(Self { connection, files, last_write_stamp: None });
            }
        }
    }
}

impl WriteStamp {
    fn from_path(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self { len: file.len(), modified: file.modified().ok() })
    }
}

/// Creates the file if it does not exist, and makes it accessible only to its owner. SQLite itself
/// would create a file that other users can read. SQLite creates the log with the same mode as the
/// file.
fn create_file(path: &Path) -> Result<(), Error> {
    /// On some systems, closing a file releases all locks that the process holds on that file. This
    /// mutex ensures that no other thread opens the new file as a database before `create_file` has
    /// closed the file.
    static CREATE_LOCK: Mutex<()> = Mutex::new(());

    let cannot =
        |error| store_error(format!("cannot open the database `{}`", path.display()), error);
    let _making = CREATE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    match path.metadata() {
        Ok(there) if there.is_file() => return Ok(()),
        // Opening a named pipe could block forever.
        Ok(_) => return Err(corrupt_data_error(format!("`{}` is not a file", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(error)),
    }
    // The path may be a link whose target does not exist yet.
    let link = fs::read_link(path).ok();
    let target = link.and_then(|link| Some(path.parent()?.join(link)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(target.as_deref().unwrap_or(path)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(cannot(error)),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::cell::RefCell;
    use std::{env, process};

    use super::*;

    thread_local! {
        /// Called when the database is locked. SQLite accepts no closures.
        static ON_BUSY: RefCell<Option<Box<dyn FnOnce()>>> = RefCell::default();
    }

    fn retry_once(_attempt: i32) -> bool {
        ON_BUSY.take().map(|on_busy| on_busy()).is_some()
    }

    #[test]
    fn a_file_replaced_while_its_lock_is_awaited_is_opened_again() {
        let folder = env::temp_dir().join(format!("turnstream-database-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, new) = (folder.join("db"), folder.join("new"));
        let mut database = Database::open(&new).unwrap();
        let connection = database.ensure_connection(IfMissing::Create).unwrap().unwrap();
        connection.execute_batch("INSERT INTO lease VALUES ('new', 1)").unwrap();
        drop(database);

        let mut database = Database::open(&path).unwrap();
        let lock = Connection::open(&path).unwrap();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        let connection = database.ensure_connection(IfMissing::Create).unwrap().unwrap();
        connection.busy_handler(Some(retry_once)).unwrap();
        ON_BUSY.set(Some(Box::new(move || {
            fs::rename(new, path).unwrap();
            drop(lock);
        })));
        let lease: String = database
            .write(IfMissing::Create, |transaction| {
                let transaction = transaction.unwrap();
                Ok(transaction.query_row("SELECT id FROM lease", (), |row| row.get(0))?)
            })
            .unwrap();
        assert_eq!(lease, "new");
        assert!(ON_BUSY.take().is_none(), "the transaction waits for the lock");
        drop(database);
        fs::remove_dir_all(folder).unwrap();
    }
}
