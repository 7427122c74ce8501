//! Tests for checking whether an implementation of [`Store`] fulfills the trait's contract.
//!
//! [`check_store`] runs all checks on stores created by a given function, and panics if a check
//! fails. Each created store must be empty. [`session_suite!`](macro@crate::session_suite) creates
//! one test for each check, named after the check.
//!
//! ```
//! use turnstream::session::MemoryStore;
//! use turnstream_testing::session_suite;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // In a test: `#[tokio::test] async fn my_store_keeps_the_contract()`.
//! session_suite::check_store(MemoryStore::new).await;
//! # }
//! ```
//!
//! Each check creates its own store. The data that a check writes is not removed. A store that
//! returns [`Unsupported`](ErrorKind::Unsupported) from [`delete`](Store::delete) and
//! [`prune`](Store::prune) passes the deletion checks, and a store whose leases have epoch 0 passes
//! the lease checks. Two checks write sessions in quick succession and expect
//! [`updated_at`](turnstream::session::SessionInfo::updated_at) to reflect the order of these
//! writes. A store whose timestamps have a precision of one millisecond must give each write a
//! later timestamp than the previous write. Crashes are not tested.
#![expect(clippy::missing_panics_doc, reason = "a failed claim is a panic")]

mod entries;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::join_all;
use serde_json::json;
use tokio::runtime::{Builder, Handle};
use turnstream::error::{Error, ErrorKind};
use turnstream::item::{Item, ProviderData, RawJson};
use turnstream::session::{AlreadyLeased, Conflict, Entry, ForkOrigin, Lease, LeaseLost, Store};

pub use entries::{entries_of_every_kind, numbered_entries, text_entry};

