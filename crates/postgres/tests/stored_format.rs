//! The tables of the database, as a script. `schema` uses the same file with a server.
//!
//! With the environment variable `UPDATE_FORMATS`, the test writes the file: see
//! [`turnstream_test_support::stored_format`].

use std::path::Path;

use turnstream_postgres::PostgresStore;
use turnstream_test_support::stored_format::assert_written;

#[test]
fn the_postgres_tables_have_their_stored_schema() {
    let written = PostgresStore::migrations_sql("turnstream").unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres.sql");
    assert_written(&path, &written);
}
