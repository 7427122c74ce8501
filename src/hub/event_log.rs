//! Where the events of runs are read.

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
    /// Its number. Those of an attempt rise from 0. After an append that failed some are left out.
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
    /// All that the entries before it say. The first entry of each attempt is one.
    Snapshot(Arc<Snapshot>),
    /// The end, with the error that the stream of events ended with.
    End(Option<Error>),
}

/// The logs of runs, which any number of readers follow.
///
/// A log belongs to the attempt at a run that was begun last: what an earlier one appends is refused. So a runner
/// that lost its run, and does not know it yet, cannot mix its events into those of its successor.
pub trait EventLog: Send + Sync {
    /// Begins an attempt at a run, and returns its epoch: 1 for the first, and one more for each that follows.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the log cannot be written.
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>>;

    /// Appends entries of one run and one epoch, in order. Entries before `trim_before` may be removed: readers that
    /// come later begin with a snapshot.
    ///
    /// It may wait for readers that are slow, for a limited time. Dropping the future leaves open whether the entries
    /// are written. An append that fails is not tried again. If the log is [unavailable](LogUnavailable), the run
    /// continues, or waits, as [`LogOutage`](crate::hub::LogOutage) says, and the next append begins with a snapshot.
    /// Otherwise the run is interrupted, which stores the partial turn, and ends.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with a [`StaleEpoch`] as its source, if another attempt was begun;
    /// [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if the log was removed;
    /// [`Store`](ErrorKind::Store) if they cannot be written. Nothing is written then, unless the source is
    /// [`LogUnavailable`]: that leaves it open.
    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>>;

    /// Reads the entries after a number, then those that come, up to the end.
    ///
    /// Without a number, or with one that the log does not have any more, it begins with the last snapshot. When a new
    /// attempt begins, the reader gets the first snapshot of that attempt. If the numbers before a snapshot were left
    /// out, it gets that snapshot. All others are skipped. The place is that of the call, not of the first poll; a log
    /// on another machine may find it a round trip later. Dropping the stream stops reading, and nothing else.
    ///
    /// # Errors
    ///
    /// The stream ends with an error whose source is [`NotRunning`] if no such run exists, whose source is
    /// [`TooSlow`] if entries were removed that it had not read, whose source is [`RunLost`] if the process of the run
    /// has died, whose source is [`LogUnavailable`] if the log cannot be read for now, and of kind
    /// [`Other`](ErrorKind::Other) if the run was dropped.
    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>>;

    /// Removes the log of a run, unless another attempt than this one was begun. Its readers read what is there;
    /// without an end they get an error. It is called when the time for which the hub keeps ended runs is over, or
    /// when the run is dropped. It must not block: a log on another machine may be left to expire.
    fn remove(&self, run: &str, epoch: u64);

    /// Which runs there are of which key, if several hubs share the log. `None` unless implemented: each hub then
    /// knows its own runs only.
    fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        None
    }

    /// How full the logs are.
    fn stats(&self) -> LogStats {
        LogStats::default()
    }
}

/// How full logs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// The entries of all logs.
    pub entries: usize,
    /// The entries of the fullest log.
    pub fullest: usize,
    /// How many readers were cut since the beginning, as [`TooSlow`].
    pub cut_readers: u64,
}

/// The source of an error: another attempt at the run was begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run `{run}` has epoch {found}, not {epoch}")]
pub struct StaleEpoch {
    /// The run.
    pub run: String,
    /// The epoch of the attempt that wanted to append.
    pub epoch: u64,
    /// That of the attempt that was begun last.
    pub found: u64,
}

impl From<StaleEpoch> for Error {
    fn from(stale: StaleEpoch) -> Self {
        Self::new(ErrorKind::Conflict, stale.to_string()).with_source(stale)
    }
}

/// The source of an error: no such run exists, or it has ended.
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

/// The source of an error: a reader did not keep up, and entries were removed that it had not read. It can attach
/// again after the last number that it has seen, and gets a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader was too slow")]
pub struct TooSlow {
    /// The last entry that it has read, if any.
    pub last: Option<EventNumber>,
}

impl From<TooSlow> for Error {
    fn from(too_slow: TooSlow) -> Self {
        Self::new(ErrorKind::Other, too_slow.to_string()).with_source(too_slow)
    }
}

/// The source of an error: the log, or the inbox, cannot be reached for now. Whether the last write was done is not
/// known. The sessions of the runs are not concerned: they are in their store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log of runs is unavailable")]
pub struct LogUnavailable;

impl From<LogUnavailable> for Error {
    fn from(unavailable: LogUnavailable) -> Self {
        Self::new(ErrorKind::Store, unavailable.to_string()).with_source(unavailable)
    }
}

/// The source of an error: the process of a run has died, or has not given a sign of life for too long.
/// [`Session::resume`](crate::session::Session::resume) continues what it was working on.
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
            /// Finds it in an error.
            pub fn from_error(error: &Error) -> Option<&Self> {
                error.find_source()
            }
        }
    )*};
}

from_error!(StaleEpoch, NotRunning, TooSlow, LogUnavailable, RunLost);
