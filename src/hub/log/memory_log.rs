//! Logs that are kept in this process's memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{self, BoxStream, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::hub::EventNumber;
use crate::hub::backend::RunLog;
use crate::hub::log::event_log::{EventLog, LogEntry, LogStats, NotRunning, StaleEpoch};
use crate::hub::settings::SlowReaders;
use crate::lock::lock_ignoring_poison;

/// The maximum number of removed logs whose epochs are remembered.
const MAX_REMOVED: usize = 1_024;

/// Keeps the logs of runs in this process's memory. Clones share the same logs.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    logs: Arc<Mutex<HashMap<String, Arc<RunLog>>>>,
    /// The last epoch of each run whose log was removed. The next attempt at one of these runs gets
    /// a higher epoch.
    removed: Arc<Mutex<VecDeque<(String, u64)>>>,
    cut_readers: Arc<Mutex<u64>>,
    slow_readers: SlowReaders,
}

impl MemoryLog {
    /// Creates an empty `MemoryLog`. By default, readers that are too slow are cut off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how readers that are too slow are treated.
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
        let mut state = log.lock();
        if state.epoch() != epoch {
            return Err(StaleEpoch { run, epoch, found: state.epoch() }.into());
        }
        *lock_ignoring_poison(&self.cut_readers) += state.append(entries, trim_before.as_ref());
        Ok(())
    }
}

impl EventLog for MemoryLog {
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
        let log = Arc::clone(lock_ignoring_poison(&self.logs).entry(run.to_owned()).or_default());
        let removed = lock_ignoring_poison(&self.removed);
        let removed = removed.iter().rev().find(|(other, _)| other == run).map(|(_, epoch)| *epoch);
        let mut state = log.lock();
        let epoch = state.epoch().max(removed.unwrap_or(0)) + 1;
        state.set_epoch(epoch);
        ready(Ok(epoch)).boxed()
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
            Some(log) => log.read(run, after),
            None => {
                let error = NotRunning { run: run.to_owned() }.into();
                stream::once(ready(Err(error))).boxed()
            }
        }
    }

    fn remove(&self, run: &str, epoch: u64) {
        let Some(log) = self.log(run) else { return };
        let mut state = log.lock();
        if state.epoch() == epoch {
            state.close(Error::new(ErrorKind::Other, "the run was dropped"));
            drop(state);
            lock_ignoring_poison(&self.logs).remove(run);
            let mut removed = lock_ignoring_poison(&self.removed);
            removed.push_back((run.to_owned(), epoch));
            if removed.len() > MAX_REMOVED {
                removed.pop_front();
            }
        }
    }

    fn stats(&self) -> LogStats {
        let logs: Vec<Arc<RunLog>> = lock_ignoring_poison(&self.logs).values().cloned().collect();
        let lengths = || logs.iter().map(|log| log.entry_count());
        LogStats {
            entries: lengths().sum(),
            fullest: lengths().max().unwrap_or(0),
            cut_readers: *lock_ignoring_poison(&self.cut_readers),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn the_attempts_of_the_last_1024_removed_logs_are_remembered() {
        let log = MemoryLog::new();
        let begin_and_remove = |run: &str| {
            let epoch = block_on(log.begin(run)).unwrap();
            log.remove(run, epoch);
            epoch
        };
        let remove_others = |count: usize| {
            for n in 0..count {
                begin_and_remove(&format!("other {n}"));
            }
        };
        assert_eq!(begin_and_remove("r"), 1);
        remove_others(1_023);
        assert_eq!(begin_and_remove("r"), 2);
        remove_others(1_024);
        assert_eq!(begin_and_remove("r"), 1);
    }
}
