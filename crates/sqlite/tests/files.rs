//! The failures that an SQLite file survives.

use std::fs;
use std::path::Path;

use futures::executor::block_on;
use rusqlite::Connection;
use turnstream::ErrorKind;
use turnstream::session::{Conflict, Entry, Store};
use turnstream_sqlite::SqliteStore;
#[cfg(unix)]
use turnstream_test_support::store_suite::FileRemovingClock;
use turnstream_test_support::temp_folder::TempFolder;
#[cfg(unix)]
use turnstream_test_support::temp_folder::{file_mode, set_file_mode};
use turnstream_testing::session_suite::{entries_of_every_kind, numbered_entries, text_entry};

fn append(store: &SqliteStore, id: &str, version: u64, entries: Vec<Entry>) -> u64 {
    block_on(store.append(id, version, entries)).unwrap()
}

fn execute_sql(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn appended_entries_exist_after_reopening() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    let store = SqliteStore::open(&path).unwrap();
    append(&store, "s", 0, entries_of_every_kind());
    block_on(store.fork("s", 3, "f")).unwrap();
    let listed = block_on(store.list()).unwrap();
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(entries_of_every_kind()));
    assert_eq!(block_on(store.load("f", 0)).unwrap().unwrap(), entries_of_every_kind()[..3]);
    assert_eq!(block_on(store.list()).unwrap(), listed);
}

