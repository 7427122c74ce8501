//! Drives runs on each machine, one poll at a time.

use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use turnstream::durable::{
    Attempt, Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest,
};
use turnstream::hub::Command;
use turnstream::item::{PendingCall, RawJson, ToolResult};
use turnstream::session::{Entry, MemoryStore, Session, SessionState, Store, restore_history};
use turnstream::tool::Verdict;
use turnstream::{Agent, Error, ErrorKind, Event, History, Outcome, RunHandle};

use turnstream_test_support::forward_to_inner;
use turnstream_testing::durable_suite::MemoryEngine;

use crate::axes::{Cause, Machine};
use crate::probe::{Probe, pause};
use crate::scenario::SESSION;

/// How a run starts.
#[derive(Clone)]
pub(crate) enum Start {
    Input(&'static str),
    /// Without verdicts, an unfinished run continues.
    Verdicts(Vec<(PendingCall, Verdict)>),
}

/// The result of one poll.
pub(crate) enum Polled {
    /// The run can be polled again.
    Progress,
    /// Nothing will wake the run, unless time passes or the program does something.
    Stalled,
    Ended(Result<Box<Outcome>, Error>),
}

/// Runs on one machine, one after the other.
pub(crate) struct Runs {
    machine: Machine,
    agent: Agent,
    probe: Probe,
    run: Option<ActiveRun>,
    /// The events of all runs and attempts, each with the number of its run or attempt.
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
    /// The history of the agent's last run.
    history: History,
    store: PausingStore,
    engine: MemoryEngine,
    /// The entries and the start of the durable run.
    durable_start: (Vec<Entry>, Start),
    commands: usize,
}

/// A run or an attempt that has not ended.
struct ActiveRun {
    polled: BoxFuture<'static, Result<Outcome, Error>>,
    handle: Arc<Mutex<Option<RunHandle>>>,
    woken: Arc<WokenFlag>,
}

#[derive(Default)]
struct WokenFlag(AtomicBool);

impl Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Runs {
    pub(crate) fn new(machine: Machine, agent: &Agent, probe: &Probe) -> Self {
        let engine = MemoryEngine::new();
        let engine = match machine {
            Machine::DurableWithWorker => engine.with_worker(agent),
            _ => engine,
        };
        Self {
            machine,
            agent: agent.clone(),
            probe: probe.clone(),
            run: None,
            events: Arc::default(),
            history: History::empty(SESSION),
            store: PausingStore { inner: MemoryStore::new(), probe: probe.clone() },
            engine,
            durable_start: (Vec::new(), Start::Input("")),
            commands: 0,
        }
    }

    /// Starts the next run.
    pub(crate) fn start(&mut self, start: Start) {
        assert!(self.run.is_none(), "a run is active");
        let handle: Arc<Mutex<Option<RunHandle>>> = Arc::default();
        let (agent, events, own) =
            (self.agent.clone(), Arc::clone(&self.events), Arc::clone(&handle));
        let polled = match self.machine {
            Machine::Agent => {
                let history = self.history.clone();
                async move {
                    let run = match start {
                        Start::Input(input) => agent.run_from(history, input),
                        Start::Verdicts(verdicts) => agent.resume(history, verdicts)?,
                    };
                    *own.lock().unwrap() = Some(run.handle());
                    pause().await;
                    pull(run, &events).await
                }
                .boxed()
            }
            Machine::Session => {
                let store = self.store.clone();
                async move {
                    let session = Session::open(store, SESSION).await?;
                    let run = match start {
                        Start::Input(input) => session.run(&agent, input).await?,
                        Start::Verdicts(verdicts) => session.resume(&agent, verdicts).await?,
                    };
                    *own.lock().unwrap() = Some(run.handle());
                    pause().await;
                    pull(run, &events).await
                }
                .boxed()
            }
            Machine::Durable | Machine::DurableWithWorker => {
                self.engine = self.engine.next_run();
                self.durable_start = (self.engine.entries(), start);
                return self.start_attempt();
            }
        };
        self.run = Some(ActiveRun { polled, handle, woken: Arc::default() });
    }

    /// Starts the next attempt at the durable run.
    fn start_attempt(&mut self) {
        let (agent, events) = (self.agent.clone(), Arc::clone(&self.events));
        let mut engine =
            PausingEngine { inner: self.engine.next_attempt(), probe: self.probe.clone() };
        let (entries, start) = self.durable_start.clone();
        let polled = async move {
            let attempt = match start {
                Start::Input(input) => Attempt::run(&agent, SESSION, entries, input),
                Start::Verdicts(verdicts) => Attempt::resume(&agent, SESSION, entries, verdicts),
            };
            let attempt = attempt.inspect(move |event| events.lock().unwrap().push(event.clone()));
            attempt.drive(&mut engine).await
        };
        let polled = polled.boxed();
        self.run = Some(ActiveRun { polled, handle: Arc::default(), woken: Arc::default() });
    }

    pub(crate) fn is_active(&self) -> bool {
        self.run.is_some()
    }

