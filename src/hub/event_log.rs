//! The logs that store the events of runs.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::hub::run_directory::RunDirectory;
use crate::hub::{EventNumber, Snapshot};

/// An entry in the log of a run.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// Its number. The numbers of an attempt increase from 0. After a failed append, some numbers
    /// are skipped.
    pub number: EventNumber,
    /// The event, the snapshot or the end.
    pub content: LogContent,
}

/// The content of an entry in the log of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LogContent {
    /// An event of the run.
    Event(Arc<Event>),
    /// The state after all entries before it. The first entry of each attempt is a snapshot.
    Snapshot(Arc<Snapshot>),
    /// The end, with the error that the stream of events ended with.
    End(Option<Error>),
}

/// The logs of runs, which any number of readers follow.
///
/// A log belongs to the latest attempt at a run: appends of earlier attempts are rejected. So a
/// runner that lost its run, but does not know it yet, cannot mix its events with those of its
/// successor.
pub trait EventLog: Send + Sync {
    /// Begins an attempt at a run, and returns its epoch: 1 for the first attempt, and one more for
    /// each later one.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the log cannot be written.
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>>;

    /// Appends entries of one run and one epoch, in order. Entries before `trim_before` may be
    /// removed: readers that attach later begin with a snapshot.
    ///
    /// It may wait for slow readers, for a limited time. If the future is dropped, the entries may
    /// or may not have been written. A failed append is not retried. If the log is
    /// [unavailable](LogUnavailable), the run continues or waits, as set with
    /// [`LogOutage`](crate::hub::LogOutage), and the next append begins with a snapshot. After any
    /// other error the run is interrupted, which stores the partial turn, and ends.
    ///
    /// # Errors
    ///
    /// - [`Conflict`](ErrorKind::Conflict), with a [`StaleEpoch`] as its source, if another attempt
    ///   was begun;
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if the
    ///   log was removed;
    /// - [`Store`](ErrorKind::Store) if the entries cannot be written.
    ///
    /// Nothing was written then, unless the source is [`LogUnavailable`]: in that case it is
    /// unknown.
    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>>;

    /// Reads the entries after a number, then new entries as they are appended, up to the end.
    ///
    /// Without a number, or with one that the log no longer has, it begins with the last snapshot.
    /// Later snapshots are skipped, except the first snapshot of a new attempt and a snapshot
    /// before which numbers are missing. The starting position is that of the call, not of the
    /// first poll; a log on another machine may determine it a round trip later. Dropping the
    /// stream stops reading and has no other effect.
    ///
    /// # Errors
    ///
    /// The stream ends with an error:
    ///
    /// - with [`NotRunning`] as its source if no such run exists;
    /// - with [`TooSlow`] as its source if entries were removed that it had not read;
    /// - with [`RunLost`] as its source if the process of the run has died;
    /// - with [`LogUnavailable`] as its source if the log cannot be read for now;
    /// - of kind [`Other`](ErrorKind::Other) if the run was dropped.
    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>>;

    /// Removes the log of a run, unless an attempt other than `epoch` was begun. Its readers still
    /// get the remaining entries, and then an error if the log has no end. It is called when the
    /// hub's retention time for ended runs is over, or when the run is dropped. It must not block:
    /// a log on another machine may be left to expire.
    fn remove(&self, run: &str, epoch: u64);

    /// The directory of runs by key, if several hubs share the log. Returns `None` by default: each
    /// hub then knows only its own runs.
    fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        None
    }

    /// The number of entries and of cut-off readers.
    fn stats(&self) -> LogStats {
        LogStats::default()
    }
}

/// The number of entries in logs, and of readers that were cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// The number of entries in all logs.
    pub entries: usize,
    /// The number of entries in the fullest log.
    pub fullest: usize,
    /// The number of readers that were cut off so far, with [`TooSlow`].
    pub cut_readers: u64,
}

/// The source of an error: another attempt at the run was begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run `{run}` has epoch {found}, not {epoch}")]
pub struct StaleEpoch {
    /// The run.
    pub run: String,
    /// The epoch of the attempt that tried to append.
    pub epoch: u64,
    /// The epoch of the latest attempt.
    pub found: u64,
}

impl From<StaleEpoch> for Error {
    fn from(stale: StaleEpoch) -> Self {
        Self::new(ErrorKind::Conflict, stale.to_string()).with_source(stale)
    }
}

/// The source of an error: the run does not exist, or it has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no run `{run}` is running")]
pub struct NotRunning {
    /// The run.
    pub run: String,
}

impl From<NotRunning> for Error {
    fn from(not_running: NotRunning) -> Self {
        Self::new(ErrorKind::InvalidRequest, not_running.to_string()).with_source(not_running)
    }
}

/// The source of an error: a reader did not keep up, and entries that it had not read were removed.
/// It can attach again after the number of the last entry that it received, and gets a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader was too slow")]
pub struct TooSlow {
    /// The number of the last entry that it read, if any.
    pub last: Option<EventNumber>,
}

impl From<TooSlow> for Error {
    fn from(too_slow: TooSlow) -> Self {
        Self::new(ErrorKind::Other, too_slow.to_string()).with_source(too_slow)
    }
}

/// The source of an error: the log or the inbox cannot be reached for now. The last write may or
/// may not have been done. The sessions of the runs are not affected, because they are in their own
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log of runs is unavailable")]
pub struct LogUnavailable;

impl From<LogUnavailable> for Error {
    fn from(unavailable: LogUnavailable) -> Self {
        Self::new(ErrorKind::Store, unavailable.to_string()).with_source(unavailable)
    }
}

/// The source of an error: the process of a run has died, or has sent no heartbeat for too long.
/// [`Session::resume`](crate::session::Session::resume) continues its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process of the run `{run}` is gone")]
pub struct RunLost {
    /// The run.
    pub run: String,
}

impl From<RunLost> for Error {
    fn from(lost: RunLost) -> Self {
        Self::new(ErrorKind::Other, lost.to_string()).with_source(lost)
    }
}

macro_rules! from_error {
    ($($source:ident),*) => {$(
        impl $source {
            /// Finds it among the sources of an error.
            pub fn from_error(error: &Error) -> Option<&Self> {
                error.find_source()
            }
        }
    )*};
}

from_error!(StaleEpoch, NotRunning, TooSlow, LogUnavailable, RunLost);
