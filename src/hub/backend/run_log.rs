//! A single run's log, kept in the memory of a process.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use futures::stream::{BoxStream, StreamExt};

use crate::env::Deadline;
use crate::error::Error;
use crate::hub::log::entry_queue::{EntryQueue, FoundEntry};
use crate::hub::{EventNumber, LogContent, LogEntry, TooSlow};
use crate::lock::lock_ignoring_poison;

/// The number of newest entries that stay as they are, so that readers with only a few unread
/// entries share their events.
const RECENT: u64 = 16;

/// The log of a single run, in memory. Any number of readers can follow it.
///
/// For an [`EventLog`](crate::hub::EventLog) on a server, a `RunLog` is this process's copy of the
/// log: it contains the entries that the process has written or read.
#[derive(Debug, Default)]
pub struct RunLog {
    state: Mutex<RunLogState>,
}

#[derive(Debug, Default)]
pub(in crate::hub) struct RunLogState {
    epoch: u64,
    entries: EntryQueue,
    /// The error that readers receive after all entries, if the log contains no end entry.
    closed: Option<Error>,
    /// The error that readers receive after the existing entries while no further entries can be
    /// read.
    outage: Option<Error>,
    readers: HashMap<u64, ReaderCursor>,
    /// The number of readers that have not read all entries.
    unfinished_readers: usize,
    /// The total number of readers that have been attached so far.
    reader_count: u64,
    writer: Option<Waker>,
}

/// A reader's position.
#[derive(Debug)]
struct ReaderCursor {
    /// The index of the next entry for this reader, counted from the first entry ever written.
    next: u64,
    waker: Option<Waker>,
}

impl RunLog {
    /// Starts an attempt with this epoch. Entries may follow, even if the log was
    /// [closed](Self::close).
    pub fn begin(&self, epoch: u64) {
        let mut state = self.lock();
        state.epoch = epoch;
        state.closed = None;
    }

    /// Adds those entries whose [position](EventNumber::position) is after the last one of the log,
    /// and removes the entries before `trim_before`. Entries of a later attempt start that attempt.
    /// Appending also clears the [outage](Self::set_outage).
    ///
    /// Readers that have not read all removed entries are cut off with a [`TooSlow`] error. Returns
    /// the number of these readers.
    pub fn append_new(&self, entries: Vec<LogEntry>, trim_before: Option<&EventNumber>) -> u64 {
        let mut state = self.lock();
        let last = state.last_position();
        let new: Vec<LogEntry> = (entries.into_iter())
            .filter(|entry| last.is_none_or(|last| entry.number.position() > last))
            .collect();
        if let Some(entry) = new.last() {
            state.epoch = state.epoch.max(entry.number.epoch());
        }
        state.append(new, trim_before)
    }

