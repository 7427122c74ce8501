//! The task that drives a run.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::poll_fn;
use tokio::time::Instant;

use crate::env::Deadline;
use crate::error::{Error, ErrorKind};
use crate::hub::log::event_log::{EventLog, LogContent, LogUnavailable};
use crate::hub::run::driven_run::DrivenRun;
use crate::hub::run::log_entries::{EntryBatch, LogEntries};
use crate::hub::run::log_state::LogState;
use crate::hub::run::registry::Registry;
use crate::hub::run::run_directory::RunDirectory;
use crate::hub::run::unattended_limit::UnattendedLimit;
use crate::hub::settings::LogOutage;

/// The maximum number of ready events that are appended in one batch.
const MAX_BATCH: usize = 64;

/// Polls a run, writes its log, and receives its commands.
pub(in crate::hub) struct Runner {
    pub(in crate::hub) driven: DrivenRun,
    pub(in crate::hub) entries: LogEntries,
    pub(in crate::hub) log: Arc<dyn EventLog>,
    pub(in crate::hub) log_state: LogState,
    pub(in crate::hub) log_outage: LogOutage,
    pub(in crate::hub) unattended: UnattendedLimit,
    pub(in crate::hub) registry: Weak<Registry>,
    pub(in crate::hub) keep_ended: Duration,
    pub(in crate::hub) began_at: Instant,
    pub(in crate::hub) announced: Option<Announced>,
}

/// A run's entry in the directory shared by all hubs. Dropping this value reports that the run has
/// ended.
pub(in crate::hub) struct Announced {
    directory: Arc<dyn RunDirectory>,
    key: String,
    run: Arc<str>,
    order: u64,
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.directory.end(&self.key, &self.run, self.order);
    }
}

impl Runner {
    /// Opens the inbox and the log, writes the first snapshot to the log, and announces the run.
    pub(in crate::hub) async fn open(&mut self) -> Result<(), Error> {
        self.driven.open_inbox().await?;
        let run = Arc::clone(&self.driven.hub_run.run);
        // The log is started only once, because starting it again could replace a newer attempt on
        // another hub.
        if self.entries.epoch() == 0 {
            self.entries.set_epoch(self.log.begin(&run).await?);
        }
        let (entries, trim_before, end) = (self.entries.opening(), None, None);
        self.append_entries(EntryBatch { entries, trim_before, end }).await?;
        if let Some(directory) = self.log.directory() {
            let key = self.driven.hub_run.key.clone();
            if self.driven.has_ended() {
                directory.announce_ended(&key, &run, self.began_at.elapsed()).await?;
            } else {
                let order = directory.announce(&key, &run).await?;
                self.announced = Some(Announced { directory, key, run, order });
            }
        }
        self.log_state.on_opened();
        Ok(())
    }

