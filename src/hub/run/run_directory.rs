//! The directory of runs in all hubs that share a log.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, ready};

use crate::error::Error;

/// Lists runs by key, across all hubs that share a log.
///
/// The directory is only a hint, not a lock: its data may be out of date or completely lost. The
/// [lease](crate::session::Lease) in the session's store decides which process may run the session.
///
/// If the future of [`announce`](Self::announce), [`announce_ended`](Self::announce_ended) or
/// [`claim`](Self::claim) is dropped before it completes, the directory may or may not have been
/// changed.
///
/// # Errors
///
/// If the directory cannot be reached, every method that returns a result fails with an error that
/// has [`LogUnavailable`](crate::hub::LogUnavailable) as its source.
pub trait RunDirectory: Send + Sync {
    /// Announces that a run is starting under a key. Returns the run's order number, which is
    /// higher than those of all earlier runs for the key.
    fn announce<'a>(&'a self, key: &'a str, run: &'a str) -> BoxFuture<'a, Result<u64, Error>>;

    /// Announces a run that started and ended while the directory was unavailable, so that readers
    /// can find the run's log. `age` is the time since the run started. If another run for the key
    /// was announced after the start of this run, this method has no effect. The default
    /// implementation does nothing.
    fn announce_ended<'a>(
        &'a self,
        key: &'a str,
        run: &'a str,
        age: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let _ = (key, run, age);
        ready(Ok(())).boxed()
    }

    /// Marks the run with this order number as ended. This method must not block. A failure may be
    /// ignored, because a run is also no longer considered active once its process has stopped
    /// sending heartbeats.
    fn end(&self, key: &str, run: &str, order: u64);

    /// Returns the last run for a key, if known.
    fn last<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<AnnouncedRun>, Error>>;

    /// Waits until the order number of the key's last run differs from `seen`, or until the run
    /// with the order number `seen` is active. Returns the key's last run.
    fn next<'a>(&'a self, key: &'a str, seen: u64) -> BoxFuture<'a, Result<AnnouncedRun, Error>>;

    /// Returns how long active runs may still be missing from the directory after the directory has
    /// recovered from an outage. The default is five seconds.
    fn settle_time(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Lists the lost runs: runs that have not ended, but whose processes no longer send
    /// heartbeats.
    fn lost(&self) -> BoxFuture<'_, Result<Vec<LostRun>, Error>>;

    /// Claims a lost run for a limited time, so that only one process tries to resume the run's
    /// session. Returns `false` if another process has claimed the run.
    fn claim<'a>(&'a self, lost: &'a LostRun) -> BoxFuture<'a, Result<bool, Error>>;
}

/// A run that is listed in a [`RunDirectory`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedRun {
    /// The id of the run.
    pub run: String,
    /// The run's order number among the runs for the same key. A later run has a higher number.
    pub order: u64,
    /// The order number of the key's previous run; 0 if this is the key's first run, or if the
    /// number is unknown.
    pub previous: u64,
    /// Whether the run is active: it has not ended, and its process is sending heartbeats.
    pub is_active: bool,
}

/// A run whose process died before the run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LostRun {
    /// The run's key, which is usually the id of the session.
    pub key: String,
    /// The id of the run.
    pub run: String,
}

impl LostRun {
    /// Creates a `LostRun` for use in a custom directory.
    pub fn new(key: impl Into<String>, run: impl Into<String>) -> Self {
        Self { key: key.into(), run: run.into() }
    }
}
