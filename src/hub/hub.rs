//! The hub.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::agent::InputReceipt;
use crate::env::{Deadline, Ids, SystemIds};
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::hub::EventNumber;
use crate::hub::command_inbox::{Command, CommandInbox};
use crate::hub::compact_events::CompactEvents;
use crate::hub::event_log::{EventLog, LogUnavailable, NotRunning};
use crate::hub::logs::Logs;
use crate::hub::memory_inbox::MemoryInbox;
use crate::hub::memory_log::MemoryLog;
use crate::hub::reader::Reader;
use crate::hub::registry::{AlreadyRunning, Registry, RunPlace};
use crate::hub::run_directory::{LostRun, RunDirectory};
use crate::hub::runner::Runner;
use crate::hub::session_reader::SessionReader;
use crate::hub::settings::{LogOutage, Unattended};
use crate::hub::source::RunSource;
use crate::session::Session;
use crate::task::OwnedTask;

/// How long an interrupted run has to write what there is, when the hub shuts down.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(10);

/// Runs agents in tasks of their own, for readers that come and go. Clones share it.
///
/// Dropping the last clone drops all runs synchronously, with their tools and their requests to models.
#[derive(Clone)]
pub struct Hub(Arc<HubInner>);

struct HubInner {
    settings: HubSettings,
    registry: Arc<Registry>,
}

#[derive(Clone)]
struct HubSettings {
    log: Arc<dyn EventLog>,
    inbox: Arc<dyn CommandInbox>,
    ids: Arc<dyn Ids>,
    capacity: usize,
    unattended: Unattended,
    log_outage: LogOutage,
    keep_ended: Duration,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl Hub {
    /// A hub in the memory of this process.
    ///
    /// A log keeps at most 1,024 entries, and at least half as many; readers that are further back are cut. A run
    /// without readers continues, and its log is kept for a minute after its end.
    pub fn new() -> Self {
        Self::with_backend(MemoryLog::new(), MemoryInbox::new())
    }

    /// A hub with logs and inboxes of your own, in a [`MemoryLog`] with other settings for example.
    ///
    /// If the log has a [directory](EventLog::directory), as the one in Redis has, all hubs that share it are one: see
    /// [on many machines](crate::hub#on-many-machines). Otherwise the runs are those of this hub alone, also if
    /// another one writes to the same place.
    pub fn with_backend(log: impl EventLog + 'static, inbox: impl CommandInbox + 'static) -> Self {
        let settings = HubSettings {
            log: Arc::new(log),
            inbox: Arc::new(inbox),
            ids: Arc::new(SystemIds),
            capacity: 1_024,
            unattended: Unattended::Continue,
            log_outage: LogOutage::Continue,
            keep_ended: Duration::from_mins(1),
        };
        Self::from_settings(settings)
    }

    /// A hub whose logs and inboxes are in Redis, with all hubs of other processes on the same server: see
    /// [on many machines](crate::hub#on-many-machines).
    #[cfg(feature = "redis")]
    pub fn with_redis(events: crate::hub::redis::RedisEvents) -> Self {
        Self::with_backend(events.clone(), events)
    }

    /// Sets how many entries the log of a run keeps at most: 1,024 unless set, and at least 16. After each half of
    /// them a snapshot is written, and everything before the previous snapshot is removed.
    ///
    /// Like the other settings it makes a hub of its own, which has none of the runs of this one.
    pub fn with_capacity(self, entries: usize) -> Self {
        self.with(|settings| settings.capacity = entries.max(16))
    }

    /// Sets whether a run without readers is interrupted. It continues unless set. Readers of other hubs do not count.
    pub fn with_unattended(self, unattended: Unattended) -> Self {
        self.with(|settings| settings.unattended = unattended)
    }

    /// Sets what a run does while its log is unavailable. It continues unless set.
    pub fn with_log_outage(self, log_outage: LogOutage) -> Self {
        self.with(|settings| settings.log_outage = log_outage)
    }

    /// Sets how long the log of a run is kept after its end, for readers that connect again: a minute unless set.
    pub fn with_ended_kept_for(self, time: Duration) -> Self {
        self.with(|settings| settings.keep_ended = time)
    }

    /// Sets where the ids of runs and commands come from. They have 128 random bits unless set.
    pub fn with_ids(self, ids: impl Ids + 'static) -> Self {
        self.with(|settings| settings.ids = Arc::new(ids))
    }

    /// A hub of its own with other settings.
    fn with(self, change: impl FnOnce(&mut HubSettings)) -> Self {
        let mut settings = self.0.settings.clone();
        change(&mut settings);
        Self::from_settings(settings)
    }

    fn from_settings(settings: HubSettings) -> Self {
        Self(Arc::new(HubInner { settings, registry: Arc::default() }))
    }

    /// Starts a run under a key, which is the id of its session as a rule. A hub has at most one active run of
    /// each key. Hubs that share a log check this as far as they know; only the lease of the session guarantees it.
    ///
    /// To make the run only when the key is free, [reserve](Self::reserve) it first.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with [`AlreadyRunning`](crate::hub::AlreadyRunning) as its source, if a
    /// run has the key, of this hub or, if that is known, of another one; an error with
    /// [`ShuttingDown`](crate::hub::ShuttingDown) as its source; whatever the log and the inbox fail with. The run is
    /// dropped then. A log that is unavailable is an error, with [`LogUnavailable`] as its source, only if runs
    /// [pause](LogOutage::Pause) for it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn start(
        &self,
        key: impl Into<String>,
        run: impl Into<RunSource>,
    ) -> Result<RunOwner, Error> {
        self.reserve(key)?.start(run).await
    }

