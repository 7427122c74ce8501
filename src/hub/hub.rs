//! A hub, which executes runs independently of the readers that attach to them.

use std::future::poll_fn;
use std::future::ready;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::agent::{InputReceipt, RunObserver};
use crate::env::Deadline;
use crate::error::Error;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::hub::EventNumber;
use crate::hub::builder::{HubBuilder, HubSettings};
use crate::hub::inbox::command_inbox::Command;
use crate::hub::inbox::command_inbox::SentCommand;
use crate::hub::log::event_log::{LogUnavailable, NotRunning};
use crate::hub::log::logs::Logs;
use crate::hub::read::reader::Reader;
use crate::hub::read::session_reader::SessionReader;
use crate::hub::run::registry::{AlreadyRunning, HubRun, Insertion, Registry};
use crate::hub::run::run_directory::{LostRun, RunDirectory};
use crate::hub::run::source::RunSource;
use crate::hub::run::{DrivenRun, LogEntries, LogState, Runner, UnattendedLimit};
use crate::hub::settings::LogOutage;
use crate::session::Session;
use crate::task::OwnedTask;

/// How long interrupted runs may take to store their partial turns when the hub shuts down.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(10);

/// Executes each run in its own task, so that the run continues even if no reader is attached.
/// Clones refer to the same hub.
///
/// Dropping the last clone synchronously drops all runs, including their tools and model requests.
///
/// Dropping the future of [`start`](Self::start) drops the run and releases its key. Dropping the
/// future of any other method only ends the wait: a command that was already sent may still reach
/// its run, and a lost run may already be claimed.
#[derive(Clone)]
pub struct Hub(Arc<HubInner>);

struct HubInner {
    settings: HubSettings,
    registry: Arc<Registry>,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl HubBuilder {
    /// Creates the hub. Each call creates a separate hub.
    pub fn build(self) -> Hub {
        Hub::from_settings(self.0)
    }
}

impl Hub {
    /// Creates a hub with the default settings, which keeps its logs and inboxes in this process's
    /// memory.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a hub with other settings, or with logs and inboxes that several hubs
    /// share.
    pub fn builder() -> HubBuilder {
        HubBuilder::default()
    }

    pub(super) fn from_settings(settings: HubSettings) -> Self {
        Self(Arc::new(HubInner { settings, registry: Arc::default() }))
    }

    /// Starts a run under a key, which is usually the id of its session. A hub has at most one
    /// active run for each key. Hubs that share a log also check whether another hub is known to
    /// have an active run for the key. However, only the session's lease guarantees that at most
    /// one run is active.
    ///
    /// To create the run only if the key is free, [reserve](Self::reserve) the key first.
    ///
    /// # Errors
    ///
    /// - [`Conflict`](ErrorKind::Conflict), with [`AlreadyRunning`](crate::hub::AlreadyRunning) as
    ///   its source, if a run for the key is already active, in this hub or, as far as this hub
    ///   knows, in another hub;
    /// - an error with [`ShuttingDown`](crate::hub::ShuttingDown) as its source if the hub is
    ///   shutting down;
    /// - any error from the log or the inbox. If the log is unavailable, an error with
    ///   [`LogUnavailable`] as its source is returned only if the hub [pauses](LogOutage::Pause)
    ///   runs while the log is unavailable.
    ///
    /// If an error is returned, the run is dropped.
    ///
    /// # Panics
    ///
    /// Panics if called outside of a tokio runtime.
    pub async fn start(
        &self,
        key: impl Into<String>,
        run: impl Into<RunSource>,
    ) -> Result<RunOwner, Error> {
        self.reserve(key)?.start(run).await
    }

    /// Reserves a key for a run that has not been created yet.
    ///
    /// # Errors
    ///
    /// - [`Conflict`](ErrorKind::Conflict), with [`AlreadyRunning`](crate::hub::AlreadyRunning) as
    ///   its source, if this hub already has an active run or a reservation for the key;
    /// - an error with [`ShuttingDown`](crate::hub::ShuttingDown) as its source if the hub is
    ///   shutting down.
    pub fn reserve(&self, key: impl Into<String>) -> Result<Reservation, Error> {
        let key = key.into();
        self.0.registry.reserve(&key)?;
        Ok(Reservation { hub: self.clone(), key, is_started: false })
    }

