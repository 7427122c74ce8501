//! The database at a path, as long as its files are there.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use rusqlite::{Connection, Error as Sqlite, Transaction, TransactionBehavior};

use super::super::files::{FileId, private_file_options};
use super::super::refusal::{corrupt_data, store_error};
use super::schema;
use crate::error::Error;
use crate::lock::lock_ignoring_poison;

/// A database, opened again when another file is at its path, or others have written to it.
pub(super) struct Database {
    /// Absolute; `None` if it is in memory.
    path: Option<PathBuf>,
    /// `None` after its file was taken away.
    open: Option<OpenDatabase>,
}

struct OpenDatabase {
    connection: Connection,
    files: DatabaseFiles,
    /// How the file was left.
    last_stamp: Option<WriteStamp>,
}

/// The files that a database has while it is open: itself, its log, and the index of that. What SQLite
/// writes after one of them was replaced or removed is lost when it is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DatabaseFiles([Option<FileId>; 3]);

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
        let open = OpenDatabase::at(&path)?;
        let mut database = Self { path: Some(path), open: Some(open) };
        // A log that a crash has left.
        database.checkpoint();
        Ok(database)
    }

    pub(super) fn in_memory() -> Result<Self, Error> {
        let open = OpenDatabase {
            connection: schema::in_memory()?,
            files: DatabaseFiles([None; 3]),
            last_stamp: None,
        };
        Ok(Self { path: None, open: Some(open) })
    }

    /// Uses the database that is at the path; `None` if none is.
    pub(super) fn with_connection(
        &mut self,
        missing: IfMissing,
    ) -> Result<Option<&mut Connection>, Error> {
        if !self.is_as_left()
            && let Some(path) = &self.path
        {
            // SQLite leaves what is at the path now alone when it closes the other one.
            self.open = None;
            let is_missing =
                path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
            if is_missing && missing == IfMissing::ReturnNone {
                return Ok(None);
            }
            self.open = Some(OpenDatabase::at(path)?);
            self.note_left();
        }
        Ok(self.open.as_mut().map(|open| &mut open.connection))
    }

    /// Reads the database that is at the path, in one view; `None` if none is.
    pub(super) fn read<R>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<R, DatabaseError>,
    ) -> Result<Option<R>, Error> {
        let Some(connection) = self.with_connection(IfMissing::ReturnNone)? else {
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
            self.with_connection(missing)?;
            let Some(open) = &mut self.open else { return work(None).map_err(cannot_write) };
            let transaction =
                open.connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let transaction = transaction.map_err(|error| cannot_write(error.into()))?;
            // While this waited for a lock, the file at the path may have been replaced or removed.
            if path.is_none_or(|path| DatabaseFiles::at(&path) == open.files) {
                let worked = work(Some(transaction)).map_err(cannot_write)?;
                self.checkpoint();
                return Ok(worked);
            }
        }
    }

    /// Whether it is the database at its path.
    pub(super) fn is_there(&self) -> bool {
        match (&self.path, &self.open) {
            (Some(path), Some(open)) => DatabaseFiles::at(path) == open.files,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Whether it is the database at its path, and was not written elsewhere.
    fn is_as_left(&self) -> bool {
        let left = self.open.as_ref().and_then(|open| open.last_stamp);
        self.is_there() && self.path.as_deref().and_then(WriteStamp::at) == left
    }

    fn note_left(&mut self) {
        if let (Some(path), Some(open)) = (&self.path, &mut self.open) {
            open.last_stamp = WriteStamp::at(path);
        }
    }

    /// Takes the log over into the file, so that a copy of the file alone has it all, and so that no log
    /// is left that another database at this path would take for its own. It does not wait: while
    /// another connection reads or writes, some of it stays in the log until the next time.
    fn checkpoint(&mut self) {
        let Some(OpenDatabase { connection, .. }) = &self.open else { return };
        // What was written is durable in the log, whatever comes of this.
        let _ = schema::without_busy_timeout(connection, |connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
        });
        self.note_left();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Of the last connection closing does the same, of another one nothing does.
        if self.is_there() {
            self.checkpoint();
        }
    }
}

impl OpenDatabase {
    fn at(path: &Path) -> Result<Self, Error> {
        loop {
            create_file(path)?;
            let before = DatabaseFiles::at(path);
            let connection = schema::open(path)?;
            let files = DatabaseFiles::at(path);
            // Else it was replaced meanwhile.
            if before.0[0] == files.0[0] {
                return Ok(Self { connection, files, last_stamp: None });
            }
        }
    }
}

impl WriteStamp {
    fn at(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self { len: file.len(), modified: file.modified().ok() })
    }
}

impl DatabaseFiles {
    fn at(path: &Path) -> Self {
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
        Ok(_) => return Err(corrupt_data(format!("`{}` is not a file", path.display()))),
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