/// Creates a module that contains one test for each check in the store
/// [suite](mod@crate::session_suite).
///
/// The arguments are the name of the module and a function that creates an empty store. The tests
/// are marked with `#[tokio::test]`, so the crate that uses this macro needs tokio with the
/// `macros` and `rt` features.
///
/// ```
/// use turnstream::session::MemoryStore;
///
/// turnstream_testing::session_suite!(in_memory, || super::MemoryStore::new());
/// ```
///
/// If `ignore = "reason"` is given between the two arguments, each test is marked with `#[ignore]`.
#[macro_export(local_inner_macros)]
macro_rules! session_suite {
    ($name:ident, $make:expr) => {
        session_suite! { @claims tests $name, $make }
    };
    // This form is for stores that need a server. The tests run only with `--ignored`.
    ($name:ident, ignore = $reason:literal, $make:expr) => {
        session_suite! { @claims ignored_tests $name, $reason, $make }
    };
    (@claims $rule:ident $($with:tt)*) => {
        session_suite! { @$rule [
            loading_an_unknown_session_returns_none
            append_returns_the_version_and_load_returns_the_entries
            load_starts_at_the_given_entry_number
            an_append_of_no_entries_writes_nothing
            an_empty_session_id_is_an_error
            a_second_append_at_the_same_version_is_a_conflict
            a_fork_inherits_the_first_entries_and_appends_its_own
            a_fork_of_a_fork_inherits_the_entries_of_both
            a_fork_may_inherit_no_entries_or_all_of_them
            forking_a_missing_session_or_entry_is_an_error
            forking_onto_an_existing_session_is_a_conflict
            list_orders_sessions_by_last_write
            a_session_id_may_be_any_text
            every_kind_of_entry_round_trips
            any_text_round_trips
            a_huge_item_round_trips
            an_entry_nested_too_deeply_to_parse_is_rejected
            of_concurrent_appends_at_one_version_exactly_one_succeeds
            a_dropped_append_is_atomic
            clones_of_a_store_work_on_any_thread
            a_deleted_session_is_gone_and_its_id_can_be_reused
            an_append_to_a_deleted_session_is_a_conflict
            deleting_the_origin_of_a_fork_is_an_error
            prune_removes_sessions_last_written_before_the_cutoff
            prune_keeps_the_origins_of_remaining_forks
            pages_of_the_list_contain_every_session_once
            a_lease_excludes_others_until_its_last_clone_is_dropped
            appends_under_a_lease_succeed_and_each_lease_has_a_higher_epoch
            an_append_with_an_earlier_lease_is_refused
            an_append_with_the_lease_of_another_session_is_refused
            a_lease_does_not_create_a_session
            a_leased_session_can_be_read_forked_and_deleted
            of_concurrent_lease_requests_exactly_one_succeeds
        ] $($with)* }
    };
    (@tests [$($claim:ident)*] $name:ident, $make:expr) => {
        #[cfg(test)]
        mod $name {
            $(
                #[tokio::test]
                async fn $claim() {
                    let name = ::core::stringify!($claim);
                    $crate::session_suite::check_claim($make, name).await;
                }
            )*
        }
    };
    (@ignored_tests [$($claim:ident)*] $name:ident, $reason:literal, $make:expr) => {
        #[cfg(test)]
        mod $name {
            $(
                #[tokio::test]
                #[ignore = $reason]
                async fn $claim() {
                    let name = ::core::stringify!($claim);
                    $crate::session_suite::check_claim($make, name).await;
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

/// Runs all checks, one after the other.
///
/// Dropping the future cancels the check that is running, and the remaining checks do not run.
///
/// # Panics
///
/// Panics if a check fails. The panic message contains the location of the failure.
pub async fn check_store<S: Store + 'static>(make: impl Fn() -> S) {
    run_claims(make, None).await;
}

/// Runs the check called `claim`, which is also the name of the check's test.
///
/// # Panics
///
/// Panics if the check fails, or if no check has this name.
pub async fn check_claim<S: Store + 'static>(make: impl Fn() -> S, claim: &str) {
    assert!(run_claims(make, Some(claim)).await, "the suite has no claim `{claim}`");
}

/// Runs all checks, or only the check `chosen`. Returns whether any check was run.
async fn run_claims<S: Store + 'static>(make: impl Fn() -> S, chosen: Option<&str>) -> bool {
    let mut found = false;
    session_suite! { @claims run make, chosen, found }
    found
}

/// Creates a store whose session `s` contains the given number of entries.
async fn store_with_entries<S: Store>(make: impl Fn() -> S, entries: u64) -> S {
    let store = make();
    store.append("s", 0, numbered_entries(0..entries)).await.unwrap();
    store
}

async fn all_entries(store: &dyn Store, id: &str) -> Vec<Entry> {
    store.load(id, 0).await.unwrap().unwrap()
}

#[track_caller]
fn expect_error<T: Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

#[track_caller]
fn expect_conflict<T: Debug>(result: Result<T, Error>, id: &str, expected: u64, found: u64) {
    let error = expect_error(result, ErrorKind::Conflict);
    assert_eq!(error.find_source::<Conflict>(), Some(&Conflict { id: id.into(), expected, found }));
}

/// Checks that `load` returns `None` for a session that was never written, and that `list` does not
/// contain the session.
async fn loading_an_unknown_session_returns_none<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    assert_eq!(store.load("", 0).await.unwrap(), None);
    assert_eq!(store.list().await.unwrap(), []);
}

/// Checks that `append` returns the new version, and that `load` returns the appended entries in
/// order.
async fn append_returns_the_version_and_load_returns_the_entries<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.append("s", 0, numbered_entries(0..1)).await.unwrap(), 1);
    assert_eq!(store.append("s", 1, numbered_entries(1..4)).await.unwrap(), 4);
    assert_eq!(store.append("s", 4, numbered_entries(4..5)).await.unwrap(), 5);
    assert_eq!(all_entries(&store, "s").await, numbered_entries(0..5));
    assert_eq!(store.load("t", 0).await.unwrap(), None);
}

/// Checks that `load` returns the entries from the given number onward, and returns no entries if
/// the number is beyond the last entry.
async fn load_starts_at_the_given_entry_number<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 3).await;
    for from in 0..3 {
        assert_eq!(store.load("s", from).await.unwrap(), Some(numbered_entries(from..3)));
    }
    for beyond in [3, 4, u64::MAX] {
        assert_eq!(store.load("s", beyond).await.unwrap(), Some(Vec::new()));
    }
}

