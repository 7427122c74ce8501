//! Tracks the runs in a hub.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::channel::mpsc;
use futures::task::AtomicWaker;
use tokio::time::Instant;

use crate::agent::{InputReceipt, RunHandle};
use crate::error::{Error, ErrorKind};
use crate::hub::inbox::command_inbox::Command;
use crate::hub::log::event_log::NotRunning;
use crate::hub::run::source::CallProgress;
use crate::lock::lock_ignoring_poison;
use crate::task::OwnedTask;

/// The part of a run's state that code outside the run's runner can access.
pub(in crate::hub) struct HubRun {
    pub(in crate::hub) run: Arc<str>,
    pub(in crate::hub) key: String,
    pub(in crate::hub) handle: Option<RunHandle>,
    /// The channel for the progress of calls that run on another worker. `Some` only for an attempt
    /// at a durable run. Such an attempt receives all other commands except interrupts through its
    /// engine.
    progress: Option<Mutex<mpsc::Sender<CallProgress>>>,
    /// Wakes the runner when readers are attached or dropped.
    pub(in crate::hub) runner_waker: AtomicWaker,
    pub(in crate::hub) task: OnceLock<OwnedTask>,
    /// Warns about tools that block; set if the hub does so.
    pub(in crate::hub) watch: OnceLock<OwnedTask>,
    has_ended: AtomicBool,
    /// Whether the run rejects all commands. Set when the run's events have ended, before any
    /// reader can receive the end of the run.
    refuses_commands: AtomicBool,
    /// The run's order number among the runs started by the hub, starting at 1. The number is 0
    /// until the run has started.
    order: AtomicU64,
    /// The time at which each reader was attached.
    readers: Mutex<BTreeMap<u64, Instant>>,
}

impl HubRun {
    pub(in crate::hub) fn new(
        run: Arc<str>,
        key: String,
        handle: Option<RunHandle>,
        progress: Option<mpsc::Sender<CallProgress>>,
    ) -> Self {
        Self {
            run,
            key,
            handle,
            progress: progress.map(Mutex::new),
            runner_waker: AtomicWaker::new(),
            task: OnceLock::new(),
            watch: OnceLock::new(),
            has_ended: AtomicBool::new(false),
            refuses_commands: AtomicBool::new(false),
            order: AtomicU64::new(0),
            readers: Mutex::default(),
        }
    }

    /// Drops the run's task synchronously.
    pub(in crate::hub) fn close(&self) {
        if let Some(task) = self.task.get() {
            task.close();
        }
    }

    /// Sends a command to the run, which must belong to this process.
    pub(in crate::hub) fn send(&self, id: String, command: Command) -> Result<InputReceipt, Error> {
        if self.has_ended() {
            return Err(NotRunning { run: self.run.to_string() }.into());
        }
        self.apply(id.clone(), command)?;
        self.runner_waker.wake();
        Ok(InputReceipt { id })
    }

    /// Applies a command to the run.
    pub(in crate::hub) fn apply(&self, id: String, command: Command) -> Result<(), Error> {
        let refused = |message: &str| Err(Error::new(ErrorKind::Unsupported, message));
        let Some(handle) = &self.handle else {
            return refused("a stream that is not a run takes no commands");
        };
        if self.refuses_commands.load(Ordering::SeqCst) {
            return Err(NotRunning { run: self.run.to_string() }.into());
        }
        match (command, &self.progress) {
            (Command::ToolProgress { call_id, data }, Some(progress)) => {
                let sent = lock_ignoring_poison(progress).try_send(CallProgress { call_id, data });
                sent.map_err(|error| match error.is_full() {
                    true => {
                        Error::new(ErrorKind::Overloaded, "the run does not keep up with progress")
                    }
                    false => NotRunning { run: self.run.to_string() }.into(),
                })
            }
            (Command::InterruptTurn, Some(_)) => {
                handle.interrupt_open_turn_once(id);
                Ok(())
            }
            (Command::InterruptTurnFor { input_id }, Some(_)) => {
                handle.interrupt_open_turn_for_once(id, &input_id);
                Ok(())
            }
            (command, Some(_)) if !command.is_interrupt() => {
                refused("a durable run receives this command through its engine, which stores it")
            }
            (command, _) => command.apply(id, &self.run, handle),
        }
    }

