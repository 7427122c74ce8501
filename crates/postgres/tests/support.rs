//! Stores for tests.

use std::fmt::Write as _;
use std::process;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use turnstream::item::ItemKind;
use turnstream::session::Entry;
use turnstream::{Error, ErrorKind, Item};
use turnstream_postgres::{PostgresError, PostgresErrorKind, PostgresOptions, PostgresStore};

use turnstream_test_support::postgres::{OWNER, PASSWORD, Server};

/// The time limit of a wait for something that should happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The server of the tests that do not disturb it. Each test has a schema of its own.
pub(crate) fn shared_server() -> &'static Server {
    static SERVER: LazyLock<Server> = LazyLock::new(|| Server::start(&["fsync = off"]));
    &SERVER
}

/// A name that no other test on this machine has.
pub(crate) fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test \"{} {}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Options with a schema of their own on the shared server.
pub(crate) fn options() -> PostgresOptions {
    options_for(shared_server())
}

pub(crate) fn options_for(server: &Server) -> PostgresOptions {
    PostgresOptions::new(server.url()).with_schema(unique_name())
}

pub(crate) async fn connect(options: &PostgresOptions) -> PostgresStore {
    options.clone().connect().await.unwrap()
}

/// A connection of the superuser.
pub(crate) async fn admin(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) fn text_of(entry: &Entry) -> String {
    match entry {
        Entry::Item(Item { kind: ItemKind::User { content }, .. }) => content.text(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn expect_postgres_error(error: &Error, kind: PostgresErrorKind) -> &PostgresError {
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    assert_no_password(error);
    let found = error.find_source::<PostgresError>().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(found.kind(), kind, "{error}");
    found
}

#[track_caller]
pub(crate) fn assert_no_password(error: &Error) {
    let mut shown = format!("{error} {error:?}");
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        write!(shown, "{source} {source:?}").unwrap();
        next = source.source();
    }
    assert!(!shown.contains(PASSWORD), "{shown}");
}

/// Polls a condition that has no notification.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let awaited = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, awaited).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A URL whose connections can be identified on the server, and ended.
pub(crate) fn named_url(server: &Server, name: &str) -> String {
    format!("{}?application_name={name}", server.url())
}

/// Ends the connections with this name, and returns their number.
pub(crate) async fn terminate(admin: &Client, name: &str) -> usize {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    admin.query(sql, &[&name]).await.unwrap().len()
}

/// Options with one connection for reads and writes, through a proxy on this port.
pub(crate) fn options_by_port(port: u16) -> PostgresOptions {
    PostgresOptions::new(format!("postgres://{OWNER}:{PASSWORD}@127.0.0.1:{port}/postgres"))
        .with_schema(unique_name())
        .with_pool_size(1)
}

/// Makes a server read-only, as after a failover that ends no connections.
pub(crate) async fn make_read_only(server: &Server) {
    let admin = admin(server).await;
    admin.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until("its processes have read it", || async {
        let row = admin.query_one("SHOW transaction_read_only", &[]).await.unwrap();
        row.get::<_, String>(0) == "on"
    })
    .await;
}

/// Two servers with the tables of a schema, and options that select the first writable one.
pub(crate) async fn two_servers() -> ([Server; 2], PostgresOptions) {
    let servers = [(); 2].map(|()| Server::start(&["fsync = off"]));
    let schema = unique_name();
    for server in &servers {
        connect(&PostgresOptions::new(server.url()).with_schema(&*schema)).await;
    }
    let ports = servers.each_ref().map(Server::port);
    let url = format!(
        "postgres://{OWNER}:{PASSWORD}@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        ports[0], ports[1]
    );
    (servers, PostgresOptions::new(url).with_schema(schema))
}