/// Checks that an append without entries does not create a session, and that the expected version
/// is still checked.
async fn an_append_of_no_entries_writes_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.append("s", 0, Vec::new()).await.unwrap(), 0);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    expect_conflict(store.append("s", 1, Vec::new()).await, "s", 1, 0);
    store.append("s", 0, numbered_entries(0..1)).await.unwrap();
    assert_eq!(store.append("s", 1, Vec::new()).await.unwrap(), 1);
    expect_conflict(store.append("s", 0, Vec::new()).await, "s", 0, 1);
}

/// Checks that an empty session id causes an error.
async fn an_empty_session_id_is_an_error<S: Store>(make: impl Fn() -> S) {
    let store = make();
    expect_error(store.append("", 0, numbered_entries(0..1)).await, ErrorKind::InvalidRequest);
    store.append("s", 0, numbered_entries(0..1)).await.unwrap();
    expect_error(store.fork("s", 0, "").await, ErrorKind::InvalidRequest);
    assert_eq!(store.list().await.unwrap().len(), 1);
}

/// Checks that an append fails with a [`Conflict`] and writes nothing if the expected version is
/// not the current version.
async fn a_second_append_at_the_same_version_is_a_conflict<S: Store>(make: impl Fn() -> S) {
    let store = make();
    expect_conflict(store.append("s", 2, numbered_entries(0..1)).await, "s", 2, 0);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    store.append("s", 0, numbered_entries(0..2)).await.unwrap();
    for expected in [0, 1, 3, u64::MAX] {
        expect_conflict(
            store.append("s", expected, numbered_entries(7..9)).await,
            "s",
            expected,
            2,
        );
    }
    assert_eq!(all_entries(&store, "s").await, numbered_entries(0..2));
    assert_eq!(store.append("s", 2, numbered_entries(2..3)).await.unwrap(), 3);
}

/// Checks that a fork contains the first entries of its original session, and that later appends
/// affect only one of the two sessions.
async fn a_fork_inherits_the_first_entries_and_appends_its_own<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 4).await;
    store.fork("s", 2, "f").await.unwrap();
    assert_eq!(all_entries(&store, "f").await, numbered_entries(0..2));

    expect_conflict(store.append("f", 0, numbered_entries(0..1)).await, "f", 0, 2);
    assert_eq!(store.append("f", 2, vec![text_entry("of the fork")]).await.unwrap(), 3);
    assert_eq!(store.append("s", 4, vec![text_entry("of the other")]).await.unwrap(), 5);
    let own =
        |text: &str, shared: u64| [numbered_entries(0..shared), vec![text_entry(text)]].concat();
    assert_eq!(all_entries(&store, "f").await, own("of the fork", 2));
    assert_eq!(all_entries(&store, "s").await, own("of the other", 4));
    for from in 0..4 {
        let rest = own("of the fork", 2).split_off(usize::try_from(from).unwrap().min(3));
        assert_eq!(store.load("f", from).await.unwrap(), Some(rest), "from {from}");
    }
}

/// Checks that a fork of a fork contains the entries of both of its ancestors.
async fn a_fork_of_a_fork_inherits_the_entries_of_both<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("a", 0, numbered_entries(0..5)).await.unwrap();
    store.fork("a", 3, "b").await.unwrap();
    store.append("b", 3, numbered_entries(3..6)).await.unwrap();
    store.fork("b", 5, "c").await.unwrap();
    store.append("c", 5, numbered_entries(5..7)).await.unwrap();
    // Forks at an entry that the original session has itself inherited.
    store.fork("c", 2, "d").await.unwrap();
    store.append("d", 2, numbered_entries(2..3)).await.unwrap();
    for (id, len) in [("a", 5), ("b", 6), ("c", 7), ("d", 3)] {
        for from in 0..=len {
            let loaded = store.load(id, from).await.unwrap();
            assert_eq!(loaded, Some(numbered_entries(from..len)), "{id} from {from}");
        }
    }
}

/// Checks that a fork can inherit no entries, or all entries.
async fn a_fork_may_inherit_no_entries_or_all_of_them<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 2).await;
    store.fork("s", 0, "nothing").await.unwrap();
    assert_eq!(all_entries(&store, "nothing").await, []);
    store.fork("nothing", 0, "nothing of nothing").await.unwrap();
    store.append("nothing", 0, numbered_entries(0..1)).await.unwrap();
    assert_eq!(all_entries(&store, "nothing").await, numbered_entries(0..1));
    assert_eq!(all_entries(&store, "nothing of nothing").await, []);

    store.fork("s", 2, "all_entries").await.unwrap();
    store.append("s", 2, numbered_entries(8..9)).await.unwrap();
    assert_eq!(all_entries(&store, "all_entries").await, numbered_entries(0..2));
    store.append("all_entries", 2, numbered_entries(2..3)).await.unwrap();
    assert_eq!(all_entries(&store, "all_entries").await, numbered_entries(0..3));
}

