//! What holds for every [`Store`], as tests for those who write one.
//!
//! [`check`] runs all claims on stores that a function makes, empty each time, and panics if one does not hold;
//! [`session_suite!`](crate::session_suite) makes a test of each, named after what it claims.
//!
//! ```
//! use turnstream::session::{MemoryStore, suite};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In a test: `#[tokio::test] async fn my_store_keeps_the_contract()`.
//! suite::check(MemoryStore::new).await;
//! # }
//! ```
//!
//! A claim makes one store and uses it alone; what it wrote is not removed. A store that answers
//! [`Unsupported`](ErrorKind::Unsupported) to [`delete`](Store::delete) and [`prune`](Store::prune)
//! passes the claims about them. Two claims write sessions one right after the other and expect that
//! [`updated`](crate::session::Listed::updated) tells which was last: a store whose times are no finer
//! than a millisecond has to give each write a later time than the one before. What becomes of a store in a crash is not in here.
#![expect(clippy::missing_panics_doc, reason = "a claim that does not hold is a panic")]

mod entries;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::join_all;
use serde_json::json;
use tokio::runtime::{Builder, Handle};

use crate::error::{Error, ErrorKind};
use crate::item::{Item, Json, ProviderData};
use crate::session::{Conflict, Entry, Fork, Store};

pub use entries::{every_kind, numbered, text_entry};

/// Makes a module of tests, one for each claim of the [suite](crate::session::suite) of stores.
///
/// It is given a name for the module and a function that makes an empty store. The tests are
/// `#[tokio::test]`s: the crate that uses it needs tokio with `macros` and `rt`.
///
/// ```
/// use turnstream::session::MemoryStore;
///
/// turnstream::session_suite!(in_memory, || super::MemoryStore::new());
/// ```
#[macro_export(local_inner_macros)]
macro_rules! session_suite {
    ($name:ident, $make:expr) => {
        session_suite! { @claims tests $name, $make }
    };
    (@claims $rule:ident $($with:tt)*) => {
        session_suite! { @$rule [
            a_session_that_was_never_written_is_not_there
            an_append_returns_the_version_and_load_the_entries
            load_begins_at_the_number_given
            an_append_of_no_entries_writes_nothing
            a_session_needs_an_id
            the_second_of_two_that_follow_one_version_gets_a_conflict
            a_fork_has_the_first_entries_and_then_its_own
            a_fork_of_a_fork_reads_through_both
            a_fork_may_take_nothing_or_all
            a_fork_of_what_is_not_there_is_refused
            a_fork_onto_a_session_that_is_there_is_a_conflict
            sessions_are_listed_by_their_last_write
            an_id_may_be_any_text
            every_kind_of_entry_comes_back_as_it_was
            text_comes_back_as_it_was
            a_huge_item_comes_back
            what_is_too_deep_to_be_read_again_is_refused
            of_many_at_once_one_wins_each_version
            a_dropped_append_is_written_whole_or_not_at_all
            clones_of_a_shared_store_work_from_any_thread
            a_deleted_session_is_gone_and_its_id_is_free
            an_append_to_a_deleted_session_is_a_conflict
            a_session_that_another_was_forked_from_is_not_deleted
            prune_removes_what_was_written_last_before_a_time
            prune_keeps_what_a_remaining_session_was_forked_from
        ] $($with)* }
    };
    (@tests [$($claim:ident)*] $name:ident, $make:expr) => {
        #[cfg(test)]
        mod $name {
            $(
                #[tokio::test]
                async fn $claim() {
                    let name = ::core::stringify!($claim);
                    $crate::session::suite::check_claim($make, name).await;
                }
            )*
        }
    };
    (@run [$($claim:ident)*] $make:ident, $chosen:ident, $found:ident) => {
        $(
            if $chosen.is_none_or(|chosen| chosen == ::core::stringify!($claim)) {
                $found = true;
                $claim(&$make).await;
            }
        )*
    };
}

/// Runs every claim, one after the other.
///
/// # Panics
///
/// If one does not hold; the message tells where.
pub async fn check<S: Store + 'static>(make: impl Fn() -> S) {
    checked(make, None).await;
}

