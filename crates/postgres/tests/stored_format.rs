//! The tables of the database, as a script. `schema` uses the same file with a server.
//!
//! With the environment variable `UPDATE_FORMATS`, the test writes the file. After the first
//! release, the file may only change by additions that an earlier version of the crate ignores.

use std::fs;
use std::path::Path;

use turnstream_postgres::PostgresStore;

#[test]
fn the_postgres_tables_have_their_stored_schema() {
    let written = PostgresStore::migrations_sql("turnstream").unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres.sql");
    if std::env::var_os("UPDATE_FORMATS").is_some() {
        fs::write(&path, &written).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap();
    for (number, (written, stored)) in (1..).zip(written.lines().zip(stored.lines())) {
        assert_eq!(written, stored, "line {number}");
    }
    assert_eq!(written, stored);
}
