//! The trait for the hosts on which the suite executes its runs, and an in-memory host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::sync::Notify;
use turnstream::agent::{Agent, Input};
use turnstream::durable::storage::SessionStatus;
use turnstream::durable::{Attempt, StoredCommand, is_attempt_lost};
use turnstream::error::Error;
use turnstream::event::{Event, Outcome};
use turnstream::item::PendingCall;
use turnstream::session::Entry;
use turnstream::tool::Verdict;

use crate::durable_suite::faulty_engine::LossPlan;
use crate::durable_suite::memory_engine::MemoryEngine;
use crate::lock::lock_ignoring_poison;

/// A trait for executing the suite's runs. A host consists of an engine and the code that creates
/// and drives attempts on it.
pub trait EngineHost: Send + Sync {
    /// Drives a run to completion, making as many attempts as it needs. Implementations must create
    /// each attempt with [`SuiteRun::attempt`] and wrap the engine that drives the attempt with
    /// [`SuiteRun::losses`].
    ///
    /// # Errors
    ///
    /// Returns the error with which [`Attempt::drive`] ended the run. If [`is_attempt_lost`]
    /// returns `true` for an error, the host must make another attempt rather than return the
    /// error.
    fn run(&self, run: SuiteRun) -> BoxFuture<'_, Result<Outcome, Error>>;

    /// Sends a command to a session.
    ///
    /// # Errors
    ///
    /// Returns the engine's error if the command cannot be stored. If no run is active and the
    /// command is not input, the error must have [`NotRunning`](turnstream::hub::NotRunning) as its
    /// source.
    fn send(&self, session: &str, command: StoredCommand) -> BoxFuture<'static, Result<(), Error>>;

    /// Returns whether the suite injects a loss at every moment within each operation. Injecting
    /// all of these losses takes a long time if the engine runs on a server. If this method returns
    /// `false`, the suite injects a loss at only one moment within each operation, and varies this
    /// moment from operation to operation.
    fn is_thorough(&self) -> bool {
        true
    }

    /// Returns a session's entries.
    ///
    /// # Errors
    ///
    /// Returns the engine's error if the session cannot be read.
    fn entries<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Entry>, Error>>;

    /// Returns a session's status. Programs read it during a run, so the host must not wait until
    /// the run has ended.
    ///
    /// # Errors
    ///
    /// Returns the engine's error if the status cannot be read.
    fn status<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<SessionStatus, Error>>;
}

/// A run that the suite requests from a host. Clones represent the same run.
#[derive(Clone)]
pub struct SuiteRun {
    /// The session's id.
    pub session: String,
    /// The agent for the run. This agent also performs the calls that are executed separately from
    /// the run.
    pub agent: Agent,
    /// The plan that determines which attempts are lost.
    pub losses: LossPlan,
    pub(super) start: SuiteStart,
    pub(super) events: Arc<RunEvents>,
}

/// The events of a session's runs.
#[derive(Default)]
pub(super) struct RunEvents {
    /// The events of each attempt, in the order of the attempts.
    pub(super) attempts: Mutex<Vec<Vec<Event>>>,
    /// Notified of each new event.
    pub(super) changed: Notify,
}

/// Specifies how a run starts.
#[derive(Clone)]
pub(super) enum SuiteStart {
    Input(Input),
    Verdicts(Vec<(PendingCall, Verdict)>),
}

impl SuiteRun {
    /// Creates the next attempt at the run. `entries` must be the entries that the session
    /// contained when the run was requested.
    pub fn attempt(&self, entries: Vec<Entry>) -> Attempt {
        let attempt = match self.start.clone() {
            SuiteStart::Input(input) => Attempt::run(&self.agent, &*self.session, entries, input),
            SuiteStart::Verdicts(verdicts) => {
                Attempt::resume(&self.agent, &*self.session, entries, verdicts)
            }
        };
        let number = {
            let mut attempts = lock_ignoring_poison(&self.events.attempts);
            attempts.push(Vec::new());
            attempts.len() - 1
        };
        let events = Arc::clone(&self.events);
        attempt.inspect(move |event| {
            lock_ignoring_poison(&events.attempts)[number].push(event.clone());
            events.changed.notify_one();
        })
    }
}

/// Stores the suite's runs by session, for hosts whose engine creates attempts elsewhere. Clones
/// share the same runs.
#[derive(Clone, Default)]
pub struct SuiteRuns(Arc<Mutex<HashMap<String, SuiteRun>>>);

impl SuiteRuns {
    /// Stores a run as the next run of its session, in place of the session's earlier run.
    pub fn insert(&self, run: SuiteRun) {
        lock_ignoring_poison(&self.0).insert(run.session.clone(), run);
    }

    /// Returns the run that was most recently stored for a session, if any.
    pub fn get(&self, session: &str) -> Option<SuiteRun> {
        lock_ignoring_poison(&self.0).get(session).cloned()
    }
}

/// Executes the suite's runs on [`MemoryEngine`]s.
#[derive(Clone, Default)]
pub struct MemoryHost {
    sessions: Arc<Mutex<HashMap<String, MemoryEngine>>>,
}

impl MemoryHost {
    /// Creates a host that has no sessions yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an engine for a session's last run.
    fn engine(&self, session: &str) -> MemoryEngine {
        let mut sessions = lock_ignoring_poison(&self.sessions);
        sessions.entry(session.to_owned()).or_default().next_attempt()
    }
}

impl EngineHost for MemoryHost {
    fn run(&self, run: SuiteRun) -> BoxFuture<'_, Result<Outcome, Error>> {
        let engine = self.engine(&run.session).next_run().with_worker(&run.agent);
        let entries = engine.entries();
        lock_ignoring_poison(&self.sessions).insert(run.session.clone(), engine.next_attempt());
        async move {
            loop {
                let mut engine = run.losses.wrap(engine.next_attempt());
                match run.attempt(entries.clone()).drive(&mut engine).await {
                    Err(error) if is_attempt_lost(&error) => {
                        assert!(run.losses.attempts() < 100, "it is lost again and again: {error}");
                    }
                    done => return done,
                }
            }
        }
        .boxed()
    }

    fn send(&self, session: &str, command: StoredCommand) -> BoxFuture<'static, Result<(), Error>> {
        let StoredCommand { id, command } = command;
        ready(self.engine(session).send(id, command)).boxed()
    }

    fn entries<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Entry>, Error>> {
        ready(Ok(self.engine(session).entries())).boxed()
    }

    fn status<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<SessionStatus, Error>> {
        ready(Ok(self.engine(session).status())).boxed()
    }
}
