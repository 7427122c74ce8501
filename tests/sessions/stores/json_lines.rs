//! The failures that JSON Lines files survive.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use futures::executor::block_on;
use turnstream::session::{Conflict, Entry, JsonLinesStore, Store};
use turnstream::{Error, ErrorKind};
#[cfg(unix)]
use turnstream_test_support::store_suite::FileRemovingClock;
use turnstream_test_support::temp_folder::TempFolder;
#[cfg(unix)]
use turnstream_test_support::temp_folder::{file_mode, set_file_mode};
use turnstream_testing::session_suite::{
    entries_of_every_kind, numbered_entries, text_entry as said,
};

use turnstream_test_support::cases::sample_step;

fn load(folder: &Path, id: &str) -> Result<Option<Vec<Entry>>, Error> {
    block_on(JsonLinesStore::open(folder)?.load(id, 0))
}

#[track_caller]
fn append(store: &JsonLinesStore, id: &str, version: u64, entries: Vec<Entry>) -> u64 {
    block_on(store.append(id, version, entries)).unwrap()
}

/// Truncates the last append at every byte: the file has the entries before it, or all of it.
/// Without only its last LF, the append is complete.
fn assert_truncated_append_discarded(first: &[Entry], last: &[Entry]) {
    let folder = TempFolder::new();
    let path = folder.join("s.jsonl");
    let before = match first.is_empty() {
        true => 0,
        false => {
            let store = JsonLinesStore::open(folder.path()).unwrap();
            append(&store, "s", 0, first.to_vec());
            fs::metadata(&path).unwrap().len()
        }
    };
    let store = JsonLinesStore::open(folder.path()).unwrap();
    append(&store, "s", first.len() as u64, last.to_vec());
    let whole = fs::read(&path).unwrap();
    let old = (!first.is_empty()).then(|| first.to_vec());
    let new = [first, last].concat();

    // Odd, so that both stores write.
    let step = if last.len() > 3 { sample_step(7) } else { 1 };
    for cut in (usize::try_from(before).unwrap()..whole.len() - 1).step_by(step) {
        fs::write(&path, &whole[..cut]).unwrap();
        let again = JsonLinesStore::open(folder.path()).unwrap();
        assert!(block_on(again.load("s", 0)).unwrap() == old, "cut at {cut} of {}", whole.len());
        assert_eq!(block_on(again.list()).unwrap().len(), usize::from(old.is_some()), "{cut}");
        // Reading changes nothing, and an append repairs the file.
        assert_eq!(fs::read(&path).unwrap(), whole[..cut]);
        let version = first.len() as u64;
        // Also by a store that has read the complete file.
        let writer = if cut % 2 == 0 { &store } else { &again };
        append(writer, "s", version, last.to_vec());
        assert!(fs::read(&path).unwrap() == whole, "cut at {cut}");
    }
    assert!(load(folder.path(), "s").unwrap() == Some(new));
}

#[test]
fn an_append_truncated_at_any_byte_is_discarded() {
    assert_truncated_append_discarded(&numbered_entries(0..2), &[said("a\u{2028}😀")]);
    assert_truncated_append_discarded(&numbered_entries(0..2), &numbered_entries(2..5));
    assert_truncated_append_discarded(&numbered_entries(0..1), &entries_of_every_kind());
}

#[test]
fn a_first_append_truncated_at_any_byte_is_discarded() {
    assert_truncated_append_discarded(&[], &[said("one")]);
    assert_truncated_append_discarded(&[], &numbered_entries(0..3));
}