/// Checks that forking fails if the original session does not exist or contains too few entries.
async fn forking_a_missing_session_or_entry_is_an_error<S: Store>(make: impl Fn() -> S) {
    let store = make();
    expect_error(store.fork("s", 0, "f").await, ErrorKind::InvalidRequest);
    store.append("s", 0, numbered_entries(0..2)).await.unwrap();
    expect_error(store.fork("s", 3, "f").await, ErrorKind::InvalidRequest);
    expect_error(store.fork("s", u64::MAX, "f").await, ErrorKind::InvalidRequest);
    assert_eq!(store.load("f", 0).await.unwrap(), None);
    // The failed forks did not create a session.
    store.append("f", 0, numbered_entries(0..1)).await.unwrap();
}

/// Checks that a fork does not replace an existing session.
async fn forking_onto_an_existing_session_is_a_conflict<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 2).await;
    store.append("t", 0, numbered_entries(5..6)).await.unwrap();
    expect_conflict(store.fork("s", 1, "t").await, "t", 0, 1);
    expect_conflict(store.fork("s", 1, "s").await, "s", 0, 2);
    store.fork("s", 0, "f").await.unwrap();
    expect_conflict(store.fork("s", 1, "f").await, "f", 0, 0);
    assert_eq!(all_entries(&store, "t").await, numbered_entries(5..6));
    assert_eq!(all_entries(&store, "f").await, []);
}

/// Checks that `list` returns every session with its version and origin, starting with the most
/// recently written session.
async fn list_orders_sessions_by_last_write<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("a", 0, numbered_entries(0..2)).await.unwrap();
    store.append("b", 0, numbered_entries(0..1)).await.unwrap();
    store.fork("a", 1, "c").await.unwrap();
    store.append("b", 1, numbered_entries(1..4)).await.unwrap();
    let listed = store.list().await.unwrap();
    let seen: Vec<_> = listed.iter().map(|l| (&*l.id, l.version, l.origin.clone())).collect();
    let fork = Some(ForkOrigin { id: "a".into(), at: 1 });
    assert_eq!(seen, [("b", 4, None), ("c", 1, fork), ("a", 2, None)]);
    assert!(listed.is_sorted_by(|a, b| a.updated_at >= b.updated_at));
    let age = SystemTime::now().duration_since(listed[0].updated_at).unwrap_or_default();
    assert!(age < Duration::from_hours(1), "{age:?}");
}

/// Checks that an id can be any non-empty string, including a path, and that two different ids
/// never refer to the same session.
async fn a_session_id_may_be_any_text<S: Store>(make: impl Fn() -> S) {
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
        store.append(id, 1, numbered_entries(n..n + 1)).await.unwrap();
    }
    for (n, id) in (0..).zip(ids) {
        let expected = [vec![text_entry(id)], numbered_entries(n..n + 1)].concat();
        assert_eq!(store.load(id, 0).await.unwrap(), Some(expected), "{id:?}");
    }
    let mut listed: Vec<_> = store.list().await.unwrap().into_iter().map(|l| l.id).collect();
    listed.sort();
    let mut expected = ids.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    // Such ids also work for the original session and for the fork.
    store.fork(&wide, 1, &format!("{wide}{long}")).await.unwrap();
    assert_eq!(all_entries(&store, &format!("{wide}{long}")).await, [text_entry(&wide)]);
}

/// Checks that entries of every kind are loaded exactly as they were appended.
async fn every_kind_of_entry_round_trips<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("s", 0, entries_of_every_kind()).await.unwrap();
    assert_eq!(all_entries(&store, "s").await, entries_of_every_kind());
}

