//! The directory of runs of all hubs that share a log.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, ready};

use crate::error::Error;

/// The runs of all hubs that share a log, by their keys.
///
/// The directory is a hint and not a lock, because its data may be outdated or completely lost. The
/// [lease](crate::session::Lease) of a session's store decides which process may run the session.
///
/// # Errors
///
/// All methods fail with [`LogUnavailable`](crate::hub::LogUnavailable) as the source if the
/// directory cannot be reached.
pub trait RunDirectory: Send + Sync {
    /// Announces that a run starts under a key. Returns the order number of the run, which is
    /// higher than the numbers of all earlier runs of the key.
    fn announce<'a>(&'a self, key: &'a str, run: &'a str) -> BoxFuture<'a, Result<u64, Error>>;

    /// Announces a run that started and ended while the directory was unavailable, so that readers
    /// find its log. `age` is the time since the start of the run. If another run of the key was
    /// announced after that start, the call has no effect. The default implementation does nothing.
    fn announce_ended<'a>(
        &'a self,
        key: &'a str,
        run: &'a str,
        age: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let _ = (key, run, age);
        ready(Ok(())).boxed()
    }

    /// Marks the run with this order number as ended. The method must not block, and may fail
    /// silently, because a run whose process sends no heartbeats does not count as active either.
    fn end(&self, key: &str, run: &str, order: u64);

    /// Returns the last run of a key, if the run is known.
    fn last<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<AnnouncedRun>, Error>>;

    /// Waits until the key has a last run with an order number other than `seen`, or until the run
    /// with the number `seen` is active.
    fn next<'a>(&'a self, key: &'a str, seen: u64) -> BoxFuture<'a, Result<AnnouncedRun, Error>>;

    /// Returns how long active runs may be missing after the directory was unavailable: five
    /// seconds by default.
    fn settle_time(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Lists the runs that have not ended and whose process sends no heartbeats.
    fn lost(&self) -> BoxFuture<'_, Result<Vec<LostRun>, Error>>;

    /// Claims a lost run for a limited time, so that only one process tries to resume its session.
    /// Returns `false` if another process has claimed the run.
    fn claim<'a>(&'a self, lost: &'a LostRun) -> BoxFuture<'a, Result<bool, Error>>;
}

/// A run in a [`RunDirectory`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedRun {
    /// The id of the run.
    pub run: String,
    /// The order number of the run among the runs of its key.
    pub order: u64,
    /// The order number of the key's previous run; 0 if this is the first run, or if the number is
    /// unknown.
    pub previous: u64,
    /// Whether the run has not ended and its process sends heartbeats.
    pub is_active: bool,
}

/// A run whose process died before the run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LostRun {
    /// The key of the run, which is usually the id of the session.
    pub key: String,
    /// The id of the run.
    pub run: String,
}

impl LostRun {
    /// Creates a lost run, for a custom directory.
    pub fn new(key: impl Into<String>, run: impl Into<String>) -> Self {
        Self { key: key.into(), run: run.into() }
    }
}
