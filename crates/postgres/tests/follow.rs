//! Streams that follow the versions of a session.

use std::time::Duration;

use futures::future::join;
use futures::{FutureExt, StreamExt};
use tokio_postgres::{AsyncMessage, NoTls};
use turnstream::session::Store;
use turnstream_postgres::PostgresOptions;
use turnstream_testing::session_suite::numbered_entries;

use crate::proxy::{MarkerProxy, Scope};
use crate::support::{
    PATIENCE, admin, connect, make_read_only, named_url, options, options_by_port, shared_server,
    terminate, two_servers, unique_name, until,
};

async fn next(versions: &mut (impl futures::Stream<Item = u64> + Unpin)) -> u64 {
    tokio::time::timeout(PATIENCE, versions.next()).await.expect("a version").unwrap()
}

/// Reads until a version; earlier versions may be left out.
async fn read_to(versions: &mut (impl futures::Stream<Item = u64> + Unpin), wanted: u64) {
    let mut last = 0;
    while last < wanted {
        let version = next(versions).await;
        assert!(version > last, "{version} after {last}");
        last = version;
    }
    assert_eq!(last, wanted);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_follower_sees_versions_written_by_other_stores() {
    let options = options().with_notifications();
    let (reader, writer) = (connect(&options).await, connect(&options).await);
    writer.append("s", 0, numbered_entries(0..2)).await.unwrap();
    let (mut s, mut other, mut t) = (reader.follow("s"), reader.follow("s"), reader.follow("t\0"));
    assert_eq!((next(&mut s).await, next(&mut other).await, next(&mut t).await), (2, 2, 0));
    writer.append("s", 2, numbered_entries(2..3)).await.unwrap();
    assert_eq!((next(&mut s).await, next(&mut other).await), (3, 3));
    // A session that did not exist when the stream was opened.
    writer.append("t\0", 0, numbered_entries(0..3)).await.unwrap();
    assert_eq!(next(&mut t).await, 3);
    let lease = writer.lease("s").await.unwrap();
    writer.append_leased(&lease, "s", 3, numbered_entries(3..5)).await.unwrap();
    assert_eq!(next(&mut s).await, 5);
    drop(s);
    writer.append_leased(&lease, "s", 5, numbered_entries(5..6)).await.unwrap();
    drop(lease);
    read_to(&mut other, 6).await;
    // A fork is a session of its own; a deleted one has version 0, and may be created again.
    let mut f = reader.follow("f");
    assert_eq!(next(&mut f).await, 0);
    writer.fork("s", 4, "f").await.unwrap();
    assert_eq!(next(&mut f).await, 4);
    writer.delete("f").await.unwrap();
    assert_eq!(next(&mut f).await, 0);
    writer.append("f", 0, numbered_entries(0..1)).await.unwrap();
    assert_eq!(next(&mut f).await, 1);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_slow_follower_skips_to_the_newest_version() {
    let options = options().with_notifications();
    let store = connect(&options).await;
    let mut versions = store.follow("s");
    assert_eq!(next(&mut versions).await, 0);
    for n in 0..200 {
        store.append("s", n, numbered_entries(n..n + 1)).await.unwrap();
    }
    read_to(&mut versions, 200).await;
    assert!(versions.next().now_or_never().is_none());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_follower_reconnects_and_closes_its_connection_when_dropped() {
    let name = unique_name().replace(['"', ' '], "");
    let schema = unique_name();
    let writer = connect(&options().with_schema(&*schema).with_notifications()).await;
    let url = PostgresOptions::new(named_url(shared_server(), &name)).with_schema(&*schema);
    let reader = connect(&url.with_notifications()).await;
    let mut versions = reader.follow("s");
    assert_eq!(next(&mut versions).await, 0);
    writer.append("s", 0, numbered_entries(0..1)).await.unwrap();
    assert_eq!(next(&mut versions).await, 1);
    let admin = admin(shared_server()).await;
    for version in 1..4 {
        assert!(terminate(&admin, &name).await >= 1);
        // While the listening connection is down, or just after it was restored.
        writer.append("s", version, numbered_entries(version..version + 1)).await.unwrap();
        assert_eq!(next(&mut versions).await, version + 1);
    }
    let listens = async || -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity
                   WHERE application_name = $1 AND query LIKE '%bytea[]%'";
        admin.query_one(sql, &[&name]).await.unwrap().get(0)
    };
    assert_eq!(listens().await, 1);
    drop(versions);
    until("its connection ends", || async { listens().await == 0 }).await;
    // Another stream starts with the current version.
    assert_eq!(next(&mut reader.follow("s")).await, 4);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_notification_contains_only_numbers() {
    let schema = unique_name();
    let store = connect(&options().with_schema(&*schema).with_notifications()).await;
    let quiet = connect(&options().with_schema(&*schema)).await;
    let hash = schema.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let (client, mut connection) =
        tokio_postgres::connect(&shared_server().url(), NoTls).await.unwrap();
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification.payload().to_owned());
            }
        }
    });
    client.batch_execute(&format!("LISTEN turnstream_{hash:016x}")).await.unwrap();
    quiet.append("secret", 0, numbered_entries(0..1)).await.unwrap();
    store.append("secret", 1, numbered_entries(1..2)).await.unwrap();
    store.append("secret", 2, numbered_entries(2..4)).await.unwrap();
    store.append("other", 0, numbered_entries(0..1)).await.unwrap();
    store.fork("secret", 1, "fork").await.unwrap();
    store.delete("fork").await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(
            tokio::time::timeout(Duration::from_secs(30), received.recv()).await.unwrap().unwrap(),
        );
    }
    assert_eq!(seen, ["1 2", "1 4", "2 1", "3 1", "3 0"]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_follower_disconnects_from_a_server_that_became_read_only() {
    let (servers, options) = two_servers().await;
    let store = connect(&options.with_notifications()).await;
    let mut versions = store.follow("s");
    assert_eq!(next(&mut versions).await, 0);
    make_read_only(&servers[0]).await;
    store.append("s", 0, numbered_entries(0..2)).await.unwrap();
    assert_eq!(next(&mut versions).await, 2);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_follower_sees_a_fork_whose_confirmation_was_lost() {
    let schema = unique_name();
    let proxy = MarkerProxy::start(shared_server().port(), "the fork").await;
    let options_by_proxy = options_by_port(proxy.port()).with_schema(&*schema);
    let store = connect(&options_by_proxy.with_notifications()).await;
    let reader = connect(&options().with_schema(&*schema).with_notifications()).await;
    store.append("s", 0, numbered_entries(0..2)).await.unwrap();
    // The statement is prepared.
    store.fork("s", 1, "f").await.unwrap();
    let mut versions = reader.follow("the fork");
    assert_eq!(next(&mut versions).await, 0);
    proxy.break_at_marker(Scope::OneConnection);
    let (forked, ()) = join(store.fork("s", 2, "the fork"), async {
        proxy.broken().await;
        proxy.let_through();
    })
    .await;
    forked.unwrap();
    assert_eq!(next(&mut versions).await, 2);
}

#[test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
fn a_follower_outlives_the_runtime_that_started_the_listener() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (store, _first_follower) = first.block_on(async {
        let store = connect(&options().with_notifications()).await;
        let mut versions = store.follow("s");
        assert_eq!(next(&mut versions).await, 0);
        (store, versions)
    });
    let mut versions = store.follow("s");
    assert_eq!(second.block_on(next(&mut versions)), 0);
    drop(first);
    second.block_on(async {
        store.append("s", 0, numbered_entries(0..1)).await.unwrap();
        assert_eq!(next(&mut versions).await, 1);
        let mut later = store.follow("s");
        assert_eq!(next(&mut later).await, 1);
    });
}