/// Checks that text is loaded exactly as it was appended, including control characters.
async fn any_text_round_trips<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let texts =
        ["", "\n", "\r\n", "a\u{2028}b\u{2029}\u{85}", "\0", "😀\u{feff}", "\\n\"", "\u{7f}\u{1b}"];
    let entries: Vec<Entry> = texts.into_iter().map(text_entry).collect();
    store.append("s", 0, entries.clone()).await.unwrap();
    assert_eq!(all_entries(&store, "s").await, entries);
}

/// Checks that entries of several megabytes can be loaded.
async fn a_huge_item_round_trips<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let entries =
        vec![text_entry(&"ü\n".repeat(700_000)), Item::text("x".repeat(2_000_000)).into()];
    store.append("s", 0, entries.clone()).await.unwrap();
    store.append("s", 2, numbered_entries(2..3)).await.unwrap();
    assert!(all_entries(&store, "s").await == [entries, numbered_entries(2..3)].concat());
}

/// Checks that an entry is rejected, instead of being lost, if it is nested too deeply to be parsed
/// again.
async fn an_entry_nested_too_deeply_to_parse_is_rejected<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let mut expected = numbered_entries(0..1);
    store.append("s", 0, expected.clone()).await.unwrap();
    for depth in [100, 120, 124, 125, 126, 127, 128, 200] {
        let value = (0..depth).fold(json!(1), |value, _| json!([value]));
        let value = RawJson::from(value);
        let data = ProviderData { provider: "p".into(), model: "m".into(), value };
        let mut item = Item::reasoning("");
        item.provider_data = Some(Arc::new(data));
        let version = expected.len() as u64;
        match store.append("s", version, vec![text_entry("before"), item.clone().into()]).await {
            Ok(_) => expected.extend([text_entry("before"), item.into()]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Store),
        }
        assert!(all_entries(&store, "s").await == expected, "{depth}");
    }
    assert!(expected.len() > 1);
}

/// Checks that if many concurrent appends expect the same version, exactly one of them is written.
async fn of_concurrent_appends_at_one_version_exactly_one_succeeds<S: Store + 'static>(
    make: impl Fn() -> S,
) {
    const WRITER_COUNT: usize = 8;
    const APPENDS_PER_WRITER: u64 = 5;

    let store = Arc::new(make());
    let writer = |writer: usize| {
        let store = Arc::clone(&store);
        async move {
            let (mut version, mut written) = (0, 0);
            while written < APPENDS_PER_WRITER {
                match store
                    .append("s", version, vec![text_entry(&format!("{writer} {written}"))])
                    .await
                {
                    Ok(after) => (version, written) = (after, written + 1),
                    Err(error) => version = error.find_source::<Conflict>().unwrap().found,
                }
            }
        }
    };
    join_all((0..WRITER_COUNT).map(writer)).await;
    let entries = all_entries(&store, "s").await;
    assert_eq!(entries.len() as u64, WRITER_COUNT as u64 * APPENDS_PER_WRITER);
    for writer in 0..WRITER_COUNT {
        let own = (0..APPENDS_PER_WRITER).map(|n| text_entry(&format!("{writer} {n}")));
        let found = entries.iter().filter(|entry| own.clone().any(|own| own == **entry));
        assert!(found.cloned().eq(own.clone()), "of {writer}");
    }
}

/// Checks that an append whose future is dropped is written completely or not at all. An append
/// whose future is never polled must not be written at all.
async fn a_dropped_append_is_atomic<S: Store>(make: impl Fn() -> S) {
    let store = make();
    // The future was not polled, so nothing was submitted.
    drop(store.append("s", 0, numbered_entries(0..3)));
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    let mut version = 0;
    for _ in 0..20 {
        let _ = store.append("s", version, numbered_entries(version..version + 3)).now_or_never();
        let found = store.load("s", 0).await.unwrap().unwrap_or_default().len() as u64;
        assert!(found == version || found == version + 3, "{found} after {version}");
        version = found;
    }
    assert_eq!(
        store.append("s", version, numbered_entries(version..version + 1)).await.unwrap(),
        version + 1
    );
    assert_eq!(all_entries(&store, "s").await, numbered_entries(0..version + 1));
}

