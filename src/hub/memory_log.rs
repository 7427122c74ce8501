//! Logs in the memory of this process.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{BoxStream, StreamExt};
use futures::{Stream, stream};

use crate::env::Deadline;
use crate::error::{Error, ErrorKind};
use crate::hub::EventNumber;
use crate::hub::event_log::{
    EventLog, LogContent, LogEntry, LogStats, NotRunning, StaleEpoch, TooSlow,
};
use crate::hub::settings::SlowReaders;
use crate::lock::lock_ignoring_poison;

/// The logs of runs in the memory of this process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    logs: Arc<Mutex<HashMap<String, Arc<RunLog>>>>,
    cut_readers: Arc<Mutex<u64>>,
    slow_readers: SlowReaders,
}

impl MemoryLog {
    /// No logs. Readers that are too slow are cut.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what is done with readers that are too slow.
    pub fn with_slow_readers(mut self, slow_readers: SlowReaders) -> Self {
        self.slow_readers = slow_readers;
        self
    }

    fn log(&self, run: &str) -> Option<Arc<RunLog>> {
        lock_ignoring_poison(&self.logs).get(run).cloned()
    }

    async fn append_entries(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> Result<(), Error> {
        let Some(number) = entries.first().map(|entry| &entry.number) else { return Ok(()) };
        let (run, epoch) = (number.run().to_owned(), number.epoch());
        let Some(log) = self.log(&run) else { return Err(NotRunning { run }.into()) };
        if let (Some(before), SlowReaders::Wait(limit)) = (&trim_before, self.slow_readers) {
            log.wait_for_readers(before, limit).await;
        }
        let mut state = lock_ignoring_poison(&log.state);
        if state.epoch != epoch {
            return Err(StaleEpoch { run, epoch, found: state.epoch }.into());
        }
        if let Some(before) = trim_before {
            *lock_ignoring_poison(&self.cut_readers) += state.trim(&before);
        }
        state.entries.extend(entries);
        state.wake_readers();
        Ok(())
    }
}

impl EventLog for MemoryLog {
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
        let log = Arc::clone(lock_ignoring_poison(&self.logs).entry(run.to_owned()).or_default());
        let mut state = lock_ignoring_poison(&log.state);
        state.epoch += 1;
        ready(Ok(state.epoch)).boxed()
    }

    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        self.append_entries(entries, trim_before).boxed()
    }

    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>> {
        match self.log(run) {
            Some(log) => LogReader::new(log, run, after).boxed(),
            None => {
                let error = NotRunning { run: run.to_owned() }.into();
                stream::once(ready(Err(error))).boxed()
            }
        }
    }

    fn remove(&self, run: &str, epoch: u64) {
        let Some(log) = self.log(run) else { return };
        let mut state = lock_ignoring_poison(&log.state);
        if state.epoch == epoch {
            state.is_removed = true;
            state.wake_readers();
            drop(state);
            lock_ignoring_poison(&self.logs).remove(run);
        }
    }

    fn stats(&self) -> LogStats {
        let logs: Vec<Arc<RunLog>> = lock_ignoring_poison(&self.logs).values().cloned().collect();
        let lengths = || logs.iter().map(|log| lock_ignoring_poison(&log.state).entries.len());
        LogStats {
            entries: lengths().sum(),
            fullest: lengths().max().unwrap_or(0),
            cut_readers: *lock_ignoring_poison(&self.cut_readers),
        }
    }
}

/// The log of one run.
#[derive(Debug, Default)]
struct RunLog {
    state: Mutex<RunLogState>,
}

#[derive(Debug, Default)]
struct RunLogState {
    epoch: u64,
    entries: VecDeque<LogEntry>,
    /// How many entries were removed.
    removed: u64,
    is_removed: bool,
    readers: HashMap<u64, ReaderPlace>,
    /// How many readers there were.
    reader_count: u64,
    writer: Option<Waker>,
}

/// Where a reader is.
#[derive(Debug)]
struct ReaderPlace {
    /// The next entry that it reads, counted from the first one that the log ever had.
    next: u64,
    waker: Option<Waker>,
}

impl RunLog {
    /// Waits until no reader needs the entries before a number, for no longer than this.
    async fn wait_for_readers(&self, before: &EventNumber, limit: Duration) {
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
    /// Counts the entries before a number, those that were removed included.
    fn index_of(&self, number: &EventNumber) -> u64 {
        let position = number.position();
        let here = self.entries.partition_point(|entry| entry.number.position() < position);
        self.removed + here as u64
    }

    /// Removes the entries before a number. Returns how many readers are cut by that.
    fn trim(&mut self, before: &EventNumber) -> u64 {
        let keep_from = self.index_of(before);
        let count = usize::try_from(keep_from - self.removed).unwrap_or(usize::MAX);
        self.entries.drain(..count.min(self.entries.len()));
        self.removed = keep_from;
        let cut = self.readers.extract_if(|_, place| place.next < keep_from);
        cut.map(|(_, place)| place.waker.into_iter().for_each(Waker::wake)).count() as u64
    }

    fn has_ended(&self) -> bool {
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

    /// The next entry for a reader that has read the entry with this number.
    fn first_after(&self, number: &EventNumber) -> Option<u64> {
        let position = number.position();
        let at = self.entries.partition_point(|entry| entry.number.position() < position);
        let has_it = self.entries.get(at).is_some_and(|entry| entry.number == *number);
        has_it.then_some(self.removed + at as u64 + 1)
    }
}

/// One reader of a log.
struct LogReader {
    log: Arc<RunLog>,
    /// Which reader of the log it is.
    id: u64,
    last: Option<EventNumber>,
    has_ended: bool,
}

impl LogReader {
    fn new(log: Arc<RunLog>, run: &str, after: Option<&EventNumber>) -> Self {
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

    /// The next entry, however it is to be read.
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
            None if state.is_removed => {
                Poll::Ready(Some(Err(Error::new(ErrorKind::Other, "the run was dropped"))))
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
            let goes_on = last.is_some_and(|last| last.epoch() == entry.number.epoch());
            if goes_on && matches!(entry.content, LogContent::Snapshot(_)) {
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