/// Runs one claim, by the name of its test.
///
/// # Panics
///
/// If it does not hold, or no claim has that name.
pub async fn check_claim<S: Store + 'static>(make: impl Fn() -> S, claim: &str) {
    assert!(checked(make, Some(claim)).await, "the suite has no claim `{claim}`");
}

/// Tells whether any claim was chosen.
async fn checked<S: Store + 'static>(make: impl Fn() -> S, chosen: Option<&str>) -> bool {
    let mut found = false;
    session_suite! { @claims run make, chosen, found }
    found
}

/// A store whose session `s` has so many entries.
async fn with_entries<S: Store>(make: impl Fn() -> S, entries: u64) -> S {
    let store = make();
    store.append("s", 0, numbered(0..entries)).await.unwrap();
    store
}

async fn all(store: &dyn Store, id: &str) -> Vec<Entry> {
    store.load(id, 0).await.unwrap().unwrap()
}

#[track_caller]
fn refused<T: Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

#[track_caller]
fn conflicts<T: Debug>(result: Result<T, Error>, id: &str, expected: u64, found: u64) {
    let error = refused(result, ErrorKind::Conflict);
    assert_eq!(Conflict::of(&error), Some(&Conflict { id: id.into(), expected, found }));
}

/// `load` returns `None` for a session that was never written, and `list` does not list it.
async fn a_session_that_was_never_written_is_not_there<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    assert_eq!(store.load("", 0).await.unwrap(), None);
    assert_eq!(store.list().await.unwrap(), []);
}

/// `append` returns the version afterwards, and `load` what was appended, in order.
async fn an_append_returns_the_version_and_load_the_entries<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.append("s", 0, numbered(0..1)).await.unwrap(), 1);
    assert_eq!(store.append("s", 1, numbered(1..4)).await.unwrap(), 4);
    assert_eq!(store.append("s", 4, numbered(4..5)).await.unwrap(), 5);
    assert_eq!(all(&store, "s").await, numbered(0..5));
    assert_eq!(store.load("t", 0).await.unwrap(), None);
}

/// `load` returns the entries from the number given, none if it is beyond the last.
async fn load_begins_at_the_number_given<S: Store>(make: impl Fn() -> S) {
    let store = with_entries(make, 3).await;
    for from in 0..3 {
        assert_eq!(store.load("s", from).await.unwrap(), Some(numbered(from..3)));
    }
    for beyond in [3, 4, u64::MAX] {
        assert_eq!(store.load("s", beyond).await.unwrap(), Some(Vec::new()));
    }
}

/// An append of no entries makes no session; its version is checked all the same.
async fn an_append_of_no_entries_writes_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.append("s", 0, Vec::new()).await.unwrap(), 0);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    conflicts(store.append("s", 1, Vec::new()).await, "s", 1, 0);
    store.append("s", 0, numbered(0..1)).await.unwrap();
    assert_eq!(store.append("s", 1, Vec::new()).await.unwrap(), 1);
    conflicts(store.append("s", 0, Vec::new()).await, "s", 0, 1);
}

/// An empty id is refused.
async fn a_session_needs_an_id<S: Store>(make: impl Fn() -> S) {
    let store = make();
    refused(store.append("", 0, numbered(0..1)).await, ErrorKind::InvalidRequest);
    store.append("s", 0, numbered(0..1)).await.unwrap();
    refused(store.fork("s", 0, "").await, ErrorKind::InvalidRequest);
    assert_eq!(store.list().await.unwrap().len(), 1);
}

/// An append that follows another version than the one that is there gets a [`Conflict`] and writes nothing.
async fn the_second_of_two_that_follow_one_version_gets_a_conflict<S: Store>(make: impl Fn() -> S) {
    let store = make();
    conflicts(store.append("s", 2, numbered(0..1)).await, "s", 2, 0);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    store.append("s", 0, numbered(0..2)).await.unwrap();
    for expected in [0, 1, 3, u64::MAX] {
        conflicts(store.append("s", expected, numbered(7..9)).await, "s", expected, 2);
    }
    assert_eq!(all(&store, "s").await, numbered(0..2));
    assert_eq!(store.append("s", 2, numbered(2..3)).await.unwrap(), 3);
}

