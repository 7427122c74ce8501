//! The options for connecting to Redis.

use std::fmt;
use std::time::Duration;

/// Configures how [`RedisEvents`](crate::RedisEvents) connects to its server and uses
/// it. Create the options with `RedisOptions::new(url)`, change the settings as needed, and then
/// call [`connect`](Self::connect).
///
/// ```no_run
/// # // It needs a server.
/// use std::time::Duration;
/// use turnstream_redis::RedisOptions;
///
/// # async fn connect() -> Result<(), turnstream::Error> {
/// let events = RedisOptions::new("rediss://events.example/")
///     .with_prefix("support-chat")
///     .with_expiry(Duration::from_mins(30))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing is connected before `connect`"]
pub struct RedisOptions {
    pub(crate) url: String,
    pub(crate) prefix: String,
    /// The time after which a run without a heartbeat is considered lost.
    pub(crate) lease: Duration,
    /// How long a log is kept after its last entry.
    expiry: Duration,
    /// The maximum number of commands that can be queued for a run.
    pub(crate) max_waiting: usize,
    /// How long a sender waits for the answer to a command.
    pub(crate) answer_limit: Duration,
}

impl RedisOptions {
    /// Creates options for a server at `redis://[user:password@]host[:port][/database]`, or with
    /// TLS at `rediss://…`. For Valkey, `valkey://` and `valkeys://` are equivalent. In the
    /// password, `/`, `@`, `#`, `%` and `:` must be written as `%2F`, `%40`, `%23`, `%25` and
    /// `%3A`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "turnstream".to_owned(),
            lease: Duration::from_secs(5),
            expiry: Duration::from_mins(10),
            max_waiting: 1_000,
            answer_limit: Duration::from_secs(10),
        }
    }

    /// Sets the prefix for the names of all keys and channels. The default is `turnstream`.
    /// Processes with the same prefix share their runs.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the time after which a run without a heartbeat is considered lost. The default is five
    /// seconds, and the minimum is 30 milliseconds. Each process sends three heartbeats within the
    /// given time. All processes must use the same value. This setting is unrelated to a session's
    /// [lease](turnstream::session::Lease), which decides which process may run the session.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(30));
        self
    }

    /// Sets how long a run's log is kept after its last entry. The default is ten minutes, and the
    /// minimum is four times the [lease](Self::with_lease). The run's hub may remove the log
    /// earlier; see [`with_ended_kept_for`](turnstream::hub::HubBuilder::with_ended_kept_for). If a
    /// run's process is killed, the run's log is removed after the given time.
    pub fn with_expiry(mut self, expiry: Duration) -> Self {
        self.expiry = expiry;
        self
    }

    /// Sets the maximum number of commands that can be queued for a single run. The default is
    /// 1,000. Further commands are rejected.
    pub fn with_max_waiting_commands(mut self, commands: usize) -> Self {
        self.max_waiting = commands;
        self
    }

    /// Sets how long [`send`](turnstream::hub::CommandInbox::send) waits for the run to accept a
    /// command. The default is ten seconds. If the run does not accept the command in time, `send`
    /// fails with a [`Timeout`](turnstream::ErrorKind::Timeout) error; the run may still accept the
    /// command later.
    pub fn with_answer_limit(mut self, limit: Duration) -> Self {
        self.answer_limit = limit;
        self
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        to_ms(self.lease)
    }

    /// Returns the expiry time in milliseconds. The expiry time is at least four times the lease,
    /// so that no key expires between two heartbeats.
    pub(crate) fn expiry_ms(&self) -> u64 {
        to_ms(self.expiry.max(self.lease.saturating_mul(4)))
    }

    /// Returns the time between two heartbeats.
    pub(crate) fn beat(&self) -> Duration {
        self.lease / 3
    }
}

/// Formats the options without the address, because the address may contain a password.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("lease", &self.lease)
            .field("expiry", &self.expiry)
            .field("max_waiting", &self.max_waiting)
            .field("answer_limit", &self.answer_limit)
            .finish_non_exhaustive()
    }
}

fn to_ms(time: Duration) -> u64 {
    // Redis rejects 0 and values above this maximum.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 52)
}
