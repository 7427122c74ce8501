//! Leases within a process, between stores, and after the connection that holds them is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures::future::join;
use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio_postgres::Client;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{AlreadyLeased, Conflict, Lease, LeaseLost, Session, Store};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Error, ErrorKind, Event};
use turnstream_postgres::{PostgresErrorKind, PostgresOptions, PostgresStore};
use turnstream_testing::session_suite::{numbered_entries, text_entry};

use crate::proxy::{Break, MarkerProxy, Proxy, Scope};
use crate::support::{
    admin, connect, expect_postgres_error, make_read_only, named_url, options, options_by_port,
    quoted, shared_server, terminate, two_servers, unique_name, until,
};

#[track_caller]
fn expect_already_leased(taken: Result<Lease, Error>, id: &str) {
    let error = taken.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(error.find_source::<AlreadyLeased>(), Some(&AlreadyLeased { id: id.into() }));
}

#[track_caller]
fn expect_lost(appended: Result<u64, Error>, id: &str, lease: &Lease) {
    let error = appended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let lost = LeaseLost { id: id.into(), epoch: lease.epoch() };
    assert_eq!(error.find_source::<LeaseLost>(), Some(&lost), "{error}");
}

/// Takes a lease that another connection is about to release.
async fn take_soon(store: &PostgresStore, id: &str) -> Lease {
    let taken = std::cell::RefCell::new(None);
    until("it is given back", || async {
        match store.lease(id).await {
            Ok(lease) => *taken.borrow_mut() = Some(lease),
            Err(error) => assert!(error.find_source::<AlreadyLeased>().is_some(), "{error}"),
        }
        taken.borrow().is_some()
    })
    .await;
    taken.into_inner().unwrap()
}

