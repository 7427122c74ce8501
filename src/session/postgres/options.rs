//! The options for connecting to PostgreSQL.

use std::fmt;
use std::time::Duration;

use super::database::TimeLimits;
use super::statements::Notify;

/// The longest duration that the server accepts as a setting: 24 days.
const LONGEST_TIME: Duration = Duration::from_millis(i32::MAX as u64);
/// The maximum size of the connection pool, which is more connections than a server can have.
const MAX_POOL_SIZE: usize = 10_000;

/// The options to connect a [`PostgresStore`](crate::session::PostgresStore). Start with
/// `PostgresOptions::new(url)`, add settings, and call [`connect`](Self::connect).
///
/// ```no_run
/// # // It needs a server.
/// use std::time::Duration;
/// use turnstream::session::PostgresOptions;
///
/// # async fn connect() -> Result<(), turnstream::Error> {
/// let store = PostgresOptions::new("postgres://app@db.example/app?sslmode=verify-full")
///     .with_schema("sessions")
///     .with_pool_size(16)
///     .with_retry_limit(Duration::from_mins(1))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing is connected before `connect`"]
pub struct PostgresOptions {
    pub(super) connection_string: String,
    pub(super) schema: String,
    pub(super) pool_size: usize,
    pub(super) limits: TimeLimits,
    pub(super) lease_time: Duration,
    pub(super) notify: Notify,
}

impl PostgresOptions {
    /// Creates options from a connection string. The string is a URL
    /// `postgres://user:password@host:port/database?option=value`, or pairs `host=… user=…`, as in
    /// libpq.
    ///
    /// In a URL, the characters `/`, `@`, `#`, `%` and `:` of the password must be written as
    /// `%2F`, `%40`, `%23`, `%25` and `%3A`.
    ///
    /// Several hosts are tried in order (`postgres://a,b/app?target_session_attrs=read-write`), so
    /// after a failover, the store connects to the server that accepts writes. `sslmode` can be
    /// `disable`, `prefer` (the default), `require`, `verify-ca` or `verify-full`. `sslrootcert` is
    /// a file of PEM certificates, or `system`. Without `sslrootcert`, the `verify-…` modes trust
    /// the platform's certificates. Environment variables and password files are not read.
    pub fn new(connection_string: impl Into<String>) -> Self {
        Self {
            connection_string: connection_string.into(),
            schema: "turnstream".to_owned(),
            pool_size: 10,
            limits: TimeLimits {
                retry: Duration::from_secs(30),
                statement: Duration::from_secs(30),
            },
            lease_time: Duration::from_secs(15),
            notify: Notify::Off,
        }
    }

    /// Sets the schema of the tables, which is `turnstream` by default. Stores with different
    /// schemas share no data.
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the maximum number of connections for reads and writes, from 1 to 10,000. The default
    /// is 10. The connection for leases and the connection for followers are not included.
    pub fn with_pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections.clamp(1, MAX_POOL_SIZE);
        self
    }

    /// Sets how long a call is retried while no server can be reached, or after a connection broke.
    /// The default is 30 seconds, and the maximum is 24 days. Choose a limit that is longer than a
    /// failover takes.
    ///
    /// The first attempt of a call waits up to 5 seconds for a connection, even if the retry limit
    /// is shorter.
    pub fn with_retry_limit(mut self, limit: Duration) -> Self {
        self.limits.retry = limit.min(LONGEST_TIME);
        self
    }

    /// Sets the time limit of a single statement, from 1 millisecond to 24 days. The default is 30
    /// seconds. The server enforces the limit; the client gives up 5 seconds later.
    pub fn with_statement_timeout(mut self, limit: Duration) -> Self {
        self.limits.statement = limit.clamp(Duration::from_millis(1), LONGEST_TIME);
        self
    }

    /// Sets how long a lease is kept if its owner stops without closing the connection (a suspended
    /// process, a failed machine), from 1 second to 24 days. The default is 15 seconds.
    ///
    /// The store uses the connection for leases three times during the lease time. If the runtime
    /// is blocked for the whole lease time, all leases are lost. All leases share one connection.
    /// If the row of a session is locked, for example by the deletion of a long session, taking its
    /// lease waits for at most a quarter of the lease time. After that, taking the lease fails with
    /// an error of kind [`Timeout`](crate::session::PostgresErrorKind::Timeout).
    pub fn with_lease_time(mut self, lease_time: Duration) -> Self {
        self.lease_time = lease_time.clamp(Duration::from_secs(1), LONGEST_TIME);
        self
    }

    /// Sends a notification with each write, for
    /// [`PostgresStore::follow`](crate::session::PostgresStore::follow) in any process. All stores
    /// that write must enable notifications.
    ///
    /// A notification contains the key of a row and a version, but never an id or a text. The
    /// server commits transactions with notifications one at a time, so concurrent writes to many
    /// sessions become slower.
    pub fn with_notifications(mut self) -> Self {
        self.notify = Notify::Each;
        self
    }
}

/// Formats the options without the connection string, which may contain a password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("pool_size", &self.pool_size)
            .field("limits", &self.limits)
            .field("lease_time", &self.lease_time)
            .field("notify", &self.notify)
            .finish_non_exhaustive()
    }
}
