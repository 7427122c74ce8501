//! Sessions that are removed, and stores that cannot remove sessions.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures::executor::block_on;
use futures::future::BoxFuture;
use turnstream::session::{Entry, JsonLinesStore, MemoryStore, SessionInfo, Store};
use turnstream::{Error, ErrorKind};
use turnstream_test_support::temp_folder::TempFolder;
use turnstream_testing::session_suite::{self, numbered_entries};

/// A store that was implemented before sessions could be removed: with four methods.
#[derive(Clone, Default)]
struct StoreWithoutRemoval {
    inner: MemoryStore,
    /// Whether it violates its contract.
    ignores_versions: bool,
}

impl Store for StoreWithoutRemoval {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let found = self.inner.load(id, 0).await?.map_or(0, |found| found.len() as u64);
            let expected = if self.ignores_versions { found } else { expected };
            self.inner.append(id, expected, entries).await
        })
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        self.inner.load(id, from)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        self.inner.list()
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.fork(id, at, new)
    }
}

#[tokio::test]
async fn a_store_without_removal_passes_the_suite_and_reports_removal_as_unsupported() {
    session_suite::check_store(StoreWithoutRemoval::default).await;
    let store = StoreWithoutRemoval::default();
    store.append("s", 0, numbered_entries(0..1)).await.unwrap();
    let errors =
        [store.delete("s").await.unwrap_err(), store.prune(SystemTime::now()).await.unwrap_err()];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.message(), "this store does not remove sessions");
    }
    assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..1)));
}

#[tokio::test]
#[should_panic(expected = "called `Result::unwrap_err()` on an `Ok` value")]
async fn the_suite_detects_a_store_that_ignores_versions() {
    session_suite::check_store(|| StoreWithoutRemoval {
        ignores_versions: true,
        ..StoreWithoutRemoval::default()
    })
    .await;
}

#[test]
fn a_damaged_session_can_be_deleted_and_is_never_pruned() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    for id in ["damaged", "origin", "s"] {
        block_on(store.append(id, 0, numbered_entries(0..2))).unwrap();
    }
    block_on(store.fork("origin", 1, "damaged fork")).unwrap();
    let damage = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.contains(from));
        fs::write(folder.join(name), text.replace(from, to)).unwrap();
    };
    damage("damaged.jsonl", "\"0\"", "\"9\"");
    damage("damaged%20fork.jsonl", "\"at\":1", "\"at\":0");
    fs::write(folder.join("notes.jsonl"), "my notes\n").unwrap();

    let later = SystemTime::now() + Duration::from_mins(1);
    // The fork cannot be read, but still needs its origin.
    assert_eq!(block_on(store.prune(later)).unwrap(), ["s"]);
    let error = block_on(store.delete("origin")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("damaged%20fork.jsonl` was forked from"), "{error}");
    for id in ["damaged", "damaged fork", "origin"] {
        assert!(block_on(store.delete(id)).unwrap(), "{id}");
    }
    let error = block_on(store.delete("notes")).unwrap_err();
    assert!(error.message().contains("does not begin with a header"), "{error}");
    let left: Vec<_> =
        folder.path().read_dir().unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.jsonl"]);
}

#[test]
fn a_single_file_session_is_not_deleted_while_a_fork_depends_on_it() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    block_on(store.append("s", 0, numbered_entries(0..2))).unwrap();
    block_on(store.fork("s", 1, "f")).unwrap();
    let (file, id) = JsonLinesStore::open_file(folder.join("s.jsonl")).unwrap();
    assert_eq!(block_on(file.delete(&id)).unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert!(!block_on(file.delete("f")).unwrap(), "it is no session of this store");
    assert!(block_on(store.delete("f")).unwrap());
    assert!(block_on(file.delete(&id)).unwrap());
    assert_eq!(block_on(store.list()).unwrap(), []);
}

#[test]
fn prune_keeps_the_origin_of_a_concurrently_created_fork() {
    let folder = TempFolder::new();
    let at = |seconds| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        JsonLinesStore::open(folder.path()).unwrap().with_clock(time)
    };
    // The session that was written last is removed first.
    for (id, seconds) in [("kept", 100), ("first", 2), ("origin", 1)] {
        block_on(at(seconds).append(id, 0, numbered_entries(0..1))).unwrap();
    }
    // It can be read meanwhile, and not removed.
    let held = fs::File::open(folder.join("origin.jsonl")).unwrap();
    held.lock_shared().unwrap();
    let before = SystemTime::UNIX_EPOCH + Duration::from_secs(50);
    let removed = std::thread::scope(|scope| {
        let pruning = scope.spawn(|| block_on(at(0).prune(before)).unwrap());
        while folder.join("first.jsonl").exists() {
            std::thread::yield_now();
        }
        // The same path, and the same time.
        assert!(block_on(at(100).delete("kept")).unwrap());
        block_on(at(100).fork("origin", 1, "kept")).unwrap();
        drop(held);
        pruning.join().unwrap()
    });
    assert_eq!(removed, ["first"]);
    assert_eq!(block_on(at(0).load("kept", 0)).unwrap(), Some(numbered_entries(0..1)));
}

