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
    /// The number of the entry. The numbers within an attempt increase from 0. Some numbers are
    /// skipped after a failed append.
    pub number: EventNumber,
    /// The event, the snapshot or the end that this entry stores.
    pub content: LogContent,
}

/// The content of an entry in the log of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LogContent {
    /// An event of the run.
    Event(Arc<Event>),
    /// The state of the run after all earlier entries. The first entry of each attempt is a
    /// snapshot.
    Snapshot(Arc<Snapshot>),
    /// The end of the run, with the error that its stream of events ended with.
    End(Option<Error>),
}

/// A store for the logs of runs, which any number of readers follow.
///
/// A log belongs to the latest attempt at a run; the log rejects entries from earlier attempts. A
/// runner whose run was taken over, but which does not know this yet, therefore cannot mix its
/// events with those of its successor.
pub trait EventLog: Send + Sync {
    /// Starts an attempt at a run, and returns the epoch of the attempt. The epoch of the first
    /// attempt is 1, and each later attempt has the next number.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the log cannot be written.
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>>;

    /// Appends entries of one run and one epoch, in order. Entries before `trim_before` may be
    /// removed, because readers that attach later start with a snapshot.
    ///
    /// The returned future may wait for slow readers, for a limited time. If the future is dropped,
    /// the entries may or may not have been written. A failed append is not retried. If the log is
    /// [unavailable](LogUnavailable), the run continues or waits, as set with
    /// [`LogOutage`](crate::hub::LogOutage). The next append after an outage starts with a
    /// snapshot. After any other error, the run is interrupted and ends, and the partial turn is
    /// stored.
    ///
    /// # Errors
    ///
    /// - [`Conflict`](ErrorKind::Conflict), with a [`StaleEpoch`] as its source, if another attempt
    ///   at the run was started;
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if the
    ///   log was removed;
    /// - [`Store`](ErrorKind::Store) if the entries cannot be written.
    ///
    /// After an error with [`LogUnavailable`] as its source, the entries may or may not have been
    /// written. After any other error, no entry was written.
    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>>;

    /// Reads the entries after a number, then new entries as they are appended, up to the end.
    ///
    /// If the number is `None` or the log no longer has its entry, the stream starts with the last
    /// snapshot. Later snapshots are skipped, except the first snapshot of a new attempt and a
    /// snapshot before which numbers are missing. The starting position is determined at the time
    /// of the call, not of the first poll. A log on another machine may determine the position a
    /// round trip later. Dropping the stream stops reading and has no other effect.
    ///
    /// # Errors
    ///
    /// The stream ends with an error:
    ///
    /// - with [`NotRunning`] as its source if no such run exists;
    /// - with [`TooSlow`] as its source if entries were removed before the reader had read them;
    /// - with [`RunLost`] as its source if the process of the run has died;
    /// - with [`LogUnavailable`] as its source if the log currently cannot be read;
    /// - of kind [`Other`](ErrorKind::Other) if the run was dropped.
    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>>;

    /// Removes the log of a run, unless an attempt with an epoch other than `epoch` was started.
    /// Readers of the log still get the remaining entries, and then an error if the log has no end.
    /// A hub calls this method when its retention time for ended runs is over, or when the run is
    /// dropped. The method must not block. A log on another machine may be left to expire.
    fn remove(&self, run: &str, epoch: u64);

    /// Returns the directory of runs by key, if several hubs share the log. The default
    /// implementation returns `None`, so that each hub knows only its own runs.
    fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        None
    }

    /// Returns the number of entries in the logs and of readers that were cut off.
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
    /// The number of readers that were cut off so far with the error [`TooSlow`].
    pub cut_readers: u64,
}

/// The source of an error that is returned if another attempt at the run was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run `{run}` has epoch {found}, not {epoch}")]
pub struct StaleEpoch {
    /// The id of the run.
    pub run: String,
    /// The epoch of the earlier attempt, which tried to append.
    pub epoch: u64,
    /// The epoch of the latest attempt at the run.
    pub found: u64,
}

impl From<StaleEpoch> for Error {
    fn from(stale: StaleEpoch) -> Self {
        Self::new(ErrorKind::Conflict, stale.to_string()).with_source(stale)
    }
}

/// The source of an error that is returned if the run does not exist or has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no run `{run}` is running")]
pub struct NotRunning {
    /// The id of the run, or the key for which no run was found.
    pub run: String,
}

impl From<NotRunning> for Error {
    fn from(not_running: NotRunning) -> Self {
        Self::new(ErrorKind::InvalidRequest, not_running.to_string()).with_source(not_running)
    }
}

/// The source of an error that is returned if a reader did not keep up and entries were removed
/// before they were read. A new reader can attach after [`last`](Self::last), the number of the
/// last entry that was read, and gets a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader was too slow")]
pub struct TooSlow {
    /// The number of the last entry that the reader has read, if any.
    pub last: Option<EventNumber>,
}

impl From<TooSlow> for Error {
    fn from(too_slow: TooSlow) -> Self {
        Self::new(ErrorKind::Other, too_slow.to_string()).with_source(too_slow)
    }
}

/// The source of an error that is returned if the log or the inbox currently cannot be reached. The
/// last write may or may not have been done. The sessions of the runs are not affected, because
/// sessions are in their own store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log of runs is unavailable")]
pub struct LogUnavailable;

impl From<LogUnavailable> for Error {
    fn from(unavailable: LogUnavailable) -> Self {
        Self::new(ErrorKind::Store, unavailable.to_string()).with_source(unavailable)
    }
}

/// The source of an error that is returned if the process of a run has died, or has sent no
/// heartbeat for too long. [`Session::resume`](crate::session::Session::resume) continues the work
/// of such a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process of the run `{run}` is gone")]
pub struct RunLost {
    /// The id of the run.
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
            /// Finds this type among the sources of an error.
            pub fn from_error(error: &Error) -> Option<&Self> {
                error.find_source()
            }
        }
    )*};
}

from_error!(StaleEpoch, NotRunning, TooSlow, LogUnavailable, RunLost);
