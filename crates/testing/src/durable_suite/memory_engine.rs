//! An in-memory engine.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn, try_join_all};
use turnstream::agent::Agent;
use turnstream::durable::storage::{CommandQueue, SessionStatus};
use turnstream::durable::{Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest};
use turnstream::env::SystemIds;
use turnstream::error::{Error, ErrorKind};
use turnstream::hub::{Command, Hub};
use turnstream::item::{PendingCall, RawJson, ToolResult};
use turnstream::session::Entry;
use turnstream::tool::RunData;

use crate::lock::lock_ignoring_poison;

/// A test engine that records operations in memory. The recorded operations are kept as long as
/// this engine, or an engine for another attempt at the same run, exists.
///
/// Like an engine on a server, a memory engine requires every attempt at a run to perform the same
/// operations. An attempt that performs different operations from the previous attempt fails with
/// [`ReplayMismatch`](ErrorKind::ReplayMismatch).
pub struct MemoryEngine {
    shared: Arc<Shared>,
    /// The run's id.
    run: String,
    /// The number of this attempt's next operation.
    position: usize,
    worker: Worker,
}

/// Executes tool calls separately from the run that made them.
#[derive(Clone, Default)]
struct Worker {
    agent: Option<Agent>,
    hub: Option<Hub>,
}

#[derive(Default)]
struct Shared {
    journal: Mutex<Vec<Operation>>,
    /// The journals of the tool calls that the worker executes, by idempotency key.
    calls: Mutex<HashMap<String, Arc<Shared>>>,
    session: Arc<Mutex<SessionData>>,
}

/// The session's data, which outlives a run.
#[derive(Default)]
struct SessionData {
    entries: Vec<Entry>,
    queue: CommandQueue,
    status: SessionStatus,
    /// The number of runs after the first run. This number determines the id of the next run.
    runs: u64,
    waiting: Option<Waker>,
}

/// A recorded operation and its result.
#[derive(Clone, PartialEq)]
struct Operation {
    name: &'static str,
    /// The arguments, as JSON.
    arguments: String,
    value: RawJson,
}

impl MemoryEngine {
    /// Creates the engine for the first attempt at a session's first run.
    pub fn new() -> Self {
        Self {
            shared: Arc::default(),
            run: "run-0".to_owned(),
            position: 0,
            worker: Worker::default(),
        }
    }

    /// If a turn contains several calls, executes these calls with the tools of `agent`, outside
    /// the steps of the run. Each call that is executed in this way has its own journal.
    pub fn with_worker(mut self, agent: &Agent) -> Self {
        self.worker.agent = Some(agent.clone());
        self
    }

    /// Sends the progress of the worker's calls through `hub`, which must be the hub that shows the
    /// run.
    pub fn with_worker_hub(mut self, hub: &Hub) -> Self {
        self.worker.hub = Some(hub.clone());
        self
    }

    /// Returns the engine for another attempt at the same run. The attempt first receives the
    /// recorded results of the earlier attempts.
    pub fn next_attempt(&self) -> Self {
        let (shared, worker) = (Arc::clone(&self.shared), self.worker.clone());
        Self { shared, run: self.run.clone(), position: 0, worker }
    }

    /// Returns the engine for the first attempt at the same session's next run.
    pub fn next_run(&self) -> Self {
        let session = Arc::clone(&self.shared.session);
        let run = {
            let mut session = lock_ignoring_poison(&session);
            session.runs += 1;
            format!("run-{}", session.runs)
        };
        let shared = Arc::new(Shared { session, ..Shared::default() });
        Self { shared, run, position: 0, worker: self.worker.clone() }
    }

    /// Adds a command to the session's queue.
    ///
    /// # Errors
    ///
    /// Returns the errors that [`CommandQueue::push`] returns.
    pub fn send(&self, id: impl Into<String>, command: Command) -> Result<(), Error> {
        let mut session = self.session();
        session.queue.push("memory", StoredCommand { id: id.into(), command })?;
        session.waiting.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Returns the commands that no run has taken yet, in the order in which they arrived.
    pub fn queued(&self) -> Vec<StoredCommand> {
        self.session().queue.commands().cloned().collect()
    }

    /// Returns a copy of the session's entries, of all its runs so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.session().entries.clone()
    }

    /// Returns the session's status, whose version is the number of the session's entries.
    pub fn status(&self) -> SessionStatus {
        let session = self.session();
        let mut status = session.status.clone();
        status.version = session.entries.len() as u64;
        status
    }