#[test]
fn a_fork_truncated_at_any_byte_is_discarded() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    append(&store, "s", 0, numbered_entries(0..2));
    block_on(store.fork("s", 1, "f")).unwrap();
    let path = folder.join("f.jsonl");
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() - 1 {
        fs::write(&path, &whole[..cut]).unwrap();
        assert_eq!(load(folder.path(), "f").unwrap(), None, "{cut}");
        block_on(store.fork("s", 1, "f")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    assert_eq!(load(folder.path(), "f").unwrap(), Some(numbered_entries(0..1)));
}

/// Checks that a file is refused by reads and writes, with a reason, and not changed by one byte.
#[track_caller]
fn assert_file_rejected(text: &[u8], reason: &str) {
    let folder = TempFolder::new();
    let path = folder.join("s.jsonl");
    fs::write(&path, text).unwrap();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    for error in [
        block_on(store.load("s", 0)).unwrap_err(),
        block_on(store.append("s", 0, numbered_entries(0..1))).unwrap_err(),
        block_on(store.fork("s", 0, "f")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(error.message().contains(reason), "{error}");
        assert!(error.message().contains("s.jsonl"), "{error}");
    }
    assert_eq!(fs::read(&path).unwrap(), text);
    assert!(!folder.join("f.jsonl").exists());
}

const HEADER: &str = r#"{"type":"session","version":1,"id":"s"}"#;
const USER_LINE: &str = "{\"type\":\"user\",\"content\":\"x\"}\n";

/// A session file with a header and one append for each of the texts, which consist of entry lines.
fn session_file(header: &str, appends: &[&str]) -> String {
    // The last field of a line is the checksum of the file up to that field.
    let push = |text: String, object: &str| {
        let text = text + object.strip_suffix('}').unwrap();
        let crc = crc32fast::hash(text.as_bytes());
        format!("{text},\"file_crc32\":\"{crc:08x}\"}}\n")
    };
    appends.iter().fold(push(String::new(), header), |text, lines| {
        let (entries, bytes) = (lines.lines().count(), lines.len());
        let crc = crc32fast::hash(lines.as_bytes());
        let append = format!(
            r#"{{"type":"append","entries":{entries},"bytes":{bytes},"crc32":"{crc:08x}"}}"#
        );
        push(text, &append) + lines
    })
}

#[test]
fn a_corrupt_line_in_the_middle_is_reported_and_the_file_is_unchanged() {
    let whole = session_file(HEADER, &[USER_LINE, USER_LINE]);
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for middle in [
        "{\"type\":\n",
        "\n",
        "garbage\n",
        USER_LINE,
        "{\"type\":\"append\",\"entries\":2}\n",
        "{\"type\":\"append\",\"entries\":-1}\n",
    ] {
        let text = lines[..3].concat() + middle + &lines[3..].concat();
        assert_file_rejected(text.as_bytes(), "line 4 of the session is broken");
    }
}

#[test]
fn a_header_without_a_checksum_is_corruption() {
    let text = format!("{HEADER}\n{USER_LINE}");
    assert_file_rejected(text.as_bytes(), "line 1 of the session is broken");
}

#[test]
fn a_file_that_is_not_a_session_is_rejected_and_unchanged() {
    assert_file_rejected(b"my notes", "does not begin with a header");
    assert_file_rejected(
        b"{\"type\":\"user\",\"content\":\"x\"}\n",
        "does not begin with a header",
    );
    assert_file_rejected(&[0; 64], "does not begin with a header");
    assert_file_rejected(b"\xff\xfe\n\n", "does not begin with a header");
    let without_id = session_file(r#"{"type":"session","version":1}"#, &[]);
    assert_file_rejected(without_id.as_bytes(), "line 1 is not a session header");
}

#[test]
fn a_later_format_version_is_rejected() {
    let later = HEADER.replace(":1,", ":2,");
    for text in [format!("{later}\n"), session_file(&later, &[USER_LINE])] {
        assert_file_rejected(text.as_bytes(), "the session has format 2");
    }
}

#[test]
fn an_entry_of_a_later_version_fails_load_and_is_never_truncated() {
    let folder = TempFolder::new();
    let lines = format!("{USER_LINE}{{\"type\":\"of tomorrow\"}}\n");
    let text = session_file(HEADER, &[&lines]);
    fs::write(folder.join("s.jsonl"), &text).unwrap();
    let error = load(folder.path(), "s").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.message().contains("line 4 of the session is no entry"), "{error}");
    let store = JsonLinesStore::open(folder.path()).unwrap();
    append(&store, "s", 2, numbered_entries(0..1));
    assert!(fs::read_to_string(folder.join("s.jsonl")).unwrap().starts_with(&text));
}

#[test]
fn other_files_in_the_folder_are_ignored() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    append(&store, "s", 0, numbered_entries(0..1));
    fs::write(folder.join("record.jsonl"), "{\"type\":\"recording\"}\n").unwrap();
    fs::write(folder.join("empty.jsonl"), "").unwrap();
    fs::write(folder.join("README.md"), "hello").unwrap();
    fs::write(folder.join("T.jsonl"), session_file(HEADER, &[])).unwrap();
    fs::create_dir(folder.join("folder.jsonl")).unwrap();
    fs::write(folder.join("a~b.jsonl"), session_file(HEADER, &[USER_LINE])).unwrap();
    fs::copy(folder.join("s.jsonl"), folder.join("copy.jsonl")).unwrap();
    let listed = block_on(store.list()).unwrap();
    let mut ids: Vec<_> = listed.iter().map(|listed| &*listed.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["copy", "s"]);
    assert_eq!(load(folder.path(), "copy").unwrap(), Some(numbered_entries(0..1)));
}

#[test]
fn one_file_is_a_store_of_one_session() {
    let folder = TempFolder::new();
    let path = folder.join("not/yet/My chat.log");
    let (store, id) = JsonLinesStore::open_file(&path).unwrap();
    assert_eq!(id, "My chat");
    assert!(!path.exists());
    assert_eq!(block_on(store.load(&id, 0)).unwrap(), None);
    assert_eq!(block_on(store.list()).unwrap(), []);
    append(&store, &id, 0, numbered_entries(0..2));
    assert_eq!(block_on(store.list()).unwrap()[0].id, id);

    let (again, id) = JsonLinesStore::open_file(&path).unwrap();
    assert_eq!(block_on(again.load(&id, 0)).unwrap(), Some(numbered_entries(0..2)));
    assert_eq!(block_on(again.load("other", 0)).unwrap(), None);
    for error in [
        block_on(again.append("other", 0, numbered_entries(0..1))).unwrap_err(),
        block_on(again.fork(&id, 0, "other")).unwrap_err(),
        JsonLinesStore::open_file("..").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }
}

#[test]
fn a_file_of_a_folder_store_can_be_opened_alone_as_the_same_session() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    append(&store, "My chat", 0, numbered_entries(0..2));
    block_on(store.fork("My chat", 1, "f")).unwrap();
    let (file, id) = JsonLinesStore::open_file(folder.join("%4dy%20chat.jsonl")).unwrap();
    assert_eq!(id, "My chat");
    assert_eq!(append(&file, &id, 2, numbered_entries(2..3)), 3);
    assert_eq!(block_on(store.load(&id, 0)).unwrap(), Some(numbered_entries(0..3)));
    let (fork, id) = JsonLinesStore::open_file(folder.join("f.jsonl")).unwrap();
    assert_eq!(block_on(fork.load(&id, 0)).unwrap(), Some(numbered_entries(0..1)));
}

