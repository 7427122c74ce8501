//! The lock files of leases.
#![cfg(unix)]

use std::fs;

use futures::executor::block_on;
use turnstream::session::{LeaseLost, Store};
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_testing::session_suite::text_entry;

#[test]
fn an_sqlite_lease_whose_lock_was_removed_allows_no_writes() {
    let folder = TempFolder::new();
    let open = || SqliteStore::open(folder.join("db")).unwrap();
    let (one, other) = (open(), open());
    let first = block_on(one.lease("s")).unwrap();
    block_on(one.append_leased(&first, "s", 0, vec![text_entry("one")])).unwrap();
    fs::remove_dir_all(folder.join("db.locks")).unwrap();
    assert!(block_on(other.delete("s")).unwrap());
    let second = block_on(other.lease("s")).unwrap();
    block_on(other.append_leased(&second, "s", 0, vec![text_entry("two")])).unwrap();
    let error = block_on(one.append_leased(&first, "s", 1, vec![text_entry("late")])).unwrap_err();
    assert!(error.find_source::<LeaseLost>().is_some(), "{error}");
    assert_eq!(block_on(other.load("s", 0)).unwrap().unwrap(), [text_entry("two")]);
}

#[test]
fn an_sqlite_lease_of_a_never_written_session_leaves_no_file() {
    let folder = TempFolder::new();
    let store = SqliteStore::open(folder.join("db")).unwrap();
    drop(block_on(store.lease("never")).unwrap());
    block_on(store.prune(std::time::SystemTime::now())).unwrap();
    drop(store);
    let file = fs::read(folder.join("db")).unwrap();
    assert!(!file.windows(5).any(|bytes| bytes == b"never"));
    // A lease does not create the file either.
    let store = SqliteStore::open(folder.join("db")).unwrap();
    fs::remove_file(folder.join("db")).unwrap();
    let lease = block_on(store.lease("s")).unwrap();
    assert!(!folder.join("db").exists());
    block_on(store.append_leased(&lease, "s", 0, vec![text_entry("one")])).unwrap();
    assert_eq!(block_on(store.load("s", 0)).unwrap().unwrap(), [text_entry("one")]);
}