    /// Interrupts the run, so that its results so far are kept. If the run accepts no commands, or
    /// if another attempt will continue the run, the run is dropped rather than interrupted.
    pub(in crate::hub) fn interrupt_or_close(&self) {
        match &self.handle {
            Some(handle) if self.progress.is_none() => handle.interrupt(),
            Some(_) | None => self.close(),
        }
    }

    /// Rejects all commands from now on, because the run's events have ended.
    pub(in crate::hub) fn refuse_commands(&self) {
        self.refuses_commands.store(true, Ordering::SeqCst);
    }

    pub(in crate::hub) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Returns the run's order number. Later runs have higher numbers.
    pub(in crate::hub) fn order(&self) -> u64 {
        self.order.load(Ordering::SeqCst)
    }

    pub(in crate::hub) fn add_reader(&self) -> u64 {
        let mut readers = lock_ignoring_poison(&self.readers);
        let id = readers.last_key_value().map_or(0, |(last, _)| last + 1);
        readers.insert(id, Instant::now());
        drop(readers);
        self.runner_waker.wake();
        id
    }

    pub(in crate::hub) fn remove_reader(&self, id: u64) {
        lock_ignoring_poison(&self.readers).remove(&id);
        self.runner_waker.wake();
    }

    pub(in crate::hub) fn reader_count(&self) -> usize {
        lock_ignoring_poison(&self.readers).len()
    }

    /// Returns how long ago the first of the run's current readers was attached, or `None` if the
    /// run has no readers.
    pub(in crate::hub) fn oldest_reader(&self) -> Option<Duration> {
        lock_ignoring_poison(&self.readers).values().min().map(Instant::elapsed)
    }
}

/// Tracks a hub's runs, and the tasks that wait for a run to start or end.
#[derive(Default)]
pub(in crate::hub) struct Registry(Mutex<RegistryState>);

#[derive(Default)]
struct RegistryState {
    /// The active runs, and ended runs whose logs are still kept.
    runs: HashMap<Arc<str>, Arc<HubRun>>,
    keys: HashMap<String, KeyState>,
    phase: Phase,
    /// The number of runs started so far.
    begun: u64,
    next_waiter: u64,
    /// The wakers of the tasks that wait until all runs have ended.
    idle_waiters: HashMap<u64, Waker>,
}

/// Which runs a hub accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Open,
    /// Only runs whose keys were reserved before.
    Closed,
    /// Only runs whose keys were reserved before and for which the session was changed already.
    /// They are interrupted when they start.
    Interrupting,
    /// No runs.
    Ended,
}

/// Whether a run may start while the runs are interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub) enum Insertion {
    /// The run starts later, here or elsewhere, because its session is unchanged.
    UnlessInterrupted,
    /// The session was changed for this run already.
    EvenIfInterrupted,
}

#[derive(Default)]
struct KeyState {
    occupant: Option<Occupant>,
    /// The wakers of the tasks that wait for a run under the key to start or end.
    waiters: HashMap<u64, Waker>,
    /// The order number of the last run that was started.
    last_order: u64,
    /// The order number of the second-to-last run that was started.
    previous_order: u64,
    last_run: Option<Arc<str>>,
    /// The number of users of this state: the runs whose logs are kept, and the readers of the
    /// session.
    interested: usize,
}

impl KeyState {
    fn is_needed(&self) -> bool {
        self.occupant.is_some() || !self.waiters.is_empty() || self.interested > 0
    }