/// A log that is not checkpointed is read, as after a crash.
#[test]
fn appended_entries_survive_the_process() {
    let folder = TempFolder::new();
    let store = SqliteStore::open(folder.join("db")).unwrap();
    let _reader = hold_read_transaction(&folder.join("db"));
    let taken_over = usize::try_from(fs::metadata(folder.join("db-wal")).unwrap().len()).unwrap();
    append(&store, "s", 0, numbered_entries(0..2));
    append(&store, "s", 2, numbered_entries(2..5));
    // Copied while it is open, and so without a clean shutdown.
    fs::copy(folder.join("db"), folder.join("copy")).unwrap();
    fs::copy(folder.join("db-wal"), folder.join("copy-wal")).unwrap();
    let log = fs::read(folder.join("copy-wal")).unwrap();
    let copy = SqliteStore::open(folder.join("copy")).unwrap();
    assert_eq!(block_on(copy.load("s", 0)).unwrap(), Some(numbered_entries(0..5)));
    drop(copy);

    // The log truncated at any byte: the entries before the last append, or all of it, or fewer.
    for cut in (taken_over..log.len()).step_by(509) {
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

/// Prevents checkpoints: entries that are written while another connection reads stay in the log.
fn hold_read_transaction(path: &Path) -> Connection {
    let reader = Connection::open(path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM session").unwrap();
    reader
}

/// Copies the database file without its log, as a user might.
#[track_caller]
fn assert_copy_contains(folder: &TempFolder, expected: &[Entry]) {
    let path = folder.join("copied alone");
    fs::copy(folder.join("db"), &path).unwrap();
    let copy = SqliteStore::open(&path).unwrap();
    assert_eq!(block_on(copy.load("s", 0)).unwrap().unwrap_or_default(), expected);
}

#[test]
fn a_copy_of_the_database_file_alone_has_every_acknowledged_append() {
    let folder = TempFolder::new();
    let store = SqliteStore::open(folder.join("db")).unwrap();
    for version in 0..5 {
        append(&store, "s", version, numbered_entries(version..version + 1));
        assert_copy_contains(&folder, &numbered_entries(0..version + 1));
    }
    block_on(store.fork("s", 2, "f")).unwrap();
    assert_copy_contains(&folder, &numbered_entries(0..5));
    // Another database at this path would not find a log to replay.
    assert_eq!(fs::metadata(folder.join("db-wal")).unwrap().len(), 0);
}

#[tokio::test]
async fn dropping_the_last_store_closes_the_database_and_leaves_no_wal() {
    let folder = TempFolder::new();
    let store = SqliteStore::open(folder.join("db")).unwrap();
    let reads = hold_read_transaction(&folder.join("db"));
    store.append("s", 0, numbered_entries(0..3)).await.unwrap();
    assert!(fs::metadata(folder.join("db-wal")).unwrap().len() > 0);
    drop(reads);
    // Inside a runtime, as most programs do.
    let other = store.clone();
    drop(store);
    assert!(folder.join("db-wal").exists());
    drop(other);
    assert!(!folder.join("db-wal").exists() && !folder.join("db-shm").exists());
    assert_copy_contains(&folder, &numbered_entries(0..3));
}

#[test]
fn a_drop_with_another_open_connection_leaves_a_self_contained_file() {
    let folder = TempFolder::new();
    let store = SqliteStore::open(folder.join("db")).unwrap();
    let other = Connection::open(folder.join("db")).unwrap();
    let _: i64 = other.query_row("SELECT count(*) FROM session", (), |row| row.get(0)).unwrap();
    let reads = hold_read_transaction(&folder.join("db"));
    append(&store, "s", 0, numbered_entries(0..3));
    drop(reads);
    drop(store);
    assert_copy_contains(&folder, &numbered_entries(0..3));
    drop(other);
}

/// Modifies the files of an open database that has a session of three entries.
#[track_caller]
fn assert_conflict_after_change(take: impl FnOnce(&TempFolder), found: u64) {
    let folder = TempFolder::new();
    let in_folder = TempFolder::new();
    fs::rename(in_folder.path(), folder.join("in")).unwrap();
    let path = folder.join("in/db");
    let store = SqliteStore::open(&path).unwrap();
    append(&store, "s", 0, numbered_entries(0..3));
    take(&folder);
    let there = |path: &Path| fs::metadata(path).map(|there| there.len()).ok();
    let before = there(&path);
    // The entries of the removed file are not returned.
    let loaded = block_on(store.load("s", 0)).unwrap();
    assert_eq!(loaded.map_or(0, |entries| entries.len() as u64), found);
    assert_eq!(block_on(store.list()).unwrap().len(), usize::from(found > 0));
    let error = block_on(store.append("s", 3, numbered_entries(3..4))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(
        error.find_source::<Conflict>(),
        Some(&Conflict { id: "s".into(), expected: 3, found })
    );
    assert_eq!(there(&path), before, "nothing was made");
    // From then on, the file at the path is used.
    assert_eq!(append(&store, "s", found, numbered_entries(found..5)), 5);
    drop(store);
    let again = SqliteStore::open(&path).unwrap();
    assert_eq!(block_on(again.load("s", 0)).unwrap(), Some(numbered_entries(0..5)));
}

/// Another database, with two entries of the same session.
fn create_other_database(path: &Path) {
    append(&SqliteStore::open(path).unwrap(), "s", 0, numbered_entries(0..2));
}

#[cfg(unix)]
#[test]
fn an_append_after_the_file_was_removed_or_replaced_is_a_conflict() {
    assert_conflict_after_change(|folder| fs::remove_file(folder.join("in/db")).unwrap(), 0);
    let remove_all = |folder: &TempFolder| {
        for name in ["in/db", "in/db-wal", "in/db-shm"] {
            fs::remove_file(folder.join(name)).unwrap();
        }
    };
    assert_conflict_after_change(remove_all, 0);
    assert_conflict_after_change(
        |folder| fs::rename(folder.join("in/db"), folder.join("x")).unwrap(),
        0,
    );
    let replace = |folder: &TempFolder| {
        create_other_database(&folder.join("x"));
        fs::rename(folder.join("x"), folder.join("in/db")).unwrap();
    };
    assert_conflict_after_change(replace, 2);
    let link = |folder: &TempFolder| {
        create_other_database(&folder.join("x"));
        fs::remove_file(folder.join("in/db")).unwrap();
        std::os::unix::fs::symlink(folder.join("x"), folder.join("in/db")).unwrap();
    };
    assert_conflict_after_change(link, 2);
    let replace_folder = |folder: &TempFolder| {
        fs::rename(folder.join("in"), folder.join("was")).unwrap();
        fs::create_dir(folder.join("in")).unwrap();
        create_other_database(&folder.join("in/db"));
    };
    assert_conflict_after_change(replace_folder, 2);
}

/// Other programs that open the file see neither the removed log nor its locks.
#[cfg(unix)]
#[test]
fn an_append_after_the_wal_was_removed_is_visible_to_others() {
    for gone in [&["db-wal"][..], &["db-shm"], &["db-wal", "db-shm"]] {
        let folder = TempFolder::new();
        let store = SqliteStore::open(folder.join("db")).unwrap();
        append(&store, "s", 0, numbered_entries(0..3));
        for name in gone {
            fs::remove_file(folder.join(name)).unwrap();
        }
        let other = SqliteStore::open(folder.join("db")).unwrap();
        append(&other, "s", 3, numbered_entries(3..4));
        let error = block_on(store.append("s", 3, numbered_entries(9..10))).unwrap_err();
        assert_eq!(
            error.find_source::<Conflict>().map(|conflict| conflict.found),
            Some(4),
            "{gone:?}"
        );
        append(&store, "s", 4, numbered_entries(4..5));
        assert_eq!(block_on(other.load("s", 0)).unwrap(), Some(numbered_entries(0..5)));
    }
}

#[test]
fn a_file_copied_over_the_database_is_used_from_the_next_call() {
    let folder = TempFolder::new();
    let (path, backup) = (folder.join("db"), folder.join("backup"));
    let store = SqliteStore::open(&path).unwrap();
    append(&store, "s", 0, numbered_entries(0..2));
    fs::copy(&path, &backup).unwrap();
    // Many pages, some of which stay in the connection's cache.
    for version in (2..60).step_by(2) {
        let text = "x".repeat(3000);
        append(&store, "s", version, vec![text_entry(&text), text_entry(&text)]);
    }
    // The same file with another text.
    fs::write(&path, fs::read(&backup).unwrap()).unwrap();
    let error = block_on(store.append("s", 60, numbered_entries(9..10))).unwrap_err();
    assert_eq!(error.find_source::<Conflict>().map(|conflict| conflict.found), Some(2), "{error}");
    assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(numbered_entries(0..2)));
    assert_eq!(append(&store, "s", 2, numbered_entries(2..3)), 3);
    drop(store);
    let check: String = Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let again = SqliteStore::open(&path).unwrap();
    assert_eq!(block_on(again.load("s", 0)).unwrap(), Some(numbered_entries(0..3)));
}

#[cfg(unix)]
#[test]
fn a_foreign_file_at_the_path_is_an_error_and_unchanged() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    let store = SqliteStore::open(&path).unwrap();
    append(&store, "s", 0, numbered_entries(0..1));
    fs::rename(&path, folder.join("kept")).unwrap();
    fs::create_dir(&path).unwrap();
    for error in [
        block_on(store.append("s", 1, numbered_entries(1..2))).unwrap_err(),
        block_on(store.load("s", 0)).unwrap_err(),
        SqliteStore::open(&path).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.message().ends_with("db` is not a file"), "{error}");
    }
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "my notes ".repeat(1000)).unwrap();
    assert_eq!(
        block_on(store.append("s", 1, numbered_entries(1..2))).unwrap_err().kind(),
        ErrorKind::Store
    );
    assert_eq!(fs::read(&path).unwrap(), "my notes ".repeat(1000).into_bytes());
    // The first file is restored.
    fs::rename(folder.join("kept"), &path).unwrap();
    assert_eq!(append(&store, "s", 1, numbered_entries(1..2)), 2);
}