    /// Waits until the key is free in this hub, and then reserves it. If several callers are
    /// waiting, any of them may get the key next.
    ///
    /// # Errors
    ///
    /// Returns an error with [`ShuttingDown`](crate::hub::ShuttingDown) as its source if the hub is
    /// shutting down.
    pub async fn reserve_when_free(&self, key: impl Into<String>) -> Result<Reservation, Error> {
        let key = key.into();
        let mut waiter = Waiter { registry: &self.0.registry, key: &key, id: None };
        poll_fn(|cx| waiter.registry.poll_reserve(waiter.key, &mut waiter.id, cx)).await?;
        drop(waiter);
        Ok(Reservation { hub: self.clone(), key, is_started: false })
    }

    /// Returns the id of this hub's active run for the key, if any. To find runs in other hubs as
    /// well, use [`find_run`](Self::find_run).
    pub fn run_id(&self, key: &str) -> Option<String> {
        self.0.registry.current(key).map(|hub_run| hub_run.run.to_string())
    }

    /// Returns the id of the active run for the key, if any. The run may be in this hub or in
    /// another hub that shares the log.
    ///
    /// # Errors
    ///
    /// Returns an error with [`LogUnavailable`] as its source if this hub has no such run and the
    /// other hubs cannot be queried.
    pub async fn find_run(&self, key: &str) -> Result<Option<String>, Error> {
        if let Some(run) = self.run_id(key) {
            return Ok(Some(run));
        }
        let Some(directory) = self.directory() else { return Ok(None) };
        let last = directory.last(key).await?;
        Ok(last.filter(|last| last.is_active).map(|last| last.run))
    }

    /// Lists the lost runs in all hubs that share this log. A run is lost if its process has died
    /// or has not sent a heartbeat for a few seconds. To continue a lost run's work, first
    /// [claim](Self::claim_lost_run) the run, and then call
    /// [`Session::resume`](crate::session::Session::resume). If the log has no
    /// [directory](crate::hub::EventLog::directory), the returned list is empty.
    ///
    /// A lost run is listed until the next run for the same key starts. If the log itself loses its
    /// data, the previously lost runs are no longer listed. To find runs that are not listed, look
    /// for unfinished sessions in the store.
    ///
    /// Call a function like `resume_lost_runs` every few seconds:
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use turnstream::hub::Hub;
    /// use turnstream::session::{Session, SessionState, Store};
    /// use turnstream::{Agent, Error};
    ///
    /// async fn resume_lost_runs(
    ///     hub: &Hub,
    ///     store: &Arc<dyn Store>,
    ///     agent: &Agent,
    /// ) -> Result<(), Error> {
    ///     for lost in hub.lost_runs().await? {
    ///         // A claim lasts for 30 seconds. After an error, the next run follows: the lease of a
    ///         // suspended process, for example, may still be held. The run is claimed again later.
    ///         if hub.claim_lost_run(&lost).await?
    ///             && let Err(error) = resume(hub, store, agent, &lost.key).await
    ///         {
    ///             eprintln!("`{}` was not resumed: {error}", lost.key);
    ///         }
    ///     }
    ///     Ok(())
    /// }
    ///
    /// async fn resume(
    ///     hub: &Hub,
    ///     store: &Arc<dyn Store>,
    ///     agent: &Agent,
    ///     key: &str,
    /// ) -> Result<(), Error> {
    ///     let reservation = hub.reserve(key)?;
    ///     let session = Session::open(store.clone(), key).await?;
    ///     if let SessionState::Unfinished { .. } = session.state() {
    ///         reservation.start(session.resume(agent, []).await?).await?.detach();
    ///     }
    ///     Ok(())
    /// }
    /// # drop(resume_lost_runs);
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error with [`LogUnavailable`] as its source if the log cannot be reached.
    pub async fn lost_runs(&self) -> Result<Vec<LostRun>, Error> {
        match self.directory() {
            Some(directory) => directory.lost().await,
            None => Ok(Vec::new()),
        }
    }

