//! How a database is opened, and what its tables are.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Error as Sqlite, ErrorCode, TransactionBehavior};

use super::super::refusal::{broken, failed};
use crate::error::Error;

/// How long somebody else may hold the database.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// What tells that a database is one of ours (`PRAGMA application_id`): `turn` in ASCII.
const OURS: i64 = 0x7475_726e;

/// What brings a database from each version to the next. The version of a database
/// (`PRAGMA user_version`) is how many of them it has seen; the next one is added at the end, and none
/// is ever changed.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE session (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        -- What it was forked from, and how many entries of that are its first.
        parent INTEGER REFERENCES session (key),
        inherited INTEGER NOT NULL,
        -- How many entries it has, inherited ones included.
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
"];

pub(super) fn open(path: &Path) -> Result<Connection, Error> {
    let what = || format!("cannot open the database `{}`", path.display());
    let database = Connection::open_with_flags(path, flags());
    prepare(database.map_err(|error| failed(what(), error))?, what)
}

pub(super) fn in_memory() -> Result<Connection, Error> {
    let what = || "cannot make a database in memory".to_owned();
    prepare(Connection::open_in_memory().map_err(|error| failed(what(), error))?, what)
}

/// Does something for which it waits for no other connection.
pub(super) fn without_waiting<R>(
    database: &Connection,
    work: impl FnOnce(&Connection) -> Result<R, Sqlite>,
) -> Result<R, Sqlite> {
    database.busy_timeout(Duration::ZERO)?;
    let worked = work(database);
    database.busy_timeout(PATIENCE)?;
    worked
}

fn flags() -> rusqlite::OpenFlags {
    // Not `SQLITE_OPEN_URI`: a path is a path.
    rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE
        | rusqlite::OpenFlags::SQLITE_OPEN_CREATE
        | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn prepare(mut database: Connection, what: impl Fn() -> String) -> Result<Connection, Error> {
    let since = Instant::now();
    loop {
        let version = match prepare_once(&mut database) {
            Ok(version) => version,
            // To turn the log on, SQLite does not wait for others.
            Err(error) if is_busy(&error) && since.elapsed() < PATIENCE => {
                thread::sleep(BETWEEN_TRIES);
                continue;
            }
            Err(error) => return Err(failed(what(), error)),
        };
        return match version {
            Version::Ready => Ok(database),
            Version::Later(found) => {
                let why = format!("it has format {found}; this version reads up to {}", newest());
                Err(broken(format!("{}: {why}", what())))
            }
            Version::SomethingElse => {
                Err(broken(format!("{}: it holds something else than sessions", what())))
            }
        };
    }
}

enum Version {
    Ready,
    Later(i64),
    SomethingElse,
}

fn prepare_once(database: &mut Connection) -> Result<Version, Sqlite> {
    database.busy_timeout(PATIENCE)?;
    // Nothing is written before it is known whose it is.
    match version(database)? {
        Version::Ready => {}
        other => return Ok(other),
    }
    let _mode: String = database.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    // What is removed is overwritten.
    database.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;",
    )?;
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match version(&transaction)? {
        Version::Ready => {}
        other => return Ok(other),
    }
    let from = usize::try_from(pragma(&transaction, "user_version")?).unwrap_or(usize::MAX);
    let missing = MIGRATIONS.get(from..).unwrap_or_default();
    if !missing.is_empty() {
        missing.iter().try_for_each(|migration| transaction.execute_batch(migration))?;
        transaction.pragma_update(None, "application_id", OURS)?;
        transaction.pragma_update(None, "user_version", newest())?;
    }
    transaction.commit()?;
    Ok(Version::Ready)
}

/// Whose it is, and whether it can be brought to the newest version or has it.
fn version(database: &Connection) -> Result<Version, Sqlite> {
    let version = pragma(database, "user_version")?;
    let tables: i64 =
        database.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    Ok(match (pragma(database, "application_id")?, version, tables) {
        (0, 0, 0) => Version::Ready,
        (OURS, version, _) if version <= newest() => Version::Ready,
        (OURS, version, _) => Version::Later(version),
        _ => Version::SomethingElse,
    })
}

/// The version that a database has at last.
fn newest() -> i64 {
    // Law: they are few.
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn pragma(database: &Connection, name: &str) -> Result<i64, Sqlite> {
    database.pragma_query_value(None, name, |row| row.get(0))
}

fn is_busy(error: &Sqlite) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