    /// Takes a key for a run that is yet to be made.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn reserve(&self, key: impl Into<String>) -> Result<Reservation, Error> {
        let key = key.into();
        self.0.registry.reserve(&key)?;
        Ok(Reservation { hub: self.clone(), key, is_started: false })
    }

    /// Waits until no run has the key, and takes it. Of several that wait, any may be next.
    ///
    /// # Errors
    ///
    /// One with [`ShuttingDown`](crate::hub::ShuttingDown) as its source.
    pub async fn reserve_when_free(&self, key: impl Into<String>) -> Result<Reservation, Error> {
        let key = key.into();
        let mut waiter = Waiter { registry: &self.0.registry, key: &key, id: None };
        poll_fn(|cx| waiter.registry.poll_reserve(waiter.key, &mut waiter.id, cx)).await?;
        drop(waiter);
        Ok(Reservation { hub: self.clone(), key, is_started: false })
    }

    /// The id of the run of this hub that has the key. [`find_run`](Self::find_run) knows those of other hubs too.
    pub fn run_id(&self, key: &str) -> Option<String> {
        self.0.registry.current(key).map(|place| place.run.to_string())
    }

    /// Finds the run that has the key, in this hub or in another one that shares its log.
    ///
    /// # Errors
    ///
    /// One with [`LogUnavailable`] as its source if this hub has no such run, and the others cannot be asked.
    pub async fn find_run(&self, key: &str) -> Result<Option<String>, Error> {
        if let Some(run) = self.run_id(key) {
            return Ok(Some(run));
        }
        let Some(directory) = self.directory() else { return Ok(None) };
        let last = directory.last(key).await?;
        Ok(last.filter(|last| last.is_active).map(|last| last.run))
    }

    /// The runs of all hubs that share the log whose process has died, or has given no sign of life for a few seconds.
    /// After a [claim](Self::claim_lost_run), [`Session::resume`](crate::session::Session::resume) continues what a
    /// run was working on. Empty for a log without a [directory](EventLog::directory).
    ///
    /// A run is listed until the next run of its key begins. If the log has lost its data, runs that were lost before
    /// are not listed: the state of a session in its store says what is unfinished.
    ///
    /// # Errors
    ///
    /// One with [`LogUnavailable`] as its source.
    pub async fn lost_runs(&self) -> Result<Vec<LostRun>, Error> {
        match self.directory() {
            Some(directory) => directory.lost().await,
            None => Ok(Vec::new()),
        }
    }

    /// Claims a lost run for this hub for half a minute. `false` if another hub has claimed it. It spares needless
    /// attempts; exclusion is left to the lease of the session.
    ///
    /// # Errors
    ///
    /// One with [`LogUnavailable`] as its source.
    pub async fn claim_lost_run(&self, lost: &LostRun) -> Result<bool, Error> {
        match self.directory() {
            Some(directory) => directory.claim(lost).await,
            None => Ok(false),
        }
    }

    /// Reads the run of this hub that has the key, after the event with this number.
    ///
    /// Without a number, or if the event is gone or is one of another run, it begins with a
    /// [snapshot](crate::hub::HubEvent::Snapshot). The last run of a key can also be read after its end by those who
    /// have a number of it, for as long as its log is kept. A page that shows a session reads it with
    /// [`read_session`](Self::read_session), which also works while no run is active.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if no run has the key.
    pub fn read(&self, key: &str, after: Option<&EventNumber>) -> Result<Reader, Error> {
        let reader = self.logs().read(key, after);
        reader.ok_or_else(|| NotRunning { run: key.to_owned() }.into())
    }

    /// Reads the run of this hub with this id, also if it has ended, for as long as its log is kept.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if this hub has no such log.
    pub fn read_run(&self, run_id: &str, after: Option<&EventNumber>) -> Result<Reader, Error> {
        match self.0.registry.run(run_id) {
            Some(place) => Ok(self.logs().read_run(place, after)),
            None => Err(NotRunning { run: run_id.to_owned() }.into()),
        }
    }

    /// Reads the run with this id, of this hub or of another one that shares its log. Without such a log, the reader
    /// ends with an error that has [`NotRunning`] as its source.
    ///
    /// It counts as a reader of the run only if the run is one of this hub.
    pub fn read_any_run(&self, run_id: &str, after: Option<&EventNumber>) -> Reader {
        self.logs().read_any_run(run_id, after)
    }

    /// Reads a session over all its runs, those of other hubs that share the log included; see [`SessionReader`].
    pub fn read_session(&self, session: &Session, after: Option<&EventNumber>) -> SessionReader {
        SessionReader::new(self.logs(), session.clone(), after.cloned())
    }

    /// Sends a command to a run, and waits until the run has taken it: that input is queued for the model, not that
    /// the model has read it. The receipt has the id that the event `Appended` has too once the input is in the
    /// history. Input that comes too late for that is in [`Outcome::undelivered`](crate::Outcome::undelivered).
    ///
    /// [`find_run`](Self::find_run) gives the run of a key, which may be one of another hub. A command to a run that has ended meanwhile never reaches the
    /// next one.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) with [`NotRunning`] as its source if the run has ended, takes no
    /// more input or does not exist; the error of the [handle](crate::RunHandle) of the run;
    /// [`Overloaded`](ErrorKind::Overloaded) if too many commands wait; [`Unsupported`](ErrorKind::Unsupported) if
    /// the stream takes no commands; one with [`LogUnavailable`] as its source if the inbox cannot be reached, which
    /// leaves open whether the run takes the command.
    pub async fn send(&self, run_id: &str, command: Command) -> Result<InputReceipt, Error> {
        let id = self.0.settings.ids.next_id();
        // A run of this hub can be reached, also if an inbox on another machine cannot.
        if self.directory().is_some()
            && let Some(place) = self.0.registry.run(run_id)
            && !place.has_ended()
        {
            return place.send(id, command);
        }
        self.0.settings.inbox.send(run_id, id, command).await
    }

    /// Counts runs, readers and entries.
    pub fn stats(&self) -> HubStats {
        let places = self.0.registry.runs();
        let log = self.0.settings.log.stats();
        HubStats {
            runs: places.iter().filter(|place| !place.has_ended()).count(),
            readers: places.iter().map(|place| place.reader_count()).sum(),
            entries: log.entries,
            fullest_log: log.fullest,
            capacity: self.0.settings.capacity,
            cut_readers: log.cut_readers,
            oldest_reader: places.iter().filter_map(|place| place.oldest_reader()).max(),
        }
    }

    /// Refuses new runs, and waits up to `limit` for those that are active. Then it interrupts them, which stores the
    /// partial turns of sessions. After ten more seconds those still active are dropped. A stream that takes no
    /// commands is dropped at `limit`.
    ///
    /// Readers of sessions end with an error that has [`ShuttingDown`](crate::hub::ShuttingDown) as its source,
    /// after the last event of their run. So a web server waits for this first, and then for its connections to end.
    /// Dropping the future lets the runs continue; the hub stays closed.
    pub async fn shut_down(&self, limit: Duration) {
        let registry = &self.0.registry;
        registry.close();
        if wait_for_idle(registry, limit).await {
            return;
        }
        registry.runs().iter().for_each(|place| place.interrupt_or_close());
        if !wait_for_idle(registry, INTERRUPT_LIMIT).await {
            registry.runs().iter().for_each(|place| place.close());
        }
    }

    fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        self.0.settings.log.directory()
    }

    /// Refuses if another hub has an active run of the key, as far as that is known.
    async fn check_other_hubs(&self, key: &str, run: &str) -> Result<(), Error> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let Some(last) = directory.last(key).await? else { return Ok(()) };
        // The next attempt at the same run takes its place.
        match last.is_active && last.run != run && self.0.registry.run(&last.run).is_none() {
            true => Err(AlreadyRunning { key: key.to_owned() }.into()),
            false => Ok(()),
        }
    }

    /// The logs, for readers: they do not keep the hub.
    fn logs(&self) -> Logs {
        let (log, registry) = (Arc::clone(&self.0.settings.log), Arc::clone(&self.0.registry));
        Logs::new(log, registry)
    }
}

