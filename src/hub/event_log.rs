//! Where the events of runs are read.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::error::{Error, ErrorKind};
use crate::event::Event;
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
    /// are written. An append that fails is not tried again: the run is interrupted, which stores what there is of its
    /// turn, and ends.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with a [`StaleEpoch`] as its source, if another attempt was begun;
    /// [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if the log was removed;
    /// [`Store`](ErrorKind::Store) if they cannot be written. Nothing is written then.
    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>>;

    /// Reads the entries after a number, then those that come, up to the end.
    ///
    /// Without a number, or with one that the log does not have any more, it begins with the last snapshot. When a new
    /// attempt begins, the reader gets the first snapshot of that attempt. All other snapshots are skipped. The place
    /// is that of the call, not of the first poll. Dropping the stream stops reading, and nothing else.
    ///
    /// # Errors
    ///
    /// The stream ends with an error whose source is [`NotRunning`] if no such run exists, whose source is
    /// [`TooSlow`] if entries were removed that it had not read, and of kind [`Other`](ErrorKind::Other) if the run
    /// was dropped.
    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>>;

    /// Removes the log of a run, unless another attempt than this one was begun. Its readers read what is there;
    /// without an end they get an error. It is called when the time for which the hub keeps ended runs is over, or
    /// when the run is dropped. It must not block: a log on another machine may be left to expire.
    fn remove(&self, run: &str, epoch: u64);

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

from_error!(StaleEpoch, NotRunning, TooSlow);
