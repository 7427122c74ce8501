//! The options for connecting to PostgreSQL.
use std::fmt;
use std::time::Duration;

use crate::database::TimeLimits;
use crate::statements::Notify;

/// The longest duration that the server accepts as the value of a setting, about 24 days.
const LONGEST_TIME: Duration = Duration::from_millis(i32::MAX as u64);
/// The maximum size of the connection pool. This is more connections than a server can support.
const MAX_POOL_SIZE: usize = 10_000;

/// Configures how a [`PostgresStore`](crate::PostgresStore) connects to its database.
/// Create the options with `PostgresOptions::new(url)`, change the settings as needed, and then
/// call [`connect`](Self::connect).
///
/// ```no_run
/// # // It needs a server.
/// use std::time::Duration;
/// use turnstream_postgres::PostgresOptions;
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
    pub(crate) connection_string: String,
    pub(crate) schema: String,
    pub(crate) pool_size: usize,
    pub(crate) limits: TimeLimits,
    pub(crate) lease_time: Duration,
    pub(crate) notify: Notify,
}

impl PostgresOptions {
    /// Creates options from a connection string. As in libpq, the string is either a URL of the
    /// form `postgres://user:password@host:port/database?option=value` or a list of pairs such as
    /// `host=… user=…`.
    ///
    /// In a URL, the characters `/`, `@`, `#`, `%` and `:` in the password must be percent-encoded
    /// as `%2F`, `%40`, `%23`, `%25` and `%3A`.
    ///
    /// If the string lists several hosts (`postgres://a,b/app?target_session_attrs=read-write`),
    /// the store tries the hosts in order. As a result, after a failover, the store connects to the
    /// server that accepts writes. `sslmode` can be `disable`, `prefer` (the default), `require`,
    /// `verify-ca` or `verify-full`. `sslrootcert` can be the path to a file of PEM certificates,
    /// or `system`. Without `sslrootcert`, the `verify-…` modes trust the platform's certificates.
    /// Environment variables and password files are not read.
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

    /// Sets the schema that contains the tables. The default is `turnstream`. Stores with different
    /// schemas share no data.
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the maximum number of connections for reads and writes, from 1 to 10,000. The default
    /// is 10. The connection for leases and the connection for followers do not count towards the
    /// maximum.
    pub fn with_pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections.clamp(1, MAX_POOL_SIZE);
        self
    }

    /// Sets how long a call is retried if no server can be reached or a connection breaks. The
    /// default is 30 seconds, and the maximum is 24 days. Choose a limit that is longer than the
    /// time that a failover takes.
    ///
    /// The first attempt at a call waits up to 5 seconds for a connection, even if the retry limit
    /// is shorter.
    pub fn with_retry_limit(mut self, limit: Duration) -> Self {
        self.limits.retry = limit.min(LONGEST_TIME);
        self
    }

    /// Sets the time limit for a single statement, from 1 millisecond to 24 days. The default is 30
    /// seconds. The server enforces the limit; the client gives up 5 seconds later.
    pub fn with_statement_timeout(mut self, limit: Duration) -> Self {
        self.limits.statement = limit.clamp(Duration::from_millis(1), LONGEST_TIME);
        self
    }

    /// Sets the lease time, from 1 second to 24 days. The default is 15 seconds. The lease time
    /// determines how long a lease is kept if its owner's process is suspended or the owner's
    /// machine fails. In both cases, the owner's connection stays open.
    ///
    /// All of the store's leases share one connection, which the store uses at least three times
    /// per lease time. If the runtime is blocked for the whole lease time, all of these leases are
    /// lost. While a session's row is locked, for example because a long session is being deleted,
    /// a call that acquires the session's lease has to wait. The call waits for at most a quarter
    /// of the lease time, and then fails with an error of kind
    /// [`Timeout`](crate::PostgresErrorKind::Timeout).
    pub fn with_lease_time(mut self, lease_time: Duration) -> Self {
        self.lease_time = lease_time.clamp(Duration::from_secs(1), LONGEST_TIME);
        self
    }

    /// Makes the store send a notification with each write, so that
    /// [`PostgresStore::follow`](crate::PostgresStore::follow) works in any process. All
    /// stores that write to the database must enable notifications.
    ///
    /// A notification contains a row key and a version, but no session id and no text from an
    /// entry. The server commits transactions that send notifications one at a time, so concurrent
    /// writes to many sessions become slower.
    pub fn with_notifications(mut self) -> Self {
        self.notify = Notify::Each;
        self
    }
}

/// Formats the options without the connection string, because the string may contain a password.
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
