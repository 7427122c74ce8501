//! The lock files of leases, next to files of other programs.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::executor::block_on;
use turnstream::ErrorKind;
use turnstream::session::{AlreadyLeased, JsonLinesStore, LeaseLost, Store};
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_testing::session_suite::text_entry as said;

fn open(folder: &TempFolder) -> JsonLinesStore {
    JsonLinesStore::open(folder.path()).unwrap()
}

#[test]
fn lock_files_of_other_programs_are_not_removed() {
    let folder = TempFolder::new();
    fs::write(folder.join("yarn.lock"), "# yarn\n").unwrap();
    fs::write(folder.join("pid.lock"), "4242").unwrap();
    let store = open(&folder);
    for id in ["yarn", "pid"] {
        drop(block_on(store.lease(id)).unwrap());
    }
    assert_eq!(fs::read_to_string(folder.join("yarn.lock")).unwrap(), "# yarn\n");
    assert_eq!(fs::read_to_string(folder.join("pid.lock")).unwrap(), "4242");
    // Unused leases leave no files.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn files_that_differ_only_in_extension_have_separate_leases() {
    let folder = TempFolder::new();
    let files = ["chat.v1", "chat.v2", "chat.lock"];
    let stores = files.map(|file| JsonLinesStore::open_file(folder.join(file)).unwrap());
    let leases = stores.each_ref().map(|(store, id)| block_on(store.lease(id)).unwrap());
    for ((store, id), lease) in stores.iter().zip(&leases) {
        block_on(store.append_leased(lease, id, 0, vec![said("one")])).unwrap();
    }
    drop(leases);
    for (store, id) in &stores {
        assert_eq!(block_on(store.load(id, 0)).unwrap().unwrap(), [said("one")]);
    }
}

#[test]
fn a_link_and_its_target_are_one_session_even_before_the_file_exists() {
    let folder = TempFolder::new();
    fs::create_dir(folder.join("real")).unwrap();
    symlink("real/chat.jsonl", folder.join("chat.jsonl")).unwrap();
    let store = open(&folder);
    let lease = block_on(store.lease("chat")).unwrap();
    block_on(store.append_leased(&lease, "chat", 0, vec![said("one")])).unwrap();
    let real = JsonLinesStore::open(folder.join("real")).unwrap();
    for store in [&store, &real] {
        let error = block_on(store.lease("chat")).unwrap_err();
        assert!(error.find_source::<AlreadyLeased>().is_some(), "{error}");
    }
}

#[test]
fn a_dangling_lock_file_link_is_an_error() {
    let folder = TempFolder::new();
    symlink("/nonexistent/x", folder.join("chat.jsonl.lock")).unwrap();
    let error = block_on(open(&folder).lease("chat")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
}

/// A starting process has all files open for a moment.
#[test]
fn a_released_lease_is_free_while_processes_are_started() {
    let folder = TempFolder::new();
    let store = open(&folder);
    block_on(store.append("s", 0, vec![said("one")])).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // With `current_dir`, the process is forked.
                Command::new("true").current_dir("/").status().unwrap();
            }
        });
        for n in 0..2_000 {
            let lease = block_on(store.lease("s"));
            drop(lease.unwrap_or_else(|error| panic!("{n}: {error}")));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A user removes the lock files of a folder that is in use.
#[test]
fn a_lease_whose_lock_file_was_removed_is_lost_to_the_next_owner() {
    let folder = TempFolder::new();
    let (one, other) = (open(&folder), open(&folder));
    let first = block_on(one.lease("s")).unwrap();
    block_on(one.append_leased(&first, "s", 0, vec![said("one")])).unwrap();
    fs::remove_file(folder.join("s.jsonl.lock")).unwrap();
    let second = block_on(other.lease("s")).unwrap();
    let error = block_on(one.append_leased(&first, "s", 1, vec![said("late")])).unwrap_err();
    assert_eq!(error.find_source::<LeaseLost>().unwrap().id, "s");
    drop(first);
    assert_eq!(block_on(other.append_leased(&second, "s", 1, vec![said("two")])).unwrap(), 2);
    assert_eq!(block_on(other.load("s", 0)).unwrap().unwrap(), ["one", "two"].map(said));
    // The lock file is deleted with the session.
    drop(second);
    assert!(folder.join("s.jsonl.lock").exists());
    assert!(block_on(other.delete("s")).unwrap());
    assert!(!folder.join("s.jsonl.lock").exists());
    drop(block_on(other.lease("s")).unwrap());
    assert!(!folder.join("s.jsonl.lock").exists());
}
