//! The task that drives a run.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::poll_fn;
use futures::stream::{BoxStream, StreamExt};
use tokio::time::Instant;

use crate::agent::RunHandle;
use crate::env::Deadline;
use crate::error::{Error, ErrorKind, panic_to_error};
use crate::event::Event;
use crate::hub::command_inbox::{CommandInbox, SentCommand};
use crate::hub::compact_events::CompactEvents;
use crate::hub::event_log::{EventLog, LogContent, LogEntry, LogUnavailable};
use crate::hub::registry::{Registry, RunPlace};
use crate::hub::run_directory::RunDirectory;
use crate::hub::settings::{LogOutage, Unattended};
use crate::hub::{EventNumber, Snapshot};
use crate::item::History;
use crate::turn::TurnEvent;
use crate::usage::Usage;

/// The maximum number of ready events that are appended in one batch.
const MAX_BATCH: usize = 64;

/// The reason given in the event that retracts an incomplete turn from a lost attempt.
const ATTEMPT_LOST: &str = "the process that performed the run was lost";

/// The initial delay between two attempts to reach an unavailable log. The delay doubles after each
/// attempt, up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The maximum delay between two attempts to reach an unavailable log.
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Polls a run, writes its log, and receives its commands.
pub(super) struct Runner {
    pub(super) run: Arc<str>,
    pub(super) began_at: Instant,
    /// Whether the log contains a snapshot, the inbox is open, and the run has been announced.
    pub(super) is_open: bool,
    /// The attempt's epoch; 0 until the log has been started.
    pub(super) epoch: u64,
    pub(super) events: Option<BoxStream<'static, Result<Event, Error>>>,
    pub(super) handle: Option<RunHandle>,
    pub(super) start: History,
    pub(super) starts_at: Option<u64>,
    pub(super) commands: Option<BoxStream<'static, SentCommand>>,
    pub(super) log: Arc<dyn EventLog>,
    pub(super) inbox: Arc<dyn CommandInbox>,
    pub(super) place: Arc<RunPlace>,
    pub(super) registry: Weak<Registry>,
    pub(super) capacity: usize,
    pub(super) unattended: Unattended,
    pub(super) keep_ended: Duration,
    pub(super) fold: CompactEvents,
    /// Whether this is an attempt at a durable run. Each attempt after the first retracts the
    /// incomplete turn of the previous attempt.
    pub(super) retracts_lost_turn: bool,
    /// The number of entries so far, including entries that were not written because the log was
    /// unavailable.
    pub(super) written: u64,
    /// The entry number of the last snapshot.
    pub(super) snapshot_at: u64,
    /// The time at which a run without readers is ended. `None` while the run has readers.
    pub(super) alone: Option<Deadline>,
    pub(super) log_outage: LogOutage,
    /// The state of the current log outage. `None` while the log is available.
    pub(super) behind: Option<Behind>,
    pub(super) announced: Option<Announced>,
}

/// The state of a log outage, during which the log is unavailable and lacks entries.
pub(super) struct Behind {
    /// The time of the next attempt to write the log. `None` means that the attempt is due
    /// immediately.
    retry: Option<Deadline>,
    /// The delay between the next attempt and the attempt after that.
    next_wait: Duration,
    /// The end of the run, if the run ended while the log was unavailable.
    end: Option<LogContent>,
}

/// A run's entry in the directory shared by all hubs. Dropping this value reports that the run has
/// ended.
pub(super) struct Announced {
    pub(super) directory: Arc<dyn RunDirectory>,
    pub(super) key: String,
    pub(super) run: Arc<str>,
    pub(super) order: u64,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.directory.end(&self.key, &self.run, self.order);
    }
}

impl Behind {
    fn new(end: Option<LogContent>) -> Self {
        let mut behind = Self { retry: None, next_wait: FIRST_RETRY, end };
        behind.wait_again();
        behind
    }

    fn wait_again(&mut self) {
        self.retry = Deadline::try_start(self.next_wait);
        self.next_wait = LAST_RETRY.min(self.next_wait * 2);
    }

