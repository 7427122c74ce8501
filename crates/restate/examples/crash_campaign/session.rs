//! The client of one session: it starts runs, sends verdicts, and sends commands during the runs.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join3;
use tokio::time::sleep;
use turnstream::durable::StoredCommand;
use turnstream::event::EndReason;
use turnstream::hub::{Command, NotRunning};
use turnstream::item::PendingCall;
use turnstream::session::{Entry, SessionState, restore_history};
use turnstream::tool::Verdict;
use turnstream::{Error, ErrorKind, Item, Outcome};
use turnstream_test_support::seeded_random::Dice;

use crate::agents::{agent_for, random_millis};
use crate::connection::Connection;
use crate::task::{TaskKind, task_of_call};

/// The latest time after the start of a run at which a command is sent.
const MAX_COMMAND_DELAY_MILLIS: u64 = 500;

/// The record of a session: what was sent to it, and its entries.
pub(crate) struct SessionTraces {
    pub(crate) id: String,
    pub(crate) runs_finished: usize,
    /// The text of each input that was sent, with its id.
    pub(crate) inputs: Vec<SentInput>,
    /// The tasks whose runs were sent an interrupt.
    pub(crate) interrupted_tasks: Vec<u32>,
    /// All entries at the end.
    pub(crate) entries: Vec<Entry>,
    /// The input that is still queued at the end.
    pub(crate) queued: Vec<StoredCommand>,
    pub(crate) violations: Vec<String>,
}

impl SessionTraces {
    /// Whether the run that made this call was sent an interrupt.
    pub(crate) fn was_interrupted(&self, call_id: &str) -> bool {
        task_of_call(call_id).is_some_and(|task| self.interrupted_tasks.contains(&task))
    }
}

/// An input whose receipt has arrived.
pub(crate) struct SentInput {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) is_steered: bool,
}

pub(crate) struct SessionClient<'a> {
    id: String,
    connection: Connection,
    /// Called after each run.
    on_finished: &'a dyn Fn(),
    dice: Arc<Dice>,
    traces: RefCell<SessionTraces>,
}

/// A command, and its delay after the start of the run.
struct PlannedCommand {
    delay: Duration,
    id: String,
    command: Command,
    /// The text of an input.
    text: Option<String>,
}

impl<'a> SessionClient<'a> {
    pub(crate) fn new(
        id: String,
        connection: Connection,
        dice: Arc<Dice>,
        on_finished: &'a dyn Fn(),
    ) -> Self {
        let traces = SessionTraces {
            id: id.clone(),
            runs_finished: 0,
            inputs: Vec::new(),
            interrupted_tasks: Vec::new(),
            entries: Vec::new(),
            queued: Vec::new(),
            violations: Vec::new(),
        };
        Self { id, connection, on_finished, dice, traces: RefCell::new(traces) }
    }

    /// Performs the runs one after the other, and returns the session's record.
    pub(crate) async fn perform(mut self, runs: usize) -> SessionTraces {
        for task in 1..=u32::try_from(runs).expect("a few runs") {
            // After a failed run, a later one may wait for it for ever.
            if self.traces.borrow().runs_finished + 1 == task as usize {
                let kind = TaskKind::draw(&self.dice);
                match self.run_task(task, kind).await {
                    Ok(()) => self.traces.borrow_mut().runs_finished += 1,
                    Err(error) => {
                        self.report(&format!("run {task} ({}) failed: {error}", kind.name()));
                    }
                }
            }
            (self.on_finished)();
        }
        if let Err(error) = self.read_the_rest().await {
            self.report(&format!("the session cannot be read: {error}"));
        }
        self.traces.into_inner()
    }

    fn report(&self, what: &str) {
        self.traces.borrow_mut().violations.push(what.to_owned());
    }

    async fn run_task(&mut self, task: u32, kind: TaskKind) -> Result<(), Error> {
        let plan = self.plan_commands(task);
        let request_id = format!("{}/run-{task}", self.id);
        let (input, agent) = (kind.input(task), agent_for(kind));
        let run = self
            .connection
            .request(async |client| client.start(&self.id, agent, &*input, &request_id).await)
            .await?;
        self.record_input(request_id, input, false);
        let is_over = Cell::new(false);
        let outcome = async {
            let outcome = self.connection.request(async |client| client.outcome(&run).await).await;
            is_over.set(true);
            outcome
        };
        let asks = kind == TaskKind::Interactive;
        let judge_calls = async {
            match asks {
                true => self.judge_interactively(task, &is_over).await,
                false => Ok(()),
            }
        };
        let (outcome, sent, answered) =
            join3(outcome, self.send_commands(task, plan), judge_calls).await;
        let outcome = outcome?;
        sent.and(answered)?;
        self.check_outcome(task, kind, &outcome).await?;
        match outcome.pending.is_empty() {
            true => Ok(()),
            false => self.judge_pending(agent, outcome.pending).await,
        }
    }

    /// Plans commands for a run: most runs receive one or two inputs, a few are interrupted.
    fn plan_commands(&self, task: u32) -> Vec<PlannedCommand> {
        let count = self.dice.roll(4);
        let mut plan = Vec::new();
        for number in 0..count {
            let delay = random_millis(&self.dice, MAX_COMMAND_DELAY_MILLIS);
            let id = format!("input-{task}-{number}");
            let text = format!("Input {id} of {}.", self.id);
            let items = vec![Item::user(&*text)];
            let (command, text) = match self.dice.roll(10) {
                0 => (Command::Interrupt, None),
                1..6 => (Command::Steer(items), Some(text)),
                _ => (Command::FollowUp(items), Some(text)),
            };
            plan.push(PlannedCommand { delay, id, command, text });
        }
        plan.sort_by_key(|planned| planned.delay);
        plan
    }

