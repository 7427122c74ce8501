//! Connection options.

use std::fmt;
use std::time::Duration;

use super::database::TimeLimits;
use super::statements::Notify;

/// The longest duration that the server accepts as a setting: 24 days.
const LONGEST_TIME: Duration = Duration::from_millis(i32::MAX as u64);
/// More connections than a server can have.
const MAX_POOL_SIZE: usize = 10_000;

/// Options to connect a [`PostgresStore`](crate::session::PostgresStore): start with
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
    /// Starts with a connection string: a URL
    /// `postgres://user:password@host:port/database?option=value`, or pairs `host=… user=…`, as in
    /// libpq.
    ///
    /// In a URL, the characters `/`, `@`, `#`, `%` and `:` of the password must be written as
    /// `%2F`, `%40`, `%23`, `%25` and `%3A`.
    ///
    /// Several hosts are tried in order (`postgres://a,b/app?target_session_attrs=read-write`), so
    /// after a failover, the store connects to the server that accepts writes. `sslmode` can be
    /// `disable`, `prefer` (the default), `require`, `verify-ca` or `verify-full`. `sslrootcert` is
    /// a file of PEM certificates, or `system`; without it, the `verify-…` modes trust the
    /// platform's certificates. Environment variables and password files are not read.
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

    /// Sets the schema of the tables; `turnstream` by default. Stores with different schemas share
    /// nothing.
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the maximum number of connections for reads and writes, from 1 to 10,000; 10 by
    /// default. The connection for leases and the one for followers are not included.
    pub fn with_pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections.clamp(1, MAX_POOL_SIZE);
        self
    }

    /// Sets how long a call is retried while no server can be reached, or after a connection broke:
    /// 30 seconds by default, and at most 24 days. Choose a limit that is longer than a failover
    /// takes.
    ///
    /// The first attempt of a call waits up to 5 seconds for a connection, even if this limit is
    /// shorter.
    pub fn with_retry_limit(mut self, limit: Duration) -> Self {
        self.limits.retry = limit.min(LONGEST_TIME);
        self
    }

    /// Sets the time limit of a single statement, from 1 millisecond to 24 days; 30 seconds by
    /// default. The server enforces the limit; the client gives up 5 seconds later.
    pub fn with_statement_timeout(mut self, limit: Duration) -> Self {
        self.limits.statement = limit.clamp(Duration::from_millis(1), LONGEST_TIME);
        self
    }

    /// Sets how long a lease is kept if its owner stops without closing the connection (a suspended
    /// process, a failed machine), from 1 second to 24 days; 15 seconds by default.
    ///
    /// The store uses the connection for leases three times during this period. If the runtime is
    /// blocked for the whole period, all leases are lost. All leases share one connection, so
    /// taking one waits for at most a quarter of the period if the row is locked, for example by
    /// the deletion of a long session; then it fails with an error of kind
    /// [`Timeout`](crate::session::PostgresErrorKind::Timeout).
    pub fn with_lease_time(mut self, lease_time: Duration) -> Self {
        self.lease_time = lease_time.clamp(Duration::from_secs(1), LONGEST_TIME);
        self
    }

    /// Sends a notification with each write, for
    /// [`PostgresStore::follow`](crate::session::PostgresStore::follow) in any process. All stores
    /// that write must enable this.
    ///
    /// A notification contains the key of a row and a version, never an id or a text. The server
    /// commits transactions with notifications one at a time, so concurrent writes to many sessions
    /// become slower.
    pub fn with_notifications(mut self) -> Self {
        self.notify = Notify::Each;
        self
    }
}

/// Omits the connection string, which may contain a password.
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