async fn until_lost(store: &PostgresStore, lease: &Lease, id: &str) {
    until("it is known to be lost", || async {
        match store.append_leased(lease, id, u64::MAX, Vec::new()).await {
            Ok(_) => false,
            Err(error) => error.find_source::<LeaseLost>().is_some(),
        }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_lease_excludes_others_until_its_last_clone_is_dropped() {
    let options = options();
    let (one, two) = (connect(&options).await, connect(&options).await);
    let lease = one.lease("s").await.unwrap();
    expect_already_leased(one.lease("s").await, "s");
    expect_already_leased(two.lease("s").await, "s");
    let _other = two.lease("t").await.unwrap();
    let clone = lease.clone();
    drop(lease);
    expect_already_leased(two.lease("s").await, "s");
    let epoch = clone.epoch();
    drop(clone);
    // Immediately in the same process, and soon in another one.
    for n in 0..20 {
        let again = one.lease("s").await.unwrap_or_else(|error| panic!("{n}: {error}"));
        assert!(again.epoch() > epoch);
    }
    let of_two = take_soon(&two, "s").await;
    expect_already_leased(one.lease("s").await, "s");
    assert!(of_two.epoch() > epoch + 19);
    let empty = one.lease("").await.unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_lease_whose_future_is_dropped_is_released() {
    let options = options();
    let (one, two) = (connect(&options).await, connect(&options).await);
    drop(one.lease("t").await.unwrap());
    for _ in 0..10 {
        let mut taking = one.lease("s");
        assert!((&mut taking).now_or_never().is_none());
        // It may or may not have been sent.
        tokio::task::yield_now().await;
        drop(taking);
        drop(one.lease("s").await.unwrap());
    }
    drop(take_soon(&two, "s").await);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn calls_that_were_given_up_do_not_delay_the_next_call_for_a_lease() {
    let store = connect(&options()).await;
    let first = store.lease("first").await.unwrap();
    let mut calls = Vec::new();
    for n in 0..500 {
        let id = format!("s{n}");
        let store = store.clone();
        calls.push(async move { store.lease(&id).await }.boxed());
    }
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    drop(calls);
    // Each lease that the server has granted has an epoch.
    let last = store.lease("last").await.unwrap();
    assert!(last.epoch() - first.epoch() < 50, "{} {}", first.epoch(), last.epoch());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn an_append_after_another_lease_was_taken_is_refused() {
    let schema = unique_name();
    let store = connect(&options().with_schema(&*schema)).await;
    let lease = store.lease("s").await.unwrap();
    assert_eq!(store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap(), 1);
    assert_eq!(store.append_leased(&lease, "s", 1, numbered_entries(1..3)).await.unwrap(), 3);
    let error = store.append_leased(&lease, "s", 1, numbered_entries(1..2)).await.unwrap_err();
    assert_eq!(error.find_source::<Conflict>().unwrap().found, 3);
    // Simulates a process that was suspended and has not noticed it.
    let admin = admin(shared_server()).await;
    let next = format!("UPDATE {}.session SET lease = lease + 1", quoted(&schema));
    admin.execute(&next, &[]).await.unwrap();
    for (expected, entries) in [(3, 0..1), (3, 0..3), (0, 0..1), (3, 0..0)] {
        let entries = numbered_entries(entries);
        expect_lost(store.append_leased(&lease, "s", expected, entries).await, "s", &lease);
    }
    // An append without a lease does not check it.
    assert_eq!(store.append("s", 3, numbered_entries(3..4)).await.unwrap(), 4);
    assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..4)));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_lease_is_valid_only_for_its_session_and_store() {
    let options = options();
    let (one, two) = (connect(&options).await, connect(&options).await);
    let lease = one.lease("s").await.unwrap();
    expect_lost(one.append_leased(&lease, "t", 0, numbered_entries(0..1)).await, "t", &lease);
    let none = Lease::new(0, ());
    expect_lost(one.append_leased(&none, "s", 0, numbered_entries(0..1)).await, "s", &none);
    let other = connect(&options.clone().with_schema(unique_name())).await;
    let of_other = other.lease("s").await.unwrap();
    assert_eq!(of_other.epoch(), lease.epoch());
    expect_lost(other.append_leased(&lease, "s", 0, numbered_entries(0..1)).await, "s", &lease);
    assert_eq!(two.list().await.unwrap(), []);
}

/// The number of session rows, including those of sessions without entries.
async fn rows(admin: &Client, schema: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {}.session", quoted(schema));
    admin.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_leased_but_unwritten_session_does_not_exist() {
    let schema = unique_name();
    let store = connect(&options().with_schema(&*schema)).await;
    let admin = admin(shared_server()).await;
    let lease = store.lease("s").await.unwrap();
    assert_eq!(rows(&admin, &schema).await, 1);
    assert_eq!(store.load("s", 0).await.unwrap(), None);
    assert_eq!(store.list().await.unwrap(), []);
    assert_eq!(store.list_page(None, 9).await.unwrap(), []);
    assert!(!store.delete("s").await.unwrap());
    assert_eq!(store.fork("s", 0, "f").await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    let later = SystemTime::now() + Duration::from_mins(1);
    assert_eq!(store.prune(later).await.unwrap(), [""; 0]);
    assert_eq!(rows(&admin, &schema).await, 1);
    assert_eq!(store.append("s", 0, Vec::new()).await.unwrap(), 0);
    drop(lease);
    until("the row is removed", || async { rows(&admin, &schema).await == 0 }).await;

    // A fork, an append, or an append by the owner creates the session's entries, so its row stays.
    let _forked = store.lease("forked").await.unwrap();
    let leased = store.lease("leased").await.unwrap();
    let appended = store.lease("appended").await.unwrap();
    store.append_leased(&leased, "leased", 0, numbered_entries(0..2)).await.unwrap();
    store.append("appended", 0, numbered_entries(0..1)).await.unwrap();
    store.append_leased(&appended, "appended", 1, numbered_entries(1..2)).await.unwrap();
    store.fork("leased", 1, "forked").await.unwrap();
    drop((leased, appended));
    drop(store.lease("leased").await.unwrap());
    assert_eq!(store.list().await.unwrap().len(), 3);
    assert_eq!(rows(&admin, &schema).await, 3);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_lease_row_left_by_a_killed_owner_is_pruned() {
    let schema = unique_name();
    let store = connect(&options().with_schema(&*schema)).await;
    let admin = admin(shared_server()).await;
    let sql = format!(
        "INSERT INTO {}.session (id, inherited, version, updated, lease, reserved)
         VALUES ('left', 0, 0, now(), 1, true)",
        quoted(&schema)
    );
    admin.execute(&sql, &[]).await.unwrap();
    let _lease = store.lease("held").await.unwrap();
    assert_eq!(store.prune(SystemTime::UNIX_EPOCH).await.unwrap(), [""; 0]);
    assert_eq!(rows(&admin, &schema).await, 1);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_lease_outlives_the_deletion_of_its_session() {
    let options = options();
    let (one, two) = (connect(&options).await, connect(&options).await);
    one.append("s", 0, numbered_entries(0..2)).await.unwrap();
    let lease = one.lease("s").await.unwrap();
    assert!(two.delete("s").await.unwrap());
    let error = one.append_leased(&lease, "s", 2, numbered_entries(2..3)).await.unwrap_err();
    let conflict = Conflict { id: "s".into(), expected: 2, found: 0 };
    assert_eq!(error.find_source::<Conflict>(), Some(&conflict));
    expect_already_leased(two.lease("s").await, "s");
    one.append_leased(&lease, "s", 0, numbered_entries(5..6)).await.unwrap();
    // The epoch of the next lease is higher, also if the session is created again.
    let epoch = lease.epoch();
    drop(lease);
    assert!(two.delete("s").await.unwrap());
    assert!(take_soon(&two, "s").await.epoch() > epoch);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_lease_whose_connection_was_lost_stays_lost() {
    let name = unique_name().replace(['"', ' '], "");
    let options = PostgresOptions::new(named_url(shared_server(), &name));
    let store = connect(&options.with_schema(unique_name())).await;
    let (lease, other) = (store.lease("s").await.unwrap(), store.lease("t").await.unwrap());
    store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
    let admin = admin(shared_server()).await;
    assert!(terminate(&admin, &name).await >= 2);
    until_lost(&store, &lease, "s").await;
    // Even though the lease has not been taken since.
    expect_lost(store.append_leased(&lease, "s", 1, numbered_entries(1..2)).await, "s", &lease);
    expect_lost(store.append_leased(&other, "t", 0, numbered_entries(0..1)).await, "t", &other);
    // In this process the lease is the owner's until it is dropped.
    expect_already_leased(store.lease("s").await, "s");
    drop(lease.clone());
    let old = lease.epoch();
    drop(lease);
    let next = store.lease("s").await.unwrap();
    assert!(next.epoch() > old);
    store.append_leased(&next, "s", 1, numbered_entries(1..2)).await.unwrap();
    assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..2)));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn leases_are_renewed_while_their_process_runs() {
    // Long enough for a busy machine.
    let options = options().with_lease_time(Duration::from_secs(3));
    let (one, two) = (connect(&options).await, connect(&options).await);
    let lease = one.lease("s").await.unwrap();
    // The elapsed time itself is tested, so the test can only sleep.
    tokio::time::sleep(Duration::from_secs(8)).await;
    expect_already_leased(two.lease("s").await, "s");
    one.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_runtime_idle_for_the_lease_time_loses_its_leases() {
    let store = connect(&options().with_lease_time(Duration::from_secs(1))).await;
    let lease = store.lease("s").await.unwrap();
    store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
    // The task that would notice is not polled either, and no other process has taken the lease.
    std::thread::sleep(Duration::from_millis(1100));
    expect_lost(store.append_leased(&lease, "s", 1, numbered_entries(1..2)).await, "s", &lease);
    assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..1)));
    drop(lease);
    drop(take_soon(&store, "s").await);
}

#[test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
fn a_lease_is_lost_with_the_runtime_that_it_was_taken_on() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (store, lease) = first.block_on(async {
        let store = connect(&options()).await;
        let lease = store.lease("s").await.unwrap();
        store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
        (store, lease)
    });
    drop(first);
    runtime().block_on(async {
        expect_lost(store.append_leased(&lease, "s", 1, numbered_entries(1..2)).await, "s", &lease);
        drop(lease);
        let lease = take_soon(&store, "s").await;
        store.append_leased(&lease, "s", 1, numbered_entries(1..2)).await.unwrap();
        assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..2)));
    });
}

/// The run has nothing to write, and detects the loss nevertheless.
#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_run_whose_lease_connection_ends_stops_in_the_middle_of_a_tool() {
    struct DropFlag(Arc<AtomicBool>);

    impl Drop for DropFlag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let name = unique_name().replace(['"', ' '], "");
    let options = PostgresOptions::new(named_url(shared_server(), &name));
    let store = connect(&options.with_schema(unique_name())).await;
    let dropped = Arc::<AtomicBool>::default();
    let flag = Arc::clone(&dropped);
    let spec = ToolSpec::new("wait", "Never ends", json!({ "type": "object" }));
    let tool = Tool::raw(spec, move |_, _| {
        let flag = DropFlag(Arc::clone(&flag));
        async move {
            std::future::pending::<()>().await;
            drop(flag);
            "never"
        }
    });
    let model = Scripted::new([Reply::new().call("wait", json!({})), Reply::text("On.")]);
    let agent = Agent::new(model).with_tools([tool.unwrap()]);
    let session = Session::open(store.clone(), "s").await.unwrap();
    let mut run = session.run(&agent, "go").await.unwrap();
    while !matches!(
        run.next().await.unwrap().unwrap(),
        Event::Tool(turnstream::event::ToolEvent::Started { .. })
    ) {}
    assert!(run.next().now_or_never().is_none());
    assert!(terminate(&admin(shared_server()).await, &name).await >= 2);
    let error = run.next().await.unwrap().unwrap_err();
    assert_eq!(error.find_source::<LeaseLost>().unwrap().id, "s");
    assert!(dropped.load(Ordering::SeqCst), "the tool");
    assert!(run.next().await.is_none());
    // The session continues with a new lease.
    drop(run);
    let outcome = session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    assert_eq!(outcome.text, "On.");
}

