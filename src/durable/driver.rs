//! Drives a run through the steps of a single attempt.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, poll_fn};

use crate::durable::bridge::{Bridge, BridgeState};
use crate::durable::engine::{Engine, StoredCommand, ToolCallRequest};
use crate::durable::publisher::{Publisher, RunBegin};
use crate::durable::run_commands::RunCommands;
use crate::durable::run_entries::RunEntries;
use crate::durable::step_record::{AwaitedVerdicts, BegunCall, BegunCalls, StepResult};
use crate::durable::storage::ends_run;
use crate::error::{Error, ErrorKind, panic_to_error};
use crate::event::{Event, Outcome, ToolEvent};
use crate::hub::{CallProgress, Command};
use crate::item::{PendingCall, RawJson, ToolCall, ToolResult};
use crate::session::{Session, SessionRun};
use crate::tool::{AdmittedCall, Verdict};

/// The maximum number of times that an attempt polls the run before it yields to other tasks.
const MAX_EVENTS_PER_POLL: usize = 64;

/// Drives a run through the steps of a single attempt.
pub(super) struct Driver {
    pub(super) bridge: Arc<Bridge>,
    pub(super) entries: RunEntries,
    pub(super) commands: RunCommands,
    pub(super) run: RunStage,
    /// Describes the start of the run. `None` until the run has been created.
    pub(super) begin: Option<RunBegin>,
    pub(super) publisher: Publisher,
}

/// The stage that an attempt's run has reached.
pub(super) enum RunStage {
    /// The run has not been created yet. The run is created only after the engine has started or
    /// replayed the first step, because creating a run already requires recorded nondeterministic
    /// values.
    Opening(BoxFuture<'static, Result<(Session, SessionRun), Error>>),
    /// The run yields events. The last event contains the outcome.
    Running { run: Box<SessionRun>, outcome: Option<Box<Outcome>> },
    /// The run has ended.
    Over { outcome: Option<Box<Outcome>> },
}

impl Driver {
    pub(super) async fn drive(&mut self, engine: &mut dyn Engine) -> Result<Outcome, Error> {
        self.take_commands(engine).await?;
        loop {
            match self.step(engine).await? {
                StepResult::Finished => return self.finish(engine).await,
                StepResult::TooLarge(error) => return Err(error),
                StepResult::CallsBegin(begun) => {
                    self.entries.save_resumed(engine).await?;
                    self.mark_may_have_started(&begun);
                    let results = self.call_tools(engine, begun).await?;
                    self.bridge.with(|it| it.calls.set_results(results));
                }
                StepResult::Suspended(awaited) => self.wait_for_verdicts(engine, awaited).await?,
                // The run takes commands after each turn and after the turn's calls.
                StepResult::Turn(_) | StepResult::Calls(_) => self.take_commands(engine).await?,
                StepResult::Value(_) | StepResult::Failed(_) | StepResult::Ended(_) => {}
            }
        }
    }

    /// Takes the waiting commands, and reports how much of the commands taken earlier has not been
    /// delivered.
    async fn take_commands(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        let commands = engine.take_commands(self.commands.bytes()).await?;
        self.receive(commands);
        Ok(())
    }

    /// Passes commands to the run, once it has been created.
    fn receive(&mut self, commands: Vec<StoredCommand>) {
        self.commands.push(commands);
        if let Some(RunBegin { handle, .. }) = &self.begin {
            self.commands.pass_to_run(&self.entries.session, handle);
        }
    }

    /// Performs the next step, or passes the step's recorded value to the run.
    async fn step(&mut self, engine: &mut dyn Engine) -> Result<StepResult, Error> {
        let bridge = Arc::clone(&self.bridge);
        let step = poll_fn(move |cx| bridge.with(|it| it.poll_step(cx)));
        let mut step = engine.step("step", step.boxed());
        let mut stored: Option<StepResult> = None;
        let (result, version) = poll_fn(|cx| self.poll_step(&mut step, &mut stored, cx)).await?;
        drop(step);
        if let StepResult::CallsBegin(begun) = &result {
            self.entries.set_started_calls(begun);
        }
        self.entries.save(engine, version).await?;
        // Results are published once the session contains them. The results of calls that were
        // answered without running are recorded together with the other results, and the results
        // of a loop that ended early are saved with the next step.
        if !matches!(result, StepResult::CallsBegin(_) | StepResult::Ended(_)) {
            self.publisher.release();
        }
        self.commands.on_step_recorded();
        Ok(result)
    }