async fn wait_for_idle(registry: &Registry, limit: Duration) -> bool {
    let mut deadline = Deadline::try_start(limit);
    poll_fn(|cx| match registry.poll_idle(cx) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => match deadline.as_mut().map(|deadline| deadline.poll(cx)) {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(_)) | None => Poll::Ready(false),
        },
    })
    .await
}

impl Drop for HubInner {
    fn drop(&mut self) {
        self.registry.close();
        self.registry.runs().iter().for_each(|place| place.close());
    }
}

/// Takes itself away when it is dropped.
struct Waiter<'a> {
    registry: &'a Registry,
    key: &'a str,
    id: Option<u64>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.registry.stop_waiting(self.key, self.id);
    }
}

/// A key that was taken for a run. Dropping it gives the key back.
#[derive(Debug)]
#[must_use = "dropping it gives the key back"]
pub struct Reservation {
    hub: Hub,
    key: String,
    is_started: bool,
}

impl Reservation {
    /// Starts the run.
    ///
    /// # Errors
    ///
    /// As [`Hub::start`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn start(mut self, run: impl Into<RunSource>) -> Result<RunOwner, Error> {
        let RunSource { events, start, starts_at, handle, run_id, attempt } = run.into();
        let runtime = Handle::current();
        let HubInner { settings, registry } = &*self.hub.0;
        let run: Arc<str> = run_id.unwrap_or_else(|| settings.ids.next_id()).into();
        let progress = attempt.as_ref().map(|attempt| attempt.progress.clone());
        let place = RunPlace::new(Arc::clone(&run), self.key.clone(), handle.clone(), progress);
        let place = Arc::new(place);
        let mut runner = Runner {
            run,
            began_at: Instant::now(),
            is_open: false,
            epoch: 0,
            events: Some(events),
            handle,
            start,
            starts_at,
            commands: None,
            log: Arc::clone(&settings.log),
            inbox: Arc::clone(&settings.inbox),
            place: Arc::clone(&place),
            registry: Arc::downgrade(registry),
            capacity: settings.capacity,
            unattended: settings.unattended,
            keep_ended: settings.keep_ended,
            fold: CompactEvents::default(),
            retracts_lost_turn: attempt.is_some(),
            written: 0,
            snapshot_at: 0,
            alone: None,
            log_outage: settings.log_outage,
            behind: None,
            announced: None,
        };
        for event in attempt.into_iter().flat_map(|attempt| attempt.replayed) {
            runner.fold.observe(&event);
        }
        let opened = match self.hub.check_other_hubs(&self.key, &runner.run).await {
            Ok(()) => runner.open().await,
            Err(error) => Err(error),
        };
        match opened {
            Err(error)
                if settings.log_outage == LogOutage::Continue
                    && LogUnavailable::from_error(&error).is_some() =>
            {
                runner.open_later();
            }
            opened => opened?,
        }
        let task = place.task.get_or_init(|| OwnedTask::new(runner.drive()));
        if let Err(error) = registry.insert(&place) {
            place.close();
            return Err(error);
        }
        self.is_started = true;
        task.spawn_on(&runtime);
        let logs = self.hub.logs();
        Ok(RunOwner { place, logs, is_detached: false })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_started {
            self.hub.0.registry.release(&self.key);
        }
    }
}