/// Checks that a store in an `Arc` works on any thread.
async fn clones_of_a_store_work_on_any_thread<S: Store + 'static>(make: impl Fn() -> S) {
    let store: Arc<dyn Store> = Arc::new(make());
    let other = Arc::clone(&store);
    let runtime = Handle::try_current();
    let (answer, answered) = oneshot::channel();
    // The caller's runtime, if any, keeps running in the meantime, because the store may need it.
    let there = std::thread::spawn(move || {
        let appending = other.append("s", 0, numbered_entries(0..2));
        let _ = answer.send(match runtime {
            Ok(runtime) => runtime.block_on(appending),
            Err(_) => Builder::new_current_thread().build().unwrap().block_on(appending),
        });
    });
    assert_eq!(answered.await.unwrap().unwrap(), 2);
    there.join().unwrap();
    assert_eq!(all_entries(&*store, "s").await, numbered_entries(0..2));
}

/// Returns the value of a successful operation, or `None` if the store does not support the
/// operation.
#[track_caller]
fn skip_if_unsupported<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(error) if error.kind() == ErrorKind::Unsupported => None,
        Err(error) => panic!("{error}"),
    }
}

/// Checks that a deleted session no longer exists, and that its id can be used again.
async fn a_deleted_session_is_gone_and_its_id_can_be_reused<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 3).await;
    store.append("t", 0, numbered_entries(5..6)).await.unwrap();
    let Some(was_there) = skip_if_unsupported(store.delete("s").await) else { return };
    assert!(was_there);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    let listed = store.list().await.unwrap();
    assert_eq!(listed.iter().map(|listed| &*listed.id).collect::<Vec<_>>(), ["t"]);
    for id in ["s", "never", ""] {
        assert!(!store.delete(id).await.unwrap(), "{id:?}");
    }
    assert_eq!(store.append("s", 0, numbered_entries(7..8)).await.unwrap(), 1);
    assert_eq!(all_entries(&store, "s").await, numbered_entries(7..8));
    assert_eq!(all_entries(&store, "t").await, numbered_entries(5..6));
}

/// Checks that if a session is deleted while other processes have it open, their next append fails
/// with a [`Conflict`].
async fn an_append_to_a_deleted_session_is_a_conflict<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 3).await;
    if skip_if_unsupported(store.delete("s").await).is_none() {
        return;
    }
    expect_conflict(store.append("s", 3, numbered_entries(3..4)).await, "s", 3, 0);
    expect_error(store.fork("s", 1, "f").await, ErrorKind::InvalidRequest);
    assert_eq!(store.list().await.unwrap(), []);
}

/// Checks that a session cannot be deleted as long as it has forks.
async fn deleting_the_origin_of_a_fork_is_an_error<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 3).await;
    store.fork("s", 2, "f").await.unwrap();
    store.fork("f", 0, "g").await.unwrap();
    if store.delete("s").await.is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
        return;
    }
    for id in ["s", "f"] {
        expect_error(store.delete(id).await, ErrorKind::InvalidRequest);
    }
    assert_eq!(all_entries(&store, "f").await, numbered_entries(0..2));
    for id in ["g", "f", "s"] {
        assert!(store.delete(id).await.unwrap(), "{id}");
    }
    assert_eq!(store.list().await.unwrap(), []);
}

/// Checks that `prune` removes exactly the sessions whose last write was before the given time.
async fn prune_removes_sessions_last_written_before_the_cutoff<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for id in ["a", "b", "c", "d"] {
        store.append(id, 0, numbered_entries(0..2)).await.unwrap();
    }
    store.append("a", 2, numbered_entries(2..3)).await.unwrap();
    // Newest first: a, d, c, b.
    let listed = store.list().await.unwrap();
    let Some(removed) = skip_if_unsupported(store.prune(listed[3].updated_at).await) else {
        return;
    };
    assert_eq!(removed, [""; 0]);
    let mut removed = store.prune(listed[1].updated_at).await.unwrap();
    removed.sort_unstable();
    assert_eq!(removed, ["b", "c"]);
    let left = store.list().await.unwrap();
    assert_eq!(left, listed[..2]);
    assert_eq!(all_entries(&store, "a").await, numbered_entries(0..3));
    expect_conflict(store.append("b", 2, numbered_entries(2..3)).await, "b", 2, 0);
}