/// Removes the file when the time is read, which is in the middle of an append.
#[cfg(unix)]
#[test]
fn a_file_removed_during_an_append_is_a_conflict() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    append(&SqliteStore::open(&path).unwrap(), "s", 0, numbered_entries(0..3));
    let store = SqliteStore::open(&path).unwrap().with_clock(FileRemovingClock(path));
    let error = block_on(store.append("s", 3, numbered_entries(3..4))).unwrap_err();
    assert_eq!(error.find_source::<Conflict>().map(|conflict| conflict.found), Some(0), "{error}");

    let path = folder.join("other");
    append(&SqliteStore::open(&path).unwrap(), "s", 0, numbered_entries(0..3));
    let store = SqliteStore::open(&path).unwrap().with_clock(FileRemovingClock(path));
    let error = block_on(store.fork("s", 1, "f")).unwrap_err();
    assert_eq!(error.message(), "the database was replaced while it was written");
}

#[test]
fn two_stores_on_one_file_see_each_others_appends() {
    let folder = TempFolder::new();
    let one = SqliteStore::open(folder.join("db")).unwrap();
    let two = SqliteStore::open(folder.join("db")).unwrap();
    append(&one, "s", 0, numbered_entries(0..1));
    append(&two, "s", 1, numbered_entries(1..3));
    let error = block_on(one.append("s", 1, numbered_entries(9..10))).unwrap_err();
    assert_eq!(error.find_source::<Conflict>().unwrap().found, 3);
    append(&one, "s", 3, numbered_entries(3..4));
    assert_eq!(block_on(two.load("s", 0)).unwrap(), Some(numbered_entries(0..4)));
}

#[test]
fn a_missing_file_can_be_created_concurrently() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    std::thread::scope(|scope| {
        let open = || scope.spawn(|| SqliteStore::open(&path).unwrap());
        let opening: Vec<_> = (0..8).map(|_| open()).collect();
        let stores: Vec<_> = opening.into_iter().map(|store| store.join().unwrap()).collect();
        for (version, store) in (0..).zip(&stores) {
            append(store, "s", version, numbered_entries(version..version + 1));
        }
        assert_eq!(block_on(stores[0].load("s", 0)).unwrap(), Some(numbered_entries(0..8)));
    });
}

#[track_caller]
fn assert_open_rejected(path: &Path, reason: &str) {
    let before = fs::read(path).unwrap();
    let error = SqliteStore::open(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.message().contains(reason), "{error}");
    assert!(fs::read(path).unwrap() == before);
}