    /// Returns the error for a reader that waits for a run, if no more runs start under the key.
    fn no_more_runs(&self, phase: Phase) -> Option<ShuttingDown> {
        match phase {
            Phase::Open => None,
            // A run whose key is reserved may still start, and be read.
            Phase::Closed | Phase::Interrupting if self.occupant.is_some() => None,
            Phase::Closed | Phase::Interrupting | Phase::Ended => Some(ShuttingDown),
        }
    }
}

/// The next run for a reader that reads all of a key's runs.
pub(in crate::hub) enum NextRun {
    /// The next run. It may have ended already, but its log still exists.
    Begun(Arc<HubRun>),
    /// One or more runs that the reader has not seen have already ended. The number is the order
    /// number of the last of these runs.
    Missed(u64),
}

enum Occupant {
    Reserved,
    Run(Arc<HubRun>),
}

impl RegistryState {
    fn wake_key(&mut self, key: &str) {
        if let Some(state) = self.keys.get_mut(key) {
            state.waiters.drain().for_each(|(_, waker)| waker.wake());
        }
        self.remove_if_unneeded(key);
        if self.is_idle() {
            self.idle_waiters.drain().for_each(|(_, waker)| waker.wake());
        }
    }

    fn remove_if_unneeded(&mut self, key: &str) {
        if self.keys.get(key).is_some_and(|state| !state.is_needed()) {
            self.keys.remove(key);
        }
    }

    /// Removes one user of a key's state. If this was the last user, the state is also removed.
    fn lose_interest(&mut self, key: &str) {
        if let Some(state) = self.keys.get_mut(key) {
            state.interested -= 1;
        }
        self.remove_if_unneeded(key);
    }

    fn is_idle(&self) -> bool {
        self.keys.values().all(|key| key.occupant.is_none())
    }
}

