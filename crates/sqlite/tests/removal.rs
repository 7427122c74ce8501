//! Sessions that are removed or damaged.

use std::fs;

use futures::executor::block_on;
use rusqlite::Connection;
use turnstream::session::{SalvageReport, Store};
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::store_suite::assert_damage;
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_testing::session_suite::{numbered_entries, text_entry};

#[test]
fn the_text_of_a_deleted_session_is_erased_from_the_database() {
    let folder = TempFolder::new();
    let store = SqliteStore::open(folder.join("db")).unwrap();
    block_on(store.append("s", 0, vec![text_entry("a secret that goes")])).unwrap();
    let is_there = || {
        let file = fs::read(folder.join("db")).unwrap();
        file.windows(8).any(|bytes| bytes == b"a secret")
    };
    assert!(is_there());
    assert!(block_on(store.delete("s")).unwrap());
    assert!(!is_there());
}

#[test]
fn readable_sqlite_entries_are_salvaged_and_the_others_reported() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    let store = SqliteStore::open(&path).unwrap();
    block_on(store.append("s", 0, numbered_entries(0..6))).unwrap();
    block_on(store.fork("s", 5, "f")).unwrap();
    block_on(store.append("f", 5, numbered_entries(5..7))).unwrap();
    let whole = block_on(store.salvage("f")).unwrap().unwrap();
    assert_eq!((whole.entries, whole.damage), (numbered_entries(0..7), Vec::new()));
    assert_eq!(block_on(store.salvage("never")).unwrap(), None);

    let sql = "DELETE FROM entry WHERE number = 1 OR json LIKE '%6%';
        UPDATE entry SET json = '{\"type\":\"us' WHERE number = 3;";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let SalvageReport { entries, damage, .. } = block_on(store.salvage("f")).unwrap().unwrap();
    assert_eq!(
        entries,
        [numbered_entries(0..1), numbered_entries(2..3), numbered_entries(4..6)].concat()
    );
    assert_eq!(damage.len(), 3);
    assert_damage(&damage[0], 1, ("entry 1 of the session `f`", "is missing"), Some(1), &[]);
    assert_damage(&damage[1], 2, ("entry 3 of the session `f`", "cannot be read"), Some(1), &[]);
    assert_damage(&damage[2], 4, ("6 to 6 of the session `f`", "missing"), Some(1), &[]);
}