    pub(crate) fn poll(&mut self) -> Polled {
        let run = self.run.as_mut().unwrap();
        run.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&run.woken));
        match run.polled.poll_unpin(&mut Context::from_waker(&waker)) {
            Poll::Ready(ended) => {
                self.drop_run();
                Polled::Ended(ended.map(Box::new))
            }
            Poll::Pending if run.woken.0.load(Ordering::Relaxed) => Polled::Progress,
            Poll::Pending => Polled::Stalled,
        }
    }

    /// Drops the run. Its process is gone, or has no use for it.
    pub(crate) fn drop_run(&mut self) {
        let run = self.run.take().unwrap();
        let handle = lock(&run.handle).clone();
        drop(run);
        if let (Machine::Agent, Some(handle)) = (self.machine, handle) {
            self.history = handle.history();
        }
    }

    /// Continues a run that was dropped, as far as the machine itself can.
    pub(crate) fn retry(&mut self) -> bool {
        let is_durable = self.machine.is_durable();
        if is_durable {
            self.start_attempt();
        }
        is_durable
    }

    /// Sends a command to the active run. Returns whether the run can receive it.
    pub(crate) fn command(&mut self, cause: Cause) -> bool {
        let run = self.run.as_mut().unwrap();
        let handle = lock(&run.handle).clone();
        if self.machine.is_durable() {
            let command = match cause {
                Cause::Interrupt => Command::Interrupt,
                _ => Command::StopAfterTurn,
            };
            self.commands += 1;
            return self.engine.send(format!("x{}", self.commands), command).is_ok();
        }
        let Some(handle) = handle else { return false };
        match cause {
            Cause::Interrupt => handle.interrupt(),
            _ => handle.stop_after_turn(),
        }
        true
    }

    /// Sends a verdict to the active run.
    pub(crate) fn answer(&mut self, call: &PendingCall, verdict: Verdict) -> Result<(), Error> {
        let run = self.run.as_mut().unwrap();
        if self.machine.is_durable() {
            self.commands += 1;
            let command = Command::Verdict { call: call.clone(), verdict };
            return self.engine.send(format!("x{}", self.commands), command);
        }
        let handle = lock(&run.handle).clone();
        handle.unwrap().submit_verdict(call.clone(), verdict)
    }

    /// Whether the active run accepts verdicts. The engine may have ended a durable run whose last
    /// attempt repeats its events.
    pub(crate) fn accepts_verdicts(&self) -> bool {
        !self.machine.is_durable() || self.engine.status().run.is_some()
    }

    /// The calls that a durable run waits for.
    pub(crate) fn awaited_calls(&self) -> Vec<PendingCall> {
        self.engine.status().awaited_calls
    }

    /// The history that the next run starts with, before it is settled.
    pub(crate) fn history(&self) -> History {
        match self.entries() {
            None => self.history.clone(),
            Some(entries) => restore_history(SESSION, entries),
        }
    }

    /// The state of the session.
    pub(crate) fn session_state(&self) -> Option<SessionState> {
        Some(SessionState::from_entries(self.entries()?))
    }

    fn entries(&self) -> Option<Vec<Entry>> {
        match self.machine {
            Machine::Agent => None,
            Machine::Session => {
                let loaded = self.store.inner.load(SESSION, 0).now_or_never().unwrap();
                Some(loaded.unwrap().unwrap_or_default())
            }
            Machine::Durable | Machine::DurableWithWorker => Some(self.engine.entries()),
        }
    }

    /// Takes the events that were reported since the last call.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        mem::take(&mut *lock(&self.events))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pulls a run to its end, with a pause after each event.
async fn pull(
    run: impl Stream<Item = Result<Event, Error>> + Send,
    events: &Mutex<Vec<Event>>,
) -> Result<Outcome, Error> {
    let mut run: Pin<Box<_>> = Box::pin(run);
    let mut outcome = None;
    while let Some(event) = run.next().await {
        match (event, &outcome) {
            (Ok(event), _) => {
                outcome = event.outcome().cloned().or(outcome);
                lock(events).push(event);
            }
            // The outcome has the same error.
            (Err(_), Some(_)) => {}
            (Err(error), None) => return Err(error),
        }
        pause().await;
    }
    Ok(outcome.expect("a run ends with an outcome or an error"))
}

/// A store that pauses before and after each append.
#[derive(Clone)]
struct PausingStore {
    inner: MemoryStore,
    probe: Probe,
}

impl Store for PausingStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        async move {
            let _open = self.probe.open_write();
            pause().await;
            if self.probe.take_fault(Cause::WriteFails) {
                return Err(Error::new(ErrorKind::Store, "the disk is full"));
            }
            let appended = self.inner.append(id, expected, entries).await;
            pause().await;
            appended
        }
        .boxed()
    }

    forward_to_inner!();
}

/// An engine that pauses before and after each operation.
struct PausingEngine {
    inner: MemoryEngine,
    probe: Probe,
}

impl PausingEngine {
    /// Performs an operation that writes nothing but its result.
    fn performed<'a, T: Send + 'a>(
        &'a mut self,
        operation: impl FnOnce(&'a mut MemoryEngine) -> BoxFuture<'a, Result<T, Error>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Error>> {
        async move {
            pause().await;
            let done = operation(&mut self.inner).await;
            // The result is recorded, and the attempt has not received it.
            let _open = self.probe.open_write();
            pause().await;
            done
        }
        .boxed()
    }
}

impl StepRunner for PausingEngine {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        self.performed(move |engine| engine.step(name, step))
    }
}

impl Engine for PausingEngine {
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        self.performed(move |engine| engine.take_commands(undelivered_bytes))
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        self.performed(move |engine| engine.wait_for_commands(awaited, limit, is_enough))
    }

    fn can_call_tools(&self) -> bool {
        self.inner.can_call_tools()
    }

    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        self.performed(move |engine| engine.call_tools(calls))
    }

    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let _open = self.probe.open_write();
            pause().await;
            if self.probe.take_fault(Cause::WriteFails) {
                return Err(Error::new(ErrorKind::Store, "the disk is full"));
            }
            let saved = self.inner.save(from, entries).await;
            pause().await;
            saved
        }
        .boxed()
    }

    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>> {
        self.performed(move |engine| engine.finish(put_back))
    }
}
