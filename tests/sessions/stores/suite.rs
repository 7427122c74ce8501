//! What holds for every store. Each claim is a function that is given a way to make an empty one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use serde_json::json;
use turnstream::item::{Json, ProviderData};
use turnstream::session::{Conflict, Entry, Fork, Store};
use turnstream::{Error, ErrorKind, Item};

use super::sample::{every_kind, numbered, said};

/// Runs the suite for a store: `suite!(name, a function that makes an empty one)`.
macro_rules! suite {
    ($name:ident, $make:expr) => {
        suite!($name, $make,
            a_session_that_nobody_wrote_is_not_there
            an_append_gives_the_version_and_load_what_was_said
            load_begins_where_it_is_told
            an_append_of_nothing_writes_nothing
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
        );
    };
    ($name:ident, $make:expr, $($claim:ident)*) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $claim() {
                    super::suite::$claim($make).await;
                }
            )*
        }
    };
}
pub(crate) use suite;

async fn all(store: &dyn Store, id: &str) -> Vec<Entry> {
    store.load(id, 0).await.unwrap().unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

#[track_caller]
fn conflicts<T: std::fmt::Debug>(result: Result<T, Error>, id: &str, expected: u64, found: u64) {
    let error = refused(result, ErrorKind::Conflict);
    assert_eq!(Conflict::of(&error), Some(&Conflict { id: id.into(), expected, found }));
}

pub(crate) async fn a_session_that_nobody_wrote_is_not_there<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    assert_eq!(store.load("", 0).await.unwrap(), None);
    assert_eq!(store.list().await.unwrap(), []);
}

pub(crate) async fn an_append_gives_the_version_and_load_what_was_said<S: Store>(
    make: impl Fn() -> S,
) {
    let store = make();
    assert_eq!(store.append("s", 0, numbered(0..1)).await.unwrap(), 1);
    assert_eq!(store.append("s", 1, numbered(1..4)).await.unwrap(), 4);
    assert_eq!(store.append("s", 4, numbered(4..5)).await.unwrap(), 5);
    assert_eq!(all(&store, "s").await, numbered(0..5));
    assert_eq!(store.load("t", 0).await.unwrap(), None);
}

pub(crate) async fn load_begins_where_it_is_told<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("s", 0, numbered(0..3)).await.unwrap();
    for from in 0..3 {
        assert_eq!(store.load("s", from).await.unwrap(), Some(numbered(from..3)));
    }
    for beyond in [3, 4, u64::MAX] {
        assert_eq!(store.load("s", beyond).await.unwrap(), Some(Vec::new()));
    }
}

pub(crate) async fn an_append_of_nothing_writes_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    assert_eq!(store.append("s", 0, Vec::new()).await.unwrap(), 0);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    conflicts(store.append("s", 1, Vec::new()).await, "s", 1, 0);
    store.append("s", 0, numbered(0..1)).await.unwrap();
    assert_eq!(store.append("s", 1, Vec::new()).await.unwrap(), 1);
    conflicts(store.append("s", 0, Vec::new()).await, "s", 0, 1);
}

pub(crate) async fn a_session_needs_an_id<S: Store>(make: impl Fn() -> S) {
    let store = make();
    refused(store.append("", 0, numbered(0..1)).await, ErrorKind::InvalidRequest);
    store.append("s", 0, numbered(0..1)).await.unwrap();
    refused(store.fork("s", 0, "").await, ErrorKind::InvalidRequest);
    assert_eq!(store.list().await.unwrap().len(), 1);
}

pub(crate) async fn the_second_of_two_that_follow_one_version_gets_a_conflict<S: Store>(
    make: impl Fn() -> S,
) {
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

pub(crate) async fn a_fork_has_the_first_entries_and_then_its_own<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("s", 0, numbered(0..4)).await.unwrap();
    store.fork("s", 2, "f").await.unwrap();
    assert_eq!(all(&store, "f").await, numbered(0..2));

    conflicts(store.append("f", 0, numbered(0..1)).await, "f", 0, 2);
    assert_eq!(store.append("f", 2, vec![said("of the fork")]).await.unwrap(), 3);
    assert_eq!(store.append("s", 4, vec![said("of the other")]).await.unwrap(), 5);
    let own = |text: &str, shared: u64| [numbered(0..shared), vec![said(text)]].concat();
    assert_eq!(all(&store, "f").await, own("of the fork", 2));
    assert_eq!(all(&store, "s").await, own("of the other", 4));
    for from in 0..4 {
        let rest = own("of the fork", 2).split_off(usize::try_from(from).unwrap().min(3));
        assert_eq!(store.load("f", from).await.unwrap(), Some(rest), "from {from}");
    }
}

