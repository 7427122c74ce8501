//! Opens the database at a path, and reopens the database if its files change.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use rusqlite::{Connection, Error as Sqlite, Transaction, TransactionBehavior};

use super::super::checks::{corrupt_data_error, store_error};
use super::super::private_files::{FileId, private_file_options, resolve_links};
use super::schema;
use crate::error::Error;
use crate::lock::lock_ignoring_poison;

/// Opens a database, and reopens it if the file at its path has been replaced or if other
/// connections have written to the file.
pub(super) struct Database {
    /// The absolute path of the database file. `None` if the database is in memory.
    path: Option<PathBuf>,
    /// The open database, or `None` if its file is missing or could not be opened.
    open_database: Option<OpenDatabase>,
}

struct OpenDatabase {
    connection: Connection,
    files: DatabaseFileIds,
    /// The metadata of the database file after the last operation.
    last_write_stamp: Option<WriteStamp>,
}

/// The identities of an open database's files: the database file, its log, and the log's index. If
/// one of these files has been replaced or removed, later writes by SQLite are lost when the
/// database is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DatabaseFileIds([Option<FileId>; 3]);

/// File metadata that changes when another connection writes to the file, or when another file is
/// copied over it. SQLite itself does not detect that another file was copied over a database.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WriteStamp {
    len: u64,
    modified: Option<SystemTime>,
}

/// The action to take if the database file does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMissing {
    ReturnNone,
    Create,
}

/// An error from a database operation.
pub(super) enum DatabaseError {
    Sqlite(Sqlite),
    Store(Error),
}

impl DatabaseError {
    pub(super) fn into_read_error(self) -> Error {
        self.into_store_error("cannot read the session")
    }

    fn into_store_error(self, what: &str) -> Error {
        match self {
            Self::Sqlite(error) => store_error(what, error),
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
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        // SQLite treats an empty name as a temporary database, and gives a special meaning to names
        // that start with `:` or `file:`. An absolute path never has a special meaning, and stays
        // valid if the process changes its current directory.
        let path = std::path::absolute(path).map_err(|error| {
            store_error(format!("cannot open the database `{}`", path.display()), error)
        })?;
        let open = OpenDatabase::open_at(&path)?;
        let mut database = Self { path: Some(path), open_database: Some(open) };
        // Checkpoint any log that was left by a crash.
        database.checkpoint_wal();
        Ok(database)
    }

    pub(super) fn in_memory() -> Result<Self, Error> {
        let open = OpenDatabase {
            connection: schema::open_in_memory()?,
            files: DatabaseFileIds([None; 3]),
            last_write_stamp: None,
        };
        Ok(Self { path: None, open_database: Some(open) })
    }

    /// Returns the connection to the database that is currently at the path, or `None` if the
    /// database does not exist.
    pub(super) fn ensure_connection(
        &mut self,
        missing: IfMissing,
    ) -> Result<Option<&mut Connection>, Error> {
        if !self.is_unchanged()
            && let Some(path) = &self.path
        {
            // Closing the old database does not change the files that are now at the path.
            self.open_database = None;
            let is_missing =
                path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
            if is_missing && missing == IfMissing::ReturnNone {
                return Ok(None);
            }
            self.open_database = Some(OpenDatabase::open_at(path)?);
            self.record_write_stamp();
        }
        Ok(self.open_database.as_mut().map(|open| &mut open.connection))
    }

    /// Reads from the database at the path in a single transaction. Returns `None` if the database
    /// does not exist.
    pub(super) fn read<R>(
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
    pub(super) fn write<R>(
        &mut self,
        missing: IfMissing,
        work: impl FnOnce(Option<Transaction<'_>>) -> Result<R, DatabaseError>,
    ) -> Result<R, Error> {
        let cannot_write =
            |failed: DatabaseError| failed.into_store_error("cannot write the session");
        loop {
            let path = self.path.clone();
            self.ensure_connection(missing)?;
            let Some(open) = &mut self.open_database else {
                return work(None).map_err(cannot_write);
            };
            let transaction =
                open.connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let transaction = transaction.map_err(|error| cannot_write(error.into()))?;
            // While this call waited for a lock, the file at the path may have been replaced or
            // removed.
            if path.is_none_or(|path| DatabaseFileIds::from_path(&path) == open.files) {
                let worked = work(Some(transaction)).map_err(cannot_write)?;
                self.checkpoint_wal();
                return Ok(worked);
            }
        }
    }

    /// Returns the path to the file, with links resolved, or `None` if the database is in memory.
    pub(super) fn target_path(&self) -> Option<PathBuf> {
        self.path.as_deref().map(resolve_links)
    }

    /// Returns whether the open database is still the database at its path.
    pub(super) fn is_at_path(&self) -> bool {
        match (&self.path, &self.open_database) {
            (Some(path), Some(open)) => DatabaseFileIds::from_path(path) == open.files,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Returns whether the open database is still the database at its path and has not been written
    /// to by other connections.
    fn is_unchanged(&self) -> bool {
        let left = self.open_database.as_ref().and_then(|open| open.last_write_stamp);
        self.is_at_path() && self.path.as_deref().and_then(WriteStamp::from_path) == left
    }

    fn record_write_stamp(&mut self) {
        if let (Some(path), Some(open)) = (&self.path, &mut self.open_database) {
            open.last_write_stamp = WriteStamp::from_path(path);
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
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
        });
        self.record_write_stamp();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SQLite itself checkpoints the log when the database's last connection is closed, but not
        // when any other connection is closed.
        if self.is_at_path() {
            self.checkpoint_wal();
        }
    }
}

impl OpenDatabase {
    fn open_at(path: &Path) -> Result<Self, Error> {
        loop {
            create_file(path)?;
            let before = DatabaseFileIds::from_path(path);
            let connection = schema::open_connection(path)?;
            let files = DatabaseFileIds::from_path(path);
            // If the file identities differ, the file has been replaced in the meantime.
            if before.0[0] == files.0[0] {
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

impl DatabaseFileIds {
    fn from_path(path: &Path) -> Self {
        // If the path is a link, the files are next to the link's target.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self(["", "-wal", "-shm"].map(|ending| {
            let mut path = target.as_os_str().to_owned();
            path.push(ending);
            fs::metadata(path).ok().map(|file| FileId::from_metadata(&file))
        }))
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
    let _making = lock_ignoring_poison(&CREATE_LOCK);
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
    match private_file_options()
        .write(true)
        .create_new(true)
        .open(target.as_deref().unwrap_or(path))
    {
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