#[test]
fn many_sessions_are_pruned_in_batches_with_forks_before_origins() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    block_on(store.append("s0", 0, numbered_entries(0..1))).unwrap();
    for n in 1..150 {
        block_on(store.fork(&format!("s{}", n - 1), 1, &format!("s{n}"))).unwrap();
    }
    let later = SystemTime::now() + Duration::from_mins(1);
    let ids: Vec<String> = (0..150).rev().map(|n| format!("s{n}")).collect();
    assert_eq!(block_on(store.prune(later)).unwrap(), ids);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_fork_with_a_damaged_header_still_protects_its_origin() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    for id in ["the \"origin\"", "other", "own"] {
        block_on(store.append(id, 0, numbered_entries(0..1))).unwrap();
    }
    block_on(store.fork("the \"origin\"", 1, "f")).unwrap();
    let path = folder.join("f.jsonl");
    let whole = fs::read(&path).unwrap();
    let later = SystemTime::now() + Duration::from_mins(1);
    for at in 0..whole.len() - 1 {
        for byte in [whole[at] ^ 1, b'"', b'\n', 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            fs::write(&path, &damaged).unwrap();
            let error = block_on(store.delete("the \"origin\"")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{at}");
            assert!(error.message().contains("f.jsonl"), "{error}");
            // Otherwise both may be removed.
            if block_on(store.load("f", 0)).is_err() {
                let origin = block_on(store.prune(later)).unwrap();
                assert!(!origin.contains(&"the \"origin\"".to_owned()), "{at}");
            }
        }
    }
    // The session can be removed, damaged or not.
    assert!(block_on(store.delete("f")).unwrap());
    assert!(block_on(store.delete("the \"origin\"")).unwrap());
}

#[test]
fn a_damaged_header_without_an_origin_does_not_prevent_removal() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    for id in ["damaged", "session", "s"] {
        block_on(store.append(id, 0, numbered_entries(0..1))).unwrap();
    }
    let path = folder.join("damaged.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap().replacen("\"id\":", "\"id\"=", 1)).unwrap();
    fs::write(folder.join("notes.jsonl"), "of \"s\"\n").unwrap();
    // A fork that a crash has truncated was never created.
    let cut = r#"{"type":"session","version":1,"id":"f","fork":{"id":"s","#;
    fs::write(folder.join("f.jsonl"), cut).unwrap();
    for id in ["session", "s", "damaged"] {
        assert!(block_on(store.delete(id)).unwrap(), "{id}");
    }
}

/// Each call locks the file that it removes while it reads the headers of the others.
#[test]
fn one_folder_can_be_pruned_concurrently() {
    let folder = TempFolder::new();
    let store = JsonLinesStore::open(folder.path()).unwrap();
    for n in 0..20 {
        block_on(store.append(&format!("s{n}"), 0, numbered_entries(0..1))).unwrap();
        block_on(store.fork(&format!("s{n}"), 1, &format!("f{n}"))).unwrap();
    }
    let later = SystemTime::now() + Duration::from_mins(1);
    let mut removed: Vec<String> = std::thread::scope(|scope| {
        let prune = || block_on(JsonLinesStore::open(folder.path()).unwrap().prune(later)).unwrap();
        let pruning: Vec<_> = (0..4).map(|_| scope.spawn(prune)).collect();
        pruning.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    removed.sort_unstable();
    removed.dedup();
    assert_eq!(removed.len(), 40);
    assert_eq!(block_on(store.list()).unwrap(), []);
}

#[test]
#[cfg_attr(windows, ignore = "Wine gives no lock to a writer while a reader locks again and again")]
fn a_fork_that_is_loaded_while_it_is_pruned_is_whole_or_missing() {
    let folder = TempFolder::new();
    let open = || JsonLinesStore::open(folder.path()).unwrap();
    let (writer, pruner, reader) = (open(), open(), open());
    let (inherited, own) = (numbered_entries(0..2), numbered_entries(0..2000));
    let all = [inherited.clone(), own.clone()].concat();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if let Some(entries) = block_on(reader.load("fork", 0)).unwrap() {
                    assert!(entries == inherited || entries == all);
                }
                if let Some(salvaged) = block_on(reader.salvage("fork")).unwrap() {
                    assert_eq!(salvaged.damage, []);
                }
            }
        });
        for _ in 0..40 {
            if reads.is_finished() {
                break;
            }
            block_on(writer.append("origin", 0, inherited.clone())).unwrap();
            block_on(writer.fork("origin", 2, "fork")).unwrap();
            block_on(writer.append("fork", 2, own.clone())).unwrap();
            let future = SystemTime::now() + Duration::from_hours(1);
            assert_eq!(block_on(pruner.prune(future)).unwrap(), ["fork", "origin"]);
        }
        is_done.store(true, Ordering::Relaxed);
        reads.join().unwrap();
    });
}