    fn poll_step(
        &mut self,
        step: &mut BoxFuture<'_, Result<RawJson, Error>>,
        stored: &mut Option<StepResult>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(StepResult, u64), Error>> {
        let _: Poll<()> = self.bridge.with(|it| it.wait(cx));
        let mut polled = 0;
        loop {
            if stored.is_none()
                && let Poll::Ready(value) = step.poll_unpin(cx)
            {
                let value = value?;
                *stored = Some(self.bridge.with(|it| it.accept(&value))?);
            }
            self.begin_publishing();
            let has_room = self.publisher.poll_flush(cx)?.is_ready();
            if let Poll::Ready(ended) = self.bridge.with(|it| it.poll_end(stored)) {
                return Poll::Ready(ended);
            }
            if !has_room || !self.bridge.with(|it| it.is_running()) {
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
        if let (true, Some(begin)) = (self.bridge.with(|it| it.is_live()), &self.begin) {
            self.publisher.begin(begin);
        }
    }

    /// Polls the run once. Returns `Poll::Ready` if the run may yield more events.
    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &mut self.run {
            RunStage::Opening(opening) => {
                let polled = panic_to_error(ErrorKind::Panic, "the run", || opening.poll_unpin(cx));
                let (session, run) = ready!(polled?)?;
                self.bridge.with(|it| it.session = Some(session));
                let handle = run.handle();
                let (history, version) = (handle.history(), run.starts_at());
                if !history.unanswered_calls().is_empty() {
                    self.entries.begin_with_open_calls(run.repeatable_open_calls());
                }
                self.begin = Some(RunBegin { history, version, handle });
                self.run = RunStage::Running { run: Box::new(run), outcome: None };
                self.receive(Vec::new());
            }
            RunStage::Running { run, outcome } => {
                let polled =
                    panic_to_error(ErrorKind::Panic, "the run", || run.poll_next_unpin(cx));
                match ready!(polled?) {
                    Some(Ok(event)) => {
                        match &event {
                            Event::Finished(finished) => *outcome = Some(finished.clone()),
                            Event::Appended { id, .. } => self.commands.on_delivered(id),
                            _ => {}
                        }
                        self.begin_publishing();
                        self.publisher.push(event);
                    }
                    // The outcome contains this error.
                    Some(Err(_)) if outcome.is_some() => {}
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => {
                        self.run = RunStage::Over { outcome: outcome.take() };
                        self.bridge.with(BridgeState::end_run);
                    }
                }
            }
            RunStage::Over { .. } => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until each call has a verdict, a command ends the run, or the time limit expires. The
    /// run receives the verdicts, and the other commands that arrived in the meantime.
    async fn wait_for_verdicts(
        &mut self,
        engine: &mut dyn Engine,
        awaited: AwaitedVerdicts,
    ) -> Result<(), Error> {
        let AwaitedVerdicts { calls, limit } = awaited;
        let mut commands = self.commands.take_verdicts();
        let (early, is_stopping) = (commands.clone(), self.commands.is_stopping);
        let mut is_enough = |came: &[StoredCommand]| {
            let all = || early.iter().chain(came);
            is_stopping
                || all().any(ends_run)
                || calls.iter().all(|call| all().any(|stored| verdict_on(stored, call).is_some()))
        };
        if !is_enough(&[]) {
            commands.extend(engine.wait_for_commands(&calls, limit, &mut is_enough).await?);
        }
        let verdict = |call: &PendingCall| {
            let verdict = commands.iter().find_map(|stored| verdict_on(stored, call))?;
            Some((call.clone(), verdict.clone()))
        };
        let verdicts = calls.iter().filter_map(verdict).collect();
        self.bridge.with(|it| it.verdicts = verdicts);
        commands.retain(|stored| !matches!(stored.command, Command::Verdict { .. }));
        self.receive(commands);
        Ok(())
    }

    /// Records that calls may have started. If the run is ended before it has taken their results,
    /// the calls' results say so, even if an earlier attempt started the calls.
    fn mark_may_have_started(&self, begun: &BegunCalls) {
        let Some(RunBegin { handle, .. }) = &self.begin else { return };
        for BegunCall { admitted, .. } in &begun.calls {
            handle.journal().set_may_have_started(&admitted.call.call_id, true);
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
        let (session, run) = (&self.entries.session, self.publisher.run_id());
        let request = |call| {
            let (session, run) = (session.clone(), run.map(str::to_owned));
            ToolCallRequest { session, run, call }
        };
        let separate: Vec<AdmittedCall> = separate.map(|begun| begun.admitted).collect();
        let requests: Vec<_> =
            separate.iter().map(|admitted| request(admitted.call.clone())).collect();
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
                self.publisher.push_started(&separate);
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
        let redactor = self.bridge.with(|it| it.calls.progress_redactor.clone());
        let redacted = redactor.map_or(Ok(()), |redact| redact(&request.call, &mut data));
        let ToolCall { call_id, name, .. } = request.call.clone();
        self.publisher.push_progress(ToolEvent::Progress { call_id, name, data });
        redacted
    }

    async fn finish(&mut self, engine: &mut dyn Engine) -> Result<Outcome, Error> {
        let outcome = match &mut self.run {
            RunStage::Over { outcome } => outcome.take(),
            RunStage::Opening(_) | RunStage::Running { .. } => None,
        };
        let Some(outcome) = outcome else {
            return Err(Error::new(ErrorKind::Other, "the run ended without an outcome"));
        };
        engine.finish(self.commands.take_undelivered()).await?;
        if let Some(begin) = &self.begin {
            self.publisher.begin(begin);
        }
        self.publisher.finish().await?;
        Ok(*outcome)
    }
}

/// Returns the command's verdict on this call, if any.
fn verdict_on<'a>(stored: &'a StoredCommand, call: &PendingCall) -> Option<&'a Verdict> {
    match &stored.command {
        Command::Verdict { call: given, verdict } if verdict.answers(call, given) => Some(verdict),
        _ => None,
    }
}