#[test]
fn loading_a_fork_without_its_origin_is_an_error() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    append(&store, "s", 0, numbered_entries(0..1));
    append(&store, "s", 1, numbered_entries(1..2));
    block_on(store.fork("s", 2, "f")).unwrap();
    append(&store, "f", 2, numbered_entries(2..3));
    let path = folder.join("s.jsonl");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 2]).unwrap();
    let reason = "the first 2 entries of `s`, a fork's origin, are missing";
    assert_eq!(load(folder.path(), "f").unwrap_err().message(), reason);
    fs::remove_file(&path).unwrap();
    assert_eq!(load(folder.path(), "f").unwrap_err().message(), reason);
    // Its own entries can be read.
    assert_eq!(block_on(store.load("f", 2)).unwrap(), Some(numbered_entries(2..3)));

    // Only manual edits produce such a file.
    let beyond =
        r#"{"type":"session","version":1,"id":"f","fork":{"id":"s","at":18446744073709551615}}"#;
    fs::write(folder.join("beyond.jsonl"), session_file(beyond, &[USER_LINE])).unwrap();
    assert_eq!(load(folder.path(), "beyond").unwrap_err().kind(), ErrorKind::Store);
    fs::write(&path, fs::read_to_string(folder.join("f.jsonl")).unwrap()).unwrap();
    assert!(load(folder.path(), "f").unwrap_err().message().contains("is a fork of itself"));
}

