//! The store, as its users see it.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;

use super::connector::Connector;
use super::database::Database;
use super::error::{PostgresError, PostgresErrorKind};
use super::follow::Followers;
use super::leases::Leases;
use super::options::PostgresOptions;
use super::schema;
use super::session_tables::{AppendLease, NewEntries, SessionTables};
use super::statements::Statements;
use crate::error::Error;
use crate::session::checks::ensure_id_not_empty;
use crate::session::entry_json::to_json_line;
use crate::session::{Entry, Lease, SessionInfo, Store};

/// A store in a PostgreSQL database, for programs with several processes or machines. Cheap to clone; clones share
/// its connections.
///
/// It takes PostgreSQL 14 or later, and a database whose encoding is UTF-8. Each entry is a row with its JSON text, and
/// an append is one statement. A fork names the session it came from and copies nothing. The times in a
/// [list](Store::list) are the server's.
///
/// ```no_run
/// # // It needs a server.
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::session::{PostgresStore, Session};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let store = PostgresStore::connect("postgres://app:secret@db.example/app?sslmode=verify-full").await?;
/// let session = Session::open(store, "chat").await?;
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// session.run(&agent, "Hi!").await?.outcome().await?;
/// # Ok(())
/// # }
/// ```
///
/// # What is durable
///
/// An append that is answered was committed and is on the server's disk: `synchronous_commit` is set to `on` for the
/// store's connections, unless the server, the database or the role has `remote_write` or `remote_apply`. An append
/// that a crash of the server cuts off is not written at all. After a failover to an
/// asynchronous standby, appends that were not replicated yet are lost; the next append to such a session gets a
/// [`Conflict`](crate::session::Conflict).
///
/// If a connection breaks, calls try again on another one, for 30 seconds unless
/// [set](PostgresOptions::with_retry_limit). Each append has a random id, by which the store finds out whether a try
/// that got no answer was written: it is never written twice. If the limit passes first, it is not known whether it
/// was written, and the message says so. If a future is dropped after its first poll, the append may be written or not,
/// but never in part.
///
/// # Leases
///
/// A lease is an advisory lock of the server. One connection, which is not of the pool, holds those of all sessions
/// that this store runs. A process that ends gives its leases back at once; one that is stopped, or whose machine is
/// gone, after the [lease time](PostgresOptions::with_lease_time), 15 seconds unless set. If that connection is lost,
/// so are all its leases, for good; the next lease makes another connection. Epochs are drawn from one sequence: they
/// rise, also when a session is deleted and made again, and have gaps.
///
/// A server that takes no writes any more, as after a failover, is noticed within a third of the lease time, and the
/// leases are lost. Deleting and pruning do not look at leases: they remove a session that runs, whose next append
/// gets a [`Conflict`](crate::session::Conflict).
///
/// A pooler between the store and the server has to pool sessions. With one that pools transactions (`PgBouncer` in its
/// mode `transaction`), leases do not protect sessions, and followers receive nothing.
///
/// # Tables and rights
///
/// [`connect`](Self::connect) makes the tables in a schema of their own, and brings older ones to the newest version;
/// any number of processes may do so at once. If they are there and current, the role needs no right to make them:
/// another role can, with [`migrations_sql`](Self::migrations_sql). Then that of the program needs these rights only:
///
/// ```sql
/// GRANT USAGE ON SCHEMA turnstream TO app;
/// GRANT SELECT ON turnstream.schema_version TO app;
/// GRANT SELECT, INSERT, UPDATE, DELETE ON turnstream.session, turnstream.entry TO app;
/// GRANT USAGE ON SEQUENCE turnstream.lease_epoch TO app;
/// ```
///
/// Tables of a later version of this crate are refused. A page of the list takes as long as there are sessions, about
/// 25 ms per 100,000: `updated` has no index, because each append would have to write it. A database that is listed
/// more than it is written may get one (`CREATE INDEX ON turnstream.session (updated DESC)`).
///
/// # Errors
///
/// Where the database is the reason, the source of an error is a [`PostgresError`]. No error shows the password.
///
/// # What runs
///
/// Its futures have to be polled on a tokio runtime with I/O and time. Each connection is read and written by a task on
/// the runtime of the call that made it; the leases and the followers of the store have a task each. If that runtime
/// ends, the leases are lost, and the next call or the next follower that is polled makes other connections.
/// Encrypted connections use rustls; `sslmode` and `sslrootcert` have the meaning that libpq gives them.
// NOTE: tests/postgres/schema.rs has the same rights.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<SharedStore>,
}

struct SharedStore {
    tables: SessionTables,
    leases: Leases,
    followers: Arc<Followers>,
    schema: String,
}

impl PostgresStore {
    /// Connects with the settings that [`PostgresOptions`] has unless they are set.
    ///
    /// # Errors
    ///
    /// As [`PostgresOptions::connect`].
    pub async fn connect(connection_string: impl Into<String>) -> Result<Self, Error> {
        PostgresOptions::new(connection_string).connect().await
    }

