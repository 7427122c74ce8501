//! The parts that all checks share: a session, its agents, and a record of the agents' work.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::sync::Notify;
use turnstream::agent::{Agent, Input};
use turnstream::durable::StoredCommand;
use turnstream::durable::storage::SessionStatus;
use turnstream::env::{Ids, SystemIds};
use turnstream::error::Error;
use turnstream::event::{Event, Outcome};
use turnstream::hub::Command;
use turnstream::item::{History, Item, ItemKind, PendingCall, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::request::{Request, ToolSpec};
use turnstream::session::{Entry, restore_history};
use turnstream::tool::{Tool, Verdict};

use crate::durable_suite::faulty_engine::{Loss, LossMoment, LossPlan};
use crate::durable_suite::host::{EngineHost, RunEvents, SuiteRun, SuiteStart};
use crate::lock::lock_ignoring_poison;

/// A session on a host. Attempts at the session's runs may be lost.
pub(super) struct Stage<'a> {
    host: &'a dyn EngineHost,
    pub(super) session: String,
    /// The losses planned for the run under test.
    pub(super) losses: LossPlan,
    pub(super) probe: Probe,
    /// The events of each attempt at each run.
    pub(super) events: Arc<RunEvents>,
}

/// Records the work of a scenario's agents across all attempts. Clones share the same record.
#[derive(Clone, Default)]
pub(super) struct Probe(Arc<ProbeInner>);

#[derive(Default)]
struct ProbeInner {
    /// The idempotency key of each call that has started.
    begun: Mutex<Vec<String>>,
    ended: Mutex<Vec<String>>,
    requests: AtomicUsize,
    other: AtomicUsize,
    pause_point: Gate,
}

/// Blocks a tool until the test opens the gate.
#[derive(Default)]
struct Gate {
    reached: Notify,
    opened: Notify,
    is_open: std::sync::atomic::AtomicBool,
}

/// The outcome of a run, and the entries of its session.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Traces {
    pub(super) outcome: Outcome,
    pub(super) entries: Vec<Entry>,
}