/// A fork has the first entries of its origin; what either gets afterwards is its own.
async fn a_fork_has_the_first_entries_and_then_its_own<S: Store>(make: impl Fn() -> S) {
    let store = with_entries(make, 4).await;
    store.fork("s", 2, "f").await.unwrap();
    assert_eq!(all(&store, "f").await, numbered(0..2));

    conflicts(store.append("f", 0, numbered(0..1)).await, "f", 0, 2);
    assert_eq!(store.append("f", 2, vec![text_entry("of the fork")]).await.unwrap(), 3);
    assert_eq!(store.append("s", 4, vec![text_entry("of the other")]).await.unwrap(), 5);
    let own = |text: &str, shared: u64| [numbered(0..shared), vec![text_entry(text)]].concat();
    assert_eq!(all(&store, "f").await, own("of the fork", 2));
    assert_eq!(all(&store, "s").await, own("of the other", 4));
    for from in 0..4 {
        let rest = own("of the fork", 2).split_off(usize::try_from(from).unwrap().min(3));
        assert_eq!(store.load("f", from).await.unwrap(), Some(rest), "from {from}");
    }
}

/// A fork of a fork has the entries of both.
async fn a_fork_of_a_fork_reads_through_both<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("a", 0, numbered(0..5)).await.unwrap();
    store.fork("a", 3, "b").await.unwrap();
    store.append("b", 3, numbered(3..6)).await.unwrap();
    store.fork("b", 5, "c").await.unwrap();
    store.append("c", 5, numbered(5..7)).await.unwrap();
    // Of what its origin has inherited itself.
    store.fork("c", 2, "d").await.unwrap();
    store.append("d", 2, numbered(2..3)).await.unwrap();
    for (id, len) in [("a", 5), ("b", 6), ("c", 7), ("d", 3)] {
        for from in 0..=len {
            let loaded = store.load(id, from).await.unwrap();
            assert_eq!(loaded, Some(numbered(from..len)), "{id} from {from}");
        }
    }
}

/// A fork may take no entries, or all.
async fn a_fork_may_take_nothing_or_all<S: Store>(make: impl Fn() -> S) {
    let store = with_entries(make, 2).await;
    store.fork("s", 0, "nothing").await.unwrap();
    assert_eq!(all(&store, "nothing").await, []);
    store.fork("nothing", 0, "nothing of nothing").await.unwrap();
    store.append("nothing", 0, numbered(0..1)).await.unwrap();
    assert_eq!(all(&store, "nothing").await, numbered(0..1));
    assert_eq!(all(&store, "nothing of nothing").await, []);

    store.fork("s", 2, "all").await.unwrap();
    store.append("s", 2, numbered(8..9)).await.unwrap();
    assert_eq!(all(&store, "all").await, numbered(0..2));
    store.append("all", 2, numbered(2..3)).await.unwrap();
    assert_eq!(all(&store, "all").await, numbered(0..3));
}

/// A fork of a session that is not there, or of more entries than it has, is refused.
async fn a_fork_of_what_is_not_there_is_refused<S: Store>(make: impl Fn() -> S) {
    let store = make();
    refused(store.fork("s", 0, "f").await, ErrorKind::InvalidRequest);
    store.append("s", 0, numbered(0..2)).await.unwrap();
    refused(store.fork("s", 3, "f").await, ErrorKind::InvalidRequest);
    refused(store.fork("s", u64::MAX, "f").await, ErrorKind::InvalidRequest);
    assert_eq!(store.load("f", 0).await.unwrap(), None);
    // Nothing is left in its way.
    store.append("f", 0, numbered(0..1)).await.unwrap();
}

