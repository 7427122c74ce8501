//! The entries that can be read from a damaged session.

use std::fs;

use futures::executor::block_on;
use turnstream::session::{JsonLinesStore, MemoryStore, SalvageReport, Session, Store};
use turnstream_test_support::store_suite::assert_damage;
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_testing::session_suite::{numbered_entries, text_entry as said};

use super::damage::{check_every_byte_change, write_sample_session};

fn salvage(folder: &TempFolder, id: &str) -> SalvageReport {
    let store = JsonLinesStore::open(folder.path()).unwrap();
    block_on(store.salvage(id)).unwrap().unwrap()
}

/// Replaces a text in the file of a session.
#[track_caller]
fn replace_in_file(folder: &TempFolder, name: &str, from: &str, to: &str) {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(folder.join(name), text.replacen(from, to, 1)).unwrap();
}

#[test]
fn an_undamaged_session_is_salvaged_completely() {
    let folder = TempFolder::new();
    write_sample_session(&folder, "s");
    let store = JsonLinesStore::open(folder.path()).unwrap();
    block_on(store.fork("s", 11, "f")).unwrap();
    block_on(store.append("f", 11, numbered_entries(20..22))).unwrap();
    block_on(store.fork("f", 5, "g")).unwrap();
    for id in ["s", "f", "g"] {
        let salvaged = salvage(&folder, id);
        assert_eq!(Some(salvaged.entries), block_on(store.load(id, 0)).unwrap());
        assert_eq!(salvaged.damage, []);
    }
    assert_eq!(block_on(store.salvage("never")).unwrap(), None);
}

#[test]
fn an_append_with_a_wrong_checksum_is_lost_and_its_lines_are_reported() {
    let folder = TempFolder::new();
    let all = write_sample_session(&folder, "s");
    replace_in_file(&folder, "s.jsonl", r#""content":"6""#, r#""content":"9""#);
    let before = fs::read(folder.join("s.jsonl")).unwrap();
    let SalvageReport { entries, damage, .. } = salvage(&folder, "s");
    assert_eq!(entries, [&all[..12], &all[15..]].concat());
    let [damage] = &damage[..] else { panic!("{damage:?}") };
    let what = ("s.jsonl`, lines 17 to 20", "lines 18 to 20 of the session are broken");
    assert_damage(damage, 12, what, Some(3), &[said("5"), said("9"), said("7")]);
    assert_eq!(fs::read(folder.join("s.jsonl")).unwrap(), before);

    // Into a new session, which can continue.
    let store = MemoryStore::new();
    block_on(store.append("saved", 0, entries.clone())).unwrap();
    let session = block_on(Session::open(store, "saved")).unwrap();
    assert_eq!(session.version(), entries.len() as u64);
    assert!(session.history().settled().is_settled());
}

#[test]
fn changing_any_byte_loses_at_most_one_append() {
    let folder = TempFolder::new();
    let all = write_sample_session(&folder, "s");
    let whole = fs::read(folder.join("s.jsonl")).unwrap();
    let appends = [0..2, 2..11, 11..12, 12..15, 15..16];
    check_every_byte_change(&folder, &whole, |store, change| {
        let salvaged = block_on(store.salvage("s")).unwrap().unwrap();
        assert!(!salvaged.damage.is_empty(), "at {change}");
        let is_rest = |lost: std::ops::Range<usize>| {
            salvaged.entries == [&all[..lost.start], &all[lost.end..]].concat()
        };
        let one = appends.iter().any(|lost| is_rest(lost.clone()));
        assert!(is_rest(0..0) || one, "at {change}: {salvaged:?}");
        // The reported losses equal the missing entries.
        let lost: Option<u64> = salvaged.damage.iter().map(|damage| damage.lost_entries).sum();
        let missing = (all.len() - salvaged.entries.len()) as u64;
        assert!(lost.is_none_or(|lost| lost == missing), "at {change}: {salvaged:?}");
    });
}

#[test]
fn removed_appends_are_reported() {
    let folder = TempFolder::new();
    let all = write_sample_session(&folder, "s");
    let text = fs::read_to_string(folder.join("s.jsonl")).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    fs::write(folder.join("s.jsonl"), [&lines[..14], &lines[16..]].concat().concat()).unwrap();
    let SalvageReport { entries, damage, .. } = salvage(&folder, "s");
    assert_eq!(entries, [&all[..11], &all[12..]].concat());
    assert_eq!(damage.len(), 1);
    assert_damage(&damage[0], 11, ("line 15", "something before it is missing"), None, &[]);
}

#[test]
fn a_truncated_append_is_reported() {
    let folder = TempFolder::new();
    let all = write_sample_session(&folder, "s");
    let text = fs::read_to_string(folder.join("s.jsonl")).unwrap();
    fs::write(folder.join("s.jsonl"), &text[..text.len() - 5]).unwrap();
    let SalvageReport { entries, damage, .. } = salvage(&folder, "s");
    assert_eq!(entries, all[..15]);
    assert_eq!(damage.len(), 1);
    assert_damage(&damage[0], 15, ("lines 21 to 22", "it was truncated"), Some(1), &[]);
}

#[test]
fn a_fork_is_salvaged_with_the_intact_entries_of_its_origin() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    for n in 0..4 {
        block_on(store.append("s", n, numbered_entries(n..n + 1))).unwrap();
    }
    block_on(store.fork("s", 3, "f")).unwrap();
    block_on(store.append("f", 3, numbered_entries(3..4))).unwrap();
    replace_in_file(&folder, "s.jsonl", r#""content":"1""#, r#""content":"9""#);
    let SalvageReport { entries, damage, .. } = salvage(&folder, "f");
    // The fourth entry of the origin must not replace the lost one.
    assert_eq!(entries, [numbered_entries(0..1), numbered_entries(2..4)].concat());
    assert_eq!(damage.len(), 1);
    assert_damage(&damage[0], 1, ("s.jsonl`, lines 4 to 5", "broken"), Some(1), &[said("9")]);

    fs::remove_file(folder.join("s.jsonl")).unwrap();
    let SalvageReport { entries, damage, .. } = salvage(&folder, "f");
    assert_eq!(entries, numbered_entries(3..4));
    assert_damage(&damage[0], 0, ("s.jsonl`", "is missing"), Some(3), &[]);
}

#[test]
fn a_file_without_any_session_line_is_rejected() {
    let folder = TempFolder::new();
    fs::write(folder.join("notes.jsonl"), "my notes\nand more\n").unwrap();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    let error = block_on(store.salvage("notes")).unwrap_err();
    assert!(error.message().contains("does not begin with a header"), "{error}");
}
