//! What an SQLite file survives.

use std::fs;
use std::path::Path;

use futures::executor::block_on;
use rusqlite::Connection;
use turnstream::ErrorKind;
use turnstream::session::{Conflict, Entry, SqliteStore, Store};

use super::sample::{Folder, every_kind, numbered};

fn append(store: &SqliteStore, id: &str, version: u64, entries: Vec<Entry>) -> u64 {
    block_on(store.append(id, version, entries)).unwrap()
}

fn sql(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn what_was_written_is_there_when_it_is_opened_again() {
    let folder = Folder::new();
    let path = folder.join("db");
    let store = SqliteStore::open(&path).unwrap();
    append(&store, "s", 0, every_kind());
    block_on(store.fork("s", 3, "f")).unwrap();
    let listed = block_on(store.list()).unwrap();
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(every_kind()));
    assert_eq!(block_on(store.load("f", 0)).unwrap().unwrap(), every_kind()[..3]);
    assert_eq!(block_on(store.list()).unwrap(), listed);
}

/// A log that was not yet taken over is read, as it is after a crash.
#[test]
fn what_was_written_is_there_after_the_process_is_gone() {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.join("db")).unwrap();
    append(&store, "s", 0, numbered(0..2));
    append(&store, "s", 2, numbered(2..5));
    // Copied while it is open, and so without a word of goodbye.
    fs::copy(folder.join("db"), folder.join("copy")).unwrap();
    fs::copy(folder.join("db-wal"), folder.join("copy-wal")).unwrap();
    let log = fs::read(folder.join("copy-wal")).unwrap();
    let copy = SqliteStore::open(folder.join("copy")).unwrap();
    assert_eq!(block_on(copy.load("s", 0)).unwrap(), Some(numbered(0..5)));
    drop(copy);

    // The log cut anywhere: what was before the last append, or all of it, or less.
    for cut in (0..log.len()).step_by(509) {
        for name in ["copy", "copy-wal", "copy-shm"] {
            let _ = fs::remove_file(folder.join(name));
        }
        fs::copy(folder.join("db"), folder.join("copy")).unwrap();
        fs::write(folder.join("copy-wal"), &log[..cut]).unwrap();
        let copy = SqliteStore::open(folder.join("copy")).unwrap();
        let found = block_on(copy.load("s", 0)).unwrap().unwrap_or_default();
        assert!([0, 2, 5].contains(&found.len()), "{} at {cut}", found.len());
    }
}

#[test]
fn two_handles_on_one_file_see_each_other() {
    let folder = Folder::new();
    let one = SqliteStore::open(folder.join("db")).unwrap();
    let two = SqliteStore::open(folder.join("db")).unwrap();
    append(&one, "s", 0, numbered(0..1));
    append(&two, "s", 1, numbered(1..3));
    let error = block_on(one.append("s", 1, numbered(9..10))).unwrap_err();
    assert_eq!(Conflict::of(&error).unwrap().found, 3);
    append(&one, "s", 3, numbered(3..4));
    assert_eq!(block_on(two.load("s", 0)).unwrap(), Some(numbered(0..4)));
}

#[test]
fn many_may_open_a_file_that_is_not_there_at_once() {
    let folder = Folder::new();
    let path = folder.join("db");
    std::thread::scope(|scope| {
        let open = || scope.spawn(|| SqliteStore::open(&path).unwrap());
        let opening: Vec<_> = (0..8).map(|_| open()).collect();
        let stores: Vec<_> = opening.into_iter().map(|store| store.join().unwrap()).collect();
        for (version, store) in (0..).zip(&stores) {
            append(store, "s", version, numbered(version..version + 1));
        }
        assert_eq!(block_on(stores[0].load("s", 0)).unwrap(), Some(numbered(0..8)));
    });
}

#[track_caller]
fn check_refused(path: &Path, reason: &str) {
    let before = fs::read(path).unwrap();
    let error = SqliteStore::open(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.message().contains(reason), "{error}");
    assert!(fs::read(path).unwrap() == before);
}

#[test]
fn what_is_something_else_is_refused_and_left_alone() {
    let folder = Folder::new();
    let notes = folder.join("notes");
    fs::write(&notes, "my notes ".repeat(1000)).unwrap();
    check_refused(&notes, "not a database");
    let other = folder.join("other");
    sql(&other, "CREATE TABLE session (id TEXT); INSERT INTO session VALUES ('x')");
    check_refused(&other, "it holds something else than sessions");
    let numbered = folder.join("numbered");
    sql(&numbered, "PRAGMA user_version = 1");
    check_refused(&numbered, "it holds something else than sessions");
    fs::create_dir(folder.join("folder")).unwrap();
    assert_eq!(SqliteStore::open(folder.path()).unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(SqliteStore::open("").unwrap_err().kind(), ErrorKind::Store);
    let nowhere = folder.join("no/such/folder");
    assert_eq!(SqliteStore::open(nowhere).unwrap_err().kind(), ErrorKind::Store);
}

#[test]
fn a_later_version_is_refused() {
    let folder = Folder::new();
    let path = folder.join("db");
    drop(SqliteStore::open(&path).unwrap());
    sql(&path, "PRAGMA user_version = 99");
    check_refused(&path, "it has format 99; this version reads up to 1");
}

#[test]
fn a_name_with_a_meaning_to_sqlite_is_a_file() {
    let folder = Folder::new();
    for name in ["file:x?mode=memory", ":memory:", "a'b\"c"] {
        let store = SqliteStore::open(folder.join(name)).unwrap();
        append(&store, "s", 0, numbered(0..1));
        drop(store);
        assert!(folder.join(name).exists(), "{name}");
    }
}

#[test]
fn an_entry_that_is_not_there_or_broken_is_an_error_that_names_it() {
    let folder = Folder::new();
    let path = folder.join("db");
    let store = SqliteStore::open(&path).unwrap();
    append(&store, "s", 0, numbered(0..3));
    let check = |change: &str, reason: &str| {
        sql(&path, change);
        let error = block_on(store.load("s", 0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.message().contains(reason), "{error}");
        assert_eq!(block_on(store.load("s", 2)).unwrap(), Some(numbered(2..3)));
    };
    let tomorrow = r#"UPDATE entry SET json = '{"type":"of tomorrow"}' WHERE number = 1"#;
    check(tomorrow, "entry 1 of the session `s` cannot be read");
    check("DELETE FROM entry WHERE number = 1", "entry 1 of the session `s` is not there");
}