/// A fork does not replace a session.
async fn a_fork_onto_a_session_that_is_there_is_a_conflict<S: Store>(make: impl Fn() -> S) {
    let store = with_entries(make, 2).await;
    store.append("t", 0, numbered(5..6)).await.unwrap();
    conflicts(store.fork("s", 1, "t").await, "t", 0, 1);
    conflicts(store.fork("s", 1, "s").await, "s", 0, 2);
    store.fork("s", 0, "f").await.unwrap();
    conflicts(store.fork("s", 1, "f").await, "f", 0, 0);
    assert_eq!(all(&store, "t").await, numbered(5..6));
    assert_eq!(all(&store, "f").await, []);
}

/// `list` has every session with its version and origin, the one that was written last first.
async fn sessions_are_listed_by_their_last_write<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("a", 0, numbered(0..2)).await.unwrap();
    store.append("b", 0, numbered(0..1)).await.unwrap();
    store.fork("a", 1, "c").await.unwrap();
    store.append("b", 1, numbered(1..4)).await.unwrap();
    let listed = store.list().await.unwrap();
    let seen: Vec<_> = listed.iter().map(|l| (&*l.id, l.version, l.fork.clone())).collect();
    let fork = Some(Fork { id: "a".into(), at: 1 });
    assert_eq!(seen, [("b", 4, None), ("c", 1, fork), ("a", 2, None)]);
    assert!(listed.is_sorted_by(|a, b| a.updated >= b.updated));
    let age = SystemTime::now().duration_since(listed[0].updated).unwrap_or_default();
    assert!(age < Duration::from_hours(1), "{age:?}");
}

/// An id may be any text, also a path, and two ids are never one session.
async fn an_id_may_be_any_text<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let long = "x".repeat(300);
    let longer = "x".repeat(301);
    let wide = "Ünïcode😀".repeat(60);
    let ids = [
        "a",
        "A",
        "a/b",
        "../a",
        "..",
        ".",
        "/etc/passwd",
        "C:\\a",
        "nul",
        "a b",
        "a%2fb",
        "%",
        "é",
        "e\u{301}",
        "😀",
        "a\0b",
        "a\nb",
        "a\u{2028}b",
        "~",
        "*?\"<>|'; DROP TABLE session",
        "session",
        "a.jsonl",
        " ",
        "%s",
        &long,
        &longer,
        &wide,
    ];
    for (n, id) in (0..).zip(ids) {
        store
            .append(id, 0, vec![text_entry(id)])
            .await
            .unwrap_or_else(|error| panic!("{id:?}: {error}"));
        store.append(id, 1, numbered(n..n + 1)).await.unwrap();
    }
    for (n, id) in (0..).zip(ids) {
        let expected = [vec![text_entry(id)], numbered(n..n + 1)].concat();
        assert_eq!(store.load(id, 0).await.unwrap(), Some(expected), "{id:?}");
    }
    let mut listed: Vec<_> = store.list().await.unwrap().into_iter().map(|l| l.id).collect();
    listed.sort();
    let mut expected = ids.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    // Also as where a fork comes from, and as what it is called.
    store.fork(&wide, 1, &format!("{wide}{long}")).await.unwrap();
    assert_eq!(all(&store, &format!("{wide}{long}")).await, [text_entry(&wide)]);
}

/// Every kind of entry comes back as it was.
async fn every_kind_of_entry_comes_back_as_it_was<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("s", 0, every_kind()).await.unwrap();
    assert_eq!(all(&store, "s").await, every_kind());
}

/// Text comes back as it was, control characters included.
async fn text_comes_back_as_it_was<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let texts =
        ["", "\n", "\r\n", "a\u{2028}b\u{2029}\u{85}", "\0", "😀\u{feff}", "\\n\"", "\u{7f}\u{1b}"];
    let entries: Vec<Entry> = texts.into_iter().map(text_entry).collect();
    store.append("s", 0, entries.clone()).await.unwrap();
    assert_eq!(all(&store, "s").await, entries);
}

/// Entries of megabytes come back.
async fn a_huge_item_comes_back<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let entries =
        vec![text_entry(&"ü\n".repeat(700_000)), Item::text("x".repeat(2_000_000)).into()];
    store.append("s", 0, entries.clone()).await.unwrap();
    store.append("s", 2, numbered(2..3)).await.unwrap();
    assert!(all(&store, "s").await == [entries, numbered(2..3)].concat());
}

