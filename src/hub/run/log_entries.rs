//! The entries of a run's log, and their numbers.

use std::sync::Arc;

use crate::event::Event;
use crate::hub::log::compact_events::CompactEvents;
use crate::hub::log::event_log::{LogContent, LogEntry};
use crate::hub::{EventNumber, Snapshot};
use crate::item::History;
use crate::turn::TurnEvent;
use crate::usage::Usage;

/// The reason given in the event that retracts an incomplete turn from a lost attempt.
const ATTEMPT_LOST: &str = "the process that performed the run was lost";

/// Numbers the entries of a run's log, and inserts snapshots between them.
pub(in crate::hub) struct LogEntries {
    run: Arc<str>,
    /// The attempt's epoch; 0 until the log has been started.
    epoch: u64,
    start: History,
    starts_at: Option<u64>,
    /// The number of entries that the log holds.
    capacity: usize,
    fold: CompactEvents,
    /// The number of entries so far, including entries that were not written because the log was
    /// unavailable.
    written: u64,
    /// The entry number of the last snapshot.
    snapshot_at: u64,
    /// Whether this is an attempt at a durable run. Each attempt after the first retracts the
    /// incomplete turn of the previous attempt.
    retracts_lost_turn: bool,
}

/// Entries that are appended together.
pub(super) struct EntryBatch {
    pub(super) entries: Vec<LogEntry>,
    /// The number before which the log can be trimmed.
    pub(super) trim_before: Option<EventNumber>,
    /// The end of the run, if it is one of the entries.
    pub(super) end: Option<LogContent>,
}

impl LogEntries {
    pub(in crate::hub) fn new(
        run: Arc<str>,
        start: History,
        starts_at: Option<u64>,
        capacity: usize,
    ) -> Self {
        Self {
            run,
            epoch: 0,
            start,
            starts_at,
            capacity,
            fold: CompactEvents::default(),
            written: 0,
            snapshot_at: 0,
            retracts_lost_turn: false,
        }
    }

    /// Continues a durable run, of which earlier attempts have recorded these events.
    pub(in crate::hub) fn continue_attempts(&mut self, replayed: &[Arc<Event>]) {
        self.retracts_lost_turn = true;
        for event in replayed {
            self.fold.observe(event);
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the entries with which the log is opened: a snapshot and, if an earlier attempt was
    /// lost, the event that retracts its incomplete turn for readers that have already seen the
    /// turn.
    pub(super) fn opening(&mut self) -> Vec<LogEntry> {
        self.snapshot_at = self.written;
        let mut entries = vec![self.snapshot()];
        if self.retracts_lost_turn && self.epoch > 1 {
            let (why, usage) = (ATTEMPT_LOST.to_owned(), Box::<Usage>::default());
            let retracted = TurnEvent::Retracted { why, usage };
            entries.push(self.entry(LogContent::Event(Arc::new(retracted.into()))));
        }
        entries
    }

    /// Numbers the entries of a batch, and inserts snapshots between them.
    pub(super) fn number_batch(&mut self, batch: Vec<LogContent>) -> EntryBatch {
        let mut entries = Vec::with_capacity(batch.len() + 1);
        let (mut trim_before, mut end) = (None, None);
        for content in batch {
            if self.written - self.snapshot_at >= self.capacity as u64 / 2 {
                let snapshot = self.next_snapshot(None);
                entries.extend(snapshot.entries);
                trim_before = snapshot.trim_before;
            }
            match &content {
                LogContent::Event(event) => self.fold.observe(event),
                LogContent::End(_) => end = Some(content.clone()),
                LogContent::Snapshot(_) => {}
            }
            entries.push(self.entry(content));
        }
        EntryBatch { entries, trim_before, end }
    }

    /// Returns the next snapshot and, if the run has ended, its end. The log can be trimmed before
    /// the previous snapshot.
    pub(super) fn next_snapshot(&mut self, end: Option<LogContent>) -> EntryBatch {
        let trim_before = Some(self.number(self.snapshot_at));
        self.snapshot_at = self.written;
        let mut entries = vec![self.snapshot()];
        entries.extend(end.clone().map(|end| self.entry(end)));
        EntryBatch { entries, trim_before, end }
    }

    /// Skips an entry that cannot be written to the log. The next snapshot includes the content of
    /// the entry.
    pub(super) fn leave_out(&mut self, content: &LogContent) {
        self.written += 1;
        if let LogContent::Event(event) = content {
            self.fold.observe(event);
        }
    }

    pub(super) fn entry(&mut self, content: LogContent) -> LogEntry {
        let number = self.number(self.written);
        self.written += 1;
        LogEntry { number, content }
    }

    fn number(&self, number: u64) -> EventNumber {
        EventNumber::new(Arc::clone(&self.run), self.epoch, number)
    }

    fn snapshot(&mut self) -> LogEntry {
        let events = self.fold.snapshot_events();
        let snapshot = Snapshot::of_run(&self.run, &self.start, self.starts_at, events);
        self.entry(LogContent::Snapshot(Arc::new(snapshot)))
    }
}