    /// Drives the run to completion.
    pub(in crate::hub) async fn drive(mut self) {
        while !self.driven.has_ended() {
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
        self.driven.close_inbox();
        self.announced = None;
        if let Some(registry) = self.registry.upgrade() {
            registry.end(&self.driven.hub_run);
        }
        if self.keep_ended.is_zero() {
            return;
        }
        let Some(mut deadline) = Deadline::try_start(self.keep_ended) else { return };
        // Until the retention period for ended runs expires, the runner keeps trying to write the
        // entries that are missing from an unavailable log.
        while self.log_state.has_outage() {
            let is_over = poll_fn(|cx| match deadline.poll(cx) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending => self.log_state.poll_retry(cx).map(|()| false),
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
        while self.log_state.has_outage()
            && self.log_outage == LogOutage::Pause
            && !self.driven.has_ended()
        {
            poll_fn(|cx| {
                self.driven.poll_commands(cx);
                self.log_state.poll_retry(cx)
            })
            .await;
            self.append(Vec::new()).await?;
        }
        Ok(())
    }

    /// Collects the events that are ready, including the end of the run.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Vec<LogContent>> {
        self.driven.poll_commands(cx);
        let mut batch = Vec::new();
        while batch.len() < self.max_batch()
            && let Poll::Ready(content) = self.driven.poll_content(cx)
        {
            batch.push(content);
        }
        if self.unattended.poll(self.driven.hub_run.reader_count(), cx).is_ready() {
            batch.extend(self.driven.interrupt_unattended());
            cx.waker().wake_by_ref();
        }
        let is_due = self.log_state.poll_retry(cx).is_ready();
        if batch.is_empty() && !is_due { Poll::Pending } else { Poll::Ready(batch) }
    }

    /// Returns the maximum batch size, which is at most a quarter of the log's capacity, so that
    /// readers can keep up.
    fn max_batch(&self) -> usize {
        MAX_BATCH.min(self.entries.capacity() / 4)
    }

    /// Appends a batch to the log. The runner still receives commands while the append is pending.
    ///
    /// An unavailable log is not treated as an error, because the missing entries are written
    /// later, as a snapshot.
    async fn append(&mut self, batch: Vec<LogContent>) -> Result<(), Error> {
        let Some(outage) = self.log_state.outage_mut() else {
            let batch = self.entries.number_batch(batch);
            let end = batch.end.clone();
            let written = self.append_entries(batch).await;
            return self.after_append(written, end);
        };
        for content in batch {
            self.entries.leave_out(&content);
            if matches!(content, LogContent::End(_)) {
                outage.end = Some(content);
            }
        }
        if !outage.is_due() {
            return Ok(());
        }
        outage.wait_again();
        let end = outage.end.clone();
        let written = self.write_missing(end.clone()).await;
        self.after_append(written, end)
    }

    /// Writes a snapshot in place of the entries that an outage has kept from the log.
    async fn write_missing(&mut self, end: Option<LogContent>) -> Result<(), Error> {
        if !self.log_state.is_unopened() {
            let snapshot = self.entries.next_snapshot(end);
            return self.append_entries(snapshot).await;
        }
        self.open().await?;
        let Some(end) = end else { return Ok(()) };
        let (entries, trim_before, end) = (vec![self.entries.entry(end)], None, None);
        self.append_entries(EntryBatch { entries, trim_before, end }).await
    }

    /// Updates the state of the log. `end` is the end of the run, if it is among the entries.
    fn after_append(
        &mut self,
        written: Result<(), Error>,
        end: Option<LogContent>,
    ) -> Result<(), Error> {
        match &written {
            Ok(()) => self.log_state.on_written(),
            Err(error) if error.find_source::<LogUnavailable>().is_some() => {
                self.log_state.on_unavailable(end);
                return Ok(());
            }
            Err(_) => self.log_state.on_failed(),
        }
        written
    }

    async fn append_entries(&mut self, batch: EntryBatch) -> Result<(), Error> {
        let log = Arc::clone(&self.log);
        let mut append = log.append(batch.entries, batch.trim_before);
        poll_fn(|cx| {
            self.driven.poll_commands(cx);
            append.as_mut().poll(cx)
        })
        .await
    }

    /// Ends a run whose log cannot be written. If another attempt has replaced this attempt, the
    /// run is dropped, and no end entry is written.
    async fn fail(&mut self, error: Error) {
        if error.kind() == ErrorKind::Conflict {
            self.driven.end(None);
            return;
        }
        self.driven.interrupt_and_drain().await;
        let end = self.driven.end(Some(error));
        let _ = self.append(vec![end]).await;
    }
}

/// Drops the run regardless of how it ended, so that its readers receive the end of the log and the
/// next run can start.
impl Drop for Runner {
    fn drop(&mut self) {
        // The run's work is dropped before the end of the run is reported.
        self.driven.drop_work();
        self.announced = None;
        if let Some(registry) = self.registry.upgrade() {
            registry.end(&self.driven.hub_run);
            registry.forget(&self.driven.hub_run);
        }
        self.log.remove(&self.driven.hub_run.run, self.entries.epoch());
    }
}