/// An entry that is nested too deeply to be read again is refused rather than lost.
async fn what_is_too_deep_to_be_read_again_is_refused<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let mut kept = numbered(0..1);
    store.append("s", 0, kept.clone()).await.unwrap();
    for depth in [100, 120, 124, 125, 126, 127, 128, 200] {
        let value = (0..depth).fold(json!(1), |value, _| json!([value]));
        let value = Json::from(value);
        let data = ProviderData { provider: "p".into(), model: "m".into(), value };
        let mut item = Item::reasoning("");
        item.provider_data = Some(Arc::new(data));
        let version = kept.len() as u64;
        match store.append("s", version, vec![text_entry("before"), item.clone().into()]).await {
            Ok(_) => kept.extend([text_entry("before"), item.into()]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Store),
        }
        assert!(all(&store, "s").await == kept, "{depth}");
    }
    assert!(kept.len() > 1);
}

/// Of many appends at once that follow one version one is written.
async fn of_many_at_once_one_wins_each_version<S: Store + 'static>(make: impl Fn() -> S) {
    const WRITERS: usize = 8;
    const EACH: u64 = 5;

    let store = Arc::new(make());
    let writer = |writer: usize| {
        let store = Arc::clone(&store);
        async move {
            let (mut version, mut written) = (0, 0);
            while written < EACH {
                match store
                    .append("s", version, vec![text_entry(&format!("{writer} {written}"))])
                    .await
                {
                    Ok(after) => (version, written) = (after, written + 1),
                    Err(error) => version = Conflict::of(&error).unwrap().found,
                }
            }
        }
    };
    join_all((0..WRITERS).map(writer)).await;
    let entries = all(&store, "s").await;
    assert_eq!(entries.len() as u64, WRITERS as u64 * EACH);
    for writer in 0..WRITERS {
        let own = (0..EACH).map(|n| text_entry(&format!("{writer} {n}")));
        let found = entries.iter().filter(|entry| own.clone().any(|own| own == **entry));
        assert!(found.cloned().eq(own.clone()), "of {writer}");
    }
}

/// An append whose future is dropped is written whole or not at all, and not if it was never polled.
async fn a_dropped_append_is_written_whole_or_not_at_all<S: Store>(make: impl Fn() -> S) {
    let store = make();
    // Nothing was handed over.
    drop(store.append("s", 0, numbered(0..3)));
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    let mut version = 0;
    for _ in 0..20 {
        let _ = store.append("s", version, numbered(version..version + 3)).now_or_never();
        let found = store.load("s", 0).await.unwrap().unwrap_or_default().len() as u64;
        assert!(found == version || found == version + 3, "{found} after {version}");
        version = found;
    }
    assert_eq!(
        store.append("s", version, numbered(version..version + 1)).await.unwrap(),
        version + 1
    );
    assert_eq!(all(&store, "s").await, numbered(0..version + 1));
}

/// A store in an `Arc` works from any thread.
async fn clones_of_a_shared_store_work_from_any_thread<S: Store + 'static>(make: impl Fn() -> S) {
    let store: Arc<dyn Store> = Arc::new(make());
    let other = Arc::clone(&store);
    let runtime = Handle::try_current();
    let (answer, answered) = oneshot::channel();
    // The runtime of the caller, if there is one, goes on meanwhile: the store may need it.
    let there = std::thread::spawn(move || {
        let appending = other.append("s", 0, numbered(0..2));
        let _ = answer.send(match runtime {
            Ok(runtime) => runtime.block_on(appending),
            Err(_) => Builder::new_current_thread().build().unwrap().block_on(appending),
        });
    });
    assert_eq!(answered.await.unwrap().unwrap(), 2);
    there.join().unwrap();
    assert_eq!(all(&*store, "s").await, numbered(0..2));
}

/// What a store answers that may not support it.
#[track_caller]
fn supported<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(error) if error.kind() == ErrorKind::Unsupported => None,
        Err(error) => panic!("{error}"),
    }
}