    /// Claims a lost run for this hub for 30 seconds. Returns `false` if the run is already
    /// claimed, even by this hub, or if the log has no directory. A claim only avoids unnecessary
    /// attempts to resume the run; mutual exclusion is ensured by the session's lease.
    ///
    /// # Errors
    ///
    /// Returns an error with [`LogUnavailable`] as its source if the log cannot be reached.
    pub async fn claim_lost_run(&self, lost: &LostRun) -> Result<bool, Error> {
        match self.directory() {
            Some(directory) => directory.claim(lost).await,
            None => Ok(false),
        }
    }

    /// Creates a reader for the key's run in this hub. The reader starts after the event with the
    /// given number.
    ///
    /// If no number is given, or if the event was removed or belongs to another run, the reader
    /// starts with a [snapshot](crate::hub::HubEvent::Snapshot). If the number belongs to the key's
    /// most recent run, that run can still be read after it has ended, as long as its log is kept.
    /// To display a session on a page, use [`read_session`](Self::read_session), which also works
    /// while no run is active.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error, with [`NotRunning`] as its
    /// source, if this hub has no run for the key.
    pub fn read(&self, key: &str, after: Option<&EventNumber>) -> Result<Reader, Error> {
        let reader = self.logs().read(key, after);
        reader.ok_or_else(|| NotRunning { run: key.to_owned() }.into())
    }

    /// Creates a reader for the run with the given id in this hub. A run that has ended can be read
    /// as long as its log is kept.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error, with [`NotRunning`] as its
    /// source, if this hub has no log for the run.
    pub fn read_run(&self, run_id: &str, after: Option<&EventNumber>) -> Result<Reader, Error> {
        match self.0.registry.run(run_id) {
            Some(hub_run) => Ok(self.logs().read_run(hub_run, after)),
            None => Err(NotRunning { run: run_id.to_owned() }.into()),
        }
    }

    /// Creates a reader for the run with the given id, in this hub or in another hub that shares
    /// the log. If no log exists for the run, the reader ends with an error that has [`NotRunning`]
    /// as its source.
    ///
    /// The reader is counted as one of the run's readers only if the run belongs to this hub.
    pub fn read_any_run(&self, run_id: &str, after: Option<&EventNumber>) -> Reader {
        self.logs().read_any_run(run_id, after)
    }

    /// Creates a reader for all runs of a session, including runs in other hubs that share the log;
    /// see [`SessionReader`].
    pub fn read_session(&self, session: &Session, after: Option<&EventNumber>) -> SessionReader {
        SessionReader::new(self.logs(), session.clone(), after.cloned())
    }

    /// Sends a command to a run, and waits until the run has accepted it. Accepted input is queued
    /// for the model, which may not have read it yet. When the input is added to the history, the
    /// run yields an `Appended` event with the same id as the receipt. Input that arrives too late
    /// to be added is listed in [`Outcome::undelivered`](crate::Outcome::undelivered).
    ///
    /// To get the id of a key's active run, which may be in another hub, use
    /// [`find_run`](Self::find_run). If the run ends before it receives the command, the command is
    /// not passed on to the next run for the same key.
    ///
    /// # Errors
    ///
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if the
    ///   run has ended, no longer accepts input or does not exist;
    /// - the error that the run's [handle](crate::RunHandle) returns for the command;
    /// - [`Overloaded`](ErrorKind::Overloaded) if too many commands, or too much input, wait for
    ///   the run;
    /// - [`Unsupported`](ErrorKind::Unsupported) if the stream accepts no commands;
    /// - an error with [`LogUnavailable`] as its source if the inbox cannot be reached. The run may
    ///   still receive the command.
    pub async fn send(&self, run_id: &str, command: Command) -> Result<InputReceipt, Error> {
        self.send_with_id(run_id, self.0.settings.ids.next_id(), command).await
    }

    /// Sends a command like [`send`](Self::send), with an id that the caller has chosen. A run that
    /// receives [`Command::InterruptTurn`] twice with the same id is interrupted once, so a command
    /// that is stored for a durable run can also be sent through the hub.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`send`](Self::send).
    pub async fn send_with_id(
        &self,
        run_id: &str,
        id: String,
        command: Command,
    ) -> Result<InputReceipt, Error> {
        // A run in this hub can be reached even if the inboxes on another machine cannot.
        if self.directory().is_some()
            && let Some(hub_run) = self.0.registry.run(run_id)
            && !hub_run.has_ended()
        {
            return hub_run.send(id, command);
        }
        self.0.settings.inbox.send(run_id, id, command).await
    }

