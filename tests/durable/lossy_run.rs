//! A run whose attempts are lost, and checks that hold for every such run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use turnstream::durable::{
    Attempt, Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest, is_attempt_lost,
};
use turnstream::event::ToolEvent;
use turnstream::hub::Hub;
use turnstream::item::{PendingCall, RawJson, ToolResult};
use turnstream::session::{Entry, restore_history};
use turnstream::tool::Verdict;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Journal, Outcome};
use turnstream_testing::durable_suite::{Loss, LossPlan, MemoryEngine};

/// The id of the session.
pub(crate) const SESSION: &str = "s";

/// More attempts than the losses can cause.
const MAX_ATTEMPTS: usize = 20;

/// How long a run waits for verdicts.
const PATIENCE: Duration = Duration::from_hours(1);

/// The input that a run starts with.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    Input(&'static str),
    Verdicts(Vec<(PendingCall, Verdict)>),
}

/// A run whose attempts are lost.
pub(crate) struct LossyRun {
    pub(crate) agent: Agent,
    pub(crate) start: Start,
    pub(crate) engine: MemoryEngine,
    /// The entries that the run starts with.
    pub(crate) entries: Vec<Entry>,
    pub(crate) plan: LossPlan,
    /// Called before each operation of each attempt.
    pub(crate) before_operation: Option<BeforeOperation>,
    /// The hub that publishes the run, under the id `run`.
    pub(crate) hub: Option<Hub>,
    /// Called with each event.
    pub(crate) on_event: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The events of each attempt.
    pub(crate) events: Arc<Mutex<Vec<Vec<Event>>>>,
}

