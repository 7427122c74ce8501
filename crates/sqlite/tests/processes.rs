//! Processes that end while the database is open.

use std::fs;

use futures::executor::block_on;
use turnstream::session::Store;
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::store_suite::processes::{role_and_folder, test_process_command};
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_test_support::test_name;
use turnstream_testing::session_suite::numbered_entries;

/// A process that ends without dropping its store. The database file is copied afterwards, without
/// its log.
#[test]
fn an_ended_process_leaves_a_self_contained_sqlite_file() {
    let test = test_name!(an_ended_process_leaves_a_self_contained_sqlite_file);
    if let Some((role, folder)) = role_and_folder() {
        let store = SqliteStore::open(folder.join("db")).unwrap();
        for n in 0..3 {
            block_on(store.append("s", n, numbered_entries(n..n + 1))).unwrap();
        }
        if role == "dropped" {
            drop(store);
        }
        std::process::exit(0);
    }
    for role in ["dropped", "leaked"] {
        let (folder, copied) = (TempFolder::new(), TempFolder::new());
        assert!(test_process_command(test, role, folder.path()).status().unwrap().success());
        assert_eq!(folder.join("db-wal").exists(), role == "leaked");
        fs::copy(folder.join("db"), copied.join("db")).unwrap();
        let copy = SqliteStore::open(copied.join("db")).unwrap();
        assert_eq!(block_on(copy.load("s", 0)).unwrap(), Some(numbered_entries(0..3)), "{role}");
    }
}
