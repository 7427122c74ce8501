//! The suite for all stores, and the additional properties of this one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use turnstream::session::{Conflict, Store};
use turnstream_postgres::PostgresStore;
use turnstream_testing::session_suite::{numbered_entries, text_entry};

use crate::proxy::{Break, MarkerProxy, Proxy, Scope};
use crate::support::{
    admin, connect, options, options_by_port, quoted, shared_server, unique_name,
};

/// Connects on a thread with a runtime of its own, which ends before the store is used, so the
/// store has to reconnect.
fn connect_elsewhere() -> PostgresStore {
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(connect(&options()))
    })
    .join()
    .unwrap()
}

turnstream_testing::session_suite!(
    in_postgres,
    ignore = "needs PostgreSQL: crates/postgres/tests/run.sh",
    super::connect_elsewhere
);

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn an_id_may_be_longer_than_an_index_entry() {
    let store = connect(&options()).await;
    let long = "x".repeat(100_000);
    store.append(&long, 0, numbered_entries(0..2)).await.unwrap();
    store.append(&format!("{long}y"), 0, numbered_entries(0..1)).await.unwrap();
    store.fork(&long, 1, &format!("{long}z")).await.unwrap();
    assert_eq!(store.load(&long, 0).await.unwrap(), Some(numbered_entries(0..2)));
    assert_eq!(store.list().await.unwrap().len(), 3);
    let lease = store.lease(&long).await.unwrap();
    store.append_leased(&lease, &long, 2, numbered_entries(2..3)).await.unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_long_session_is_loaded_in_several_statements() {
    let store = connect(&options()).await;
    store.append("s", 0, numbered_entries(0..2500)).await.unwrap();
    store.fork("s", 2400, "f").await.unwrap();
    store.append("f", 2400, numbered_entries(2400..4000)).await.unwrap();
    for from in [0, 999, 1000, 1001, 2399, 2400, 3999, 4000, 4001] {
        let expected = numbered_entries(from.min(4000)..4000);
        assert_eq!(store.load("f", from).await.unwrap(), Some(expected), "from {from}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn stores_with_different_schemas_share_nothing() {
    let one = connect(&options()).await;
    let two = connect(&options().with_schema(unique_name())).await;
    one.append("s", 0, vec![text_entry("one")]).await.unwrap();
    assert_eq!(two.load("s", 0).await.unwrap(), None);
    let (_one, _two) = (one.lease("s").await.unwrap(), two.lease("s").await.unwrap());
}

/// An append that a delete has waited for is deleted as well, and one that waited for the delete is
/// refused.
#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_delete_concurrent_with_appends_leaves_no_entry() {
    const DELETES: usize = 200;
    let schema = unique_name();
    let store = connect(&options().with_schema(&*schema)).await;
    let ended = AtomicBool::new(false);
    let appends = async |writer: u64| {
        let mut version = 0;
        while !ended.load(Ordering::Relaxed) {
            version = match store.append("s", version, numbered_entries(writer..writer + 2)).await {
                Ok(version) => version,
                Err(error) => error.find_source::<Conflict>().unwrap().found,
            };
        }
    };
    let deletes = async {
        let mut deleted = 0;
        while deleted < DELETES {
            deleted += usize::from(store.delete("s").await.unwrap());
        }
        ended.store(true, Ordering::Relaxed);
    };
    tokio::join!(appends(0), appends(2), appends(4), deletes);
    let schema = quoted(&schema);
    let sql = format!(
        "SELECT (SELECT count(*) FROM {schema}.entry), (SELECT sum(version)::bigint FROM {schema}.session)"
    );
    let row = admin(shared_server()).await.query_one(&sql, &[]).await.unwrap();
    let (entries, versions): (i64, Option<i64>) = (row.get(0), row.get(1));
    assert_eq!(entries, versions.unwrap_or(0));
    let loaded = store.load("s", 0).await.unwrap().unwrap_or_default();
    assert_eq!(i64::try_from(loaded.len()).unwrap(), entries);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn retrying_a_deletion_spares_a_later_session_of_the_same_id() {
    let schema = unique_name();
    let proxy = MarkerProxy::start(shared_server().port(), "COMMIT").await;
    let store = connect(&options_by_port(proxy.port()).with_schema(&*schema)).await;
    let other = connect(&options().with_schema(&*schema)).await;
    for prunes in [false, true] {
        store.append("s", 0, numbered_entries(0..2)).await.unwrap();
        proxy.break_at_marker(Scope::OneConnection);
        let store = store.clone();
        let removal = tokio::spawn(async move {
            match prunes {
                false => store.delete("s").await.unwrap(),
                true => store.prune(later()).await.unwrap() == ["s"],
            }
        });
        proxy.broken().await;
        other.append("s", 0, numbered_entries(5..6)).await.unwrap();
        proxy.let_through();
        assert!(removal.await.unwrap());
        assert_eq!(other.load("s", 0).await.unwrap(), Some(numbered_entries(5..6)));
        assert!(other.delete("s").await.unwrap());
    }
}

fn later() -> SystemTime {
    SystemTime::now() + Duration::from_mins(1)
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn deleting_a_missing_session_returns_false_despite_a_lost_connection() {
    let proxy = Proxy::start(shared_server().port()).await;
    let store = connect(&options_by_port(proxy.port())).await;
    for when in [Break::BeforeRequest, Break::BeforeAnswer] {
        proxy.break_next(when);
        assert!(!store.delete("never was").await.unwrap());
        assert!(proxy.has_broken());
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn prune_and_list_accept_any_timestamp() {
    let store = connect(&options()).await;
    let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let long_ago = SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 50);
    for before in [at(1_000_000_000_000), at(1 << 50), at(i64::MAX.cast_unsigned())] {
        store.append("s", 0, numbered_entries(0..1)).await.unwrap();
        assert_eq!(store.prune(long_ago).await.unwrap(), [""; 0]);
        let mut info = store.list().await.unwrap().remove(0);
        info.updated_at = long_ago;
        assert_eq!(store.list_page(Some(&info), 9).await.unwrap(), []);
        info.updated_at = before;
        assert_eq!(store.list_page(Some(&info), 9).await.unwrap().len(), 1);
        assert_eq!(store.prune(before).await.unwrap(), ["s"]);
    }
}
