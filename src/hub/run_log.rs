//! A single run's log, kept in the memory of a process.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;

use crate::env::Deadline;
use crate::error::Error;
use crate::hub::EventNumber;
use crate::hub::event_log::{LogContent, LogEntry, TooSlow};
use crate::lock::lock_ignoring_poison;

/// The log of a single run.
#[derive(Debug, Default)]
pub(super) struct RunLog {
    state: Mutex<RunLogState>,
}

#[derive(Debug, Default)]
pub(super) struct RunLogState {
    epoch: u64,
    entries: VecDeque<LogEntry>,
    /// The number of entries that have been removed.
    removed: u64,
    /// The error that readers receive after all entries, if the log contains no end entry.
    closed: Option<Error>,
    /// The error that readers receive after the existing entries while no further entries can be
    /// read.
    outage: Option<Error>,
    readers: HashMap<u64, ReaderPlace>,
    /// The total number of readers that have been attached so far.
    reader_count: u64,
    writer: Option<Waker>,
}

/// A reader's position.
#[derive(Debug)]
struct ReaderPlace {
    /// The index of the next entry for this reader, counted from the first entry ever written.
    next: u64,
    waker: Option<Waker>,
}

impl RunLog {
    pub(super) fn lock(&self) -> MutexGuard<'_, RunLogState> {
        // No user code runs while this lock is held.
        lock_ignoring_poison(&self.state)
    }

    /// Waits until no reader needs the entries before the given number, but no longer than `limit`.
    pub(super) async fn wait_for_readers(&self, before: &EventNumber, limit: Duration) {
        let mut deadline = Deadline::try_start(limit);
        std::future::poll_fn(|cx| {
            let mut state = lock_ignoring_poison(&self.state);
            let keep_from = state.index_of(before);
            if state.readers.values().all(|place| place.next >= keep_from) {
                return Poll::Ready(());
            }
            state.writer = Some(cx.waker().clone());
            drop(state);
            match deadline.as_mut().map(|deadline| deadline.poll(cx)) {
                Some(Poll::Pending) => Poll::Pending,
                Some(Poll::Ready(_)) | None => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl RunLogState {
    /// Returns the epoch of the attempt to which the log belongs.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes the entries before `trim_before`, and adds `entries`. Also removes the readers that
    /// have not read all of the removed entries, and returns the number of these readers.
    pub(super) fn append(
        &mut self,
        entries: Vec<LogEntry>,
        trim_before: Option<&EventNumber>,
    ) -> u64 {
        let cut = trim_before.map_or(0, |before| self.trim(before));
        self.entries.extend(entries);
        self.outage = None;
        self.wake_readers();
        cut
    }

    /// Sets or clears the error that readers receive after the existing entries. Appending an entry
    /// also clears the error.
    #[cfg(feature = "redis")]
    pub(super) fn set_outage(&mut self, outage: Option<Error>) {
        self.outage = outage;
        if self.outage.is_some() {
            self.wake_readers();
        }
    }

    /// Reopens the log, so that more entries can follow.
    #[cfg(feature = "redis")]
    pub(super) fn reopen(&mut self) {
        self.closed = None;
    }

    /// Returns the position of the last entry.
    #[cfg(feature = "redis")]
    pub(super) fn last_position(&self) -> Option<(u64, u64)> {
        self.entries.back().map(|entry| entry.number.position())
    }

    /// Returns the entries after a position, except for entries before the last snapshot.
    #[cfg(feature = "redis")]
    pub(super) fn entries_after(&self, position: (u64, u64)) -> Vec<LogEntry> {
        let from = usize::try_from(self.last_snapshot() - self.removed).unwrap_or(0);
        let entries = self.entries.iter().skip(from);
        entries.filter(|entry| entry.number.position() > position).cloned().collect()
    }

    /// Ends the log for its readers, which receive `error` after the existing entries.
    pub(super) fn close(&mut self, error: Error) {
        self.closed = Some(error);
        self.wake_readers();
    }

    /// Returns the number of entries before the given event number, including removed entries.
    fn index_of(&self, number: &EventNumber) -> u64 {
        let position = number.position();
        let here = self.entries.partition_point(|entry| entry.number.position() < position);
        self.removed + here as u64
    }

    /// Removes the entries before the given event number. Also removes the readers that have not
    /// read all of these entries, and returns the number of these readers.
    fn trim(&mut self, before: &EventNumber) -> u64 {
        let keep_from = self.index_of(before);
        let count = usize::try_from(keep_from - self.removed).unwrap_or(usize::MAX);
        self.entries.drain(..count.min(self.entries.len()));
        self.removed = keep_from;
        let cut = self.readers.extract_if(|_, place| place.next < keep_from);
        cut.map(|(_, place)| place.waker.into_iter().for_each(Waker::wake)).count() as u64
    }

    pub(super) fn has_ended(&self) -> bool {
        let last = self.entries.back();
        last.is_some_and(|entry| {
            entry.number.epoch() == self.epoch && matches!(entry.content, LogContent::End(_))
        })
    }

    fn wake_readers(&mut self) {
        self.readers.values_mut().filter_map(|place| place.waker.take()).for_each(Waker::wake);
    }

    fn last_snapshot(&self) -> u64 {
        let is_snapshot = |entry: &LogEntry| matches!(entry.content, LogContent::Snapshot(_));
        self.removed + self.entries.iter().rposition(is_snapshot).unwrap_or(0) as u64
    }

    /// Returns the index of the next entry for a reader that has already read the entry with this
    /// number.
    fn first_after(&self, number: &EventNumber) -> Option<u64> {
        let position = number.position();
        let at = self.entries.partition_point(|entry| entry.number.position() < position);
        let has_it = self.entries.get(at).is_some_and(|entry| entry.number == *number);
        has_it.then_some(self.removed + at as u64 + 1)
    }
}

/// Reads a single log.
pub(super) struct LogReader {
    log: Arc<RunLog>,
    /// The id of this reader within the log.
    id: u64,
    last: Option<EventNumber>,
    has_ended: bool,
}

impl LogReader {
    pub(super) fn new(log: Arc<RunLog>, run: &str, after: Option<&EventNumber>) -> Self {
        let after = after.filter(|number| number.run() == run);
        let mut state = lock_ignoring_poison(&log.state);
        let known = after.and_then(|number| Some((number, state.first_after(number)?)));
        let next = known.map_or_else(|| state.last_snapshot(), |(_, next)| next);
        let id = state.reader_count;
        state.reader_count += 1;
        state.readers.insert(id, ReaderPlace { next, waker: None });
        drop(state);
        let last = known.map(|(number, _)| number.clone());
        Self { log, id, last, has_ended: false }
    }

    /// Polls for the next entry. The entry may be a snapshot that the reader can skip.
    fn poll_entry(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<LogEntry, Error>>> {
        let mut state = lock_ignoring_poison(&self.log.state);
        let state = &mut *state;
        let has_ended = state.has_ended();
        let Some(place) = state.readers.get_mut(&self.id) else {
            return Poll::Ready(Some(Err(TooSlow { last: self.last.clone() }.into())));
        };
        let at = usize::try_from(place.next.saturating_sub(state.removed));
        match at.ok().and_then(|at| state.entries.get(at)) {
            Some(entry) => {
                place.next += 1;
                state.writer.take().into_iter().for_each(Waker::wake);
                Poll::Ready(Some(Ok(entry.clone())))
            }
            None if has_ended => Poll::Ready(None),
            None if let Some(error) = state.closed.as_ref().or(state.outage.as_ref()) => {
                Poll::Ready(Some(Err(error.clone())))
            }
            None => {
                place.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Stream for LogReader {
    type Item = Result<LogEntry, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while !this.has_ended {
            let entry = match std::task::ready!(this.poll_entry(cx)) {
                Some(Ok(entry)) => entry,
                last => {
                    this.has_ended = true;
                    return Poll::Ready(last);
                }
            };
            this.has_ended = matches!(entry.content, LogContent::End(_));
            let last = this.last.replace(entry.number.clone());
            if last.is_some_and(|last| entry.number.is_next_after(&last))
                && matches!(entry.content, LogContent::Snapshot(_))
            {
                continue;
            }
            return Poll::Ready(Some(Ok(entry)));
        }
        Poll::Ready(None)
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        let mut state = lock_ignoring_poison(&self.log.state);
        state.readers.remove(&self.id);
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
    }
}