    /// Returns the names of the operations recorded for this run, in order and over all of its
    /// attempts.
    pub fn operations(&self) -> Vec<&'static str> {
        self.journal().iter().map(|operation| operation.name).collect()
    }

    fn session(&self) -> MutexGuard<'_, SessionData> {
        // No user code runs while the lock is held.
        lock_ignoring_poison(&self.shared.session)
    }

    fn journal(&self) -> MutexGuard<'_, Vec<Operation>> {
        lock_ignoring_poison(&self.shared.journal)
    }

    /// Returns the recorded result of the next operation, if an earlier attempt has performed it.
    fn recorded(&mut self, name: &'static str, arguments: &str) -> Result<Option<RawJson>, Error> {
        let found = self.journal().get(self.position).cloned();
        match found {
            None => Ok(None),
            Some(recorded) if recorded.name == name && recorded.arguments == arguments => {
                self.position += 1;
                Ok(Some(recorded.value))
            }
            Some(recorded) => {
                let message = format!(
                    "operation {} is `{name}` with {arguments}, and was `{}` with {}",
                    self.position, recorded.name, recorded.arguments,
                );
                Err(Error::new(ErrorKind::ReplayMismatch, message))
            }
        }
    }

    fn keep(&mut self, name: &'static str, arguments: String, value: RawJson) {
        self.journal().push(Operation { name, arguments, value });
        self.position += 1;
    }

    fn call(&self, request: ToolCallRequest) -> BoxFuture<'static, Result<ToolResult, Error>> {
        let Worker { agent: Some(agent), hub } = self.worker.clone() else {
            let result = request.interrupted_result();
            return futures::future::ready(Ok(result)).boxed();
        };
        let mut calls = lock_ignoring_poison(&self.shared.calls);
        let shared = Arc::clone(calls.entry(request.key()).or_default());
        async move {
            let mut engine =
                Self { shared, run: String::new(), position: 0, worker: Worker::default() };
            request.perform(&agent, RunData::new(), hub.as_ref(), &SystemIds, &mut engine).await
        }
        .boxed()
    }
}

impl SessionData {
    /// Takes all commands for a run, which becomes the active run. The run then no longer waits for
    /// verdicts.
    fn take(&mut self, run: &str, undelivered_bytes: Option<usize>) -> Vec<StoredCommand> {
        if self.status.run.as_deref() != Some(run) {
            self.status = SessionStatus::from_entries(self.entries.clone(), Some(run.to_owned()));
        }
        self.status.awaited_calls.clear();
        self.queue.take(run, undelivered_bytes)
    }

    fn finish(&mut self, run: &str, put_back: Vec<StoredCommand>) {
        if self.status.run.as_deref() == Some(run) {
            self.status = SessionStatus::from_entries(self.entries.clone(), None);
        }
        self.queue.finish(run, put_back);
    }
}

impl StepRunner for MemoryEngine {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        async move {
            if let Some(value) = self.recorded(name, "")? {
                return Ok(value);
            }
            let value = step.await;
            self.keep(name, String::new(), value.clone());
            Ok(value)
        }
        .boxed()
    }
}

impl Engine for MemoryEngine {
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        async move {
            let arguments = undelivered_bytes.to_string();
            if let Some(recorded) = self.recorded("take", &arguments)? {
                return recorded.deserialize_as().map_err(unreadable);
            }
            let commands = self.session().take(&self.run, Some(undelivered_bytes));
            self.keep("take", arguments, json(&commands)?);
            Ok(commands)
        }
        .boxed()
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        async move {
            let arguments = text(&awaited)?;
            if let Some(recorded) = self.recorded("wait", &arguments)? {
                return recorded.deserialize_as().map_err(unreadable);
            }
            self.session().status.awaited_calls = awaited.to_vec();
            let mut deadline = limit.map(|limit| Box::pin(tokio::time::sleep(limit)));
            let mut poll = |cx: &mut Context<'_>| {
                let mut session = self.session();
                let commands: Vec<StoredCommand> = session.queue.commands().cloned().collect();
                session.waiting = Some(cx.waker().clone());
                drop(session);
                let mut is_over =
                    || deadline.as_mut().is_some_and(|deadline| deadline.poll_unpin(cx).is_ready());
                match is_enough(&commands) || is_over() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            };
            poll_fn(&mut poll).await;
            // The commands are removed from the queue once the result of the wait has been
            // recorded.
            let commands = self.session().take(&self.run, None);
            self.keep("wait", arguments, json(&commands)?);
            Ok(commands)
        }
        .boxed()
    }

    fn can_call_tools(&self) -> bool {
        self.worker.agent.is_some()
    }

    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        async move {
            let arguments = text(&calls)?;
            if let Some(recorded) = self.recorded("call", &arguments)? {
                return recorded.deserialize_as().map_err(unreadable);
            }
            let results = try_join_all(calls.into_iter().map(|call| self.call(call))).await?;
            self.keep("call", arguments, json(&results)?);
            Ok(results)
        }
        .boxed()
    }

    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let arguments = text(&(from, &entries))?;
            if self.recorded("save", &arguments)?.is_some() {
                return Ok(());
            }
            {
                let mut session = self.session();
                if session.entries.len() as u64 != from {
                    let found = session.entries.len();
                    let message = format!("the session has {found} entries, not {from}");
                    return Err(Error::new(ErrorKind::Store, message));
                }
                session.entries.extend(entries);
            }
            self.keep("save", arguments, serde_json::Value::Null.into());
            Ok(())
        }
        .boxed()
    }

    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let arguments = text(&put_back)?;
            if self.recorded("finish", &arguments)?.is_some() {
                return Ok(());
            }
            self.session().finish(&self.run, put_back);
            self.keep("finish", arguments, serde_json::Value::Null.into());
            Ok(())
        }
        .boxed()
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine").field("position", &self.position).finish_non_exhaustive()
    }
}

fn json<T: serde::Serialize>(value: &T) -> Result<RawJson, Error> {
    RawJson::new(value).map_err(unwritable)
}

fn text<T: serde::Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> Error {
    let message = format!("an operation cannot be written as JSON: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}

fn unreadable(error: serde_json::Error) -> Error {
    let message = format!("an operation cannot be read: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}
