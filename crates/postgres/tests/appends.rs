//! Appends while connections break and the server crashes: each acknowledged append is stored
//! exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use turnstream::ErrorKind;
use turnstream::session::{Conflict, Store};
use turnstream_postgres::{PostgresError, PostgresErrorKind, PostgresOptions, PostgresStore};
use turnstream_testing::session_suite::{numbered_entries, text_entry};

use crate::proxy::{Break, Proxy};
use crate::support::{
    admin, connect, expect_postgres_error, named_url, options, shared_server, terminate, text_of,
    unique_name, until,
};
use turnstream_test_support::postgres::{OWNER, PASSWORD, Server};

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn of_two_stores_that_append_at_one_version_the_second_gets_a_conflict() {
    let options = options();
    let (one, two) = (connect(&options).await, connect(&options).await);
    one.append("s", 0, numbered_entries(0..2)).await.unwrap();
    two.append("s", 2, numbered_entries(2..3)).await.unwrap();
    let error = one.append("s", 2, numbered_entries(7..9)).await.unwrap_err();
    let conflict = Conflict { id: "s".into(), expected: 2, found: 3 };
    assert_eq!(error.find_source::<Conflict>(), Some(&conflict));
    assert_eq!(one.load("s", 0).await.unwrap(), Some(numbered_entries(0..3)));
}