/// Owns a run of a hub. Dropping it drops the run synchronously, with its tools and its request to the model.
#[must_use = "dropping it drops the run"]
pub struct RunOwner {
    place: Arc<RunPlace>,
    logs: Logs,
    is_detached: bool,
}

impl RunOwner {
    /// The id of the run.
    pub fn run_id(&self) -> &str {
        &self.place.run
    }

    /// Reads the run from its start. The reader keeps the log of the run, so it can also be polled after its end. If it
    /// does not keep up, it is cut.
    pub fn read(&self) -> Reader {
        self.logs.read_run(Arc::clone(&self.place), None)
    }

    /// Leaves the run to the hub. Returns its id.
    pub fn detach(mut self) -> String {
        self.is_detached = true;
        self.place.run.to_string()
    }
}

impl Drop for RunOwner {
    fn drop(&mut self) {
        if !self.is_detached && !self.place.has_ended() {
            self.place.close();
        }
    }
}

/// The counts of a hub at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubStats {
    /// The runs that have not ended.
    pub runs: usize,
    /// The readers of runs.
    pub readers: usize,
    /// The entries of all logs.
    pub entries: usize,
    /// The entries of the fullest log.
    pub fullest_log: usize,
    /// How many entries a log may have.
    pub capacity: usize,
    /// How many readers were cut since the beginning.
    pub cut_readers: u64,
    /// How long the reader has been there that came first.
    pub oldest_reader: Option<Duration>,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOwner").field("run", &self.place.run).finish_non_exhaustive()
    }
}
