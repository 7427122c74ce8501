//! The database at a path, as long as its files are there.

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

/// A database, opened again when another file is at its path, or others have written to it.
pub(super) struct Database {
    /// Absolute; `None` if it is in memory.
    path: Option<PathBuf>,
    /// `None` after its file was taken away.
    open_database: Option<OpenDatabase>,
}

struct OpenDatabase {
    connection: Connection,
    files: DatabaseFileIds,
    /// How the file was left.
    last_write_stamp: Option<WriteStamp>,
}

/// The files that a database has while it is open: itself, its log, and the index of that. What SQLite
/// writes after one of them was replaced or removed is lost when it is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DatabaseFileIds([Option<FileId>; 3]);

/// What tells that the file was written elsewhere: by another connection, or a copy over it, which
/// SQLite would not notice.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WriteStamp {
    len: u64,
    modified: Option<SystemTime>,
}

/// What for the database is used, if its file is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMissing {
    ReturnNone,
    Create,
}

/// Why something with a database came to nothing.
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
        // An empty name is a temporary database to SQLite, and others begin with `:` or `file:`: an
        // absolute path has no such meaning. It is the same after the process has changed its folder.
        let path = std::path::absolute(path).map_err(|error| {
            store_error(format!("cannot open the database `{}`", path.display()), error)
        })?;
        let open = OpenDatabase::open_at(&path)?;
        let mut database = Self { path: Some(path), open_database: Some(open) };
        // A log that a crash has left.
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

    /// Uses the database that is at the path; `None` if none is.
    pub(super) fn ensure_connection(
        &mut self,
        missing: IfMissing,
    ) -> Result<Option<&mut Connection>, Error> {
        if !self.is_unchanged()
            && let Some(path) = &self.path
        {
            // SQLite leaves what is at the path now alone when it closes the other one.
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

    /// Reads the database that is at the path, in one view; `None` if none is.
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

    /// Begins a write to the database that is at the path, and does it; `None` is handed in if none is.
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
            // While this waited for a lock, the file at the path may have been replaced or removed.
            if path.is_none_or(|path| DatabaseFileIds::from_path(&path) == open.files) {
                let worked = work(Some(transaction)).map_err(cannot_write)?;
                self.checkpoint_wal();
                return Ok(worked);
            }
        }
    }

    /// The file, where a link leads to it; `None` if it is in memory.
    pub(super) fn target_path(&self) -> Option<PathBuf> {
        self.path.as_deref().map(resolve_links)
    }

    /// Whether it is the database at its path.
    pub(super) fn is_at_path(&self) -> bool {
        match (&self.path, &self.open_database) {
            (Some(path), Some(open)) => DatabaseFileIds::from_path(path) == open.files,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Whether it is the database at its path, and was not written elsewhere.
    fn is_unchanged(&self) -> bool {
        let left = self.open_database.as_ref().and_then(|open| open.last_write_stamp);
        self.is_at_path() && self.path.as_deref().and_then(WriteStamp::from_path) == left
    }

    fn record_write_stamp(&mut self) {
        if let (Some(path), Some(open)) = (&self.path, &mut self.open_database) {
            open.last_write_stamp = WriteStamp::from_path(path);
        }
    }

    /// Takes the log over into the file, so that a copy of the file alone has it all, and so that no log
    /// is left that another database at this path would take for its own. It does not wait: while
    /// another connection reads or writes, some of it stays in the log until the next time.
    fn checkpoint_wal(&mut self) {
        let Some(OpenDatabase { connection, .. }) = &self.open_database else { return };
        // What was written is durable in the log, whatever comes of this.
        let _ = schema::without_busy_timeout(connection, |connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
        });
        self.record_write_stamp();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Of the last connection closing does the same, of another one nothing does.
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
            // Else it was replaced meanwhile.
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
        // Beside the file that a link leads to.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self(["", "-wal", "-shm"].map(|ending| {
            let mut path = target.as_os_str().to_owned();
            path.push(ending);
            fs::metadata(path).ok().map(|file| FileId::from_metadata(&file))
        }))
    }
}

/// Makes the file if it is not there, its owner's alone: SQLite gives its own rights to the log, and
/// would let others read the file.
fn create_file(path: &Path) -> Result<(), Error> {
    /// On some systems closing a file takes its locks away from all of the process. So nothing here
    /// opens the new file as a database before it is closed.
    static CREATE_LOCK: Mutex<()> = Mutex::new(());

    let cannot =
        |error| store_error(format!("cannot open the database `{}`", path.display()), error);
    let _making = lock_ignoring_poison(&CREATE_LOCK);
    match path.metadata() {
        Ok(there) if there.is_file() => return Ok(()),
        // To open a pipe could wait for ever.
        Ok(_) => return Err(corrupt_data_error(format!("`{}` is not a file", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(error)),
    }
    // A link to where no file is yet.
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