/// Resumes a session, in a runtime and with a store of its own, once its lease is free.
fn resume_elsewhere(options: &PostgresOptions) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = connect(options).await;
        drop(take_soon(&store, "s").await);
        let agent = Agent::new(Scripted::new([Reply::text("On.")]));
        let session = Session::open(store, "s").await.unwrap();
        session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
    });
}

/// Simulates a suspended and continued process: its tasks are polled in any order afterwards.
#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_run_not_polled_for_the_lease_time_starts_no_call_settled_elsewhere() {
    let options = options().with_lease_time(Duration::from_secs(1));
    let begun = Arc::<AtomicBool>::default();
    let flag = Arc::clone(&begun);
    let spec = ToolSpec::new("act", "Acts", json!({ "type": "object" }));
    let tool = Tool::raw(spec, move |_, _| {
        flag.store(true, Ordering::SeqCst);
        async { "done" }
    });
    let model = Scripted::new([Reply::new().call("act", json!({})), Reply::text("On.")]);
    let agent = Agent::new(model).with_tools([tool.unwrap()]);
    let session = Session::open(connect(&options).await, "s").await.unwrap();
    let mut run = session.run(&agent, "go").await.unwrap();
    while !matches!(
        run.next().await.unwrap().unwrap(),
        Event::Turn(turnstream::turn::TurnEvent::TurnComplete { .. })
    ) {}
    // The runtime of this test polls nothing meanwhile.
    std::thread::spawn(move || resume_elsewhere(&options)).join().unwrap();
    let error = run.next().await.unwrap().unwrap_err();
    assert_eq!(error.find_source::<LeaseLost>().unwrap().id, "s");
    assert!(run.next().await.is_none());
    assert!(!begun.load(Ordering::SeqCst), "the tool");
}