/// A session that was deleted is not there, and another one may get its id.
async fn a_deleted_session_is_gone_and_its_id_is_free<S: Store>(make: impl Fn() -> S) {
    let store = with_entries(make, 3).await;
    store.append("t", 0, numbered(5..6)).await.unwrap();
    let Some(was_there) = supported(store.delete("s").await) else { return };
    assert!(was_there);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    let listed = store.list().await.unwrap();
    assert_eq!(listed.iter().map(|listed| &*listed.id).collect::<Vec<_>>(), ["t"]);
    for id in ["s", "never", ""] {
        assert!(!store.delete(id).await.unwrap(), "{id:?}");
    }
    assert_eq!(store.append("s", 0, numbered(7..8)).await.unwrap(), 1);
    assert_eq!(all(&store, "s").await, numbered(7..8));
    assert_eq!(all(&store, "t").await, numbered(5..6));
}

/// Those who have a session open when it is deleted get a [`Conflict`] with their next append.
async fn an_append_to_a_deleted_session_is_a_conflict<S: Store>(make: impl Fn() -> S) {
    let store = with_entries(make, 3).await;
    if supported(store.delete("s").await).is_none() {
        return;
    }
    conflicts(store.append("s", 3, numbered(3..4)).await, "s", 3, 0);
    refused(store.fork("s", 1, "f").await, ErrorKind::InvalidRequest);
    assert_eq!(store.list().await.unwrap(), []);
}

/// A session is not deleted before those that were forked from it.
async fn a_session_that_another_was_forked_from_is_not_deleted<S: Store>(make: impl Fn() -> S) {
    let store = with_entries(make, 3).await;
    store.fork("s", 2, "f").await.unwrap();
    store.fork("f", 0, "g").await.unwrap();
    if store.delete("s").await.is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
        return;
    }
    for id in ["s", "f"] {
        refused(store.delete(id).await, ErrorKind::InvalidRequest);
    }
    assert_eq!(all(&store, "f").await, numbered(0..2));
    for id in ["g", "f", "s"] {
        assert!(store.delete(id).await.unwrap(), "{id}");
    }
    assert_eq!(store.list().await.unwrap(), []);
}

/// `prune` removes the sessions whose last write was before the time given, and no other.
async fn prune_removes_what_was_written_last_before_a_time<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for id in ["a", "b", "c", "d"] {
        store.append(id, 0, numbered(0..2)).await.unwrap();
    }
    store.append("a", 2, numbered(2..3)).await.unwrap();
    // From the newest: a, d, c, b.
    let listed = store.list().await.unwrap();
    let Some(removed) = supported(store.prune(listed[3].updated).await) else { return };
    assert_eq!(removed, [""; 0]);
    let mut removed = store.prune(listed[1].updated).await.unwrap();
    removed.sort_unstable();
    assert_eq!(removed, ["b", "c"]);
    let left = store.list().await.unwrap();
    assert_eq!(left, listed[..2]);
    assert_eq!(all(&store, "a").await, numbered(0..3));
    conflicts(store.append("b", 2, numbered(2..3)).await, "b", 2, 0);
}

/// `prune` keeps an old session that a session which stays was forked from.
async fn prune_keeps_what_a_remaining_session_was_forked_from<S: Store>(make: impl Fn() -> S) {
    let store = with_entries(make, 2).await;
    store.append("other", 0, numbered(0..1)).await.unwrap();
    store.fork("s", 2, "f").await.unwrap();
    store.fork("f", 2, "g").await.unwrap();
    store.append("g", 2, numbered(2..3)).await.unwrap();
    let newest = store.list().await.unwrap()[0].updated;
    let Some(removed) = supported(store.prune(newest).await) else { return };
    assert_eq!(removed, ["other"]);
    assert_eq!(all(&store, "g").await, numbered(0..3));
    // With the last fork all of them go, each before what it was forked from.
    let removed = store.prune(newest + Duration::from_secs(1)).await.unwrap();
    assert_eq!(removed, ["g", "f", "s"]);
    assert_eq!(store.list().await.unwrap(), []);
}
