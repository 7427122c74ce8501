//! The store.

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

/// TODO
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
    /// [`connect`](Self::connect) needs no more than the [rights](Self#rights) to use them.
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
    /// used, and [`Store`](crate::ErrorKind::Store) with a [`PostgresError`] as its source if there is no connection
    /// within the limit, or the tables cannot be made or are those of a later version.
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
        self.append_entries(Some(lease), id, expected, entries).boxed()
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
