//! Session entries, and files of JSON lines.

use std::fmt::Write as _;
use std::{env, fs, process};

use futures::executor::block_on;
use turnstream::session::{Entry, JsonLinesStore, Store};
use turnstream_testing::session_suite::{entries_of_every_kind, numbered_entries};

use crate::{assert_written, stored};

#[test]
fn every_kind_of_session_entry_is_written_in_its_stored_format() {
    let mut text = String::new();
    for entry in entries_of_every_kind() {
        writeln!(text, "{}", serde_json::to_string(&entry).unwrap()).unwrap();
    }
    assert_written("session_entries.jsonl", &text);
}

#[test]
fn stored_session_entries_are_read() {
    let text = stored("session_entries.jsonl");
    let entries: Vec<Entry> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries, entries_of_every_kind());
}

#[test]
fn a_session_file_and_the_file_of_its_fork_are_written_in_their_stored_format() {
    let folder = env::temp_dir().join(format!("turnstream-written-{}", process::id()));
    let store = JsonLinesStore::open(&folder).unwrap();
    block_on(store.append("session", 0, numbered_entries(0..1))).unwrap();
    block_on(store.append("session", 1, entries_of_every_kind())).unwrap();
    block_on(store.fork("session", 1, "session_fork")).unwrap();
    block_on(store.append("session_fork", 1, numbered_entries(1..2))).unwrap();
    let [session, fork] = ["session", "session_fork"]
        .map(|id| fs::read_to_string(folder.join(format!("{id}.jsonl"))).unwrap());
    fs::remove_dir_all(&folder).unwrap();
    assert_written("session.jsonl", &session);
    assert_written("session_fork.jsonl", &fork);
}

#[test]
fn stored_session_files_are_read_and_continued() {
    let folder = env::temp_dir().join(format!("turnstream-read-{}", process::id()));
    let store = JsonLinesStore::open(&folder).unwrap();
    for id in ["session", "session_fork"] {
        let name = format!("{id}.jsonl");
        fs::write(folder.join(&name), stored(&name)).unwrap();
    }
    let entries = [numbered_entries(0..1), entries_of_every_kind()].concat();
    assert_eq!(block_on(store.load("session", 0)).unwrap().as_ref(), Some(&entries));
    assert_eq!(block_on(store.load("session_fork", 0)).unwrap(), Some(numbered_entries(0..2)));
    let version = entries.len() as u64;
    let next = block_on(store.append("session", version, numbered_entries(9..10)));
    assert_eq!(next.unwrap(), version + 1);
    fs::remove_dir_all(&folder).unwrap();
}
