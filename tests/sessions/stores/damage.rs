//! JSON Lines files whose bytes were changed after they were written.

use std::fs;
use std::io::{Seek, SeekFrom, Write as _};
use std::time::Duration;

use futures::executor::block_on;
use serde_json::Value;
use turnstream::ErrorKind;
use turnstream::session::{Entry, JsonLinesStore, Store};
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_testing::session_suite::{
    entries_of_every_kind, numbered_entries, text_entry as said,
};

use turnstream_test_support::cases::sample_step;

/// Appends several entries and single entries, and ends with one of each.
pub(super) fn write_sample_session(folder: &TempFolder, id: &str) -> Vec<Entry> {
    let store = JsonLinesStore::open(folder.path()).unwrap();
    let mut all = Vec::new();
    // The positions that these tests name were chosen for nine kinds.
    let is_counted = |entry: &Entry| {
        !matches!(
            entry,
            Entry::Appended { .. } | Entry::GrantAdded { .. } | Entry::GrantRevoked { .. }
        )
    };
    let appends = [
        numbered_entries(0..2),
        entries_of_every_kind().into_iter().filter(is_counted).collect(),
        vec![said("1 + 1 = 2\n\"ü😀\"")],
        numbered_entries(5..8),
    ];
    for entries in appends.into_iter().chain([numbered_entries(8..9)]) {
        let version = all.len() as u64;
        all.extend(entries.clone());
        block_on(store.append(id, version, entries)).unwrap();
    }
    all
}

/// The mutations of the byte at a position: one for each bit, a line end, a digit, and in turn a
/// character with a meaning in JSON.
fn byte_mutations(byte: u8, at: usize) -> impl Iterator<Item = u8> {
    let in_turn = |bytes: &[u8]| bytes[at % bytes.len()];
    let others =
        [byte ^ 1 << (at % 8), b'\n', in_turn(b"0123456789"), in_turn(b"\0 }\",:{[a\r\xff")];
    others.into_iter().filter(move |other| *other != byte)
}

/// The step of the positions that are changed by default. It shares no factor with the lengths of
/// the lists of mutations.
const POSITION_STEP: usize = 7;

/// Changes every byte of session `s`'s file, or those of a sample. Returns the number of changes.
#[track_caller]
pub(super) fn check_every_byte_change(
    folder: &TempFolder,
    whole: &[u8],
    check: impl Fn(&JsonLinesStore, &str),
) -> u32 {
    let path = folder.join("s.jsonl");
    fs::write(&path, whole).unwrap();
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    let mut change = |at: usize, byte: u8| {
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[byte]).unwrap();
    };
    let store = JsonLinesStore::open(folder.path()).unwrap();
    let mut changes = 0;
    for (at, &was) in whole.iter().enumerate().step_by(sample_step(POSITION_STEP)) {
        for byte in byte_mutations(was, at) {
            change(at, byte);
            check(&store, &format!("{at}: {:?} for {:?}", byte as char, was as char));
            changes += 1;
        }
        change(at, was);
    }
    assert!(fs::read(&path).unwrap() == whole, "it was written to");
    changes
}

/// Checks that reads return the same as before, or an error that names the file. Also for reads
/// from the middle, and for an append, which reads the file first.
#[track_caller]
fn assert_no_silent_change(folder: &TempFolder, all: &[Entry]) -> u32 {
    let whole = fs::read(folder.join("s.jsonl")).unwrap();
    check_every_byte_change(folder, &whole, |store, change| {
        let version = all.len() as u64;
        let last = usize::try_from(version - 1).unwrap();
        for from in [0, last] {
            match block_on(store.load("s", from as u64)) {
                Ok(Some(found)) => assert!(found == all[from..], "silent at {change}"),
                Ok(None) => panic!("lost at {change}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Store, "{change}");
                    assert!(error.message().contains("s.jsonl"), "{change}: {error}");
                }
            }
        }
    })
}

#[test]
fn changing_any_byte_of_a_session_file_is_detected_or_harmless() {
    let folder = TempFolder::new();
    let all = write_sample_session(&folder, "s");
    let changes = assert_no_silent_change(&folder, &all);
    assert!(changes as usize > 6_000 / sample_step(POSITION_STEP), "{changes}");
}

#[test]
fn changing_any_byte_of_a_forks_file_is_detected_or_harmless() {
    let folder = TempFolder::new();
    let all = write_sample_session(&folder, "t");
    // So that a damaged header could name another session.
    fs::copy(folder.join("t.jsonl"), folder.join("u.jsonl")).unwrap();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    block_on(store.fork("t", 11, "s")).unwrap();
    assert_no_silent_change(&folder, &all[..11]);
    block_on(store.append("s", 11, numbered_entries(5..6))).unwrap();
    assert_no_silent_change(&folder, &[&all[..11], &numbered_entries(5..6)].concat());
}