    /// The SQL that makes the tables in a schema, as a script for a role that may: afterwards
    /// [`connect`](Self::connect) needs no more than the [rights](Self#tables-and-rights) to use them. It is for a
    /// database that does not have them yet.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if no schema can have the name.
    pub fn migrations_sql(schema: &str) -> Result<String, Error> {
        Ok(schema::migrations_sql(&schema::quote_identifier(schema)?))
    }

    /// The versions of a session, as they are written by any process: first the version that it has, 0 if it is not
    /// there, and then each later one, or the last of several that came at once. [`load`](Store::load) has the entries.
    ///
    /// All stores that write have to be connected [with notifications](PostgresOptions::with_notifications). After the
    /// session was deleted its version is 0. The stream does not end; while no server can be reached, it waits. One
    /// connection listens for all who follow by this store, in a task that starts with the first poll and ends with the
    /// drop of the last stream.
    ///
    /// ```no_run
    /// # // It needs a server.
    /// use futures::StreamExt;
    /// use turnstream::session::{PostgresOptions, Store};
    ///
    /// # async fn follow() -> Result<(), turnstream::Error> {
    /// let options = PostgresOptions::new("postgres://app@db.example/app").with_notifications();
    /// let store = options.connect().await?;
    /// let (mut versions, mut seen) = (store.follow("chat"), 0);
    /// while let Some(version) = versions.next().await {
    ///     for entry in store.load("chat", seen).await?.unwrap_or_default() {
    ///         println!("{entry:?}");
    ///     }
    ///     seen = version;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow(&self, id: impl Into<String>) -> BoxStream<'static, u64> {
        self.shared.followers.follow(id.into())
    }

    async fn append_entries(
        &self,
        lease: Option<&dyn AppendLease>,
        id: &str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> Result<u64, Error> {
        ensure_id_not_empty(id)?;
        let lines = entries.iter().map(to_json_line).collect::<Result<Vec<String>, Error>>()?;
        drop(entries);
        self.shared.tables.append(&NewEntries { id, expected, lines }, lease).await
    }
}

impl PostgresOptions {
    /// Connects, and makes or updates the tables if they are not those of this version.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the connection string or the schema's name cannot be
    /// used, and [`Store`](crate::ErrorKind::Store) with a [`PostgresError`] as its source if no connection is
    /// made within the limit, or the tables cannot be made or are those of a later version.
    pub async fn connect(self) -> Result<PostgresStore, Error> {
        let schema = schema::quote_identifier(&self.schema)?;
        let connector = Connector::new(&self.connection_string, self.limits.statement)?;
        let cannot =
            |error: PostgresError| error.into_store_error("cannot use the PostgreSQL database");
        let database =
            Database::new(connector.clone(), self.pool_size, self.limits).map_err(cannot)?;
        let mut attempts = database.attempts();
        loop {
            let client = attempts.client().await.map_err(cannot)?;
            match database.answer(schema::migrate(client, &schema, &self.schema)).await {
                Ok(()) => break,
                Err(mut error) => {
                    if error.kind() == PostgresErrorKind::PermissionDenied {
                        error.add_context("the role may not use or make the tables");
                    }
                    attempts.after_error(error).await.map_err(cannot)?;
                }
            }
        }
        drop(attempts);
        let statements = Statements::new(&schema, &self.schema, self.notify);
        let tables = SessionTables { database, statements };
        let leases = Leases::new(connector.clone(), self.lease_time, &tables.statements);
        let followers = Arc::new(Followers::new(connector, &tables.statements));
        let shared = SharedStore { tables, leases, followers, schema: self.schema };
        Ok(PostgresStore { shared: Arc::new(shared) })
    }
}

impl Store for PostgresStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.append_entries(None, id, expected, entries).boxed()
    }

    fn append_leased<'a>(
        &'a self,
        lease: &'a Lease,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        let owner = self.shared.leases.owner(lease);
        async move { self.append_entries(Some(&owner), id, expected, entries).await }.boxed()
    }

    fn lease<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Lease, Error>> {
        async move {
            ensure_id_not_empty(id)?;
            self.shared.leases.take(&self.shared.tables.database, id).await
        }
        .boxed()
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        self.shared.tables.load(id, from).boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        self.shared.tables.list().boxed()
    }

    fn list_page<'a>(
        &'a self,
        after: Option<&'a SessionInfo>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionInfo>, Error>> {
        self.shared.tables.list_page(after, limit).boxed()
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            ensure_id_not_empty(new)?;
            self.shared.tables.fork(id, at, new).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        self.shared.tables.delete(id).boxed()
    }

    fn prune(&self, before: SystemTime) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        self.shared.tables.prune(before).boxed()
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("schema", &self.shared.schema).finish_non_exhaustive()
    }
}