    /// Opens an inbox for a call that is executed separately from its run, and yields the commands
    /// that arrive. To send a command to the call, pass the same `address` to [`send`](Self::send).
    pub(crate) async fn open_call_inbox(
        &self,
        address: &str,
    ) -> Result<BoxStream<'static, Command>, Error> {
        let commands = self.0.settings.inbox.open(address).await?;
        let accept = |sent: SentCommand| {
            let mut accepted = None;
            sent.apply_by(|_, command| {
                accepted = Some(command);
                Ok(())
            });
            ready(accepted)
        };
        Ok(commands.filter_map(accept).boxed())
    }

    /// Returns statistics about this hub, such as the number of runs, readers and log entries.
    pub fn stats(&self) -> HubStats {
        let entries = self.0.registry.runs();
        let log = self.0.settings.log.stats();
        HubStats {
            runs: entries.iter().filter(|hub_run| !hub_run.has_ended()).count(),
            readers: entries.iter().map(|hub_run| hub_run.reader_count()).sum(),
            entries: log.entries,
            fullest_log: log.fullest,
            capacity: self.0.settings.capacity,
            cut_readers: log.cut_readers,
            oldest_reader: entries.iter().filter_map(|hub_run| hub_run.oldest_reader()).max(),
        }
    }

    /// Shuts down the hub: rejects new runs, and waits up to `limit` for the active runs to end.
    /// A key that was [reserved](Self::reserve) before counts as active, and its run still starts.
    /// The remaining runs are then interrupted, so that sessions store their partial turns. From
    /// then on, only a run that [replaces](crate::session::Session::run_replacing) an answer still
    /// starts, because the answer is gone already, and is interrupted at once. Runs that are still
    /// active after ten more seconds are dropped. A run whose stream does not accept commands is
    /// dropped as soon as `limit` has elapsed.
    ///
    /// After yielding the last event of the current run, session readers end with an error that has
    /// [`ShuttingDown`](crate::hub::ShuttingDown) as its source. A web server should therefore
    /// first await the future returned by this method, and then wait for its connections to end. If
    /// the returned future is dropped, the runs continue, but the hub stays closed to new runs.
    pub async fn shut_down(&self, limit: Duration) {
        let registry = &self.0.registry;
        registry.close();
        if wait_for_idle(registry, limit).await {
            return;
        }
        registry.interrupt_runs();
        if !wait_for_idle(registry, INTERRUPT_LIMIT).await {
            registry.end_runs();
        }
    }

    /// Returns the observer of this hub's runs.
    pub(crate) fn run_observer(&self) -> Option<Arc<dyn RunObserver>> {
        self.0.settings.run_observer.clone()
    }

    fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        self.0.settings.log.directory()
    }

    /// Returns an error if another hub is known to have an active run for the key.
    async fn check_other_hubs(&self, key: &str, run: &str) -> Result<(), Error> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let Some(last) = directory.last(key).await? else { return Ok(()) };
        // The next attempt at a run replaces the previous attempt.
        match last.is_active && last.run != run && self.0.registry.run(&last.run).is_none() {
            true => Err(AlreadyRunning { key: key.to_owned() }.into()),
            false => Ok(()),
        }
    }

    /// Returns a [`Logs`] value, which creates readers from the hub's logs. The `Logs` value does
    /// not keep the hub alive.
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
        self.registry.end_runs();
    }
}

/// A caller that is waiting for a key. Dropping this value unregisters the caller.
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

/// A key that is reserved for a run. Dropping the reservation releases the key.
#[derive(Debug)]
#[must_use = "dropping it releases the key"]
pub struct Reservation {
    hub: Hub,
    key: String,
    is_started: bool,
}