pub(crate) async fn a_fork_of_a_fork_reads_through_both<S: Store>(make: impl Fn() -> S) {
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

pub(crate) async fn a_fork_may_take_nothing_or_all<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("s", 0, numbered(0..2)).await.unwrap();
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

pub(crate) async fn a_fork_of_what_is_not_there_is_refused<S: Store>(make: impl Fn() -> S) {
    let store = make();
    refused(store.fork("s", 0, "f").await, ErrorKind::InvalidRequest);
    store.append("s", 0, numbered(0..2)).await.unwrap();
    refused(store.fork("s", 3, "f").await, ErrorKind::InvalidRequest);
    refused(store.fork("s", u64::MAX, "f").await, ErrorKind::InvalidRequest);
    assert_eq!(store.load("f", 0).await.unwrap(), None);
    // Nothing is left in its way.
    store.append("f", 0, numbered(0..1)).await.unwrap();
}

pub(crate) async fn a_fork_onto_a_session_that_is_there_is_a_conflict<S: Store>(
    make: impl Fn() -> S,
) {
    let store = make();
    store.append("s", 0, numbered(0..2)).await.unwrap();
    store.append("t", 0, numbered(5..6)).await.unwrap();
    conflicts(store.fork("s", 1, "t").await, "t", 0, 1);
    conflicts(store.fork("s", 1, "s").await, "s", 0, 2);
    store.fork("s", 0, "f").await.unwrap();
    conflicts(store.fork("s", 1, "f").await, "f", 0, 0);
    assert_eq!(all(&store, "t").await, numbered(5..6));
    assert_eq!(all(&store, "f").await, []);
}

pub(crate) async fn sessions_are_listed_by_their_last_write<S: Store>(make: impl Fn() -> S) {
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

pub(crate) async fn an_id_may_be_any_text<S: Store>(make: impl Fn() -> S) {
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
        store.append(id, 0, vec![said(id)]).await.unwrap_or_else(|error| panic!("{id:?}: {error}"));
        store.append(id, 1, numbered(n..n + 1)).await.unwrap();
    }
    for (n, id) in (0..).zip(ids) {
        let expected = [vec![said(id)], numbered(n..n + 1)].concat();
        assert_eq!(store.load(id, 0).await.unwrap(), Some(expected), "{id:?}");
    }
    let mut listed: Vec<_> = store.list().await.unwrap().into_iter().map(|l| l.id).collect();
    listed.sort();
    let mut expected = ids.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    // Also as where a fork comes from, and as what it is called.
    store.fork(&wide, 1, &format!("{wide}{long}")).await.unwrap();
    assert_eq!(all(&store, &format!("{wide}{long}")).await, [said(&wide)]);
}

pub(crate) async fn every_kind_of_entry_comes_back_as_it_was<S: Store>(make: impl Fn() -> S) {
    let store = make();
    store.append("s", 0, every_kind()).await.unwrap();
    assert_eq!(all(&store, "s").await, every_kind());
}

pub(crate) async fn text_comes_back_as_it_was<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let texts =
        ["", "\n", "\r\n", "a\u{2028}b\u{2029}\u{85}", "\0", "😀\u{feff}", "\\n\"", "\u{7f}\u{1b}"];
    let entries: Vec<Entry> = texts.into_iter().map(said).collect();
    store.append("s", 0, entries.clone()).await.unwrap();
    assert_eq!(all(&store, "s").await, entries);
}

pub(crate) async fn a_huge_item_comes_back<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let entries = vec![said(&"ü\n".repeat(700_000)), Item::text("x".repeat(2_000_000)).into()];
    store.append("s", 0, entries.clone()).await.unwrap();
    store.append("s", 2, numbered(2..3)).await.unwrap();
    assert!(all(&store, "s").await == [entries, numbered(2..3)].concat());
}

pub(crate) async fn what_is_too_deep_to_be_read_again_is_refused<S: Store>(make: impl Fn() -> S) {
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
        match store.append("s", version, vec![said("before"), item.clone().into()]).await {
            Ok(_) => kept.extend([said("before"), item.into()]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Store),
        }
        assert!(all(&store, "s").await == kept, "{depth}");
    }
    assert!(kept.len() > 1);
}

pub(crate) async fn of_many_at_once_one_wins_each_version<S: Store + 'static>(
    make: impl Fn() -> S,
) {
    const WRITERS: usize = 8;
    const EACH: u64 = 5;

    let store = Arc::new(make());
    let writer = |writer: usize| {
        let store = Arc::clone(&store);
        async move {
            let (mut version, mut written) = (0, 0);
            while written < EACH {
                match store.append("s", version, vec![said(&format!("{writer} {written}"))]).await {
                    Ok(after) => (version, written) = (after, written + 1),
                    Err(error) => version = Conflict::of(&error).unwrap().found,
                }
            }
        }
    };
    let writers: Vec<_> = (0..WRITERS).map(|n| tokio::spawn(writer(n))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let entries = all(&store, "s").await;
    assert_eq!(entries.len() as u64, WRITERS as u64 * EACH);
    for writer in 0..WRITERS {
        let own = (0..EACH).map(|n| said(&format!("{writer} {n}")));
        let found = entries.iter().filter(|entry| own.clone().any(|own| own == **entry));
        assert!(found.cloned().eq(own.clone()), "of {writer}");
    }
}

pub(crate) async fn a_dropped_append_is_written_whole_or_not_at_all<S: Store>(
    make: impl Fn() -> S,
) {
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

pub(crate) async fn clones_of_a_shared_store_work_from_any_thread<S: Store + 'static>(
    make: impl Fn() -> S,
) {
    let store: Arc<dyn Store> = Arc::new(make());
    let other = Arc::clone(&store);
    // No runtime is needed for it.
    let there = std::thread::spawn(move || {
        futures::executor::block_on(other.append("s", 0, numbered(0..2)))
    });
    assert_eq!(there.join().unwrap().unwrap(), 2);
    assert_eq!(all(&*store, "s").await, numbered(0..2));
}