/// Checks that `prune` keeps the original session of each fork that is kept.
async fn prune_keeps_the_origins_of_remaining_forks<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 2).await;
    store.append("other", 0, numbered_entries(0..1)).await.unwrap();
    store.fork("s", 2, "f").await.unwrap();
    store.fork("f", 2, "g").await.unwrap();
    store.append("g", 2, numbered_entries(2..3)).await.unwrap();
    let newest = store.list().await.unwrap()[0].updated_at;
    let Some(removed) = skip_if_unsupported(store.prune(newest).await) else { return };
    assert_eq!(removed, ["other"]);
    assert_eq!(all_entries(&store, "g").await, numbered_entries(0..3));
    // If the last fork is pruned, all its ancestors are also pruned, each fork before its original
    // session.
    let removed = store.prune(newest + Duration::from_secs(1)).await.unwrap();
    assert_eq!(removed, ["g", "f", "s"]);
    assert_eq!(store.list().await.unwrap(), []);
}

/// Checks that all pages together contain every session in the list once.
async fn pages_of_the_list_contain_every_session_once<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.list_page(None, 3).await.unwrap(), []);
    for n in 0..7 {
        store.append(&format!("s{n}"), 0, numbered_entries(0..n + 1)).await.unwrap();
    }
    store.fork("s3", 2, "f").await.unwrap();
    let listed = store.list().await.unwrap();
    for limit in [1, 3, 8, 100] {
        let mut pages = Vec::new();
        loop {
            let page = store.list_page(pages.last(), limit).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            pages.extend(page);
        }
        assert_eq!(pages, listed, "by {limit}");
    }
    assert_eq!(store.list_page(None, 0).await.unwrap(), []);
    // A session that is written between two pages does not appear on a later page.
    let page = store.list_page(None, 6).await.unwrap();
    store.append(&listed[7].id, listed[7].version, numbered_entries(9..10)).await.unwrap();
    assert_eq!(store.list_page(page.last(), 6).await.unwrap(), listed[6..7]);
}

/// Takes a lease. Returns `None` if the store does not support leases.
async fn take_lease(store: &dyn Store, id: &str) -> Option<Lease> {
    let lease = store.lease(id).await.unwrap();
    (lease.epoch() > 0).then_some(lease)
}

#[track_caller]
fn expect_leased(result: Result<Lease, Error>, id: &str) {
    let error = expect_error(result, ErrorKind::Conflict);
    assert_eq!(error.find_source::<AlreadyLeased>(), Some(&AlreadyLeased { id: id.into() }));
}

/// Checks that a lease cannot be taken again while it exists, and that dropping its last clone
/// releases the lease immediately. Also checks that each session has its own lease.
async fn a_lease_excludes_others_until_its_last_clone_is_dropped<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 1).await;
    let Some(lease) = take_lease(&store, "s").await else { return };
    expect_leased(store.lease("s").await, "s");
    let of_another = store.lease("t").await.unwrap();
    let clone = lease.clone();
    drop(lease);
    expect_leased(store.lease("s").await, "s");
    drop(clone);
    let again = store.lease("s").await.unwrap();
    expect_leased(store.lease("t").await, "t");
    drop((again, of_another));
    expect_error(store.lease("").await, ErrorKind::InvalidRequest);
}

/// Checks that appends under a lease verify the version like all other appends, and that each lease
/// has a higher epoch than the previous lease.
async fn appends_under_a_lease_succeed_and_each_lease_has_a_higher_epoch<S: Store>(
    make: impl Fn() -> S,
) {
    let store = make();
    let mut last = 0;
    for n in 0..4 {
        let Some(lease) = take_lease(&store, "s").await else { return };
        assert!(lease.epoch() > last, "{} after {last}", lease.epoch());
        last = lease.epoch();
        assert_eq!(store.append_leased(&lease, "s", n, Vec::new()).await.unwrap(), n);
        let version =
            store.append_leased(&lease, "s", n, numbered_entries(n..n + 1)).await.unwrap();
        assert_eq!(version, n + 1);
        expect_conflict(
            store.append_leased(&lease, "s", n, numbered_entries(8..9)).await,
            "s",
            n,
            n + 1,
        );
    }
    assert_eq!(all_entries(&store, "s").await, numbered_entries(0..4));
}