impl Reservation {
    /// Starts the run under the reserved key.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Hub::start`].
    ///
    /// # Panics
    ///
    /// Panics if called outside of a tokio runtime.
    pub async fn start(mut self, run: impl Into<RunSource>) -> Result<RunOwner, Error> {
        let runtime = Handle::current();
        let HubInner { settings, registry } = &*self.hub.0;
        let run = run.into().observed_by(settings.run_observer.as_ref());
        let RunSource { events, start, starts_at, has_replaced, handle, run_id, attempt } = run;
        let run: Arc<str> = run_id.unwrap_or_else(|| settings.ids.next_id()).into();
        let progress = attempt.as_ref().map(|attempt| attempt.progress.clone());
        let hub_run = HubRun::new(Arc::clone(&run), self.key.clone(), handle.clone(), progress);
        let hub_run = Arc::new(hub_run);
        let mut entries = LogEntries::new(Arc::clone(&run), start, starts_at, settings.capacity);
        if let Some(attempt) = attempt {
            entries.continue_attempts(&attempt.replayed);
        }
        let mut runner = Runner {
            driven: DrivenRun::new(Arc::clone(&hub_run), events, Arc::clone(&settings.inbox)),
            entries,
            log: Arc::clone(&settings.log),
            log_state: LogState::Unopened,
            log_outage: settings.log_outage,
            unattended: UnattendedLimit::new(settings.unattended),
            registry: Arc::downgrade(registry),
            keep_ended: settings.keep_ended,
            began_at: Instant::now(),
            announced: None,
        };
        let opened = match self.hub.check_other_hubs(&self.key, &run).await {
            Ok(()) => runner.open().await,
            Err(error) => Err(error),
        };
        match opened {
            Err(error)
                if settings.log_outage == LogOutage::Continue
                    && error.find_source::<LogUnavailable>().is_some() =>
            {
                runner.log_state.on_unavailable(None);
            }
            opened => opened?,
        }
        let task = hub_run.task.get_or_init(|| OwnedTask::new(runner.drive()));
        let insertion = match has_replaced {
            true => Insertion::EvenIfInterrupted,
            false => Insertion::UnlessInterrupted,
        };
        if let Err(error) = registry.insert(&hub_run, insertion) {
            hub_run.close();
            return Err(error);
        }
        self.is_started = true;
        if let (Some(warning), Some(handle)) = (&settings.blocking_tools, &hub_run.handle) {
            handle.observe_polls();
            let watching = warning.clone().watch(Arc::downgrade(&hub_run));
            hub_run.watch.get_or_init(|| OwnedTask::spawn(watching, &runtime));
        }
        task.spawn_on(&runtime);
        if registry.is_interrupting() {
            hub_run.interrupt_or_close();
        }
        let logs = self.hub.logs();
        Ok(RunOwner { hub_run, logs, is_detached: false })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_started {
            self.hub.0.registry.release(&self.key);
        }
    }
}

/// Owns a run in a hub. Dropping the `RunOwner` synchronously drops the run, including its tools
/// and model request.
#[must_use = "dropping it drops the run"]
pub struct RunOwner {
    hub_run: Arc<HubRun>,
    logs: Logs,
    is_detached: bool,
}

impl RunOwner {
    /// Returns the id of the run, with which other code reads the run, sends it commands or stops
    /// it.
    pub fn run_id(&self) -> &str {
        &self.hub_run.run
    }

    /// Creates a reader that reads the run from its start. The reader keeps the run's log alive,
    /// and can therefore still be polled after the run has ended. A reader that does not keep up is
    /// cut off.
    pub fn read(&self) -> Reader {
        self.logs.read_run(Arc::clone(&self.hub_run), None)
    }

    /// Detaches the run from this owner, so that it continues in the hub. Returns the run's id.
    pub fn detach(mut self) -> String {
        self.is_detached = true;
        self.hub_run.run.to_string()
    }
}

impl Drop for RunOwner {
    fn drop(&mut self) {
        if !self.is_detached && !self.hub_run.has_ended() {
            self.hub_run.close();
        }
    }
}

/// Statistics about a hub at a point in time, such as the number of runs, readers and log entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubStats {
    /// The number of active runs.
    pub runs: usize,
    /// The number of readers that are currently attached to runs.
    pub readers: usize,
    /// The number of entries in all logs.
    pub entries: usize,
    /// The number of entries in the fullest log.
    pub fullest_log: usize,
    /// The maximum number of entries in a log.
    pub capacity: usize,
    /// The number of readers that have been cut off so far.
    pub cut_readers: u64,
    /// The time since the oldest of the attached readers was attached. `None` if no reader is
    /// attached.
    pub oldest_reader: Option<Duration>,
}

impl_debug!(Hub(it), stats = it.stats());

impl_debug!(RunOwner(it), run = it.hub_run.run);