    /// Returns a stream of the run's stored and future events, like
    /// [`EventLog::read`](crate::hub::EventLog::read). `run` is the id of the run. The starting
    /// position is determined when this method is called.
    ///
    /// # Errors
    ///
    /// The stream ends with an error, with [`TooSlow`](crate::hub::TooSlow) as its source, if
    /// entries were removed before the reader had read them, and with the error passed to
    /// [`close`](Self::close) or [`set_outage`](Self::set_outage) once the reader has read all
    /// entries of a log that has not ended.
    pub fn read(
        self: &Arc<Self>,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>> {
        LogReader::new(Arc::clone(self), run, after).boxed()
    }

    /// Ends the log for its readers, which receive `error` after the existing entries. If the log
    /// [has ended](Self::has_ended), they do not receive the error.
    pub fn close(&self, error: Error) {
        self.lock().close(error);
    }

    /// Reopens a [closed](Self::close) log, so that more entries can follow.
    pub fn reopen(&self) {
        self.lock().closed = None;
    }

    /// Sets or clears the error that readers receive after the existing entries while the log on
    /// the server cannot be read.
    pub fn set_outage(&self, outage: Option<Error>) {
        let mut state = self.lock();
        state.outage = outage;
        if state.outage.is_some() {
            state.wake_readers();
        }
    }

    /// Returns whether the last entry is the end of the latest attempt. A log's process then stops
    /// sending heartbeats for the run, and its readers end after the last entry.
    pub fn has_ended(&self) -> bool {
        self.lock().has_ended()
    }

    /// Returns the number of entries in the log.
    pub fn entry_count(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns the [position](EventNumber::position) of the last entry.
    pub fn last_position(&self) -> Option<(u64, u64)> {
        self.lock().last_position()
    }

    /// Returns the entries after a [position](EventNumber::position), except for entries before the
    /// last snapshot. A process writes them again if the server has lost them.
    pub fn entries_after(&self, position: (u64, u64)) -> Vec<LogEntry> {
        let found: Vec<FoundEntry> = {
            let entries = &self.lock().entries;
            (entries.last_snapshot()..entries.end())
                .filter_map(|index| entries.get(index))
                .collect()
        };
        let entries = found.into_iter().map(FoundEntry::into_entry);
        entries.filter(|entry| entry.number.position() > position).collect()
    }

    pub(in crate::hub) fn lock(&self) -> MutexGuard<'_, RunLogState> {
        // No user code runs while this lock is held.
        lock_ignoring_poison(&self.state)
    }

    /// Waits until no reader needs the entries before the given number, but no longer than `limit`.
    pub(in crate::hub) async fn wait_for_readers(&self, before: &EventNumber, limit: Duration) {
        let mut deadline = Deadline::try_start(limit);
        std::future::poll_fn(|cx| {
            let mut state = lock_ignoring_poison(&self.state);
            let keep_from = state.entries.index_of(before.position());
            if state.readers.values().all(|cursor| cursor.next >= keep_from) {
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
    pub(in crate::hub) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(in crate::hub) fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Removes the entries before `trim_before`, and adds `entries`. Also removes the readers that
    /// have not read all of the removed entries, and returns the number of these readers.
    pub(in crate::hub) fn append(
        &mut self,
        entries: Vec<LogEntry>,
        trim_before: Option<&EventNumber>,
    ) -> u64 {
        let cut = trim_before.map_or(0, |before| self.trim(before));
        let first_new = self.entries.end();
        for entry in entries {
            self.entries.push(entry);
        }
        let end = self.entries.end();
        if end > first_new {
            self.unfinished_readers = self.readers.len();
        }
        self.entries.pack_before(first_new.min(end.saturating_sub(RECENT)));
        self.pack_if_read();
        self.outage = None;
        self.wake_readers();
        cut
    }

    /// Packs all entries if no reader needs them.
    fn pack_if_read(&mut self) {
        if self.unfinished_readers == 0 {
            self.entries.pack_before(self.entries.end());
        }
    }

    fn add_reader(&mut self, next: u64) -> u64 {
        let id = self.reader_count;
        self.reader_count += 1;
        self.readers.insert(id, ReaderCursor { next, waker: None });
        self.unfinished_readers += usize::from(next < self.entries.end());
        id
    }

    fn remove_reader(&mut self, id: u64) {
        if self.readers.remove(&id).is_some_and(|cursor| cursor.next < self.entries.end()) {
            self.unfinished_readers -= 1;
            self.pack_if_read();
        }
    }

    /// Returns the position of the last entry.
    fn last_position(&self) -> Option<(u64, u64)> {
        self.entries.last().map(|entry| entry.number.position())
    }

    /// Ends the log for its readers, which receive `error` after the existing entries.
    pub(in crate::hub) fn close(&mut self, error: Error) {
        self.closed = Some(error);
        self.wake_readers();
    }

    /// Removes the entries before the given event number. Also removes the readers that have not
    /// read all of these entries, and returns the number of these readers.
    fn trim(&mut self, before: &EventNumber) -> u64 {
        let keep_from = self.entries.index_of(before.position());
        self.entries.remove_before(keep_from);
        let cut = self.readers.extract_if(|_, cursor| cursor.next < keep_from);
        let cut = cut.map(|(_, cursor)| cursor.waker.into_iter().for_each(Waker::wake)).count();
        self.unfinished_readers -= cut;
        cut as u64
    }

    fn has_ended(&self) -> bool {
        self.entries.last().is_some_and(|entry| {
            entry.number.epoch() == self.epoch && matches!(entry.content, LogContent::End(_))
        })
    }

    fn wake_readers(&mut self) {
        self.readers.values_mut().filter_map(|cursor| cursor.waker.take()).for_each(Waker::wake);
    }

    /// Returns the index of the next entry for a reader that has already read the entry with this
    /// number.
    fn first_after(&self, number: &EventNumber) -> Option<u64> {
        let index = self.entries.index_of(number.position());
        let entry = self.entries.get(index).map(FoundEntry::into_entry);
        entry.is_some_and(|entry| entry.number == *number).then_some(index + 1)
    }
}

/// Reads a single log.
struct LogReader {
    log: Arc<RunLog>,
    /// The id of this reader within the log.
    id: u64,
    last: Option<EventNumber>,
    has_ended: bool,
}

impl LogReader {
    fn new(log: Arc<RunLog>, run: &str, after: Option<&EventNumber>) -> Self {
        let after = after.filter(|number| number.run() == run);
        let mut state = lock_ignoring_poison(&log.state);
        let known = after.and_then(|number| Some((number, state.first_after(number)?)));
        let next = known.map_or_else(|| state.entries.last_snapshot(), |(_, next)| next);
        let id = state.add_reader(next);
        drop(state);
        let last = known.map(|(number, _)| number.clone());
        Self { log, id, last, has_ended: false }
    }

    /// Polls for the next entry. The entry may be a snapshot that the reader can skip.
    fn poll_entry(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<LogEntry, Error>>> {
        let mut guard = lock_ignoring_poison(&self.log.state);
        let state = &mut *guard;
        let has_ended = state.has_ended();
        let Some(cursor) = state.readers.get_mut(&self.id) else {
            return Poll::Ready(Some(Err(TooSlow { last: self.last.clone() }.into())));
        };
        let Some(found) = state.entries.get(cursor.next) else {
            return match state.closed.as_ref().or(state.outage.as_ref()) {
                _ if has_ended => Poll::Ready(None),
                Some(error) => Poll::Ready(Some(Err(error.clone()))),
                None => {
                    cursor.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        };
        cursor.next += 1;
        if cursor.next == state.entries.end() {
            state.unfinished_readers -= 1;
            state.pack_if_read();
        }
        state.writer.take().into_iter().for_each(Waker::wake);
        drop(guard);
        Poll::Ready(Some(Ok(found.into_entry())))
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
        state.remove_reader(self.id);
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
    }
}