    /// Waits until the next attempt to write the log is due.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.retry {
            Some(retry) => retry.poll(cx).map(|_| ()),
            None => Poll::Ready(()),
        }
    }

    fn is_due(&self) -> bool {
        self.retry.as_ref().is_none_or(Deadline::is_over)
    }
}

impl Runner {
    /// Opens the inbox and the log, writes the first snapshot to the log, and announces the run.
    pub(super) async fn open(&mut self) -> Result<(), Error> {
        let has_ended = self.events.is_none();
        if !has_ended && self.commands.is_none() {
            self.commands = Some(self.inbox.open(&self.run).await?);
        }
        // The log is started only once, because starting it again could replace a newer attempt on
        // another hub.
        if self.epoch == 0 {
            self.epoch = self.log.begin(&self.run).await?;
        }
        self.snapshot_at = self.written;
        let mut entries = vec![self.snapshot()];
        if let Some(retracted) = self.lost_turn() {
            entries.push(self.entry(LogContent::Event(retracted)));
        }
        self.append_entries(entries, None).await?;
        if let Some(directory) = self.log.directory() {
            let (key, run) = (self.place.key.clone(), Arc::clone(&self.run));
            if has_ended {
                directory.announce_ended(&key, &run, self.began_at.elapsed()).await?;
            } else {
                let order = directory.announce(&key, &run).await?;
                self.announced = Some(Announced { directory, key, run, order });
            }
        }
        self.is_open = true;
        Ok(())
    }

    /// Returns the event that retracts an incomplete turn from an earlier attempt, if any, for
    /// readers that have already seen the turn.
    fn lost_turn(&self) -> Option<Arc<Event>> {
        let (why, usage) = (ATTEMPT_LOST.to_owned(), Usage::default());
        let retracted = TurnEvent::Retracted { why, usage };
        (self.retracts_lost_turn && self.epoch > 1).then(|| Arc::new(retracted.into()))
    }

    /// Records that the log is unavailable, so that the run starts before its log is opened.
    pub(super) fn open_later(&mut self) {
        self.behind = Some(Behind::new(None));
    }