pub(crate) type BeforeOperation = Arc<Mutex<dyn FnMut(&MemoryEngine, &'static str) + Send>>;

impl LossyRun {
    /// The next run of an engine's session.
    pub(crate) fn new(agent: &Agent, engine: &MemoryEngine, start: Start) -> Self {
        let engine = engine.next_run();
        Self {
            agent: agent.clone(),
            start,
            entries: engine.entries(),
            engine,
            plan: LossPlan::new(),
            before_operation: None,
            hub: None,
            on_event: None,
            events: Arc::default(),
        }
    }

    pub(crate) fn with_losses(mut self, losses: impl IntoIterator<Item = Loss>) -> Self {
        self.plan = LossPlan::with_losses(losses);
        self
    }

    pub(crate) fn attempt(&self) -> Attempt {
        match &self.hub {
            Some(hub) => self.attempt_without_hub().with_hub(hub, "run"),
            None => self.attempt_without_hub(),
        }
    }

    fn attempt_without_hub(&self) -> Attempt {
        let entries = self.entries.clone();
        let attempt = match &self.start {
            Start::Input(input) => Attempt::run(&self.agent, SESSION, entries, *input),
            Start::Verdicts(verdicts) => {
                Attempt::resume(&self.agent, SESSION, entries, verdicts.clone())
            }
        };
        let number = {
            let mut events = self.events.lock().unwrap();
            events.push(Vec::new());
            events.len() - 1
        };
        let (events, on_event) = (Arc::clone(&self.events), self.on_event.clone());
        attempt.inspect(move |event| {
            events.lock().unwrap()[number].push(event.clone());
            if let Some(on_event) = &on_event {
                on_event();
            }
        })
    }

    /// Drives attempts until one is not lost.
    pub(crate) async fn drive(&self) -> Result<Outcome, Error> {
        loop {
            let engine = self.plan.wrap(self.engine.next_attempt());
            let mut engine = SendingEngine {
                engine,
                memory: self.engine.next_attempt(),
                before: self.before_operation.clone(),
            };
            let driven = self.attempt().drive(&mut engine);
            let Ok(driven) = tokio::time::timeout(Duration::from_hours(24), driven).await else {
                panic!("attempt {} hangs", self.plan.attempts());
            };
            match driven {
                Err(error) if error.kind() == ErrorKind::ReplayMismatch => {
                    panic!("attempt {}: {error}", self.plan.attempts());
                }
                Err(error) if is_attempt_lost(&error) => {
                    // A hub ends the lost attempt when its task runs.
                    tokio::task::yield_now().await;
                    assert!(self.plan.attempts() < MAX_ATTEMPTS, "lost again and again: {error}");
                }
                done => return done,
            }
        }
    }

    /// The history of the session.
    pub(crate) fn history(&self) -> History {
        restore_history(SESSION, self.engine.entries())
    }

    /// Checks the properties that hold for every run that has ended.
    pub(crate) async fn check(&self, outcome: &Outcome) {
        let history = self.history();
        // The encoder settles the calls of an incomplete turn.
        let may_be_open =
            !outcome.pending.is_empty() || history.iter().any(|item| item.interrupted);
        assert!(may_be_open || history.is_settled(), "the history is not settled: {history:?}");
        assert!(history.settled().is_settled(), "the history cannot be settled: {history:?}");
        assert!(
            outcome.history == history,
            "the outcome has {:#?}, and the session has {history:#?}",
            outcome.history,
        );
        let items: Vec<Item> = history.iter().cloned().collect();
        let was_rewritten =
            self.engine.entries().iter().any(|entry| matches!(entry, Entry::Rewritten { .. }));
        assert!(
            was_rewritten || items.ends_with(outcome.new_items()),
            "the run appended {:?}, and the session has {items:?}",
            outcome.new_items(),
        );
        self.check_events(outcome, &history, was_rewritten);
        self.check_replay(outcome).await;
    }

    fn check_events(&self, outcome: &Outcome, history: &History, was_rewritten: bool) {
        let attempts = self.events.lock().unwrap();
        let last = attempts.last().unwrap();
        let fold = Journal::new(restore_history(SESSION, self.entries.iter().cloned()).settled());
        if matches!(self.start, Start::Input(_)) {
            for event in last {
                fold.observe(event);
            }
            assert!(fold.history() == *history, "the events are not the state: {last:#?}");
        }
        let ended: Vec<_> =
            last.iter().filter(|event| matches!(event, Event::Finished(_))).collect();
        assert_eq!(ended.len(), 1, "one ending");
        assert!(matches!(last.last(), Some(Event::Finished(ended)) if **ended == *outcome));
        let kept = |events: &[Event]| -> Vec<Event> {
            events.iter().filter(|event| is_kept(event)).cloned().collect()
        };
        let all = kept(last);
        for (number, events) in attempts.iter().enumerate() {
            let given = kept(events);
            assert!(
                all.starts_with(&given),
                "attempt {number} has published {given:#?}, and the last one {all:#?}"
            );
        }
        let mut results = HashMap::new();
        for item in history.iter().filter_map(|item| item.as_tool_result()) {
            results.insert(item.call_id.clone(), item.clone());
        }
        for event in attempts.iter().flatten() {
            let Event::Tool(ToolEvent::Output(given)) = event else { continue };
            if let Some(kept) = results.get(&given.call_id) {
                let said = |it: &ToolResult| (it.kind, it.content.clone());
                assert_eq!(said(kept), said(given), "a published result never changes");
            } else {
                assert!(was_rewritten, "a result is gone: {given:?}");
            }
        }
    }

    /// Checks that one more attempt performs no new operation and has the same outcome.
    async fn check_replay(&self, outcome: &Outcome) {
        let (entries, operations) = (self.engine.entries(), self.engine.operations());
        let queued = self.engine.queued();
        let engine = self.engine.next_attempt();
        let mut engine = SendingEngine { engine, memory: self.engine.next_attempt(), before: None };
        let again = self.attempt_without_hub().drive(&mut engine).await;
        let again = again.unwrap_or_else(|error| panic!("the replay fails: {error}"));
        assert_same(&again, outcome);
        assert_eq!(self.engine.entries(), entries);
        assert_eq!(self.engine.operations(), operations);
        assert_eq!(self.engine.queued(), queued);
        self.events.lock().unwrap().pop();
    }
}

/// Panics with the fields that differ.
#[track_caller]
fn assert_same(again: &Outcome, outcome: &Outcome) {
    if again == outcome {
        return;
    }
    let (again, outcome) = (format!("{again:#?}"), format!("{outcome:#?}"));
    let differing: Vec<String> = again
        .lines()
        .zip(outcome.lines())
        .enumerate()
        .filter(|(_, (again, outcome))| again != outcome)
        .map(|(at, (again, outcome))| format!("{at}: {}  <>  {}", again.trim(), outcome.trim()))
        .take(8)
        .collect();
    panic!("the replay has another outcome:\n{}", differing.join("\n"));
}

/// Whether an event is yielded only after it was stored.
fn is_kept(event: &Event) -> bool {
    match event {
        Event::Turn(event) => event.turn_complete().is_some(),
        Event::Tool(ToolEvent::Output(_)) | Event::Finished(_) => true,
        _ => false,
    }
}

/// An engine that calls a hook of the test before each operation.
struct SendingEngine<E> {
    engine: E,
    memory: MemoryEngine,
    before: Option<BeforeOperation>,
}

impl<E> SendingEngine<E> {
    fn before(&self, name: &'static str) {
        if let Some(before) = &self.before {
            (before.lock().unwrap())(&self.memory, name);
        }
    }
}

impl<E: Engine> StepRunner for SendingEngine<E> {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        self.before("step");
        self.engine.step(name, step)
    }
}

impl<E: Engine> Engine for SendingEngine<E> {
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        self.before("take");
        self.engine.take_commands(undelivered_bytes)
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        self.before("wait");
        // Calls without a verdict stay pending.
        let limit = limit.unwrap_or(PATIENCE).min(PATIENCE);
        self.engine.wait_for_commands(awaited, Some(limit), is_enough)
    }

    fn can_call_tools(&self) -> bool {
        self.engine.can_call_tools()
    }

    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        self.before("call");
        self.engine.call_tools(calls)
    }

    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>> {
        self.before("save");
        self.engine.save(from, entries).boxed()
    }

    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>> {
        self.before("finish");
        self.engine.finish(put_back)
    }
}