/// Runs the scenario once without injecting a loss. Then, for each operation and for one or more
/// moments of that operation, repeats the scenario and loses the first attempt at that moment.
pub(super) async fn for_each_loss(
    host: &dyn EngineHost,
    name: &str,
    play: impl AsyncFn(&Stage<'_>, Option<&Traces>) -> Traces,
) {
    let stage = Stage::new(host, name, LossPlan::new());
    let reference = play(&stage, None).await;
    let operations = stage.losses.operations();
    assert!(operations > 1, "the run has called {operations} operations");
    for operation in 0..operations {
        let moments = [
            LossMoment::After(2),
            LossMoment::Kept,
            LossMoment::After(1),
            LossMoment::Before,
            LossMoment::After(4),
        ];
        let count = if host.is_thorough() { moments.len() } else { 1 };
        for moment in moments.into_iter().cycle().skip(operation).take(count) {
            let loss = Loss { operation, moment };
            let stage = Stage::new(host, name, LossPlan::with_losses([loss]));
            let traces = play(&stage, Some(&reference)).await;
            // A run calls fewer operations if several commands arrive at once.
            let has_ended_before = stage.losses.operations() <= operation;
            assert!(
                stage.losses.attempts() > 1 || has_ended_before,
                "no attempt was lost at {loss:?}"
            );
            assert_lawful(&traces, &format!("{name}, {loss:?}"));
        }
    }
}

/// Checks that each call of a completed turn has a result or is pending, and that the session's
/// history ends with the run's items.
fn assert_lawful(traces: &Traces, place: &str) {
    let history = restore_history("s", traces.entries.iter().cloned());
    let items: Vec<Item> = history.iter().cloned().collect();
    let run: Vec<Item> = traces.outcome.new_items().to_vec();
    let is_pending = !traces.outcome.pending.is_empty();
    // The calls of a turn that a time limit has interrupted will never run, and have no results.
    let open = history.unanswered_calls();
    assert!(is_pending || open.is_empty(), "{place}: {open:?} have no results: {items:?}");
    let is_compacted = traces.entries.iter().any(|entry| matches!(entry, Entry::Rewritten { .. }));
    assert!(
        is_compacted || items.ends_with(&run),
        "{place}: the run has said {run:?}, and the session has {items:?}"
    );
}

impl<'a> Stage<'a> {
    pub(super) fn new(host: &'a dyn EngineHost, name: &str, losses: LossPlan) -> Self {
        let session = format!("{name}-{}", SystemIds.next_id());
        Self { host, session, losses, probe: Probe::default(), events: Arc::default() }
    }

    /// Returns the same session with a plan in which no attempt is lost.
    pub(super) fn without_losses(&self) -> Self {
        let (session, probe) = (self.session.clone(), self.probe.clone());
        let (losses, events) = (LossPlan::new(), Arc::clone(&self.events));
        Self { host: self.host, session, losses, probe, events }
    }

    /// Runs an agent in the session, and loses attempts as planned in `losses`.
    pub(super) async fn run(
        &self,
        agent: &Agent,
        input: impl Into<Input>,
    ) -> Result<Outcome, Error> {
        self.start(agent, SuiteStart::Input(input.into())).await
    }

    /// Runs an agent in the session, without losing any attempt.
    pub(super) async fn run_safely(&self, agent: &Agent, input: impl Into<Input>) -> Outcome {
        let start = SuiteStart::Input(input.into());
        let run = self.without_losses();
        run.start(agent, start).await.expect("a run ends with an outcome")
    }

    /// Resumes the session with an agent, and loses attempts as planned in `losses`.
    pub(super) async fn resume(
        &self,
        agent: &Agent,
        verdicts: Vec<(PendingCall, Verdict)>,
    ) -> Result<Outcome, Error> {
        self.start(agent, SuiteStart::Verdicts(verdicts)).await
    }

    async fn start(&self, agent: &Agent, start: SuiteStart) -> Result<Outcome, Error> {
        let (session, agent) = (self.session.clone(), agent.clone());
        let (losses, events) = (self.losses.clone(), Arc::clone(&self.events));
        self.host.run(SuiteRun { session, agent, losses, start, events }).await
    }

    pub(super) async fn send(&self, id: &str, command: Command) -> Result<(), Error> {
        self.host.send(&self.session, StoredCommand { id: id.to_owned(), command }).await
    }

    /// Approves each call for which the session's runs request an approval. The returned future
    /// never completes.
    pub(super) async fn approve_requests(&self) -> Infallible {
        let mut answered = HashSet::new();
        loop {
            let calls: Vec<PendingCall> = {
                let attempts = lock_ignoring_poison(&self.events.attempts);
                attempts.iter().flatten().filter_map(Event::approval_request).collect()
            };
            self.approve_once(calls, &mut answered).await;
            self.events.changed.notified().await;
        }
    }

    /// Approves each call that the session's status lists while a run is active. Reads nothing but
    /// the status. The returned future never completes.
    pub(super) async fn approve_awaited_calls(&self) -> Infallible {
        let mut answered = HashSet::new();
        loop {
            let status = self.status().await;
            assert!(status.run.is_some() || status.awaited_calls.is_empty(), "{status:?}");
            self.approve_once(status.awaited_calls, &mut answered).await;
            tokio::task::yield_now().await;
        }
    }

    /// Approves the calls whose requests have not been answered yet.
    async fn approve_once(&self, calls: Vec<PendingCall>, answered: &mut HashSet<String>) {
        for call in calls {
            let id = call.approval_id.clone();
            if answered.insert(id.clone()) {
                let command = Command::Verdict { call, verdict: Verdict::Approve };
                // The run may have ended in the meantime.
                let _ = self.send(&id, command).await;
            }
        }
    }

    pub(super) async fn status(&self) -> SessionStatus {
        self.host.status(&self.session).await.expect("the status can be read")
    }

    pub(super) async fn traces(&self, outcome: Outcome) -> Traces {
        let entries = self.host.entries(&self.session).await.expect("the entries can be read");
        Traces { outcome, entries }
    }

    pub(super) async fn history(&self) -> History {
        let entries = self.host.entries(&self.session).await.expect("the entries can be read");
        restore_history(self.session.clone(), entries)
    }
}

impl Probe {
    /// Creates a model whose answer depends only on the history in the request.
    pub(super) fn model(
        &self,
        answer: impl Fn(&History) -> Reply + Send + Sync + 'static,
    ) -> Scripted {
        let probe = self.clone();
        Scripted::from_fn(move |request: &Request, _| {
            probe.0.requests.fetch_add(1, Ordering::Relaxed);
            answer(&request.history)
        })
    }

    /// Creates a tool whose future is pending three times, and then returns a string that contains
    /// the call id.
    pub(super) fn tool(&self, name: &str) -> Tool {
        let (probe, spec) = (self.clone(), spec(name));
        let tool = Tool::raw(spec, move |_args, cx| {
            let (probe, key) = (probe.clone(), cx.idempotency_key().to_owned());
            async move {
                lock_ignoring_poison(&probe.0.begun).push(key.clone());
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                lock_ignoring_poison(&probe.0.ended).push(key.clone());
                format!("done {}", cx.call_id())
            }
        });
        tool.expect("the tool is one")
    }

    /// Creates an idempotent tool that waits until this probe's gate has been opened.
    pub(super) fn gated_tool(&self, name: &str) -> Tool {
        let (probe, spec) = (self.clone(), spec(name));
        let tool = Tool::raw(spec, move |_args, _cx| {
            let probe = probe.clone();
            async move {
                probe.0.pause_point.reached.notify_one();
                while !probe.0.pause_point.is_open.load(Ordering::Acquire) {
                    probe.0.pause_point.opened.notified().await;
                }
                "opened"
            }
        });
        tool.expect("the tool is one").idempotent()
    }

    /// Waits until a tool has reached this probe's gate.
    pub(super) async fn gate_reached(&self) {
        self.0.pause_point.reached.notified().await;
    }

    pub(super) fn open_gate(&self) {
        self.0.pause_point.is_open.store(true, Ordering::Release);
        self.0.pause_point.opened.notify_waiters();
        self.0.pause_point.opened.notify_one();
    }

    /// Returns how many times the call has started.
    pub(super) fn begun(&self, call_id: &str) -> usize {
        let begun = lock_ignoring_poison(&self.0.begun);
        begun.iter().filter(|key| key.ends_with(&format!("/{call_id}"))).count()
    }

    /// Returns how many times the call has ended.
    pub(super) fn ended(&self, call_id: &str) -> usize {
        let ended = lock_ignoring_poison(&self.0.ended);
        ended.iter().filter(|key| key.ends_with(&format!("/{call_id}"))).count()
    }

    /// Returns the idempotency keys of all calls that have started.
    pub(super) fn keys(&self) -> Vec<String> {
        lock_ignoring_poison(&self.0.begun).clone()
    }

    /// Returns the number of requests received by the models.
    pub(super) fn requests(&self) -> usize {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// Increments a counter that a check can use for any other event, and returns the new count.
    pub(super) fn count(&self) -> usize {
        self.0.other.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn counted(&self) -> usize {
        self.0.other.load(Ordering::Relaxed)
    }
}

pub(super) fn spec(name: &str) -> ToolSpec {
    ToolSpec::new(name, "Does something", json!({ "type": "object" }))
}

/// Returns the number of tool results in the history.
pub(super) fn results(history: &History) -> usize {
    history.iter().filter(|item| item.as_tool_result().is_some()).count()
}

/// Returns the number of user messages with this text.
pub(super) fn count_text(history: &History, text: &str) -> usize {
    let is_it = |item: &&Item| match &item.kind {
        ItemKind::User { content } => content.text() == text,
        _ => false,
    };
    history.iter().filter(is_it).count()
}

/// Returns the kind of a call's last result.
pub(super) fn result_kind(history: &History, call_id: &str) -> Option<ResultKind> {
    let results = history.iter().filter_map(|item| item.as_tool_result());
    results.filter(|result| result.call_id == call_id).map(|result| result.kind).next_back()
}

/// Creates a reply that calls a tool.
pub(super) fn call(call_id: &str, name: &str) -> Reply {
    Reply::new().call_raw(call_id, name, "{}")
}