#[test]
fn two_stores_on_one_file_see_each_others_appends() {
    let folder = TempFolder::new();
    let one = JsonLinesStore::open(folder.path()).unwrap();
    let (two, id) = JsonLinesStore::open_file(folder.join("s.jsonl")).unwrap();
    append(&one, "s", 0, numbered_entries(0..1));
    append(&two, &id, 1, numbered_entries(1..3));
    let error = block_on(one.append("s", 1, numbered_entries(9..10))).unwrap_err();
    assert_eq!(error.find_source::<Conflict>().unwrap().found, 3);
    append(&one, "s", 3, numbered_entries(3..4));
    assert_eq!(block_on(two.load(&id, 0)).unwrap(), Some(numbered_entries(0..4)));
}

#[test]
fn an_append_rereads_the_file_only_after_a_foreign_write() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path())
        .unwrap()
        .with_clock(SystemTime::UNIX_EPOCH + Duration::from_secs(7));
    append(&store, "s", 0, numbered_entries(0..2));
    // The same length and the same time: only reading the file would show the change.
    let path = folder.join("s.jsonl");
    let broken = fs::read_to_string(&path).unwrap().replace("\"0\"}", "\"0\"]");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, broken).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    append(&store, "s", 2, numbered_entries(2..3));
    assert_eq!(load(folder.path(), "s").unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(modified, SystemTime::UNIX_EPOCH + Duration::from_secs(7));
}