async fn check_broken_append(when: Break) {
    let proxy = Proxy::start(shared_server().port()).await;
    let url = format!("postgres://{OWNER}:{PASSWORD}@127.0.0.1:{}/postgres", proxy.port());
    let options = PostgresOptions::new(url).with_schema(unique_name()).with_pool_size(1);
    let store = connect(&options).await;
    // The statement of each kind of append is prepared before its connection breaks.
    for session in ["a", "b"] {
        let mut version = 0;
        for len in [1, 1, 3, 1, 2] {
            if session == "b" {
                proxy.break_next(when);
            }
            let entries = numbered_entries(version..version + len);
            let after = store.append(session, version, entries).await;
            assert_eq!(after.unwrap(), version + len, "{when:?}");
            assert!(session == "a" || proxy.has_broken());
            version += len;
        }
        assert_eq!(store.load(session, 0).await.unwrap(), Some(numbered_entries(0..8)));
    }
    let lease = store.lease("b").await.unwrap();
    proxy.break_next(when);
    assert_eq!(store.append_leased(&lease, "b", 8, numbered_entries(8..9)).await.unwrap(), 9);
    // Another fork on the same connection has prepared the statement.
    store.fork("b", 9, "e").await.unwrap();
    proxy.break_next(when);
    store.fork("b", 9, "f").await.unwrap();
    proxy.break_next(when);
    assert_eq!(store.load("f", 0).await.unwrap(), Some(numbered_entries(0..9)));
    proxy.break_next(when);
    assert!(store.delete("f").await.unwrap());
    assert!(proxy.has_broken());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn an_append_whose_confirmation_was_lost_is_written_once() {
    check_broken_append(Break::BeforeAnswer).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn an_append_that_does_not_arrive_is_sent_again() {
    check_broken_append(Break::BeforeRequest).await;
}

/// Another process has written at the append's version, while it was unknown whether the append was
/// written.
#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn an_append_that_does_not_arrive_before_another_is_a_conflict() {
    let proxy = Proxy::start(shared_server().port()).await;
    let url = format!("postgres://{OWNER}:{PASSWORD}@127.0.0.1:{}/postgres", proxy.port());
    let schema = unique_name();
    let other = connect(&options().with_schema(&*schema)).await;
    let store = connect(&PostgresOptions::new(url).with_schema(&*schema).with_pool_size(1)).await;
    for version in 0..3 {
        store.append("s", version, numbered_entries(version..version + 1)).await.unwrap();
    }
    proxy.break_next(Break::BeforeRequest);
    let append = tokio::spawn(async move { store.append("s", 3, numbered_entries(9..10)).await });
    until("it breaks", || async { proxy.has_broken() }).await;
    match other.append("s", 3, numbered_entries(3..4)).await {
        Ok(_) => {
            let error = append.await.unwrap().unwrap_err();
            assert_eq!(error.find_source::<Conflict>().unwrap().found, 4);
        }
        Err(error) => {
            assert_eq!(error.find_source::<Conflict>().unwrap().found, 4);
            assert_eq!(append.await.unwrap().unwrap(), 4);
        }
    }
    assert_eq!(other.load("s", 0).await.unwrap().unwrap().len(), 4);
}

const WRITERS: usize = 6;

/// Appends to sessions of its own until there are enough entries, with one or several entries per
/// append.
async fn write_until(
    store: PostgresStore,
    writer: usize,
    acknowledged: Arc<AtomicUsize>,
    wanted: impl Fn() -> bool,
) -> u64 {
    let (id, mut version) = (format!("s{writer}"), 0);
    while wanted() {
        let len = 1 + version % 3 / 2;
        let entries =
            (version..version + len).map(|n| text_entry(&format!("{writer} {n}"))).collect();
        version = store.append(&id, version, entries).await.unwrap_or_else(|error| {
            panic!("append {version} of {writer}: {error}");
        });
        acknowledged.fetch_add(1, Ordering::SeqCst);
    }
    version
}

async fn assert_written_once(store: &PostgresStore, versions: &[u64]) {
    for (writer, version) in versions.iter().enumerate() {
        let entries = store.load(&format!("s{writer}"), 0).await.unwrap().unwrap();
        let expected = (0..*version).map(|n| format!("{writer} {n}"));
        assert!(entries.iter().map(text_of).eq(expected), "of writer {writer}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn terminated_connections_lose_and_duplicate_no_append() {
    const APPENDS: usize = 1500;
    let name = unique_name().replace(['"', ' '], "");
    let options = PostgresOptions::new(named_url(shared_server(), &name));
    let store = connect(&options.with_schema(unique_name())).await;
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let is_wanted = |acknowledged: &Arc<AtomicUsize>| {
        let acknowledged = Arc::clone(acknowledged);
        move || acknowledged.load(Ordering::SeqCst) < APPENDS
    };
    let writers = (0..WRITERS).map(|writer| {
        let wanted = is_wanted(&acknowledged);
        tokio::spawn(write_until(store.clone(), writer, Arc::clone(&acknowledged), wanted))
    });
    let writers: Vec<_> = writers.collect();
    let admin = admin(shared_server()).await;
    let (wanted, mut ended) = (is_wanted(&acknowledged), 0);
    while wanted() {
        let before = acknowledged.load(Ordering::SeqCst);
        ended += terminate(&admin, &name).await;
        until("the writers continue", || async {
            acknowledged.load(Ordering::SeqCst) > before + 10 || !wanted()
        })
        .await;
    }
    let versions: Vec<u64> =
        join_all(writers).await.into_iter().map(|written| written.unwrap()).collect();
    assert_written_once(&store, &versions).await;
    assert!(ended > 20, "only {ended} were ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn twenty_server_kills_lose_and_duplicate_no_acknowledged_append() {
    const KILLS: usize = 20;
    let server = Arc::new(Server::start(&[]));
    let options = PostgresOptions::new(server.url()).with_retry_limit(Duration::from_mins(1));
    let store = connect(&options).await;
    let (acknowledged, kills) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let writers = (0..WRITERS).map(|writer| {
        let kills = Arc::clone(&kills);
        let wanted = move || kills.load(Ordering::SeqCst) < KILLS;
        tokio::spawn(write_until(store.clone(), writer, Arc::clone(&acknowledged), wanted))
    });
    let writers: Vec<_> = writers.collect();
    for kill in 0..KILLS {
        let before = acknowledged.load(Ordering::SeqCst);
        until("the writers continue", || async {
            acknowledged.load(Ordering::SeqCst) > before + 5 + kill * 3
        })
        .await;
        let server = Arc::clone(&server);
        let restart = move || {
            server.kill();
            server.start_again();
        };
        tokio::task::spawn_blocking(restart).await.unwrap();
        kills.fetch_add(1, Ordering::SeqCst);
    }
    let versions: Vec<u64> =
        join_all(writers).await.into_iter().map(|written| written.unwrap()).collect();
    assert_written_once(&store, &versions).await;
    // Through another connection, which has observed none of the writes.
    assert_written_once(&connect(&options).await, &versions).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn an_unavailable_server_is_an_error_after_the_limit() {
    let server = Server::start(&["fsync = off"]);
    let options = PostgresOptions::new(server.url()).with_retry_limit(Duration::from_secs(1));
    let store = connect(&options).await;
    store.append("s", 0, numbered_entries(0..1)).await.unwrap();
    server.kill();
    let error = store.append("s", 1, numbered_entries(1..2)).await.unwrap_err();
    // The statement may have been sent before the loss of the connection was noticed.
    assert!(matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Store), "{error}");
    let found = error.find_source::<PostgresError>().unwrap();
    assert_eq!(found.kind(), PostgresErrorKind::Unreachable, "{error}");
    expect_postgres_error(&store.load("s", 0).await.unwrap_err(), PostgresErrorKind::Unreachable);
    expect_postgres_error(&store.lease("s").await.unwrap_err(), PostgresErrorKind::Unreachable);
    server.start_again();
    let found = store.load("s", 0).await.unwrap().unwrap().len() as u64;
    store.append("s", found, numbered_entries(found..found + 1)).await.unwrap();
    drop(store.lease("s").await.unwrap());
}
