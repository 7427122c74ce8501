//! Configures a hub before the hub is created.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::RunObserver;
use crate::env::{Ids, SystemIds};
use crate::hub::inbox::command_inbox::CommandInbox;
use crate::hub::inbox::memory_inbox::MemoryInbox;
use crate::hub::log::event_log::EventLog;
use crate::hub::log::memory_log::MemoryLog;
use crate::hub::run::blocking_tools::{BlockingTool, BlockingToolWarning};
use crate::hub::settings::{LogOutage, Unattended};

/// Configures a [`Hub`](crate::hub::Hub) before it is created. Returned by
/// [`Hub::builder`](crate::hub::Hub::builder).
///
/// By default, the hub keeps its logs and inboxes in this process's memory, a log keeps at least
/// the last 512 and at most the last 1,024 entries, readers that do not keep up are cut off, runs
/// without readers continue, and a run's log is kept for one minute after the run has ended.
///
/// ```
/// use std::time::Duration;
/// use turnstream::hub::{Hub, Unattended};
///
/// let hub = Hub::builder()
///     .with_unattended(Unattended::InterruptAfter(Duration::from_mins(5)))
///     .with_ended_kept_for(Duration::from_mins(10))
///     .build();
/// # let _: Hub = hub;
/// ```
#[derive(Clone)]
#[must_use = "no hub is created before `build`"]
pub struct HubBuilder(pub(super) HubSettings);

#[derive(Clone)]
pub(super) struct HubSettings {
    pub(super) log: Arc<dyn EventLog>,
    pub(super) inbox: Arc<dyn CommandInbox>,
    pub(super) ids: Arc<dyn Ids>,
    pub(super) capacity: usize,
    pub(super) unattended: Unattended,
    pub(super) log_outage: LogOutage,
    pub(super) keep_ended: Duration,
    pub(super) blocking_tools: Option<BlockingToolWarning>,
    pub(super) run_observer: Option<Arc<dyn RunObserver>>,
}

impl Default for HubBuilder {
    fn default() -> Self {
        Self(HubSettings {
            log: Arc::new(MemoryLog::new()),
            inbox: Arc::new(MemoryInbox::new()),
            ids: Arc::new(SystemIds),
            capacity: 1_024,
            unattended: Unattended::Continue,
            log_outage: LogOutage::Continue,
            keep_ended: Duration::from_mins(1),
            blocking_tools: None,
            run_observer: None,
        })
    }
}

impl HubBuilder {
    /// Sets where the hub keeps its logs and inboxes, for example in a [`MemoryLog`] with custom
    /// settings. A Redis connection is both: `with_backend(events.clone(), events)`.
    ///
    /// If the log provides a [directory](EventLog::directory), as the Redis log does, all hubs that
    /// share the log know about each other's runs; see [on many
    /// machines](crate::hub#on-many-machines). Without a directory, the hub knows only about its
    /// own runs, even if another hub writes to the same log.
    pub fn with_backend(
        mut self,
        log: impl EventLog + 'static,
        inbox: impl CommandInbox + 'static,
    ) -> Self {
        (self.0.log, self.0.inbox) = (Arc::new(log), Arc::new(inbox));
        self
    }

    /// Sets the maximum number of entries in a run's log. The default is 1,024, and the minimum is
    /// 16. After every `entries / 2` entries, a snapshot is written, and all entries before the
    /// previous snapshot are removed. A reader that lags by more than half of the capacity may be
    /// cut off, and gets a snapshot when it reconnects.
    pub fn with_capacity(mut self, entries: usize) -> Self {
        self.0.capacity = entries.max(16);
        self
    }

    /// Sets whether a run without readers is interrupted. By default, a run without readers
    /// continues. Readers in other hubs are not counted.
    pub fn with_unattended(mut self, unattended: Unattended) -> Self {
        self.0.unattended = unattended;
        self
    }

    /// Calls `warn` while a tool blocks its thread: as soon as a single poll of the tool has lasted
    /// for `limit`, and once for each such poll. Without this setting, nothing is reported; the
    /// hook [`on_long_poll`](crate::agent::hook::Hook::on_long_poll) reports such a poll
    /// afterwards.
    ///
    /// The hub looks for such tools in a task for each run, which ends with the run. The task needs
    /// another thread than the blocked one: a runtime with a single thread reports nothing. `warn`
    /// runs in this task, so it must return quickly; a panic in it is ignored. Tools of sub-agents,
    /// and tools that run on another machine, are not observed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use turnstream::hub::Hub;
    ///
    /// let hub = Hub::builder()
    ///     .with_blocking_tool_warning(Duration::from_secs(1), |blocking| {
    ///         eprintln!("`{}` blocks its thread, in run {}", blocking.tool, blocking.run);
    ///     })
    ///     .build();
    /// # let _: Hub = hub;
    /// ```
    pub fn with_blocking_tool_warning(
        mut self,
        limit: Duration,
        warn: impl Fn(BlockingTool) + Send + Sync + 'static,
    ) -> Self {
        self.0.blocking_tools = Some(BlockingToolWarning { limit, warn: Arc::new(warn) });
        self
    }

    /// Sets the observer of this hub's runs, however many readers they have. A run whose agent has
    /// an [observer](crate::Agent::with_run_observer) is observed only by that observer. For a
    /// [durable](crate::durable) run that is visible in this hub, the observer learns which events
    /// repeat recorded steps.
    ///
    /// The stream of a [`RunSource::new`](crate::hub::RunSource::new) is always observed, even if
    /// its events are those of a run that is observed already, or of a replay. To observe the
    /// events once, set the observer in one place only.
    pub fn with_run_observer(mut self, observer: impl RunObserver + 'static) -> Self {
        self.0.run_observer = Some(Arc::new(observer));
        self
    }

    /// Sets whether a run continues or pauses while its log is unavailable. By default, the run
    /// continues.
    pub fn with_log_outage(mut self, log_outage: LogOutage) -> Self {
        self.0.log_outage = log_outage;
        self
    }

    /// Sets how long a run's log is kept after the run has ended, for readers that reconnect. The
    /// default is one minute.
    pub fn with_ended_kept_for(mut self, time: Duration) -> Self {
        self.0.keep_ended = time;
        self
    }

    /// Sets the generator for the ids of runs and commands. By default, each id consists of 128
    /// random bits.
    pub fn with_ids(mut self, ids: impl Ids + 'static) -> Self {
        self.0.ids = Arc::new(ids);
        self
    }
}

impl_debug!(
    HubBuilder(it),
    capacity = it.0.capacity,
    unattended = it.0.unattended,
    log_outage = it.0.log_outage,
    keep_ended = it.0.keep_ended,
);