/// Changes the text of the file as a person would. Checks that all readers refuse it for this
/// reason.
#[track_caller]
fn assert_change_rejected(change: impl FnOnce(&str) -> String, reason: &str) {
    let folder = TempFolder::new();
    write_sample_session(&folder, "s");
    let path = folder.join("s.jsonl");
    let before = fs::read_to_string(&path).unwrap();
    let text = change(&before);
    assert_ne!(text, before);
    fs::write(&path, &text).unwrap();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    for error in [
        block_on(store.load("s", 0)).unwrap_err(),
        block_on(store.append("s", 16, numbered_entries(0..1))).unwrap_err(),
        block_on(store.append("s", 15, numbered_entries(0..1))).unwrap_err(),
        block_on(store.fork("s", 0, "f")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(error.message().contains(reason), "{error}");
        assert!(error.message().contains("s.jsonl"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_complete_append_with_a_wrong_checksum_is_reported_with_its_lines() {
    // The last entry, and one of an append of several entries.
    let last = |text: &str| text.replace(r#""content":"8""#, r#""content":"9""#);
    assert_change_rejected(last, "line 22 of the session is broken: the checksum is wrong");
    let middle = |text: &str| text.replace(r#""content":"6""#, r#""content":"9""#);
    assert_change_rejected(
        middle,
        "lines 18 to 20 of the session are broken: the checksum is wrong",
    );
}

#[test]
fn an_unparsable_last_line_with_lf_is_corruption() {
    for broken in ["{\"type\":\"us\0\0\0\0\0\0\0\0\n", "\n", "{}}\n", "{\"type\":\"app\n"] {
        assert_change_rejected(
            |text| format!("{text}{broken}"),
            "line 23 of the session is broken",
        );
    }
}

#[test]
fn a_tail_that_is_not_a_line_prefix_is_corruption() {
    for end in ["\0\0\0\0", "garbage", "{\"type\":\"append\"} ", "{\"type\":\"append\"}9"] {
        assert_change_rejected(|text| format!("{text}{end}"), "line 23 of the session is broken");
    }
}

#[test]
fn a_line_without_a_checksum_after_checked_lines_is_corruption() {
    let line = "{\"type\":\"user\",\"content\":\"x\"}\n";
    assert_change_rejected(|text| format!("{text}{line}"), "line 23 of the session is broken");
    let several = format!("{{\"type\":\"append\",\"entries\":2}}\n{line}{line}");
    assert_change_rejected(|text| format!("{text}{several}"), "line 23 of the session is broken");
}

#[test]
fn removed_or_inserted_bytes_and_appends_are_corruption() {
    let lines = |text: &str| text.lines().map(|line| format!("{line}\n")).collect::<Vec<_>>();
    // Remove a character of the last entry: the file must not be taken for one that a crash has
    // truncated.
    let check = |change: fn(&[String]) -> Vec<String>, reason| {
        assert_change_rejected(|text| change(&lines(text)).concat(), reason);
    };
    let shorter = |text: &str| text.replace(r#""content":"8""#, r#""content":"""#);
    assert_change_rejected(shorter, "line 22 of the session is broken: bytes are missing");
    let longer = |text: &str| text.replace(r#""content":"8""#, r#""content":"80""#);
    assert_change_rejected(longer, "line 22 of the session is broken: the checksum is wrong");
    // Remove the append of lines 15 and 16, or repeat it.
    check(
        |lines| [&lines[..14], &lines[16..]].concat(),
        "line 15 of the session is broken: the checksum of the file up to that point is wrong",
    );
    check(
        |lines| [&lines[..16], &lines[14..16], &lines[16..]].concat(),
        "line 17 of the session is broken: the checksum of the file up to that point is wrong",
    );
}

#[test]
fn lines_removed_from_an_append_before_the_last_are_corruption() {
    let folder = TempFolder::new();
    let path = folder.join("s.jsonl");
    let write = || {
        let _ = fs::remove_file(&path);
        let store = JsonLinesStore::open(folder.path()).unwrap();
        for (version, entries) in
            [(0, numbered_entries(0..1)), (1, numbered_entries(1..7)), (7, numbered_entries(7..8))]
        {
            block_on(store.append("s", version, entries)).unwrap();
        }
        fs::read_to_string(&path).unwrap()
    };
    let text = write();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // The removed bytes may be followed by as many others.
    let reason = "lines 5 to 10 of the session are broken: ";
    // Remove some of lines 5 to 10, which have six entries.
    for (from, until) in [(4, 7), (4, 10), (5, 10), (7, 10), (6, 9)] {
        // Also if the append that follows is truncated, and if its line does not start at the
        // beginning of a line.
        let rest = lines[until..].concat();
        for rest in [&rest[..], rest.trim_end(), &rest[..rest.len() - 30], &rest[1..]] {
            let damaged = lines[..from].concat() + rest;
            fs::write(&path, &damaged).unwrap();
            let store = JsonLinesStore::open(folder.path()).unwrap();
            for error in [
                block_on(store.load("s", 0)).unwrap_err(),
                block_on(store.append("s", 1, numbered_entries(1..2))).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Store);
                assert!(error.message().contains(reason), "{error}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
        }
    }
}

/// A file without its last byte continues as if the byte existed.
#[track_caller]
fn assert_missing_final_lf_harmless(folder: &TempFolder, id: &str, all: &[Entry]) {
    let path = folder.join(&format!("{id}.jsonl"));
    let whole = fs::read_to_string(&path).unwrap();
    let version = all.len() as u64;
    let next = numbered_entries(version..version + 1);
    let store = JsonLinesStore::open(folder.path()).unwrap();
    block_on(store.append(id, version, next.clone())).unwrap();
    let then = fs::read_to_string(&path).unwrap();
    // Also for a store that has read the complete file.
    for store in [store, JsonLinesStore::open(folder.path()).unwrap()] {
        fs::write(&path, whole.strip_suffix('\n').unwrap()).unwrap();
        assert_eq!(block_on(store.load(id, 0)).unwrap().as_deref(), Some(all));
        assert_eq!(block_on(store.salvage(id)).unwrap().unwrap().damage, []);
        let error = block_on(store.append(id, version + 1, next.clone())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        block_on(store.append(id, version, next.clone())).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), then);
        // The cached state of the file is correct.
        block_on(store.append(id, version + 1, next.clone())).unwrap();
        let found = block_on(store.load(id, version)).unwrap().unwrap();
        assert_eq!(found, [&next[..], &next[..]].concat());
    }
}

#[test]
fn an_append_without_its_final_lf_is_complete_and_the_next_one_adds_it() {
    let folder = TempFolder::new();
    let all = write_sample_session(&folder, "s");
    let store = JsonLinesStore::open(folder.path()).unwrap();
    block_on(store.fork("s", 3, "f")).unwrap();
    assert_missing_final_lf_harmless(&folder, "f", &all[..3]);
    assert_missing_final_lf_harmless(&folder, "s", &all);
}

#[test]
fn an_unterminated_line_that_is_not_part_of_an_append_is_corruption() {
    for line in [r#"{"type":"user","content":"x"}"#, r#"{"type":"user","#, r#"{"type":"append_"#] {
        let reason = "line 23 of the session is broken: it does not end where it should";
        assert_change_rejected(|text| format!("{text}{line}"), reason);
    }
}

#[test]
fn crlf_line_ends_and_trailing_nuls_are_corruption() {
    assert_change_rejected(|text| text.replace('\n', "\r\n"), "of the session is broken");
    let nuls = "\0".repeat(100);
    assert_change_rejected(|text| format!("{text}{nuls}"), "line 23 of the session is broken");
}

#[test]
fn every_line_of_a_session_file_is_a_json_object_with_a_type() {
    let folder = TempFolder::new();
    let all = write_sample_session(&folder, "s");
    let text = fs::read_to_string(folder.join("s.jsonl")).unwrap();
    let kind = |line: &str| serde_json::from_str::<Value>(line).unwrap()["type"].clone();
    // Readers of entries skip the lines of the file itself.
    let entries = text.lines().filter(|line| kind(line) != "session" && kind(line) != "append");
    let entries: Vec<Entry> = entries.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries, all);
}

#[test]
fn damaged_sessions_are_listed_with_their_error_beside_the_whole_ones() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    let long = "long ".repeat(100);
    for id in ["whole", "entry", "header", "first byte", &long] {
        block_on(store.append(id, 0, numbered_entries(0..2))).unwrap();
    }
    let change = |name: &str, from: &str, to: &str| {
        let path = folder.join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    change("entry.jsonl", "user", "uses");
    change("header.jsonl", "header\"", "heeder\"");
    change("first%20byte.jsonl", "{", "[");
    let long_name = fs::read_dir(folder.path()).unwrap().find_map(|file| {
        let name = file.unwrap().file_name().into_string().unwrap();
        name.contains('~').then_some(name)
    });
    change(&long_name.unwrap(), "user", "uses");

    // Another store has not cached any file.
    for store in [&store, &JsonLinesStore::open(folder.path()).unwrap()] {
        let listed = block_on(store.list()).unwrap();
        let mut listed: Vec<_> = listed
            .into_iter()
            .map(|info| (info.id, info.version, info.read_error.unwrap_or_default()))
            .collect();
        listed.sort_unstable();
        let ids: Vec<&str> = listed.iter().map(|(id, ..)| &**id).collect();
        assert_eq!(ids, ["entry", "first byte", "header", &*long, "whole"]);
        for (id, version, error) in &listed {
            match &**id {
                "whole" => assert_eq!((*version, &**error), (2, "")),
                _ => assert!(error.contains(".jsonl`: "), "{id}: {error}"),
            }
        }
    }
    // A damaged session is not pruned.
    let removed = block_on(store.prune(std::time::SystemTime::now() + Duration::from_hours(1)));
    assert_eq!(removed.unwrap(), ["whole"]);
}