#[test]
fn a_foreign_database_is_rejected_and_unchanged() {
    let folder = TempFolder::new();
    let notes = folder.join("notes");
    fs::write(&notes, "my notes ".repeat(1000)).unwrap();
    assert_open_rejected(&notes, "not a database");
    let other = folder.join("other");
    execute_sql(&other, "CREATE TABLE session (id TEXT); INSERT INTO session VALUES ('x')");
    assert_open_rejected(&other, "it contains something other than sessions");
    let numbered = folder.join("numbered");
    execute_sql(&numbered, "PRAGMA user_version = 1");
    assert_open_rejected(&numbered, "it contains something other than sessions");
    fs::create_dir(folder.join("folder")).unwrap();
    assert_eq!(SqliteStore::open(folder.path()).unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(SqliteStore::open("").unwrap_err().kind(), ErrorKind::Store);
    let nowhere = folder.join("no/such/folder");
    assert_eq!(SqliteStore::open(nowhere).unwrap_err().kind(), ErrorKind::Store);
}

#[test]
fn a_later_schema_version_is_rejected() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    drop(SqliteStore::open(&path).unwrap());
    execute_sql(&path, "PRAGMA user_version = 99");
    assert_open_rejected(&path, "it has format 99; this version reads up to 1");
}

#[test]
fn file_names_special_to_sqlite_are_ordinary_files() {
    let folder = TempFolder::new();
    for name in ["file:x?mode=memory", ":memory:", "a'b\"c"] {
        let store = SqliteStore::open(folder.join(name)).unwrap();
        append(&store, "s", 0, numbered_entries(0..1));
        drop(store);
        assert!(folder.join(name).exists(), "{name}");
    }
}

#[test]
fn a_missing_or_corrupt_entry_is_an_error_that_names_it() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    let store = SqliteStore::open(&path).unwrap();
    append(&store, "s", 0, numbered_entries(0..3));
    let check = |change: &str, reason: &str| {
        execute_sql(&path, change);
        let error = block_on(store.load("s", 0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.message().contains(reason), "{error}");
        assert_eq!(block_on(store.load("s", 2)).unwrap(), Some(numbered_entries(2..3)));
    };
    let tomorrow = r#"UPDATE entry SET json = '{"type":"of tomorrow"}' WHERE number = 1"#;
    check(tomorrow, "entry 1 of the session `s` cannot be read");
    check("DELETE FROM entry WHERE number = 1", "entry 1 of the session `s` is missing");
}

#[cfg(unix)]
#[test]
fn a_new_database_and_wal_are_private_and_existing_files_keep_their_mode() {
    let folder = TempFolder::new();
    let modes = |store: &SqliteStore, name: &str, version| {
        append(store, "s", version, numbered_entries(version..version + 1));
        ["", "-wal", "-shm"].map(|ending| file_mode(&folder.join(&format!("{name}{ending}"))))
    };
    let store = SqliteStore::open(folder.join("db")).unwrap();
    assert_eq!(modes(&store, "db", 0), [0o600; 3]);
    drop(store);
    set_file_mode(&folder.join("db"), 0o640);
    assert_eq!(modes(&SqliteStore::open(folder.join("db")).unwrap(), "db", 1), [0o640; 3]);
    // Also if a link leads to a file that does not exist.
    std::os::unix::fs::symlink("target", folder.join("link")).unwrap();
    let store = SqliteStore::open(folder.join("link")).unwrap();
    append(&store, "s", 0, numbered_entries(0..1));
    assert_eq!(file_mode(&folder.join("target")), 0o600);
}

#[test]
fn a_damaged_page_or_row_does_not_hide_the_other_sessions() {
    let folder = TempFolder::new();
    let path = folder.join("db");
    {
        let store = SqliteStore::open(&path).unwrap();
        for n in 0..300 {
            append(&store, &format!("session number {n}"), 0, numbered_entries(0..1));
        }
    }
    execute_sql(&path, "UPDATE session SET id = CAST(x'ff' AS TEXT) WHERE id = 'session number 7'");
    let list = || {
        let listed = block_on(SqliteStore::open(&path).unwrap().list()).unwrap();
        assert_eq!(listed.len(), 300);
        let unreadable: Vec<String> = listed
            .into_iter()
            .filter_map(|info| info.read_error.is_some().then_some(info.id))
            .collect();
        unreadable
    };
    assert_eq!(list(), ["\u{fffd}"]);

    // A page of the table whose type is wrong. The ids are also in the index.
    let mut bytes = fs::read(&path).unwrap();
    let size = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let text = b"session number 150";
    let page = bytes
        .chunks_mut(size)
        .find(|page| page[0] == 13 && page.windows(text.len()).any(|found| found == text));
    page.unwrap()[0] = 99;
    fs::write(&path, bytes).unwrap();
    let unreadable = list();
    assert!(unreadable.contains(&"session number 150".to_owned()));
    assert!(unreadable.len() < 200, "{}", unreadable.len());
}
