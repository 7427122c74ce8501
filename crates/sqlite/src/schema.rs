//! Opens databases and migrates their schema.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Error as Sqlite, ErrorCode, OpenFlags, TransactionBehavior};
use turnstream::Error;
use turnstream::session::backend::{corrupt_data_error, store_error};

use crate::database_files::wal_path;

/// The maximum time to wait while another connection holds a lock on the database.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);

/// The application id of this crate's databases (`PRAGMA application_id`), which is `turn` in
/// ASCII.
const APPLICATION_ID: i64 = 0x7475_726e;

/// The migrations from each schema version to the next. A database's version (`PRAGMA
/// user_version`) is the number of migrations that have been applied to it. New migrations are
/// appended to the list; existing migrations are never changed.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE session (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        -- The session that it was forked from, and the number of entries inherited from it.
        parent INTEGER REFERENCES session (key),
        inherited INTEGER NOT NULL,
        -- The number of entries, including inherited ones.
        version INTEGER NOT NULL,
        -- Microseconds since 1970.
        updated INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE entry (
        session INTEGER NOT NULL REFERENCES session (key),
        number INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (session, number)
    ) STRICT;
    -- The epoch of the last lease of a session, which may not exist yet.
    CREATE TABLE lease (
        id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
"];

pub(crate) fn open_connection(path: &Path) -> Result<Connection, Error> {
    let what = || format!("cannot open the database `{}`", path.display());
    let database = Connection::open_with_flags(path, OPEN_FLAGS);
    let database = database.map_err(|error| store_error(what(), error))?;
    // SQLite opens a file for reading if it must not write to it.
    match database.is_readonly(rusqlite::MAIN_DB) {
        Ok(true) => open_for_reading(path, what),
        Ok(false) | Err(_) => configure_and_migrate(database, what),
    }
}

/// Opens a database that cannot be written to, for example because it is on a read-only file
/// system.
fn open_for_reading(path: &Path, what: impl Fn() -> String) -> Result<Connection, Error> {
    let open = |path: &Path, flags| {
        let database = Connection::open_with_flags(path, flags)?;
        database.busy_timeout(LOCK_TIMEOUT)?;
        let state = (schema_state(&database)?, read_pragma(&database, "user_version")?);
        Ok((database, state))
    };
    let opened = match open(path, READ_FLAGS) {
        // SQLite cannot create the index of the log. Without a log, it needs no index.
        Err(error) if is_code(&error, ErrorCode::CannotOpen) => {
            let wal = wal_path(path).map_err(|error| store_error(what(), error))?;
            if wal.metadata().is_ok_and(|wal| wal.len() > 0) {
                let why = "it cannot be written to, and its log is not empty";
                return Err(corrupt_data_error(format!("{}: {why}", what())));
            }
            open(&immutable_uri(path), READ_FLAGS | OpenFlags::SQLITE_OPEN_URI)
        }
        opened => opened,
    };
    let (database, (state, version)) = opened.map_err(|error| store_error(what(), error))?;
    let latest = latest_schema_version();
    match ensure_usable(&state, &what) {
        Ok(()) if version < latest => {
            let why = format!(
                "it has format {version}, and cannot be written to, which format {latest} requires"
            );
            Err(corrupt_data_error(format!("{}: {why}", what())))
        }
        usable => usable.map(|()| database),
    }
}

/// Returns the URI of a database that no process writes to.
fn immutable_uri(path: &Path) -> PathBuf {
    let encode = |byte: &u8| match byte {
        b'\\' if cfg!(windows) => "/".to_owned(),
        b'/' | b'.' | b'-' | b'_' => char::from(*byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let path: String = path.as_os_str().as_encoded_bytes().iter().map(encode).collect();
    format!("file:{path}?immutable=1").into()
}

/// Runs an operation that must not wait for other connections.
pub(crate) fn without_busy_timeout<R>(
    database: &Connection,
    work: impl FnOnce(&Connection) -> Result<R, Sqlite>,
) -> Result<R, Sqlite> {
    database.busy_timeout(Duration::ZERO)?;
    let worked = work(database);
    database.busy_timeout(LOCK_TIMEOUT)?;
    worked
}

/// `SQLITE_OPEN_URI` is not set, so that every path is read as a plain path.
const OPEN_FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_CREATE)
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

const READ_FLAGS: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

fn configure_and_migrate(
    mut database: Connection,
    what: impl Fn() -> String,
) -> Result<Connection, Error> {
    let since = Instant::now();
    loop {
        let version = match try_migrate(&mut database) {
            Ok(version) => version,
            // SQLite does not wait for other connections when it enables the write-ahead log.
            Err(error) if is_busy_error(&error) && since.elapsed() < LOCK_TIMEOUT => {
                thread::sleep(LOCK_RETRY_DELAY);
                continue;
            }
            Err(error) if is_code(&error, ErrorCode::CannotOpen) => {
                let what = format!("{} and the files that SQLite creates next to it", what());
                return Err(store_error(what, error));
            }
            Err(error) => return Err(store_error(what(), error)),
        };
        return ensure_usable(&version, &what).map(|()| database);
    }
}

fn ensure_usable(state: &SchemaState, what: impl Fn() -> String) -> Result<(), Error> {
    let why = match state {
        SchemaState::Ready => return Ok(()),
        SchemaState::TooNew(found) => {
            format!("it has format {found}; this version reads up to {}", latest_schema_version())
        }
        SchemaState::ForeignDatabase => "it contains something other than sessions".to_owned(),
    };
    Err(corrupt_data_error(format!("{}: {why}", what())))
}

enum SchemaState {
    Ready,
    TooNew(i64),
    ForeignDatabase,
}

fn try_migrate(database: &mut Connection) -> Result<SchemaState, Sqlite> {
    database.busy_timeout(LOCK_TIMEOUT)?;
    // Nothing is written before the database is known to be usable.
    match schema_state(database)? {
        SchemaState::Ready => {}
        other => return Ok(other),
    }
    let _mode: String = database.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    // `secure_delete` makes SQLite overwrite deleted data.
    database.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;",
    )?;
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match schema_state(&transaction)? {
        SchemaState::Ready => {}
        other => return Ok(other),
    }
    let from = usize::try_from(read_pragma(&transaction, "user_version")?).unwrap_or(usize::MAX);
    let missing = MIGRATIONS.get(from..).unwrap_or_default();
    if !missing.is_empty() {
        missing.iter().try_for_each(|migration| transaction.execute_batch(migration))?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", latest_schema_version())?;
    }
    transaction.commit()?;
    Ok(SchemaState::Ready)
}

/// Returns whether the database belongs to this crate, and whether this version of the crate can
/// use or migrate the database.
fn schema_state(database: &Connection) -> Result<SchemaState, Sqlite> {
    let version = read_pragma(database, "user_version")?;
    let tables: i64 =
        database.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    Ok(match (read_pragma(database, "application_id")?, version, tables) {
        (0, 0, 0) => SchemaState::Ready,
        (APPLICATION_ID, version, _) if version <= latest_schema_version() => SchemaState::Ready,
        (APPLICATION_ID, version, _) => SchemaState::TooNew(version),
        _ => SchemaState::ForeignDatabase,
    })
}

/// Returns the latest schema version, which is the number of migrations.
fn latest_schema_version() -> i64 {
    // Invariant: the number of migrations is small.
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn read_pragma(database: &Connection, name: &str) -> Result<i64, Sqlite> {
    database.pragma_query_value(None, name, |row| row.get(0))
}

fn is_busy_error(error: &Sqlite) -> bool {
    is_code(error, ErrorCode::DatabaseBusy) || is_code(error, ErrorCode::DatabaseLocked)
}

fn is_code(error: &Sqlite, code: ErrorCode) -> bool {
    error.sqlite_error_code() == Some(code)
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;

    #[test]
    fn a_connection_waits_ten_seconds_for_a_lock() {
        let path = env::temp_dir().join(format!("turnstream-lock-time-{}.db", process::id()));
        let database = open_connection(&path).unwrap();
        let timeout = || read_pragma(&database, "busy_timeout").unwrap();
        assert_eq!(timeout(), 10_000);
        without_busy_timeout(&database, |_| {
            assert_eq!(timeout(), 0);
            Ok(())
        })
        .unwrap();
        assert_eq!(timeout(), 10_000);
        drop(database);
        fs::remove_file(path).unwrap();
    }
}
