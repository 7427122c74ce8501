//! The tables of the database. With the environment variable `UPDATE_FORMATS`, the test writes their
//! file: see [`turnstream_test_support::stored_format`].

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use futures::executor::block_on;
use rusqlite::Connection;
use turnstream::session::Store;
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::stored_format::assert_written;
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_testing::session_suite::numbered_entries;

fn stored_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sqlite.sql")
}

/// The statements that create the tables of a database, and its version.
fn schema(database: &Connection) -> String {
    let mut query = database
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
        .unwrap();
    let rows = query.query_map((), |row| row.get::<_, String>(0)).unwrap();
    let mut text = String::new();
    for sql in rows {
        writeln!(text, "{};", sql.unwrap()).unwrap();
    }
    for name in ["application_id", "user_version"] {
        let value: i64 = database.pragma_query_value(None, name, |row| row.get(0)).unwrap();
        writeln!(text, "PRAGMA {name} = {value};").unwrap();
    }
    text
}

#[test]
fn the_sqlite_tables_have_their_stored_schema() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    drop(SqliteStore::open(&path).unwrap());
    let schema = schema(&Connection::open(&path).unwrap());
    assert_written(&stored_path(), &schema);
}

#[test]
fn sqlite_tables_with_the_stored_schema_are_used() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    let stored = fs::read_to_string(stored_path()).unwrap();
    let database = Connection::open(&path).unwrap();
    database.execute_batch(&stored).unwrap();
    drop(database);
    let store = SqliteStore::open(&path).unwrap();
    block_on(store.append("s", 0, numbered_entries(0..2))).unwrap();
    block_on(store.fork("s", 1, "f")).unwrap();
    assert_eq!(block_on(store.load("f", 0)).unwrap(), Some(numbered_entries(0..1)));
    drop(store);
    assert_eq!(schema(&Connection::open(&path).unwrap()), stored);
}
