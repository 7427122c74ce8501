//! A single attempt at a durable run.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, poll_fn};

use crate::agent::{Agent, Input};
use crate::durable::bridge::Bridge;
use crate::durable::engine::{Engine, StoredCommand, ToolCallRequest, is_attempt_lost};
use crate::durable::journaled_world::JournaledWorld;
use crate::durable::publisher::{EventObserver, Publisher, RunBegin};
use crate::durable::step_record::{AwaitedVerdicts, BegunCall, BegunCalls, StepResult};
use crate::durable::storage::json_bytes;
use crate::env::{Ids, SystemIds};
use crate::error::{Error, ErrorKind, panic_to_error};
use crate::event::{Event, Outcome, ToolEvent};
use crate::hub::{CallProgress, Command, Hub};
use crate::item::{PendingCall, RawJson, ToolCall, ToolResult};
use crate::session::{Entry, MemoryStore, Session, SessionRun, Store};
use crate::tool::{RunData, Verdict};

/// The maximum number of times that an attempt polls the run before it yields to other tasks.
const MAX_EVENTS_PER_POLL: usize = 64;

/// A single attempt to start or continue a durable run in a session.
///
/// Each time an engine calls its handler, the handler creates an attempt and [drives](Self::drive)
/// it. The first attempt starts the run. If that attempt is lost, the next attempt receives the
/// values that the engine has recorded, skips the recorded operations, and continues with the first
/// operation that has not been recorded.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::durable::Attempt;
/// use turnstream::provider::Scripted;
/// use turnstream_testing::durable_suite::MemoryEngine;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let mut engine = MemoryEngine::new();
/// let outcome = Attempt::run(&agent, "chat-1", Vec::new(), "Hi").drive(&mut engine).await?;
/// assert_eq!(outcome.text, "Hello!");
///
/// // The next attempt performs nothing, because the engine has recorded every step.
/// let again = Attempt::run(&agent, "chat-1", Vec::new(), "Hi").drive(&mut engine.next_attempt()).await?;
/// assert_eq!(again, outcome);
/// # Ok(())
/// # }
/// ```
#[must_use = "an attempt does nothing unless it is driven"]
pub struct Attempt {
    agent: Agent,
    session: String,
    entries: Vec<Entry>,
    start: Start,
    data: RunData,
    ids: Arc<dyn Ids>,
    hub: Option<(Hub, String)>,
    observer: Option<EventObserver>,
}

/// Specifies how a run starts.
#[derive(Clone)]
enum Start {
    Input(Input),
    Verdicts(Vec<(PendingCall, Verdict)>),
}

impl Attempt {
    /// Creates an attempt at a run that starts with new input. This is the durable counterpart of
    /// [`Session::run`]. `entries` must contain all entries that the session had when the run
    /// started. Each attempt must pass the same entries.
    pub fn run(
        agent: &Agent,
        session: impl Into<String>,
        entries: Vec<Entry>,
        input: impl Into<Input>,
    ) -> Self {
        Self::new(agent, session.into(), entries, Start::Input(input.into()))
    }