/// All connections break at the same time, so the lease is lost as well.
#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_written_append_is_not_reported_as_a_lost_lease() {
    let proxy = MarkerProxy::start(shared_server().port(), "entry 1").await;
    let store = connect(&options_by_port(proxy.port())).await;
    let lease = store.lease("s").await.unwrap();
    let entry = |n: u32| vec![text_entry(&format!("entry {n}"))];
    store.append_leased(&lease, "s", 0, entry(0)).await.unwrap();
    proxy.break_at_marker(Scope::AllConnections);
    let append = store.append_leased(&lease, "s", 1, entry(1));
    let (appended, ()) = join(append, async {
        proxy.broken().await;
        proxy.let_through();
    })
    .await;
    assert_eq!(appended.unwrap(), 2);
    expect_lost(store.append_leased(&lease, "s", 2, entry(2)).await, "s", &lease);
    assert_eq!(store.load("s", 1).await.unwrap(), Some(entry(1)));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn an_append_that_did_not_arrive_before_the_lease_was_lost_is_not_written() {
    let schema = unique_name();
    let proxy = Proxy::start(shared_server().port()).await;
    let options = options_by_port(proxy.port()).with_schema(&*schema);
    let store = connect(&options.with_lease_time(Duration::from_secs(1))).await;
    let lease = store.lease("s").await.unwrap();
    store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
    proxy.break_next(Break::BeforeRequest);
    let mut append = store.append_leased(&lease, "s", 1, numbered_entries(1..2));
    while !proxy.has_broken() {
        assert!((&mut append).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    std::thread::sleep(Duration::from_millis(1100));
    expect_lost(append.await, "s", &lease);
    assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..1)));
    // A retry that reaches the server after all is refused.
    let admin = admin(shared_server()).await;
    let sql = format!("SELECT lease FROM {}.session", quoted(&schema));
    let epoch: i64 = admin.query_one(&sql, &[]).await.unwrap().get(0);
    assert!(epoch > i64::try_from(lease.epoch()).unwrap());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_lease_blocked_on_a_row_does_not_affect_other_leases() {
    let schema = unique_name();
    let options = options().with_schema(&*schema).with_lease_time(Duration::from_secs(2));
    let store = connect(&options).await;
    store.append("busy", 0, numbered_entries(0..1)).await.unwrap();
    let lease = store.lease("s").await.unwrap();
    store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
    let given_back = store.lease("new").await.unwrap();
    let mut admin = admin(shared_server()).await;
    let holds_rows = admin.transaction().await.unwrap();
    let sql = format!("SELECT FROM {}.session WHERE id <> 's' FOR UPDATE", quoted(&schema));
    assert_eq!(holds_rows.execute(&sql, &[]).await.unwrap(), 2);
    let error = store.lease("busy").await.unwrap_err();
    let found = expect_postgres_error(&error, PostgresErrorKind::Timeout);
    assert_eq!(found.sqlstate(), Some("55P03"));
    drop(given_back);
    // This statement follows on the same connection.
    drop(store.lease("other").await.unwrap());
    store.append_leased(&lease, "s", 1, numbered_entries(1..2)).await.unwrap();
    holds_rows.rollback().await.unwrap();
    // The released locks are free for others.
    let other_store = connect(&options).await;
    drop((take_soon(&other_store, "busy").await, take_soon(&other_store, "new").await));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn leases_are_lost_when_their_server_becomes_read_only() {
    let (servers, options) = two_servers().await;
    let store = connect(&options.clone().with_lease_time(Duration::from_secs(3))).await;
    let lease = store.lease("s").await.unwrap();
    // The cached connection is not checked before the next call needs it.
    let idle = connect(&options).await;
    drop(idle.lease("t").await.unwrap());
    make_read_only(&servers[0]).await;
    let lease_on_second = take_soon(&idle, "t").await;
    idle.append_leased(&lease_on_second, "t", 0, numbered_entries(0..1)).await.unwrap();
    until_lost(&store, &lease, "s").await;
    drop(lease);
    drop(store.lease("s").await.unwrap());
}