#[test]
fn an_append_detects_a_replaced_file_of_equal_length_and_time() {
    let folder = TempFolder::new();
    let clock = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    let store = JsonLinesStore::open(folder.path()).unwrap().with_clock(clock);
    append(&store, "s", 0, numbered_entries(0..2));
    let (path, other) = (folder.join("s.jsonl"), folder.join("other"));
    let broken = fs::read_to_string(&path).unwrap().replace("\"0\"}", "\"0\"]");
    fs::write(&other, broken).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
    fs::rename(&other, &path).unwrap();
    let error = block_on(store.append("s", 2, numbered_entries(2..3))).unwrap_err();
    assert!(error.message().ends_with("the checksum is wrong"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_relative_folder_is_unaffected_by_a_change_of_working_directory() {
    // In a separate process: other tests use the working directory of this one.
    const CHILD_ENV: &str = "TURNSTREAM_CHANGES_ITS_FOLDER";
    if std::env::var_os(CHILD_ENV).is_none() {
        let name = std::thread::current().name().unwrap().to_owned();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = child.args([&name, "--exact"]).env(CHILD_ENV, "1").output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let folder = TempFolder::new();
    std::env::set_current_dir(folder.path()).unwrap();
    let store = JsonLinesStore::open("in").unwrap();
    let (file, id) = JsonLinesStore::open_file("f.jsonl").unwrap();
    std::env::set_current_dir("/").unwrap();
    append(&store, "s", 0, numbered_entries(0..1));
    append(&file, &id, 0, numbered_entries(0..1));
    assert!(folder.join("in/s.jsonl").exists());
    assert!(folder.join("f.jsonl").exists());
}

#[test]
fn an_obstacle_in_the_path_is_named_in_the_error() {
    let folder = TempFolder::new();
    fs::create_dir(folder.join("s.jsonl")).unwrap();
    fs::write(folder.join("file"), "").unwrap();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    let error = block_on(store.append("s", 0, numbered_entries(0..1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.message().ends_with("s.jsonl` is not a file"), "{error}");
    assert_eq!(block_on(store.load("s", 0)).unwrap_err().message(), error.message());
    let error = JsonLinesStore::open(folder.join("file")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.find_source::<std::io::Error>().is_some());
    let error = JsonLinesStore::open_file(folder.join("file/s.jsonl")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
}

#[cfg(unix)]
#[test]
fn a_read_only_file_can_be_loaded_and_not_appended_to() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    append(&store, "s", 0, numbered_entries(0..1));
    let path = folder.join("s.jsonl");
    let mut rights = fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&path, rights).unwrap();
    assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(numbered_entries(0..1)));
    if fs::File::options().write(true).open(&path).is_ok() {
        println!("skipped: whoever runs this may write what is read-only");
        return;
    }
    let error = block_on(store.append("s", 1, numbered_entries(1..2))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.message().contains("cannot open"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_file_removed_during_an_append_is_a_conflict() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    append(&store, "s", 0, numbered_entries(0..3));
    let store = JsonLinesStore::open(folder.path()).unwrap();
    let store = store.with_clock(FileRemovingClock(folder.join("s.jsonl")));
    let error = block_on(store.append("s", 3, numbered_entries(3..4))).unwrap_err();
    assert_eq!(error.find_source::<Conflict>().map(|conflict| conflict.found), Some(0), "{error}");

    append(&store, "t", 0, numbered_entries(0..3));
    let store = JsonLinesStore::open(folder.path()).unwrap();
    let store = store.with_clock(FileRemovingClock(folder.join("f.jsonl")));
    let error = block_on(store.fork("t", 1, "f")).unwrap_err();
    assert!(error.message().ends_with("f.jsonl` is gone"), "{error}");
}

#[cfg(unix)]
#[test]
fn new_files_and_folders_are_private_and_existing_ones_keep_their_mode() {
    let folder = TempFolder::new();
    set_file_mode(folder.path(), 0o755);
    let store = JsonLinesStore::open(folder.join("new/er")).unwrap();
    append(&store, "s", 0, numbered_entries(0..1));
    block_on(store.fork("s", 1, "f")).unwrap();
    for (name, expected) in [
        ("", 0o755),
        ("new", 0o700),
        ("new/er", 0o700),
        ("new/er/s.jsonl", 0o600),
        ("new/er/f.jsonl", 0o600),
    ] {
        assert_eq!(file_mode(&folder.join(name)), expected, "{name}");
    }
    set_file_mode(&folder.join("new/er/s.jsonl"), 0o644);
    append(&store, "s", 1, numbered_entries(1..2));
    assert_eq!(file_mode(&folder.join("new/er/s.jsonl")), 0o644);
}

#[test]
fn a_lock_file_with_other_content_is_an_error_and_is_not_removed() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    let path = folder.join("s.jsonl.lock");
    for _ in 0..2 {
        fs::write(&path, "4242").unwrap();
        let error = block_on(store.lease("s")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.message().contains("s.jsonl.lock"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "4242");
        // With a session and without one.
        let _ = block_on(store.append("s", 0, vec![said("one")]));
    }
    // A lock file that a power failure has damaged does not prevent leases, and neither does the
    // highest number.
    for text in ["\0\0\0\0", "turnstream lease 18446744073709551615\n", ""] {
        fs::write(&path, text).unwrap();
        let lease = block_on(store.lease("s")).unwrap();
        block_on(store.append_leased(&lease, "s", 1, Vec::new())).unwrap();
    }
}