impl Registry {
    /// Reserves a key for a run.
    pub(in crate::hub) fn reserve(&self, key: &str) -> Result<(), Error> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(ShuttingDown.into());
        }
        let occupant = &mut state.keys.entry(key.to_owned()).or_default().occupant;
        if occupant.is_some() {
            return Err(AlreadyRunning { key: key.to_owned() }.into());
        }
        *occupant = Some(Occupant::Reserved);
        Ok(())
    }

    /// Releases a reserved key without starting a run.
    pub(in crate::hub) fn release(&self, key: &str) {
        let mut state = self.lock();
        if let Some(key) = state.keys.get_mut(key) {
            key.occupant.take_if(|occupant| matches!(occupant, Occupant::Reserved));
        }
        state.wake_key(key);
    }

    /// Stores a run under the key that was reserved for it, also if the registry was closed after
    /// the reservation.
    pub(in crate::hub) fn insert(
        &self,
        hub_run: &Arc<HubRun>,
        insertion: Insertion,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        let may_start = match state.phase {
            Phase::Open | Phase::Closed => true,
            Phase::Interrupting => insertion == Insertion::EvenIfInterrupted,
            Phase::Ended => false,
        };
        if !may_start {
            return Err(ShuttingDown.into());
        }
        state.begun += 1;
        let order = state.begun;
        hub_run.order.store(order, Ordering::SeqCst);
        let replaced = state.runs.insert(Arc::clone(&hub_run.run), Arc::clone(hub_run));
        let key = state.keys.entry(hub_run.key.clone()).or_default();
        key.occupant = Some(Occupant::Run(Arc::clone(hub_run)));
        key.last_run = Some(Arc::clone(&hub_run.run));
        key.previous_order = std::mem::replace(&mut key.last_order, order);
        key.interested += 1;
        if let Some(replaced) = &replaced {
            state.lose_interest(&replaced.key);
        }
        state.wake_key(&hub_run.key);
        drop(state);
        drop(replaced);
        Ok(())
    }

    /// Marks the run as ended, and releases its key.
    pub(in crate::hub) fn end(&self, hub_run: &HubRun) {
        if hub_run.has_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut state = self.lock();
        let key = state.keys.get_mut(&hub_run.key);
        let is_it = |occupant: &mut Occupant| matches!(occupant, Occupant::Run(other) if std::ptr::eq(&raw const **other, hub_run));
        let ended = key.and_then(|key| key.occupant.take_if(is_it));
        state.wake_key(&hub_run.key);
        drop(state);
        drop(ended);
    }

    /// Removes a run after its log has been removed.
    pub(in crate::hub) fn forget(&self, hub_run: &HubRun) {
        let mut state = self.lock();
        let is_it = |other: &Arc<HubRun>| std::ptr::eq(&raw const **other, hub_run);
        let forgotten = match state.runs.get(&hub_run.run).is_some_and(is_it) {
            true => state.runs.remove(&hub_run.run),
            false => None,
        };
        if forgotten.is_some() {
            state.lose_interest(&hub_run.key);
        }
        drop(state);
        drop(forgotten);
    }

    /// Returns the active run for the key, if any.
    pub(in crate::hub) fn current(&self, key: &str) -> Option<Arc<HubRun>> {
        match self.lock().keys.get(key)?.occupant.as_ref()? {
            Occupant::Run(hub_run) => Some(Arc::clone(hub_run)),
            Occupant::Reserved => None,
        }
    }

    /// Returns the run with this id, if it is the key's last run and its log still exists.
    pub(in crate::hub) fn last_run(&self, key: &str, run: &str) -> Option<Arc<HubRun>> {
        let state = self.lock();
        let hub_run = state.runs.get(run)?;
        let last = state.keys.get(key)?.last_order;
        (hub_run.key == key && hub_run.order() == last).then(|| Arc::clone(hub_run))
    }

    /// Keeps track of the order numbers of a key's runs until [`unfollow`](Self::unfollow) is
    /// called.
    pub(in crate::hub) fn follow(&self, key: &str) {
        self.lock().keys.entry(key.to_owned()).or_default().interested += 1;
    }

    pub(in crate::hub) fn unfollow(&self, key: &str) {
        self.lock().lose_interest(key);
    }

    /// Returns the order number of the last run for a followed key.
    pub(in crate::hub) fn last_order(&self, key: &str) -> u64 {
        self.lock().keys.get(key).map_or(0, |state| state.last_order)
    }

    /// Returns the run with this id, if its log still exists.
    pub(in crate::hub) fn run(&self, run: &str) -> Option<Arc<HubRun>> {
        self.lock().runs.get(run).cloned()
    }

    pub(in crate::hub) fn runs(&self) -> Vec<Arc<HubRun>> {
        self.lock().runs.values().cloned().collect()
    }

    /// Closes the registry, so that no keys are reserved.
    pub(in crate::hub) fn close(&self) {
        self.enter(Phase::Closed);
    }

    /// Interrupts all runs, and those that start later.
    pub(in crate::hub) fn interrupt_runs(&self) {
        self.enter(Phase::Interrupting);
        self.runs().iter().for_each(|hub_run| hub_run.interrupt_or_close());
    }

    /// Whether a run that starts now has to be interrupted.
    pub(in crate::hub) fn is_interrupting(&self) -> bool {
        self.lock().phase >= Phase::Interrupting
    }

    /// Drops all runs, and starts no more.
    pub(in crate::hub) fn end_runs(&self) {
        self.enter(Phase::Ended);
        self.runs().iter().for_each(|hub_run| hub_run.close());
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        let keys: Vec<String> = state.keys.keys().cloned().collect();
        for key in keys {
            state.wake_key(&key);
        }
    }

    pub(in crate::hub) fn is_closed(&self) -> bool {
        self.lock().phase != Phase::Open
    }

    /// Waits until the registry is closed and no more runs can start under the key.
    pub(in crate::hub) fn poll_closed(
        &self,
        key: &str,
        waiter: &mut Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Error> {
        let find = |key: &mut KeyState, _: &_, phase| key.no_more_runs(phase).map(Err);
        match self.poll_key::<()>(key, waiter, cx, find) {
            Poll::Ready(Err(closed)) => Poll::Ready(closed),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    /// Waits until a run with an order number higher than `seen` has started.
    pub(in crate::hub) fn poll_next(
        &self,
        key: &str,
        seen: u64,
        waiter: &mut Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<NextRun, Error>> {
        self.poll_key(key, waiter, cx, |state, runs, phase| {
            if state.last_order <= seen {
                return state.no_more_runs(phase).map(Err);
            }
            if state.previous_order > seen {
                return Some(Ok(NextRun::Missed(state.previous_order)));
            }
            let last = state.last_run.as_ref().and_then(|run| runs.get(run));
            Some(Ok(match last.filter(|hub_run| hub_run.order() == state.last_order) {
                Some(hub_run) => NextRun::Begun(Arc::clone(hub_run)),
                None => NextRun::Missed(state.last_order),
            }))
        })
    }

    /// Waits until the key is free, and then reserves it for a run.
    pub(in crate::hub) fn poll_reserve(
        &self,
        key: &str,
        waiter: &mut Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        self.poll_key(key, waiter, cx, |state, _, phase| match (phase, &state.occupant) {
            (Phase::Open, Some(_)) => None,
            (Phase::Open, None) => {
                state.occupant = Some(Occupant::Reserved);
                Some(Ok(()))
            }
            (Phase::Closed | Phase::Interrupting | Phase::Ended, _) => Some(Err(ShuttingDown)),
        })
    }

    fn poll_key<T>(
        &self,
        key: &str,
        waiter: &mut Option<u64>,
        cx: &mut Context<'_>,
        find: impl FnOnce(
            &mut KeyState,
            &HashMap<Arc<str>, Arc<HubRun>>,
            Phase,
        ) -> Option<Result<T, ShuttingDown>>,
    ) -> Poll<Result<T, Error>> {
        let mut state = self.lock();
        let state = &mut *state;
        let id = *waiter.get_or_insert(state.next_waiter);
        state.next_waiter = state.next_waiter.max(id + 1);
        let key = state.keys.entry(key.to_owned()).or_default();
        match find(key, &state.runs, state.phase) {
            Some(found) => {
                key.waiters.remove(&id);
                Poll::Ready(found.map_err(Error::from))
            }
            None => {
                key.waiters.insert(id, cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Removes the entry of a waiter that has been dropped.
    pub(in crate::hub) fn stop_waiting(&self, key: &str, waiter: Option<u64>) {
        let Some(id) = waiter else { return };
        let mut state = self.lock();
        if let Some(entry) = state.keys.get_mut(key) {
            entry.waiters.remove(&id);
        }
        state.remove_if_unneeded(key);
    }

    /// Waits until no run is active.
    pub(in crate::hub) fn poll_idle(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.is_idle() {
            return Poll::Ready(());
        }
        let id = state.next_waiter;
        state.next_waiter += 1;
        state.idle_waiters.insert(id, cx.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RegistryState> {
        // No user code runs while this lock is held.
        lock_ignoring_poison(&self.0)
    }
}

/// The source of the error that is returned if a run for the key is already active.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a run of `{key}` is running")]
pub struct AlreadyRunning {
    /// The key of the active run.
    pub key: String,
}

impl From<AlreadyRunning> for Error {
    fn from(running: AlreadyRunning) -> Self {
        Self::new(ErrorKind::Conflict, running.to_string()).with_source(running)
    }
}

/// The source of the error that is returned if the hub is shutting down and no longer starts runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub is shutting down")]
pub struct ShuttingDown;

impl From<ShuttingDown> for Error {
    fn from(shutting_down: ShuttingDown) -> Self {
        Self::new(ErrorKind::Other, shutting_down.to_string()).with_source(shutting_down)
    }
}

impl_debug!(Registry(it), runs = it.lock().runs.len());