    /// Creates an attempt at a run that continues pending calls or an unfinished run. This is the
    /// durable counterpart of [`Session::resume`]. `entries` must contain all entries that the
    /// session had when the run started. Each attempt must pass the same entries.
    pub fn resume(
        agent: &Agent,
        session: impl Into<String>,
        entries: Vec<Entry>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Self {
        let verdicts = Start::Verdicts(verdicts.into_iter().collect());
        Self::new(agent, session.into(), entries, verdicts)
    }

    fn new(agent: &Agent, session: String, entries: Vec<Entry>, start: Start) -> Self {
        Self {
            agent: agent.clone(),
            session,
            entries,
            start,
            data: RunData::new(),
            ids: Arc::new(SystemIds),
            hub: None,
            observer: None,
        }
    }

    /// Passes data to the run's tools; see [`Run::with_data`](crate::Run::with_data).
    pub fn with_data(mut self, data: RunData) -> Self {
        self.data = data;
        self
    }

    /// Makes the run visible in a hub, under the session's id. The current step ends if the run is
    /// interrupted through the hub or reaches a time limit. While the engine waits for verdicts,
    /// only a command in the engine's queue can end the run. While it executes calls separately
    /// from the run, an interrupt through the hub drops the calls, and the run ends once they have
    /// ended.
    ///
    /// Progress from calls that are executed separately is shown, and an interrupt through the hub
    /// reaches them, only if the workers that [perform](ToolCallRequest::perform) these calls also
    /// use the hub.
    ///
    /// `run_id` must be the same in each attempt, so that a later attempt replaces the earlier one
    /// in the hub's log. Readers of a later attempt first receive a snapshot of the recorded
    /// events, then the [`Retracted`](crate::TurnEvent::Retracted) event, whose reason says that
    /// the earlier attempt's process was lost, and then the new events.
    pub fn with_hub(mut self, hub: &Hub, run_id: impl Into<String>) -> Self {
        self.hub = Some((hub.clone(), run_id.into()));
        self
    }

    /// Calls `observer` with each event that the attempt publishes. The observer also receives the
    /// replayed events, which an earlier attempt may already have published.
    pub fn inspect(mut self, observer: impl FnMut(&Event) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Sets the id generator used to create the attempt's name. The default is [`SystemIds`]. Each
    /// attempt must have a different name.
    pub fn with_ids(mut self, ids: impl Ids + 'static) -> Self {
        self.ids = Arc::new(ids);
        self
    }

    /// Drives the run to completion. Dropping the returned future cancels all work in progress, and
    /// the attempt is lost.
    ///
    /// If the run failed, the outcome contains the [`error`](Outcome::error). Input that arrived
    /// too late for the run is listed in [`undelivered`](Outcome::undelivered), and is returned to
    /// the engine's queue for the next run.
    ///
    /// # Errors
    ///
    /// If [`is_attempt_lost`] returns `true` for the error, another attempt can continue the run.
    /// All other errors end the run: the errors from [`Session::run`] and [`Session::resume`], the
    /// engine's errors, and [`TooLarge`](ErrorKind::TooLarge) if a turn or the results of its calls
    /// exceed 8 MiB.
    pub async fn drive(self, engine: &mut dyn Engine) -> Result<Outcome, Error> {
        let Self { agent, session, entries, start, data, ids, hub, observer } = self;
        let hub = hub.map(|(hub, run_id)| (hub, session.clone(), run_id));
        let bridge = Arc::new(Bridge::new(ids.next_id(), agent.toolkit().clone()));
        let world = JournaledWorld(Arc::clone(&bridge));
        let agent = agent.with_world(move |_, _| world.clone());
        let store = MemoryStore::new();
        let saved = entries.len() as u64;
        store.append(&session, 0, entries).await?;
        let mut driver = Driver {
            bridge,
            store: store.clone(),
            session: session.clone(),
            saved,
            resumed_entry: ResumedEntry::NotDue,
            idempotent_calls: Vec::new(),
            run: RunStage::Opening(open_run(store, session, agent, start, data).boxed()),
            begin: None,
            outcome: None,
            publisher: Publisher::new(hub, observer),
            early_commands: Vec::new(),
            taken: Vec::new(),
            refused: Vec::new(),
            early_verdicts: Vec::new(),
            is_stopping: false,
            delivered: HashSet::new(),
            delivered_in_step: Vec::new(),
        };
        match driver.drive(engine).await {
            Err(error) if !is_attempt_lost(&error) => {
                let put_back = driver.undelivered();
                engine.finish(put_back).await?;
                driver.publisher.fail(&error).await;
                Err(error)
            }
            done => done,
        }
    }
}

/// Opens the session and creates its run.
async fn open_run(
    store: MemoryStore,
    session: String,
    agent: Agent,
    start: Start,
    data: RunData,
) -> Result<(Session, SessionRun), Error> {
    let session = Session::open(store, session).await?;
    let run = match start {
        Start::Input(input) => session.run(&agent, input).await?,
        Start::Verdicts(verdicts) => session.resume(&agent, verdicts).await?,
    };
    Ok((session, run.with_data(data)))
}

/// The stage that an attempt's run has reached.
enum RunStage {
    /// The run has not been created yet. The run is created only after the engine has started or
    /// replayed the first step, because creating a run already requires recorded nondeterministic
    /// values.
    Opening(BoxFuture<'static, Result<(Session, SessionRun), Error>>),
    Running(Box<SessionRun>),
    Over,
}

/// Tracks whether the engine has saved the [`Entry::Resumed`] of a run that starts with open calls.
#[derive(Debug, PartialEq)]
enum ResumedEntry {
    /// The run started without open calls, or the entry has been saved in its place.
    NotDue,
    /// None of the calls has been allowed to start, and the entry has not been saved. These calls
    /// have not been started by a tool that was not idempotent.
    Due { repeatable: Vec<ToolCall> },
    /// The entry was saved before the run wrote it.
    SavedEarly,
}

struct Driver {
    bridge: Arc<Bridge>,
    store: MemoryStore,
    session: String,
    /// The number of the run's session entries that the engine has saved.
    saved: u64,
    resumed_entry: ResumedEntry,
    /// The ids of the calls to idempotent tools in the calls that were last allowed to start, as
    /// recorded when they started.
    idempotent_calls: Vec<String>,
    run: RunStage,
    /// Describes the start of the run. `None` until the run has been created.
    begin: Option<RunBegin>,
    outcome: Option<Box<Outcome>>,
    publisher: Publisher,
    /// The commands that arrived before the run was created.
    early_commands: Vec<StoredCommand>,
    /// The commands that have been passed to the run.
    taken: Vec<StoredCommand>,
    /// The commands that the run refused because they arrived too late.
    refused: Vec<StoredCommand>,
    /// The verdicts that arrived before the run started waiting for them.
    early_verdicts: Vec<StoredCommand>,
    /// Whether a command is ending the run, so that the run no longer waits for verdicts.
    is_stopping: bool,
    /// The receipt ids of the input that is already in the saved entries.
    delivered: HashSet<String>,
    /// The receipt ids of the input that the current step has delivered.
    delivered_in_step: Vec<String>,
}

impl Driver {
    async fn drive(&mut self, engine: &mut dyn Engine) -> Result<Outcome, Error> {
        let mut commands = self.take_commands(engine).await?;
        loop {
            self.apply(commands);
            match self.step(engine).await? {
                StepResult::Finished => return self.finish(engine).await,
                StepResult::TooLarge(error) => return Err(error),
                StepResult::CallsBegin(begun) => {
                    self.save_resumed(engine).await?;
                    self.mark_may_have_started(&begun);
                    let results = self.call_tools(engine, begun).await?;
                    self.bridge.set_call_results(results);
                    commands = Vec::new();
                }
                StepResult::Suspended(awaited) => {
                    commands = self.wait_for_verdicts(engine, awaited).await?;
                }
                // The run takes commands after each turn and after the turn's calls.
                StepResult::Turn(_) | StepResult::Calls(_) => {
                    commands = self.take_commands(engine).await?;
                }
                StepResult::Value(_) | StepResult::Failed(_) | StepResult::Ended(_) => {
                    commands = Vec::new();
                }
            }
        }
    }

    /// Takes the waiting commands, and reports how much of the commands taken earlier has not been
    /// delivered.
    async fn take_commands(
        &mut self,
        engine: &mut dyn Engine,
    ) -> Result<Vec<StoredCommand>, Error> {
        self.taken.retain(|stored| !self.delivered.contains(&stored.id));
        let held = [&self.taken, &self.refused, &self.early_commands, &self.early_verdicts];
        let bytes = held.into_iter().flatten().map(json_bytes).sum();
        engine.take_commands(bytes).await
    }

    /// Performs the next step, or passes the step's recorded value to the run.
    async fn step(&mut self, engine: &mut dyn Engine) -> Result<StepResult, Error> {
        self.bridge.begin_step();
        let mut step = engine.step("step", self.bridge.step_future());
        let mut stored: Option<RawJson> = None;
        let stored = poll_fn(|cx| self.poll_step(&mut step, &mut stored, cx)).await?;
        drop(step);
        let (result, version) = self.bridge.end_step(&stored)?;
        // Results for calls that were answered without running are recorded together with the other
        // results.
        if !matches!(result, StepResult::CallsBegin(_)) {
            self.publisher.release();
        }
        if let StepResult::CallsBegin(begun) = &result {
            let idempotent = begun.calls.iter().filter(|begun| begun.is_idempotent);
            self.idempotent_calls = idempotent.map(|begun| begun.call.call_id.clone()).collect();
        }
        self.save(engine, version).await?;
        self.delivered.extend(self.delivered_in_step.drain(..));
        Ok(result)
    }

    fn poll_step(
        &mut self,
        step: &mut BoxFuture<'_, Result<RawJson, Error>>,
        stored: &mut Option<RawJson>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RawJson, Error>> {
        self.bridge.set_task(cx.waker());
        let mut polled = 0;
        loop {
            if stored.is_none()
                && let Poll::Ready(value) = step.poll_unpin(cx)
            {
                let value = value?;
                self.bridge.set_kept(&value)?;
                *stored = Some(value);
            }
            self.begin_publishing();
            let flushed = self.publisher.poll_flush(cx);
            let has_room = flushed.is_ready();
            if let Poll::Ready(flushed) = flushed {
                flushed?;
            }
            if let Some(failure) = self.bridge.failure() {
                return Poll::Ready(Err(failure));
            }
            if self.bridge.is_complete()
                && let Some(stored) = stored.take()
            {
                return Poll::Ready(Ok(stored));
            }
            if !has_room || !self.bridge.wants_run() {
                return Poll::Pending;
            }
            ready!(self.poll_run(cx))?;
            polled += 1;
            if polled == MAX_EVENTS_PER_POLL {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Starts publishing the run's events as new events once the current step performs an effect
    /// instead of replaying it.
    fn begin_publishing(&mut self) {
        if let (true, Some(begin)) = (self.bridge.is_live(), &self.begin) {
            self.publisher.begin(begin);
        }
    }

    /// Polls the run once. Returns `Poll::Ready` if the run may yield more events.
    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &mut self.run {
            RunStage::Opening(opening) => {
                let polled = panic_to_error(ErrorKind::Panic, "the run", || opening.poll_unpin(cx));
                let (session, run) = ready!(polled?)?;
                self.bridge.set_session(&session);
                let handle = run.handle();
                let (history, version) = (handle.history(), run.starts_at());
                if !history.unanswered_calls().is_empty() {
                    let repeatable = run.repeatable_open_calls();
                    self.resumed_entry = ResumedEntry::Due { repeatable };
                }
                self.begin = Some(RunBegin { history, version, handle });
                self.run = RunStage::Running(Box::new(run));
                let commands = mem::take(&mut self.early_commands);
                self.apply(commands);
            }
            RunStage::Running(run) => {
                let polled =
                    panic_to_error(ErrorKind::Panic, "the run", || run.poll_next_unpin(cx));
                match ready!(polled?) {
                    Some(Ok(event)) => {
                        match &event {
                            Event::Finished(outcome) => self.outcome = Some(outcome.clone()),
                            Event::Appended { id, .. } => self.delivered_in_step.push(id.clone()),
                            _ => {}
                        }
                        self.begin_publishing();
                        self.publisher.push(event);
                    }
                    // The outcome contains this error.
                    Some(Err(_)) if self.outcome.is_some() => {}
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => {
                        self.run = RunStage::Over;
                        self.bridge.end_run();
                    }
                }
            }
            RunStage::Over => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the input that the run has not delivered to the model, in order of arrival.
    fn undelivered(&mut self) -> Vec<StoredCommand> {
        let mut commands = mem::take(&mut self.taken);
        commands.append(&mut self.refused);
        commands.append(&mut self.early_commands);
        commands.retain(|stored| !self.delivered.contains(&stored.id));
        commands
    }

    /// Passes commands to the run.
    fn apply(&mut self, commands: Vec<StoredCommand>) {
        let Some(RunBegin { handle, .. }) = &self.begin else {
            self.early_commands.extend(commands);
            return;
        };
        for stored in commands {
            let StoredCommand { id, command } = stored.clone();
            self.is_stopping |= ends_run(&command);
            match command {
                Command::Verdict { .. } => self.early_verdicts.push(stored),
                Command::Steer(items) | Command::FollowUp(items) => {
                    let is_follow_up = matches!(stored.command, Command::FollowUp(_));
                    // The engine's queue has accepted the input, and limits its size.
                    match handle.enqueue_accepted(id, is_follow_up, items) {
                        Ok(()) => self.taken.push(stored),
                        Err(_) => self.refused.push(stored),
                    }
                }
                // Only input is returned to the queue for the next run.
                command => drop(command.apply(id, &self.session, handle)),
            }
        }
    }

    /// Waits until each call has a verdict, a command ends the run, or the time limit expires.
    /// Returns the commands other than verdicts that arrived in the meantime.
    async fn wait_for_verdicts(
        &mut self,
        engine: &mut dyn Engine,
        awaited: AwaitedVerdicts,
    ) -> Result<Vec<StoredCommand>, Error> {
        let AwaitedVerdicts { calls, limit } = awaited;
        let mut commands = mem::take(&mut self.early_verdicts);
        let (early, is_stopping) = (commands.clone(), self.is_stopping);
        let mut is_enough = |came: &[StoredCommand]| {
            let all = || early.iter().chain(came);
            is_stopping
                || all().any(|stored| ends_run(&stored.command))
                || calls.iter().all(|call| all().any(|stored| verdict_on(stored, call).is_some()))
        };
        if !is_enough(&[]) {
            commands.extend(engine.wait_for_commands(&calls, limit, &mut is_enough).await?);
        }
        let verdict = |call: &PendingCall| {
            let verdict = commands.iter().find_map(|stored| verdict_on(stored, call))?;
            Some((call.clone(), verdict.clone()))
        };
        self.bridge.set_verdicts(calls.iter().filter_map(verdict).collect());
        commands.retain(|stored| !matches!(stored.command, Command::Verdict { .. }));
        Ok(commands)
    }

    /// Records that calls may have started. If the run is ended before it has taken their results,
    /// the calls' results say so, even if an earlier attempt started the calls.
    fn mark_may_have_started(&self, begun: &BegunCalls) {
        let Some(RunBegin { handle, .. }) = &self.begin else { return };
        for BegunCall { call, .. } in &begun.calls {
            handle.journal().set_may_have_started(&call.call_id, true);
        }
    }

    /// Executes calls separately from the run and returns their results, if the engine supports it
    /// and at least two of the calls permit it. Otherwise, returns no results.
    async fn call_tools(
        &mut self,
        engine: &mut dyn Engine,
        begun: BegunCalls,
    ) -> Result<Vec<ToolResult>, Error> {
        let separate = begun.calls.into_iter().filter(|begun| begun.can_run_remotely);
        let (session, run) = (&self.session, self.publisher.run_id());
        let request = |call| {
            let (session, run) = (session.clone(), run.map(str::to_owned));
            ToolCallRequest { session, run, call }
        };
        let requests: Vec<_> = separate.map(|begun| request(begun.call)).collect();
        if requests.len() < 2 || !engine.can_call_tools() {
            return Ok(Vec::new());
        }
        let mut running = engine.call_tools(requests.clone());
        let mut interrupting = None;
        poll_fn(|cx| {
            let results = running.poll_unpin(cx);
            if let (Poll::Pending, Some(begin)) = (&results, &self.begin) {
                // The calls are running, so all subsequent events are new.
                self.publisher.begin(begin);
                self.publisher.push_started(&requests);
                // An interrupt through the hub has reached only this process.
                if interrupting.is_none() && begin.handle.poll_interrupted(cx).is_ready() {
                    interrupting = self.publisher.interrupt_calls(&requests);
                }
                if let Some(interrupting) = &mut interrupting {
                    let _ = interrupting.poll_unpin(cx);
                }
            }
            // After the calls have ended, their last progress is published before their results.
            while results.is_ready() || self.publisher.poll_flush(cx)?.is_ready() {
                let Poll::Ready(progress) = self.publisher.poll_progress(cx) else { break };
                self.show_progress(&requests, progress)?;
            }
            results
        })
        .await
    }

    /// Publishes the progress of a call that is executed separately from the run.
    fn show_progress(
        &mut self,
        requests: &[ToolCallRequest],
        CallProgress { call_id, mut data }: CallProgress,
    ) -> Result<(), Error> {
        // Progress from calls in an earlier turn may arrive late.
        let Some(request) = requests.iter().find(|request| request.call.call_id == call_id) else {
            return Ok(());
        };
        let redacted = self.bridge.redact_progress(&request.call, &mut data);
        let ToolCall { call_id, name, .. } = request.call.clone();
        self.publisher.push_progress(ToolEvent::Progress { call_id, name, data });
        redacted
    }

    /// Makes the engine append the entries whose steps have been recorded.
    async fn save(&mut self, engine: &mut dyn Engine, version: u64) -> Result<(), Error> {
        if version <= self.saved {
            return Ok(());
        }
        let mut entries = self.store.load(&self.session, self.saved).await?.unwrap_or_default();
        entries.truncate(usize::try_from(version - self.saved).unwrap_or(usize::MAX));
        for entry in &mut entries {
            set_idempotent_calls(entry, &self.idempotent_calls);
        }
        let from = self.saved_by_engine();
        self.saved = version;
        let is_resumed = |entry: &Entry| matches!(entry, Entry::Resumed { .. });
        if let Some(resumed) = entries.iter().position(is_resumed) {
            if self.resumed_entry == ResumedEntry::SavedEarly {
                // The first entry of this kind is the one that was saved early.
                entries.remove(resumed);
            }
            self.resumed_entry = ResumedEntry::NotDue;
        }
        engine.save(from, entries).await
    }

    /// If the run continues calls that were open when it started, saves the entry that records that
    /// these calls may have started. The run itself writes this entry with the calls' first event,
    /// and the engine saves the run's entries only once the calls' results have been recorded. If
    /// the run is ended before then, no later run may start the calls again.
    async fn save_resumed(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        if let ResumedEntry::Due { repeatable } = &self.resumed_entry {
            let mut idempotent = self.idempotent_calls.clone();
            idempotent.retain(|id| repeatable.iter().any(|call| call.call_id == *id));
            engine.save(self.saved, vec![Entry::Resumed { idempotent }]).await?;
            self.resumed_entry = ResumedEntry::SavedEarly;
        }
        Ok(())
    }

    /// Returns the number of entries that the engine has saved in the session.
    fn saved_by_engine(&self) -> u64 {
        self.saved + u64::from(self.resumed_entry == ResumedEntry::SavedEarly)
    }

    async fn finish(&mut self, engine: &mut dyn Engine) -> Result<Outcome, Error> {
        let Some(outcome) = self.outcome.take() else {
            return Err(Error::new(ErrorKind::Other, "the run ended without an outcome"));
        };
        let put_back = self.undelivered();
        engine.finish(put_back).await?;
        if let Some(begin) = &self.begin {
            self.publisher.begin(begin);
        }
        self.publisher.finish().await?;
        Ok(*outcome)
    }
}

/// Sets which calls are to idempotent tools. A later version of the program may declare its tools
/// differently, but must save the same entries when it replays the run.
fn set_idempotent_calls(entry: &mut Entry, recorded: &[String]) {
    match entry {
        Entry::Item(item) => {
            let call = item.as_tool_call();
            item.idempotent = call.is_some_and(|call| recorded.contains(&call.call_id));
        }
        Entry::Resumed { idempotent } => *idempotent = recorded.to_vec(),
        Entry::Rewritten { .. }
        | Entry::Appended { .. }
        | Entry::Pending { .. }
        | Entry::Nested { .. } => {}
    }
}

fn ends_run(command: &Command) -> bool {
    command.is_interrupt() || matches!(command, Command::StopAfterTurn)
}

/// Returns the command's verdict on this call, if any.
fn verdict_on<'a>(stored: &'a StoredCommand, call: &PendingCall) -> Option<&'a Verdict> {
    match &stored.command {
        Command::Verdict { call: given, verdict } if verdict.answers(call, given) => Some(verdict),
        _ => None,
    }
}

impl_debug!(Attempt(it), session = it.session, entries = it.entries.len());
