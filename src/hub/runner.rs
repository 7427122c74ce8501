//! The task that pulls a run.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::poll_fn;
use futures::stream::{BoxStream, StreamExt};

use crate::agent::RunHandle;
use crate::env::Deadline;
use crate::error::{Error, ErrorKind, panic_to_error};
use crate::event::Event;
use crate::hub::command_inbox::SentCommand;
use crate::hub::compact_events::CompactEvents;
use crate::hub::event_log::{EventLog, LogContent, LogEntry};
use crate::hub::registry::{Registry, RunPlace};
use crate::hub::settings::Unattended;
use crate::hub::{EventNumber, Snapshot};
use crate::item::History;

/// Events that are ready at the same time are appended together, up to this many.
const MAX_BATCH: usize = 64;

/// Pulls a run, writes its log and takes its commands.
pub(super) struct Runner {
    pub(super) run: Arc<str>,
    pub(super) epoch: u64,
    pub(super) events: Option<BoxStream<'static, Result<Event, Error>>>,
    pub(super) handle: Option<RunHandle>,
    pub(super) start: History,
    pub(super) starts_at: Option<u64>,
    pub(super) commands: Option<BoxStream<'static, SentCommand>>,
    pub(super) log: Arc<dyn EventLog>,
    pub(super) place: Arc<RunPlace>,
    pub(super) registry: Weak<Registry>,
    pub(super) capacity: usize,
    pub(super) unattended: Unattended,
    pub(super) keep_ended: Duration,
    pub(super) fold: CompactEvents,
    /// How many entries were written.
    pub(super) written: u64,
    /// The last snapshot.
    pub(super) snapshot_at: u64,
    /// Counts the time without readers.
    pub(super) alone: Option<Deadline>,
}

impl Runner {
    /// Writes the snapshot that the log begins with.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        self.append(Vec::new()).await
    }

    /// Drives the run to its end.
    pub(super) async fn drive(mut self) {
        while self.events.is_some() {
            let batch = poll_fn(|cx| self.poll_batch(cx)).await;
            let is_full = batch.len() >= self.max_batch();
            if let Err(error) = self.append(batch).await {
                self.fail(error).await;
            }
            if is_full {
                // There are more: its readers have their turn first.
                tokio::task::yield_now().await;
            }
        }
        // Nothing is taken any more, and the next run may begin.
        self.commands = None;
        if let Some(registry) = self.registry.upgrade() {
            registry.end(&self.place);
        }
        if !self.keep_ended.is_zero()
            && let Some(mut deadline) = Deadline::try_start(self.keep_ended)
        {
            poll_fn(|cx| deadline.poll(cx)).await;
        }
    }

    /// The events that are there, the end included.
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
        if batch.is_empty() { Poll::Pending } else { Poll::Ready(batch) }
    }

    /// A quarter of the log at most, so that readers can keep up.
    fn max_batch(&self) -> usize {
        MAX_BATCH.min(self.capacity / 4)
    }

    /// Drops the run, and ends with this error.
    fn end(&mut self, error: Option<Error>, batch: &mut Vec<LogContent>) {
        self.events = None;
        batch.push(LogContent::End(error));
    }

    fn poll_commands(&mut self, cx: &mut Context<'_>) {
        while let Some(commands) = &mut self.commands {
            match commands.poll_next_unpin(cx) {
                Poll::Ready(Some(command)) => command.apply(&self.run, self.handle.as_ref()),
                Poll::Ready(None) => self.commands = None,
                Poll::Pending => return,
            }
        }
    }

    /// Ends a run that had no reader for the time that is set.
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
                    let error = Error::new(ErrorKind::Other, "nobody reads the run");
                    self.end(Some(error), batch);
                }
                None => {}
            }
            cx.waker().wake_by_ref();
        }
    }

    /// Numbers and appends. Commands are taken meanwhile.
    async fn append(&mut self, batch: Vec<LogContent>) -> Result<(), Error> {
        let mut entries = Vec::with_capacity(batch.len() + 1);
        let mut trim_before = None;
        if self.written == 0 {
            entries.push(self.snapshot());
        }
        for content in batch {
            if self.written - self.snapshot_at >= self.capacity as u64 / 2 {
                trim_before = Some(self.number(self.snapshot_at));
                self.snapshot_at = self.written;
                entries.push(self.snapshot());
            }
            if let LogContent::Event(event) = &content {
                self.fold.observe(event);
            }
            entries.push(self.entry(content));
        }
        let log = Arc::clone(&self.log);
        let mut append = log.append(entries, trim_before);
        poll_fn(|cx| {
            self.place.runner_waker.register(cx.waker());
            self.poll_commands(cx);
            append.as_mut().poll(cx)
        })
        .await
    }

    /// Ends a run whose log cannot be written. One that another attempt has taken over is dropped.
    async fn fail(&mut self, error: Error) {
        if error.kind() == ErrorKind::Conflict {
            self.events = None;
            return;
        }
        if let (Some(handle), Some(events)) = (&self.handle, &mut self.events) {
            // What there is of the turn is kept.
            handle.interrupt();
            while let Some(Ok(_)) = events.next().await {}
        }
        self.events = None;
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
        let events = self.fold.to_events();
        let snapshot = Snapshot::of_run(&self.run, &self.start, self.starts_at, events);
        self.entry(LogContent::Snapshot(Arc::new(snapshot)))
    }
}

/// However the run ended, its readers get an end and the next run may begin.
impl Drop for Runner {
    fn drop(&mut self) {
        // First what runs.
        self.events = None;
        self.commands = None;
        if let Some(registry) = self.registry.upgrade() {
            registry.end(&self.place);
            registry.forget(&self.place);
        }
        self.log.remove(&self.run, self.epoch);
    }
}
