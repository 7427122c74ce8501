//! Databases on a read-only file system.
#![cfg(target_os = "linux")]

use std::fs;

use futures::executor::block_on;
use rusqlite::Connection;
use turnstream::session::Store;
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::store_suite::failing_files::{
    copy_files, end_failures, is_in_failing_process, make_read_only,
};
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_test_support::test_name;
use turnstream_testing::session_suite::numbered_entries;

#[test]
fn a_read_only_database_at_a_path_with_special_characters_is_read_and_a_missing_one_is_an_error() {
    if !is_in_failing_process(test_name!(
        a_read_only_database_at_a_path_with_special_characters_is_read_and_a_missing_one_is_an_error
    )) {
        return;
    }
    let folder = TempFolder::new();
    let special = folder.join("100%?#x&y=1 \u{fc}");
    fs::create_dir(&special).unwrap();
    block_on(SqliteStore::open(special.join("db")).unwrap().append("s", 0, numbered_entries(0..1)))
        .unwrap();
    make_read_only(folder.path());
    let store = SqliteStore::open(special.join("db")).unwrap();
    assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(numbered_entries(0..1)));
    let error = SqliteStore::open(folder.join("db")).err().unwrap();
    assert!(error.message().contains("Read-only file system"), "{error}");
    end_failures();
}

#[test]
fn a_read_only_database_with_the_log_of_a_killed_process_is_an_error_until_it_can_be_written() {
    if !is_in_failing_process(test_name!(
        a_read_only_database_with_the_log_of_a_killed_process_is_an_error_until_it_can_be_written
    )) {
        return;
    }
    let folder = TempFolder::new();
    let killed = TempFolder::new();
    let store = SqliteStore::open(folder.join("db")).unwrap();
    block_on(store.append("s", 0, numbered_entries(0..1))).unwrap();
    let reader = Connection::open(folder.join("db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM entry").unwrap();
    block_on(store.append("s", 1, numbered_entries(1..2))).unwrap();
    copy_files(folder.path(), killed.path());
    make_read_only(killed.path());
    let error = SqliteStore::open(killed.join("db")).err().unwrap();
    assert!(error.message().ends_with("its log is not empty"), "{error}");
    end_failures();
    let store = SqliteStore::open(killed.join("db")).unwrap();
    assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(numbered_entries(0..2)));
}