    async fn send_commands(&self, task: u32, plan: Vec<PlannedCommand>) -> Result<(), Error> {
        let mut waited = Duration::ZERO;
        for PlannedCommand { delay, id, command, text } in plan {
            sleep(delay.saturating_sub(waited)).await;
            waited = delay;
            if text.is_none() {
                // Recorded before it is sent: a command without an answer may have arrived.
                self.traces.borrow_mut().interrupted_tasks.push(task);
            }
            let sent = self
                .connection
                .request(async |client| client.send(&self.id, &id, command.clone()).await)
                .await;
            match (sent, text) {
                (Ok(receipt), Some(text)) => self.record_input(receipt.id, text, true),
                (Ok(_), None) => {}
                (Err(error), None) if error.find_source::<NotRunning>().is_some() => {}
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    fn record_input(&self, id: String, text: String, is_steered: bool) {
        self.traces.borrow_mut().inputs.push(SentInput { id, text, is_steered });
    }

    /// Approves the call that the run waits for, as soon as the session's status lists the call.
    async fn judge_interactively(&self, task: u32, is_over: &Cell<bool>) -> Result<(), Error> {
        let awaited = self
            .connection
            .poll(
                async |client| client.status(&self.id).await,
                |status| match &*status.awaited_calls {
                    [] => is_over.get().then_some(None),
                    [call, ..] => Some(Some(call.clone())),
                },
            )
            .await?;
        let Some(call) = awaited else { return Ok(()) };
        let entries = self.connection.request(async |client| client.history(&self.id, 0).await);
        self.observe(&entries.await?);
        if task_of_call(&call.call_id) != Some(task) {
            self.report(&format!("run {task} waits for a verdict on `{}`", call.call_id));
        }
        let id = format!("verdict-{}", call.approval_id);
        let command = Command::Verdict { call, verdict: Verdict::Approve };
        let sent = self
            .connection
            .request(async |client| client.send(&self.id, &id, command.clone()).await)
            .await;
        match sent {
            // The run was ended by an interrupt.
            Err(error) if error.find_source::<NotRunning>().is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends verdicts on pending calls, and waits for the end of the run that resumes them.
    async fn judge_pending(&self, agent: &str, calls: Vec<PendingCall>) -> Result<(), Error> {
        let mut is_complete = false;
        for call in calls {
            let verdict = match self.dice.roll(3) {
                0 => Verdict::deny("not now"),
                _ => Verdict::Approve,
            };
            let tries = Cell::new(0);
            let answered = self
                .connection
                .request(async |client| {
                    tries.set(tries.get() + 1);
                    client.judge(&self.id, agent, call.clone(), verdict.clone()).await
                })
                .await;
            is_complete = match answered {
                // The first attempt delivered the last missing verdict, and its answer was lost.
                Err(error) if error.kind() == ErrorKind::Conflict && tries.get() > 1 => true,
                answered => answered?.is_some(),
            };
        }
        if !is_complete {
            self.report("all pending calls have verdicts, and no run resumes them");
            return Ok(());
        }
        self.connection
            .poll(
                async |client| client.status(&self.id).await,
                |status| {
                    let is_pending = matches!(status.state, SessionState::Pending { .. });
                    (status.run.is_none() && !is_pending).then_some(())
                },
            )
            .await?;
        let entries = self.connection.request(async |client| client.history(&self.id, 0).await);
        let entries = entries.await?;
        self.observe(&entries);
        if !restore_history(self.id.clone(), entries).is_settled() {
            self.report("the run that resumed pending calls has left calls without results");
        }
        Ok(())
    }

    async fn check_outcome(
        &self,
        task: u32,
        kind: TaskKind,
        outcome: &Outcome,
    ) -> Result<(), Error> {
        let is_expected = match outcome.reason {
            EndReason::Completed => outcome.pending.is_empty(),
            EndReason::Pending => kind == TaskKind::Approval,
            EndReason::Interrupted(_) => self.traces.borrow().interrupted_tasks.contains(&task),
            _ => false,
        };
        if !is_expected {
            self.report(&format!(
                "a run ({}) has ended as {:?}: {:?}",
                kind.name(),
                outcome.reason,
                outcome.error
            ));
        }
        let entries = self.connection.request(async |client| client.history(&self.id, 0).await);
        let entries = entries.await?;
        self.observe(&entries);
        let history = restore_history(self.id.clone(), entries);
        let items: Vec<Item> = history.iter().cloned().collect();
        // A compaction may have removed input that was delivered before the task.
        if kind != TaskKind::Compaction && !items.ends_with(outcome.new_items()) {
            self.report(&format!(
                "the history does not end with the items of the run: {:?} and {:?}",
                items.last(),
                outcome.new_items()
            ));
        }
        Ok(())
    }

    /// Checks that entries read earlier are unchanged.
    fn observe(&self, entries: &[Entry]) {
        let traces = &mut *self.traces.borrow_mut();
        if !entries.starts_with(&traces.entries) {
            let what = match entries.len() < traces.entries.len() {
                true => "has fewer entries than it had before",
                false => "has other entries than it had before",
            };
            traces.violations.push(format!("the session {what}"));
        }
        traces.entries = entries.to_vec();
    }

    async fn read_the_rest(&self) -> Result<(), Error> {
        let entries = self.connection.request(async |client| client.history(&self.id, 0).await);
        self.observe(&entries.await?);
        let queued = self.connection.request(async |client| client.queued(&self.id).await).await?;
        self.traces.borrow_mut().queued = queued.commands().cloned().collect();
        Ok(())
    }
}
