//! The interface for logs that store the events of runs.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::hub::run::run_directory::RunDirectory;
use crate::hub::{EventNumber, Snapshot};

/// An entry in a run's log.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The entry's number. Within an attempt, the numbers start at 0 and increase by 1. After a
    /// failed append, some numbers are skipped.
    pub number: EventNumber,
    /// The entry's content: an event, a snapshot or the end of the run.
    pub content: LogContent,
}

/// The content of an entry in a run's log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LogContent {
    /// An event from the run.
    Event(Arc<Event>),
    /// The run's state after all entries that precede the snapshot. The first entry of each attempt
    /// is a snapshot.
    Snapshot(Arc<Snapshot>),
    /// The end of the run, with the error that ended its event stream, if any.
    End(Option<Error>),
}

/// Stores the logs of runs. Any number of readers can follow a log.
///
/// A log belongs to the latest attempt at a run, and rejects entries from earlier attempts.
/// Therefore, once another process has taken over a run, the previous process cannot mix its own
/// events with those of the later attempt, even if it does not know about the takeover yet.
pub trait EventLog: Send + Sync {
    /// Starts an attempt at a run, and returns its epoch. The epoch is 1 for the first attempt, and
    /// increases by 1 with each later attempt.
    ///
    /// If the returned future is dropped before it completes, the attempt may or may not have been
    /// started.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the log cannot be written.
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>>;

    /// Appends entries from a single run and a single epoch, in order. Entries before `trim_before`
    /// may be removed, because readers that are attached later start with a snapshot.
    ///
    /// The returned future may wait for slow readers, but only for a limited time. If the future is
    /// dropped before it completes, the entries may or may not have been written. A failed append
    /// is not retried. If the log is [unavailable](LogUnavailable), the run continues or pauses,
    /// depending on the [`LogOutage`](crate::hub::LogOutage) setting. The next append after an
    /// outage starts with a snapshot. After any other error, the run is interrupted and ends, and
    /// the partial turn is stored.
    ///
    /// # Errors
    ///
    /// - [`Conflict`](ErrorKind::Conflict), with a [`StaleEpoch`] as its source, if another attempt
    ///   at the run has been started;
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if the
    ///   log was removed;
    /// - [`Store`](ErrorKind::Store) if the entries cannot be written.
    ///
    /// If the error has [`LogUnavailable`] as its source, the entries may or may not have been
    /// written. If any other error is returned, no entries were written.
    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>>;

    /// Reads the entries after the given number, and then new entries as they are appended, until
    /// the log ends.
    ///
    /// If the number is `None`, or if the log no longer contains the entry with that number, the
    /// stream starts with the last snapshot. Later snapshots are skipped, except for the first
    /// snapshot of a new attempt and any snapshot that follows a gap in the numbers. The starting
    /// position is determined when this method is called, not when the stream is first polled. For
    /// a log on another machine, the position may be determined one round trip later. Dropping the
    /// stream stops the reading and has no other effect.
    ///
    /// # Errors
    ///
    /// The stream ends with an error:
    ///
    /// - with [`NotRunning`] as its source if the run does not exist;
    /// - with [`TooSlow`] as its source if entries were removed before the reader had read them;
    /// - with [`RunLost`] as its source if the run's process has died;
    /// - with [`LogUnavailable`] as its source if the log currently cannot be read;
    /// - of kind [`Other`](ErrorKind::Other) if the run was dropped.
    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>>;

    /// Removes a run's log, unless an attempt with an epoch other than `epoch` has been started.
    /// Current readers of the log still receive the remaining entries, followed by an error if the
    /// log has no end entry. A hub calls this method when the retention period of an ended run has
    /// expired, or when the run is dropped. This method must not block. A log on another machine
    /// may simply be left to expire.
    fn remove(&self, run: &str, epoch: u64);

    /// Returns the directory in which hubs look up runs by key, if several hubs share the log. The
    /// default implementation returns `None`, which means that each hub knows only about its own
    /// runs.
    fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        None
    }

    /// Returns statistics about the logs, such as the number of entries and the number of readers
    /// that were cut off.
    fn stats(&self) -> LogStats {
        LogStats::default()
    }
}

/// Statistics about logs, such as the number of entries and the number of readers that were cut
/// off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// The number of entries in all logs.
    pub entries: usize,
    /// The number of entries in the log with the most entries.
    pub fullest: usize,
    /// The number of readers that have been cut off with a [`TooSlow`] error so far.
    pub cut_readers: u64,
}

/// The source of the error that is returned if a later attempt at the run has been started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run `{run}` has epoch {found}, not {epoch}")]
pub struct StaleEpoch {
    /// The id of the run.
    pub run: String,
    /// The epoch of the earlier attempt, which tried to append entries.
    pub epoch: u64,
    /// The epoch of the latest attempt at the run.
    pub found: u64,
}

impl From<StaleEpoch> for Error {
    fn from(stale: StaleEpoch) -> Self {
        Self::new(ErrorKind::Conflict, stale.to_string()).with_source(stale)
    }
}

/// The source of the error that is returned if the run does not exist or has ended.
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

/// The source of the error that is returned if a reader did not keep up and entries were removed
/// before it had read them. A new reader can continue after [`last`](Self::last), the number of the
/// last entry that was read. The new reader starts with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader was too slow")]
pub struct TooSlow {
    /// The number of the last entry that was read, if any.
    pub last: Option<EventNumber>,
}

impl From<TooSlow> for Error {
    fn from(too_slow: TooSlow) -> Self {
        Self::new(ErrorKind::Other, too_slow.to_string()).with_source(too_slow)
    }
}

/// The source of the error that is returned if the log or the inbox currently cannot be reached.
/// The last write may or may not have succeeded. Sessions are not affected, because they are kept
/// in a separate store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log of runs is unavailable")]
pub struct LogUnavailable;

impl From<LogUnavailable> for Error {
    fn from(unavailable: LogUnavailable) -> Self {
        Self::new(ErrorKind::Store, unavailable.to_string()).with_source(unavailable)
    }
}

/// The source of the error that is returned if a run's process has died or has not sent a heartbeat
/// for too long. To continue the work of a lost run, call
/// [`Session::resume`](crate::session::Session::resume).
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
