//! Errors describe the failure without the password.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use turnstream::ErrorKind;
use turnstream::session::Store;
use turnstream_postgres::{PostgresErrorKind, PostgresOptions, PostgresStore};
use turnstream_testing::session_suite::{numbered_entries, text_entry};

use crate::support::{
    admin, assert_no_password, connect, expect_postgres_error, options, shared_server, unique_name,
};
use turnstream_test_support::ports::unassigned_port;
use turnstream_test_support::postgres::{OWNER, PASSWORD, Server, give_to_server};

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_wrong_password_is_an_error_at_once() {
    let url = shared_server().url_as(OWNER, &format!("{PASSWORD}x"));
    let error = PostgresStore::connect(url).await.unwrap_err();
    let found = expect_postgres_error(&error, PostgresErrorKind::AuthenticationFailed);
    assert_eq!(found.sqlstate(), Some("28P01"));
    assert!(!format!("{:?}", PostgresOptions::new(shared_server().url())).contains(PASSWORD));
    assert!(!format!("{:?}", connect(&options()).await).contains(PASSWORD));
}

#[tokio::test]
async fn an_invalid_connection_string_is_not_shown_in_the_error() {
    for text in [
        format!("postgres://{PASSWORD}"),
        format!("postgres:/u:{PASSWORD}@h"),
        format!("u:{PASSWORD}@h/d"),
        format!("host=h password={PASSWORD} {PASSWORD}=x"),
        format!("postgres://u:{PASSWORD}@h/d?port=x"),
        format!("postgres://u:{PASSWORD}@h/d?sslmode=sometimes"),
        format!("postgres://u:{PASSWORD}@h/d?{PASSWORD}=x"),
        format!("user=u password={PASSWORD}"),
        String::new(),
    ] {
        let options = PostgresOptions::new(text.clone()).with_retry_limit(Duration::ZERO);
        let error = options.connect().await.unwrap_err();
        assert_no_password(&error);
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::Store), "{text}");
    }
    let long = "x".repeat(64);
    for schema in ["", "a\0b", &*long] {
        let options = PostgresOptions::new("postgres://h/d").with_schema(schema);
        assert_eq!(options.connect().await.unwrap_err().kind(), ErrorKind::InvalidRequest);
        let error = PostgresStore::migrations_sql(schema).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_after_the_limit() {
    let port = unassigned_port();
    let url = format!("postgres://u:{PASSWORD}@127.0.0.1:{port}/d");
    let options = PostgresOptions::new(url).with_retry_limit(Duration::from_millis(300));
    let began = std::time::Instant::now();
    let error = options.connect().await.unwrap_err();
    expect_postgres_error(&error, PostgresErrorKind::Unreachable);
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_read_only_server_is_an_error_at_once() {
    let schema = unique_name();
    let owner = connect(&options().with_schema(&*schema)).await;
    owner.append("s", 0, numbered_entries(0..1)).await.unwrap();
    let url = format!("{}?options=-c%20default_transaction_read_only%3Don", shared_server().url());
    let store = connect(&PostgresOptions::new(url.clone()).with_schema(&*schema)).await;
    assert_eq!(store.load("s", 0).await.unwrap(), Some(numbered_entries(0..1)));
    for error in [
        store.append("s", 1, numbered_entries(1..2)).await.unwrap_err(),
        store.fork("s", 1, "f").await.unwrap_err(),
        store.delete("s").await.unwrap_err(),
        store.lease("s").await.unwrap_err(),
    ] {
        let found = expect_postgres_error(&error, PostgresErrorKind::ReadOnly);
        assert_eq!(found.sqlstate(), Some("25006"));
    }
    // The lock of the lease that could not be taken is released.
    drop(owner.lease("s").await.unwrap());
    // A connection that requires a writable server is refused.
    let options = PostgresOptions::new(format!("{url}&target_session_attrs=read-write"));
    let options = options.with_schema(&*schema).with_retry_limit(Duration::from_millis(300));
    expect_postgres_error(&options.connect().await.unwrap_err(), PostgresErrorKind::Unreachable);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn the_writable_host_of_several_is_used() {
    let other = Server::start(&["fsync = off", "default_transaction_read_only = on"]);
    let (dead, server) = (TcpListener::bind("127.0.0.1:0").unwrap(), shared_server());
    let dead_port = dead.local_addr().unwrap().port();
    drop(dead);
    let hosts =
        format!("127.0.0.1:{dead_port},127.0.0.1:{},127.0.0.1:{}", other.port(), server.port());
    let url =
        format!("postgres://{OWNER}:{PASSWORD}@{hosts}/postgres?target_session_attrs=read-write");
    let store = connect(&PostgresOptions::new(url).with_schema(unique_name())).await;
    store.append("s", 0, numbered_entries(0..1)).await.unwrap();
    drop(store.lease("s").await.unwrap());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn out_of_range_settings_are_clamped() {
    let days = Duration::from_hours(40 * 24);
    for options in [
        options().with_retry_limit(Duration::ZERO),
        options().with_retry_limit(Duration::MAX),
        options().with_statement_timeout(days),
        options().with_statement_timeout(Duration::MAX),
        options().with_lease_time(Duration::ZERO),
        options().with_lease_time(days),
        options().with_lease_time(Duration::MAX),
        options().with_pool_size(0),
        options().with_pool_size(usize::MAX),
    ] {
        let store = connect(&options).await;
        let lease = store.lease("s").await.unwrap();
        store.append_leased(&lease, "s", 0, numbered_entries(0..1)).await.unwrap();
    }
    // A millisecond may or may not be enough.
    let schema = unique_name();
    connect(&options().with_schema(&*schema)).await;
    let options = options().with_schema(&*schema).with_statement_timeout(Duration::ZERO);
    if let Err(error) = options.connect().await {
        expect_postgres_error(&error, PostgresErrorKind::Timeout);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_statement_over_the_time_limit_is_an_error() {
    let schema = unique_name();
    let options = options().with_schema(&*schema);
    let options = options.with_statement_timeout(Duration::from_millis(200));
    let store = connect(&options).await;
    store.append("s", 0, numbered_entries(0..1)).await.unwrap();
    let mut admin = admin(shared_server()).await;
    let blocks = admin.transaction().await.unwrap();
    let table = format!("{}.session", crate::support::quoted(&schema));
    blocks.batch_execute(&format!("SELECT FROM {table} FOR UPDATE")).await.unwrap();
    let error = store.append("s", 1, numbered_entries(1..2)).await.unwrap_err();
    expect_postgres_error(&error, PostgresErrorKind::Timeout);
    blocks.rollback().await.unwrap();
    store.append("s", 1, numbered_entries(1..2)).await.unwrap();
}

/// A small temporary file system in memory; `None` if it cannot be created.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn new(name: &str) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("turnstream-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(&path).status();
        let disk = Self(path);
        mounted.is_ok_and(|status| status.success()).then_some(disk)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: crates/postgres/tests/run.sh"]
async fn a_full_disk_is_a_typed_error_and_loses_nothing() {
    let server = Server::start(&["fsync = off"]);
    let disk = SmallDisk::new("full").expect("a file system can be mounted: it takes root");
    let folder = disk.0.join("tables");
    std::fs::create_dir(&folder).unwrap();
    give_to_server(&folder);
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let owner = admin(&server).await;
    let sql = format!("CREATE TABLESPACE small LOCATION '{}'", folder.display());
    owner.execute(&sql, &[]).await.unwrap();
    owner.execute("CREATE DATABASE sessions TABLESPACE pg_default", &[]).await.unwrap();
    owner.execute("ALTER DATABASE sessions SET default_tablespace = small", &[]).await.unwrap();
    let url = server.url_of("sessions");
    let store = PostgresStore::connect(url).await.unwrap();
    // Hexadecimal digits of a hash, which cannot be compressed much.
    let noise = |seed: u64| -> String {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{state:016x}")
        };
        (0..20_000).map(|_| next()).collect()
    };
    let mut written = Vec::new();
    let error = loop {
        let version = written.len() as u64;
        let entry = text_entry(&noise(version));
        match store.append("s", version, vec![entry.clone()]).await {
            Ok(_) => written.push(entry),
            Err(error) => break error,
        }
        assert!(written.len() < 1000, "the disk is never full");
    };
    let found = expect_postgres_error(&error, PostgresErrorKind::DiskFull);
    assert_eq!(found.sqlstate(), Some("53100"));
    assert_eq!(store.load("s", 0).await.unwrap(), Some(written));
    drop(store);
    drop(server);
}