/// Checks that an append with the epoch of an earlier lease fails with [`LeaseLost`] and writes
/// nothing.
async fn an_append_with_an_earlier_lease_is_refused<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 1).await;
    let Some(first) = take_lease(&store, "s").await else { return };
    // Simulates the lease of a process that has not noticed the loss of its lease.
    let stale = Lease::new(first.epoch(), ());
    drop(first);
    let second = store.lease("s").await.unwrap();
    let refused = store.append_leased(&stale, "s", 1, numbered_entries(7..8)).await;
    let error = expect_error(refused, ErrorKind::Conflict);
    let lost = LeaseLost { id: "s".into(), epoch: stale.epoch() };
    assert_eq!(error.find_source::<LeaseLost>(), Some(&lost));
    assert_eq!(store.append_leased(&second, "s", 1, numbered_entries(1..2)).await.unwrap(), 2);
    assert_eq!(all_entries(&store, "s").await, numbered_entries(0..2));
}

/// Checks that a lease is valid for one session only, so that an append to another session fails.
async fn an_append_with_the_lease_of_another_session_is_refused<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 1).await;
    let Some(other) = take_lease(&store, "t").await else { return };
    let refused = store.append_leased(&other, "s", 1, numbered_entries(7..8)).await;
    let error = expect_error(refused, ErrorKind::Conflict);
    assert!(error.find_source::<LeaseLost>().is_some(), "{error}");
    assert_eq!(all_entries(&store, "s").await, numbered_entries(0..1));
}

/// Checks that taking a lease on a session that does not exist does not create the session.
async fn a_lease_does_not_create_a_session<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let Some(lease) = take_lease(&store, "s").await else { return };
    for _ in 0..2 {
        assert_eq!(store.load("s", 0).await.unwrap(), None);
        assert_eq!(store.list().await.unwrap(), []);
        assert_eq!(store.list_page(None, 9).await.unwrap(), []);
        expect_error(store.fork("s", 0, "f").await, ErrorKind::InvalidRequest);
        if let Some(was_there) = skip_if_unsupported(store.delete("s").await) {
            assert!(!was_there);
        }
    }
    drop(lease);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    assert_eq!(store.append("s", 0, numbered_entries(0..1)).await.unwrap(), 1);
    // The lease does not prevent a fork with this id.
    let lease = store.lease("f").await.unwrap();
    store.fork("s", 1, "f").await.unwrap();
    assert_eq!(store.append_leased(&lease, "f", 1, numbered_entries(1..2)).await.unwrap(), 2);
}

/// Checks that other callers can read, list, fork and delete a leased session, and that an append
/// without a lease checks only the version.
async fn a_leased_session_can_be_read_forked_and_deleted<S: Store>(make: impl Fn() -> S) {
    let store = store_with_entries(make, 2).await;
    let Some(lease) = take_lease(&store, "s").await else { return };
    assert_eq!(all_entries(&store, "s").await, numbered_entries(0..2));
    assert_eq!(store.list().await.unwrap().len(), 1);
    store.fork("s", 1, "f").await.unwrap();
    assert_eq!(store.append("s", 2, numbered_entries(2..3)).await.unwrap(), 3);
    let mut version = 3;
    if skip_if_unsupported(store.delete("f").await).is_some() {
        assert!(store.delete("s").await.unwrap());
        expect_conflict(
            store.append_leased(&lease, "s", 3, numbered_entries(3..4)).await,
            "s",
            3,
            0,
        );
        version = 0;
    }
    let entries = numbered_entries(version..version + 1);
    store.append_leased(&lease, "s", version, entries).await.unwrap();
}

/// Checks repeatedly that if many callers try to take a lease at the same time, exactly one of the
/// callers gets the lease.
async fn of_concurrent_lease_requests_exactly_one_succeeds<S: Store + 'static>(
    make: impl Fn() -> S,
) {
    let store = make();
    if take_lease(&store, "s").await.is_none() {
        return;
    }
    for _ in 0..5 {
        let taken = join_all((0..8).map(|_| store.lease("s"))).await;
        let (leases, errors): (Vec<_>, Vec<_>) = taken.into_iter().partition(Result::is_ok);
        assert_eq!(leases.len(), 1);
        for error in errors {
            expect_leased(error, "s");
        }
    }
}
