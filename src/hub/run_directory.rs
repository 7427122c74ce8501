//! Which runs there are, of all hubs that share a log.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, ready};

use crate::error::Error;

/// The runs of all hubs that share a log, by their keys.
///
/// It is a help and not a lock: what it says may be outdated, and it may lose everything. Who may run a session is
/// decided by the [lease](crate::session::Lease) of its store.
///
/// # Errors
///
/// All methods fail with [`LogUnavailable`](crate::hub::LogUnavailable) as the source if it cannot be reached.
pub trait RunDirectory: Send + Sync {
    /// Announces that a run begins under a key. Returns its order, which is higher than those of all runs that the
    /// key had before.
    fn announce<'a>(&'a self, key: &'a str, run: &'a str) -> BoxFuture<'a, Result<u64, Error>>;

    /// Announces a run that has begun and ended while the directory was unavailable, so that readers find its log.
    /// `age` is the time since it began: if another run of the key was announced since then, nothing happens, as in a
    /// directory that does not implement this.
    fn announce_ended<'a>(
        &'a self,
        key: &'a str,
        run: &'a str,
        age: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let _ = (key, run, age);
        ready(Ok(())).boxed()
    }

    /// The run of this order has ended. It must not block, and may fail without a word: a run whose process gives no
    /// sign of life is not active either.
    fn end(&self, key: &str, run: &str, order: u64);

    /// The run that has begun last under a key, if it is known.
    fn last<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<AnnouncedRun>, Error>>;

    /// Waits until the last run of a key is another than the one of the order `seen`, or is that one and active.
    fn next<'a>(&'a self, key: &'a str, seen: u64) -> BoxFuture<'a, Result<AnnouncedRun, Error>>;

    /// How long active runs may be missing after it was unavailable: five seconds unless set.
    fn settle_time(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// The runs that have not ended and whose process gives no sign of life.
    fn lost(&self) -> BoxFuture<'_, Result<Vec<LostRun>, Error>>;

    /// Claims a lost run for a while, so that not every process tries to resume its session. `false` if another one
    /// has claimed it.
    fn claim<'a>(&'a self, lost: &'a LostRun) -> BoxFuture<'a, Result<bool, Error>>;
}

/// A run in a [`RunDirectory`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedRun {
    /// Its id.
    pub run: String,
    /// Its order among the runs of its key.
    pub order: u64,
    /// The order of the run of its key before it; 0 if it was the first, or if that is not known.
    pub previous: u64,
    /// Whether it has not ended, and its process gives signs of life.
    pub is_active: bool,
}

/// A run whose process has died before its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LostRun {
    /// The key, which is the id of the session as a rule.
    pub key: String,
    /// The id of the run.
    pub run: String,
}

impl LostRun {
    /// A lost run, for a directory of your own.
    pub fn new(key: impl Into<String>, run: impl Into<String>) -> Self {
        Self { key: key.into(), run: run.into() }
    }
}
