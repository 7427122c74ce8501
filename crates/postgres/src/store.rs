//! The public interface of the PostgreSQL store.
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;
use turnstream::Error;
use turnstream::session::backend::{ensure_id_not_empty, entry_to_json_line};
use turnstream::session::{Entry, Lease, SessionInfo, Store};

use crate::connector::Connector;
use crate::database::Database;
use crate::error::{PostgresError, PostgresErrorKind};
use crate::follow::Followers;
use crate::leases::Leases;
use crate::options::PostgresOptions;
use crate::schema;
use crate::session_tables::{AppendLease, NewEntries, SessionTables};
use crate::statements::Statements;

/// Stores sessions in a PostgreSQL database. Use this store for programs that run as several
/// processes or on several machines. The store is cheap to clone, and clones share their
/// connections.
///
/// The store requires PostgreSQL 14 or later and a database that uses the UTF-8 encoding. Each
/// entry is stored as JSON text in a row, and each append is a single statement. A fork refers to
/// its original session and copies nothing. The times in a [session list](Store::list) come from
/// the server's clock.
///
/// ```no_run
/// # // It needs a server.
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::session::Session;
/// use turnstream_postgres::PostgresStore;
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
/// # Durability
///
/// Once the future of an append completes, the append has been committed and is on the server's
/// disk. The store's connections set `synchronous_commit` to `on`, unless the server, the database
/// or the role sets it to `remote_write` or `remote_apply`. If the server crashes during an append,
/// no part of that append is written. After a failover to an asynchronous standby, appends that
/// were not yet replicated are lost. The next append to a session whose earlier appends were lost
/// fails with a [`Conflict`](turnstream::session::Conflict).
///
/// If a connection breaks, calls are retried on another connection, for 30 seconds by
/// [default](PostgresOptions::with_retry_limit). Each append has a random id. After an attempt that
/// received no response, the store uses this id to determine whether the append was written. As a
/// result, no append is written twice. If the store reaches the retry limit before it can determine
/// whether the append was written, the error's kind is
/// [`OutcomeUnknown`](turnstream::ErrorKind::OutcomeUnknown).
///
/// If the future of an append, a fork or a deletion is dropped after its first poll, the operation
/// may or may not take effect, but never does so partially. If the future of
/// [`prune`](Store::prune) is dropped, some of the sessions may have been removed. If the future of
/// [`lease`](Store::lease) is dropped, the lease is released.
///
/// # Leases
///
/// A lease is an advisory lock on the server. A single connection outside the pool holds all of the
/// leases that were acquired from this store. If a process ends, its leases are released
/// immediately. If a process is suspended, or its machine fails, its leases are released after the
/// [lease time](PostgresOptions::with_lease_time), which is 15 seconds by default. If the
/// connection that holds the leases is lost, all of these leases are lost for good; acquiring the
/// next lease opens another connection. The epochs of all leases come from a single database
/// sequence. As a result, a session's epochs are not consecutive, and they increase even if the
/// session is deleted and created again.
///
/// If a server stops accepting writes, for example after a failover, the store detects this within
/// a third of the lease time, and the leases are lost. Deleting and pruning ignore leases, so a
/// session can be removed while a run of the session is active. The next append to a removed
/// session fails with a [`Conflict`](turnstream::session::Conflict).
///
/// A connection pooler between the store and the server must use session pooling. With transaction
/// pooling (the `transaction` mode of `PgBouncer`), leases do not protect sessions, and followers
/// receive nothing.
///
/// # Tables and privileges
///
/// [`connect`](Self::connect) creates the tables in a separate schema, and migrates tables that
/// were created by earlier versions of this crate. Any number of processes can call `connect`
/// concurrently. If the tables exist and are up to date, the role does not need the privilege to
/// create tables. To create the tables with another role, run the script that
/// [`migrations_sql`](Self::migrations_sql) returns. The program's role then needs only these
/// privileges:
///
/// ```sql
/// GRANT USAGE ON SCHEMA turnstream TO app;
/// GRANT SELECT ON turnstream.schema_version TO app;
/// GRANT SELECT, INSERT, UPDATE, DELETE ON turnstream.session, turnstream.entry TO app;
/// GRANT USAGE ON SEQUENCE turnstream.lease_epoch TO app;
/// ```
///
/// The store cannot open tables that were created by a later version of this crate. Reading a page
/// of the session list takes about 25 ms per 100,000 sessions in the database. The `updated` column
/// has no index, because each append would have to update the index. If your program lists sessions
/// more often than it writes to them, you can add an index
/// (`CREATE INDEX ON turnstream.session (updated DESC)`).
///
/// # Errors
///
/// The source of each error that the database caused is a [`PostgresError`]. Errors never contain
/// the password.
///
/// # Background tasks
///
/// The store's futures must be polled on a tokio runtime whose I/O and time drivers are enabled.
/// Each connection is driven by a task on the runtime on which the connection was opened. One more
/// task manages the store's leases, and another manages its followers. If the runtime of these
/// tasks shuts down, the leases are lost, and the next call, or the next poll of a follower, opens
/// new connections. Encrypted connections use rustls; `sslmode` and `sslrootcert` have the same
/// meaning as in libpq.
// NOTE: tests/schema.rs lists the same privileges.
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
    /// Connects to the database with the default [`PostgresOptions`].
    ///
    /// Dropping the future has the effect described at [`PostgresOptions::connect`].
    ///
    /// # Errors
    ///
    /// Returns the errors that [`PostgresOptions::connect`] returns.
    pub async fn connect(connection_string: impl Into<String>) -> Result<Self, Error> {
        PostgresOptions::new(connection_string).connect().await
    }

    /// Returns an SQL script that creates the tables in a schema. The role that runs the script
    /// needs the privilege to create tables. After the script has been run,
    /// [`connect`](Self::connect) needs only the [privileges](Self#tables-and-privileges) to use
    /// the tables. Run the script only on databases that do not contain the tables yet.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](turnstream::ErrorKind::InvalidRequest) if `schema` is not a valid schema
    /// name.
    pub fn migrations_sql(schema: &str) -> Result<String, Error> {
        Ok(schema::migrations_sql(&schema::quote_identifier(schema)?))
    }

    /// Returns a stream of a session's versions. The stream reports writes from all processes. The
    /// stream first yields the current version (0 if the session does not exist), and then each
    /// later version. If several versions arrive at the same time, only the latest version is
    /// yielded. Use [`load`](Store::load) to read the entries.
    ///
    /// All stores that write to the database must be connected [with
    /// notifications](PostgresOptions::with_notifications). A deleted session has version 0. The
    /// stream never ends; while no server can be reached, the stream stays pending. All followers
    /// of this store share one connection, which is driven by a task. The first poll of a stream
    /// starts the task, and the task ends when the last stream is dropped.
    ///
    /// ```no_run
    /// # // It needs a server.
    /// use futures::StreamExt;
    /// use turnstream::session::Store;
    /// use turnstream_postgres::PostgresOptions;
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
        let lines =
            entries.iter().map(entry_to_json_line).collect::<Result<Vec<String>, Error>>()?;
        drop(entries);
        self.shared.tables.append(&NewEntries { id, expected, lines }, lease).await
    }
}

impl PostgresOptions {
    /// Connects to the database, and creates or migrates the tables if they are missing or
    /// outdated.
    ///
    /// Dropping the future closes the connections that it has opened. A migration step is a single
    /// transaction, so it is then either complete or rolled back.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](turnstream::ErrorKind::InvalidRequest) if the connection string or the
    /// schema name is invalid. [`Store`](turnstream::ErrorKind::Store), with a [`PostgresError`] as
    /// its source, if a connection cannot be opened within the time limit, or if the tables cannot
    /// be created or were created by a later version of this crate.
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
                        error.add_context("the role may not use or create the tables");
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
