//! How a store is connected.

use std::fmt;
use std::time::Duration;

use super::database::TimeLimits;
use super::statements::Notify;

/// The longest time that the server takes as a setting: 24 days.
const LONGEST_TIME: Duration = Duration::from_millis(i32::MAX as u64);
/// More than a server can have.
const MAX_POOL_SIZE: usize = 10_000;

/// How a [`PostgresStore`](crate::session::PostgresStore) is connected: `PostgresOptions::new(url)`, the settings, and [`connect`](Self::connect).
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
    /// Begins with a connection string: a URL `postgres://user:password@host:port/database?option=value`, or pairs
    /// `host=… user=…`, as libpq has them.
    ///
    /// In a URL, a `/`, `@`, `#`, `%` or `:` of the password is written as `%2F`, `%40`, `%23`, `%25` or `%3A`.
    ///
    /// Several hosts are tried in order (`postgres://a,b/app?target_session_attrs=read-write`), so a failover is
    /// followed to the server that takes writes. `sslmode` may be `disable`, `prefer` (unless set), `require`,
    /// `verify-ca` or `verify-full`. `sslrootcert` is a file of PEM certificates, or `system`; without it the `verify-…`
    /// modes trust the platform's certificates. Environment variables and password files are not read.
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

    /// Sets the schema of the tables, `turnstream` unless set. Stores with different schemas share nothing.
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the maximum number of connections for reads and writes, 10 unless set; from 1 to 10,000. The connection
    /// that holds leases and the one for followers come on top.
    pub fn with_pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections.clamp(1, MAX_POOL_SIZE);
        self
    }

    /// Sets how long a call tries again while no server can be reached, or after a connection broke; 30 seconds unless
    /// set, and at most 24 days. A failover should take less.
    ///
    /// The first try of a call waits up to 5 seconds for a connection, however short this is.
    pub fn with_retry_limit(mut self, limit: Duration) -> Self {
        self.limits.retry = limit.min(LONGEST_TIME);
        self
    }

    /// Sets the time limit of one statement, 30 seconds unless set; from a millisecond to 24 days. The server
    /// enforces it; the client gives up 5 seconds after it.
    pub fn with_statement_timeout(mut self, limit: Duration) -> Self {
        self.limits.statement = limit.clamp(Duration::from_millis(1), LONGEST_TIME);
        self
    }

    /// Sets how long a lease outlives an owner that has stopped without ending its connection (a stopped process, a
    /// machine that is gone); 15 seconds unless set, from a second to 24 days.
    ///
    /// The store uses the connection that holds the leases three times in that time. If the runtime is blocked for the
    /// whole of it, all leases are lost. One connection takes them all, so none waits longer than a quarter of it for a row that
    /// is locked, as by the deletion of a long session: that is an error of kind
    /// [`Timeout`](crate::session::PostgresErrorKind::Timeout).
    pub fn with_lease_time(mut self, lease_time: Duration) -> Self {
        self.lease_time = lease_time.clamp(Duration::from_secs(1), LONGEST_TIME);
        self
    }

    /// Sends a notification with each write, for [`PostgresStore::follow`](crate::session::PostgresStore::follow) in any process. Each store that writes has
    /// to have it.
    ///
    /// A notification holds the number of a row and a version, never an id or a text. The server lets only one
    /// transaction with a notification commit at a time, so that many sessions that are written concurrently get
    /// slower.
    pub fn with_notifications(mut self) -> Self {
        self.notify = Notify::Each;
        self
    }
}

/// Without the connection string, which may hold a password.
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