    /// Drives the run to completion.
    pub(super) async fn drive(mut self) {
        while self.events.is_some() {
            let batch = poll_fn(|cx| self.poll_batch(cx)).await;
            let is_full = batch.len() >= self.max_batch();
            if let Err(error) = self.write(batch).await {
                self.fail(error).await;
            }
            if is_full {
                // More events are ready, but readers get a chance to read before the next batch.
                tokio::task::yield_now().await;
            }
        }
        // The run accepts no more commands, and the next run may start.
        self.commands = None;
        self.announced = None;
        if let Some(registry) = self.registry.upgrade() {
            registry.end(&self.place);
        }
        if self.keep_ended.is_zero() {
            return;
        }
        let Some(mut deadline) = Deadline::try_start(self.keep_ended) else { return };
        // Until the retention period for ended runs expires, the runner keeps trying to write the
        // entries that are missing from an unavailable log.
        while self.behind.is_some() {
            let is_over = poll_fn(|cx| match deadline.poll(cx) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending => self.poll_behind(cx).map(|()| false),
            });
            if is_over.await || self.write(Vec::new()).await.is_err() {
                return;
            }
        }
        poll_fn(|cx| deadline.poll(cx)).await;
    }

    /// Appends a batch. If the log is unavailable and the setting is [`LogOutage::Pause`], waits
    /// until the log is available again.
    async fn write(&mut self, batch: Vec<LogContent>) -> Result<(), Error> {
        self.append(batch).await?;
        while self.behind.is_some() && self.log_outage == LogOutage::Pause && self.events.is_some()
        {
            poll_fn(|cx| {
                self.place.runner_waker.register(cx.waker());
                self.poll_commands(cx);
                self.poll_behind(cx)
            })
            .await;
            self.append(Vec::new()).await?;
        }
        Ok(())
    }

    fn poll_behind(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.behind.as_mut().map_or(Poll::Pending, |behind| behind.poll(cx))
    }

    /// Collects the events that are ready, including the end of the run.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Vec<LogContent>> {
        self.place.runner_waker.register(cx.waker());
        self.poll_commands(cx);
        let mut batch = Vec::new();
        while batch.len() < self.max_batch() {
            let Some(events) = &mut self.events else { break };
            let polled = panic_to_error(ErrorKind::Panic, "the run", || events.poll_next_unpin(cx));
            match polled {
                Ok(Poll::Pending) => break,
                Ok(Poll::Ready(Some(Ok(event)))) => batch.push(LogContent::Event(Arc::new(event))),
                Ok(Poll::Ready(Some(Err(error)))) | Err(error) => self.end(Some(error), &mut batch),
                Ok(Poll::Ready(None)) => self.end(None, &mut batch),
            }
        }
        self.poll_alone(cx, &mut batch);
        let is_due = self.poll_behind(cx).is_ready();
        if batch.is_empty() && !is_due { Poll::Pending } else { Poll::Ready(batch) }
    }

    /// Returns the maximum batch size, which is at most a quarter of the log's capacity, so that
    /// readers can keep up.
    fn max_batch(&self) -> usize {
        MAX_BATCH.min(self.capacity / 4)
    }

    /// Drops the run, and adds an end entry with `error` to the batch.
    fn end(&mut self, error: Option<Error>, batch: &mut Vec<LogContent>) {
        self.events = None;
        self.place.refuse_commands();
        batch.push(LogContent::End(error));
    }

    fn poll_commands(&mut self, cx: &mut Context<'_>) {
        while let Some(commands) = &mut self.commands {
            match commands.poll_next_unpin(cx) {
                Poll::Ready(Some(command)) => {
                    command.apply_by(|id, command| self.place.apply(id, command));
                }
                Poll::Ready(None) => self.commands = None,
                Poll::Pending => return,
            }
        }
    }

    /// Ends the run if it has had no reader for the configured duration.
    fn poll_alone(&mut self, cx: &mut Context<'_>, batch: &mut Vec<LogContent>) {
        let Unattended::InterruptAfter(limit) = self.unattended else { return };
        if self.place.reader_count() > 0 {
            self.alone = None;
            return;
        }
        if self.alone.is_none() {
            self.alone = Deadline::try_start(limit);
        }
        if self.alone.as_mut().is_some_and(|alone| alone.poll(cx).is_ready()) {
            self.unattended = Unattended::Continue;
            match &self.handle {
                Some(handle) => handle.interrupt(),
                None if self.events.is_some() => {
                    let error = Error::new(ErrorKind::Other, "the run has no readers");
                    self.end(Some(error), batch);
                }
                None => {}
            }
            cx.waker().wake_by_ref();
        }
    }

    /// Numbers the entries in a batch, and appends them to the log. The runner still receives
    /// commands while the append is pending.
    ///
    /// An unavailable log is not treated as an error, because the missing entries are written
    /// later, as a snapshot.
    async fn append(&mut self, batch: Vec<LogContent>) -> Result<(), Error> {
        let (entries, trim_before, end) = match self.behind.take() {
            Some(mut behind) => {
                for content in batch {
                    self.leave_out(content, &mut behind.end);
                }
                if !behind.is_due() {
                    self.behind = Some(behind);
                    return Ok(());
                }
                let end = behind.end.clone();
                behind.wait_again();
                let written = match self.is_open {
                    true => {
                        let (mut entries, trim_before) = self.next_snapshot();
                        entries.extend(end.clone().map(|end| self.entry(end)));
                        self.append_entries(entries, trim_before).await
                    }
                    false => match (self.open().await, end.clone()) {
                        (Ok(()), Some(end)) => {
                            let end = self.entry(end);
                            self.append_entries(vec![end], None).await
                        }
                        (opened, _) => opened,
                    },
                };
                return self.after_append(written, Some(behind), end);
            }
            None => self.number_batch(batch),
        };
        let written = self.append_entries(entries, trim_before).await;
        self.after_append(written, None, end)
    }

    fn after_append(
        &mut self,
        written: Result<(), Error>,
        behind: Option<Behind>,
        end: Option<LogContent>,
    ) -> Result<(), Error> {
        match written {
            Err(error) if error.find_source::<LogUnavailable>().is_some() => {
                self.behind = Some(behind.unwrap_or_else(|| Behind::new(end)));
                Ok(())
            }
            written => written,
        }
    }

    /// Numbers the entries in a batch. Returns the entries with snapshots inserted between them,
    /// the number before which the log can be trimmed, and the end entry, if any.
    fn number_batch(
        &mut self,
        batch: Vec<LogContent>,
    ) -> (Vec<LogEntry>, Option<EventNumber>, Option<LogContent>) {
        let mut entries = Vec::with_capacity(batch.len() + 1);
        let (mut trim_before, mut end) = (None, None);
        for content in batch {
            if self.written - self.snapshot_at >= self.capacity as u64 / 2 {
                let (snapshot, before) = self.next_snapshot();
                entries.extend(snapshot);
                trim_before = before;
            }
            match &content {
                LogContent::Event(event) => self.fold.observe(event),
                LogContent::End(_) => end = Some(content.clone()),
                LogContent::Snapshot(_) => {}
            }
            entries.push(self.entry(content));
        }
        (entries, trim_before, end)
    }

    /// Creates the next snapshot. Returns the snapshot and the number of the previous snapshot,
    /// before which the log can be trimmed.
    fn next_snapshot(&mut self) -> (Vec<LogEntry>, Option<EventNumber>) {
        let trim_before = self.number(self.snapshot_at);
        self.snapshot_at = self.written;
        (vec![self.snapshot()], Some(trim_before))
    }

    /// Skips an entry that cannot be written to the log. The next snapshot will include the content
    /// of the entry.
    fn leave_out(&mut self, content: LogContent, end: &mut Option<LogContent>) {
        self.written += 1;
        match content {
            LogContent::Event(event) => self.fold.observe(&event),
            LogContent::End(_) => *end = Some(content),
            LogContent::Snapshot(_) => {}
        }
    }

    async fn append_entries(
        &mut self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> Result<(), Error> {
        let log = Arc::clone(&self.log);
        let mut append = log.append(entries, trim_before);
        poll_fn(|cx| {
            self.place.runner_waker.register(cx.waker());
            self.poll_commands(cx);
            append.as_mut().poll(cx)
        })
        .await
    }

    /// Ends a run whose log cannot be written. If another attempt has replaced this attempt, the
    /// run is dropped, and no end entry is written.
    async fn fail(&mut self, error: Error) {
        if error.kind() == ErrorKind::Conflict {
            self.events = None;
            self.place.refuse_commands();
            return;
        }
        if let (Some(handle), Some(events)) = (&self.handle, &mut self.events) {
            // An interrupt keeps the partial turn.
            handle.interrupt_with_reason("the log of the run can no longer be written");
            while let Some(Ok(_)) = events.next().await {}
        }
        self.events = None;
        self.place.refuse_commands();
        let _ = self.append(vec![LogContent::End(Some(error))]).await;
    }

    fn entry(&mut self, content: LogContent) -> LogEntry {
        let number = self.number(self.written);
        self.written += 1;
        LogEntry { number, content }
    }

    fn number(&self, number: u64) -> EventNumber {
        EventNumber::new(Arc::clone(&self.run), self.epoch, number)
    }

    fn snapshot(&mut self) -> LogEntry {
        let events = self.fold.kept_events();
        let snapshot = Snapshot::of_run(&self.run, &self.start, self.starts_at, events);
        self.entry(LogContent::Snapshot(Arc::new(snapshot)))
    }
}

/// Drops the run regardless of how it ended, so that its readers receive the end of the log and the
/// next run can start.
impl Drop for Runner {
    fn drop(&mut self) {
        // The run's work is dropped before the end of the run is reported.
        self.events = None;
        self.commands = None;
        self.announced = None;
        if let Some(registry) = self.registry.upgrade() {
            registry.end(&self.place);
            registry.forget(&self.place);
        }
        self.log.remove(&self.run, self.epoch);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_delay_between_two_attempts_to_reach_a_log_doubles_up_to_five_seconds() {
        let mut behind = Behind::new(None);
        let mut delays = Vec::new();
        for _ in 0..8 {
            let began = tokio::time::Instant::now();
            poll_fn(|cx| behind.poll(cx)).await;
            delays.push(began.elapsed().as_millis());
            behind.wait_again();
        }
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }
}
