//! The behaviour of sessions and their runs, as clients see it, on a real server.

mod support;

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join};
use futures::{FutureExt, StreamExt as _, stream};
use serde_json::{Value, json};
use support::{RestateServer, Worker as Process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::event::{EndReason, InterruptedPhase, ToolEvent};
use turnstream::hub::{Command, Hub, HubEvent, NotRunning};
use turnstream::item::{Content, History, PendingCall, ResultKind, ToolCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::request::Request;
use turnstream::session::{
    Entry, MemoryStore, Session, SessionInfo, SessionState, Store, restore_history,
};
use turnstream::tool::{RunData, Tool, ToolSpec, ToolUpdate, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, Item, Outcome};
use turnstream_restate::{Client, Worker};

/// The time limit of a wait that normally takes milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

// ---- Helpers

/// A server, and a worker that is registered with it.
struct Fixture {
    server: RestateServer,
    worker: Process,
    client: Client,
}

impl Fixture {
    async fn start(worker: Worker) -> Self {
        let server = RestateServer::start().await;
        let worker = Process::start(worker.endpoint());
        support::register(&server.admin_url(), &worker.url()).await;
        let client = Client::new(&server.ingress_url()).expect("the server has a URL");
        Self { server, worker, client }
    }

    /// A fixture with an agent that is called `agent`.
    async fn with_agent(agent: Agent) -> Self {
        Self::start(Worker::new().with_agent("agent", agent)).await
    }

    /// Kills the worker, and starts this one at the same address.
    fn replace_worker(self, worker: &Worker) -> Self {
        let Self { server, worker: old, client } = self;
        let worker = Process::start_at(old.kill(), worker.endpoint());
        Self { server, worker, client }
    }

    async fn run(&self, session: &str, input: &str) -> Result<Outcome, Error> {
        within_limit(self.client.run(session, "agent", input)).await
    }

    async fn start_run(&self, session: &str, input: &str) -> String {
        let started = self.client.start(session, "agent", input, &format!("run of {input}")).await;
        started.expect("the server can be reached")
    }

    async fn outcome(&self, run: &str) -> Result<Outcome, Error> {
        within_limit(self.client.outcome(run)).await
    }

    async fn history(&self, session: &str) -> History {
        let entries = self.client.history(session, 0).await.expect("the entries can be read");
        restore_history(session, entries)
    }

    /// The only call of the session that needs a verdict.
    async fn pending_call(&self, session: &str) -> PendingCall {
        let status = self.client.status(session).await.expect("the status can be read");
        let [call] = status.pending_calls() else { panic!("one call is pending: {status:?}") };
        call.clone()
    }

    /// Waits until the session's active run waits for a verdict on one call, and returns the call.
    async fn awaited_call(&self, session: &str) -> PendingCall {
        support::wait_for("the run waits for a verdict", LIMIT, async || {
            let status = self.client.status(session).await.expect("the status can be read");
            match &*status.awaited_calls {
                [call] => Ok(call.clone()),
                _ => Err(format!("{status:?}")),
            }
        })
        .await
    }

    async fn wait_for_status(&self, invocation: &str, status: &str) {
        support::wait_for(&format!("the invocation is {status}"), LIMIT, async || {
            let row = support::invocation(&self.server.admin_url(), invocation).await;
            let now = row.map_or(Value::Null, |row| row["status"].clone());
            if now == status { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    }

    /// Checks that the next run of a session works.
    async fn ensure_next_run_works(&self, session: &str) {
        let outcome = self.run(session, NEXT).await.expect("the next run works");
        assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
        let history = self.history(session).await;
        assert!(history.is_settled(), "{:?}", texts(&history));
        let status = self.client.status(session).await.unwrap();
        assert_eq!((status.run, status.state), (None, SessionState::Idle));
        assert!(status.version > 0);
    }

    /// The number of invocations of a session's handler.
    async fn invocations(&self, session: &str, handler: &str) -> u64 {
        let sql = format!(
            "SELECT COUNT(*) AS count FROM sys_invocation WHERE target_service_name = 'Session' \
             AND target_service_key = '{session}' AND target_handler_name = '{handler}'"
        );
        let rows = support::query(&self.server.admin_url(), &sql).await;
        rows[0]["count"].as_u64().expect("a number")
    }
}

async fn within_limit<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes no longer than the limit")
}

/// The input that each agent answers immediately.
const NEXT: &str = "And now?";

/// A model whose answer depends on the history, and that answers [`NEXT`] with `Done.`.
fn model(answer: impl Fn(&History) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::from_fn(move |request: &Request, _| match last_input(&request.history) == NEXT {
        true => Reply::text("Done."),
        false => answer(&request.history),
    })
}

/// A model that calls these tools in one turn, and says `Done.` after their results.
fn calling(calls: &'static [(&'static str, &'static str)]) -> Scripted {
    model(move |history| match results_since_input(history) {
        0 => calls.iter().fold(Reply::new(), |reply, (id, name)| reply.call_raw(id, name, "{}")),
        _ => Reply::text("Done."),
    })
}

fn last_input(history: &History) -> String {
    let inputs = history.iter().filter_map(Item::as_user);
    inputs.map(Content::text).next_back().unwrap_or_default()
}

fn results_since_input(history: &History) -> usize {
    let items: Vec<&Item> = history.iter().collect();
    let since = items.iter().rposition(|item| item.as_user().is_some()).unwrap_or(0);
    items[since..].iter().filter(|item| item.as_tool_result().is_some()).count()
}

fn tool<F, Fut>(name: &str, run: F) -> Tool
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = String> + Send + 'static,
{
    let spec = ToolSpec::new(name, "Does something", json!({ "type": "object" }));
    Tool::raw(spec, move |_args, _cx| run()).expect("the tool is valid")
}

/// A tool that returns immediately.
fn quick(name: &str) -> Tool {
    tool(name, || async { "quick".to_owned() })
}

/// A gate at which tools wait for the test. Clones share it.
#[derive(Clone)]
struct Gate {
    is_open: watch::Sender<bool>,
    reached: watch::Sender<usize>,
}

impl Gate {
    fn closed() -> Self {
        Self { is_open: watch::Sender::new(false), reached: watch::Sender::new(0) }
    }

    fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// A tool that waits until the gate is open.
    fn tool(&self, name: &str) -> Tool {
        let gate = self.clone();
        tool(name, move || {
            let gate = gate.clone();
            async move {
                gate.reached.send_modify(|count| *count += 1);
                let _ = gate.is_open.subscribe().wait_for(|is_open| *is_open).await;
                "passed".to_owned()
            }
        })
    }

    /// Waits until this number of calls have reached the gate, across all attempts.
    async fn wait_for(&self, count: usize) {
        let mut reached = self.reached.subscribe();
        let _ = within_limit(reached.wait_for(|reached| *reached >= count)).await;
    }
}

/// The kinds of the results in a history, with their texts.
fn results(history: &History) -> Vec<(ResultKind, String)> {
    let results = history.iter().filter_map(|item| item.as_tool_result());
    results.map(|result| (result.kind, result.content.text())).collect()
}

/// The texts of a history, without calls and results.
fn texts(history: &History) -> Vec<String> {
    let text = |item: &Item| {
        let text = item.as_text().map(str::to_owned);
        text.or_else(|| item.as_user().map(Content::text))
    };
    history.iter().filter_map(text).collect()
}

// ---- Runs

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_request_id_starts_one_run() {
    let model = Scripted::from_fn(|_, _| "Done.");
    let fixture = Fixture::with_agent(Agent::new(model.clone())).await;
    let start = || fixture.client.start("s", "agent", "Do it.", "request-1");
    let (first, second) = join(start(), start()).await;
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first, second);
    let outcome = fixture.outcome(&first).await.unwrap();
    assert_eq!(start().await.unwrap(), first, "also after its end");
    assert_eq!(fixture.outcome(&first).await.unwrap(), outcome);
    assert_eq!(texts(&fixture.history("s").await), ["Do it.", "Done."]);
    assert_eq!(model.requests().len(), 1);
    // Request ids are scoped to a session: another session may use the same id.
    let other = fixture.client.start("t", "agent", "Do it.", "request-1").await.unwrap();
    assert_ne!(other, first);
    assert_eq!(fixture.outcome(&other).await.unwrap().reason, EndReason::Completed);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn runs_of_one_session_are_executed_one_after_another() {
    let gate = Gate::closed();
    let agent = Agent::new(calling(&[("c1", "wait")])).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let first = fixture.start_run("s", "First.").await;
    gate.wait_for(1).await;
    let second = fixture.start_run("s", NEXT).await;
    // Another session is not blocked.
    fixture.run("t", NEXT).await.unwrap();
    assert_eq!(texts(&fixture.history("s").await), ["First."]);
    assert_eq!(fixture.client.status("s").await.unwrap().run.as_ref(), Some(&first));
    gate.open();
    fixture.outcome(&first).await.unwrap();
    fixture.outcome(&second).await.unwrap();
    let history = fixture.history("s").await;
    assert_eq!(texts(&history), ["First.", "Done.", NEXT, "Done."]);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn history_and_status_can_be_read_during_a_run() {
    let gate = Gate::closed();
    let agent = Agent::new(calling(&[("c1", "wait")])).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let before = fixture.client.status("s").await.unwrap();
    assert_eq!((before.version, before.state, before.run), (0, SessionState::Idle, None));
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    // The worker does not wait until Restate has applied what it writes.
    support::wait_until("the call is in the history", LIMIT, async || {
        fixture.client.history("s", 0).await.unwrap().len() == 2
    })
    .await;
    let during = fixture.client.status("s").await.unwrap();
    assert_eq!(during.run.as_ref(), Some(&run));
    let entries = fixture.client.history("s", 0).await.unwrap();
    assert_eq!(during.version, entries.len() as u64);
    assert_eq!(entries.len(), 2, "the input and the call: {entries:?}");
    assert_eq!(fixture.client.history("s", 1).await.unwrap(), entries[1..]);
    assert_eq!(fixture.client.history("s", 99).await.unwrap(), []);
    gate.open();
    fixture.outcome(&run).await.unwrap();
    let after = fixture.client.status("s").await.unwrap();
    assert_eq!((after.version, after.state, after.run), (4, SessionState::Idle, None));
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn queued_input_waits_for_the_next_run() {
    let fixture = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    let command = || Command::Steer(vec![Item::user("And this.")]);
    for _ in 0..2 {
        fixture.client.send("s", "input-1", command()).await.unwrap();
    }
    let queued = fixture.client.queued("s").await.unwrap();
    assert_eq!(queued.commands().map(|stored| &*stored.id).collect::<Vec<_>>(), ["input-1"]);
    fixture.run("s", "Do it.").await.unwrap();
    let history = fixture.history("s").await;
    let said = texts(&history).iter().filter(|text| *text == "And this.").count();
    assert_eq!(said, 1, "{:?}", texts(&history));
    assert_eq!(fixture.client.queued("s").await.unwrap().commands().count(), 0);
    fixture.run("s", NEXT).await.unwrap();
    let history = fixture.history("s").await;
    assert_eq!(texts(&history).iter().filter(|text| *text == "And this.").count(), 1);
    // Commands that end a run work only on an active one.
    let error = fixture.client.interrupt("s").await.unwrap_err();
    assert!(error.find_source::<NotRunning>().is_some(), "{error:?}");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_unknown_agent_is_unsupported_and_does_not_block_the_session() {
    let fixture = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    let error = within_limit(fixture.client.run("s", "nobody", "Do it.")).await.unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some("nobody")));
    assert_eq!(fixture.client.history("s", 0).await.unwrap(), []);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_turn_larger_than_eight_mebibytes_returns_a_too_large_error() {
    let model = model(|_| Reply::text(format!("{} ", "x".repeat(1 << 20)).repeat(9)));
    let fixture = Fixture::with_agent(Agent::new(model)).await;
    let error = fixture.run("s", "Write a novel.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error:?}");
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_large_turn_and_large_results_are_returned_completely() {
    let text = format!("{} ", "x".repeat(1 << 20)).repeat(7);
    let model = {
        let text = text.clone();
        model(move |history| match results_since_input(history) {
            0 => Reply::new().call_raw("c1", "read", "{}").call_raw("c2", "read", "{}"),
            _ => Reply::text(&text),
        })
    };
    let read = tool("read", || async { "y".repeat(3 << 20) });
    let fixture = Fixture::with_agent(Agent::new(model).with_tool(read)).await;
    let outcome = fixture.run("s", "Write a book.").await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
    assert_eq!(outcome.text, text);
    let history = fixture.history("s").await;
    assert_eq!(texts(&history).last(), Some(&text));
    fixture.ensure_next_run_works("s").await;
}

// ---- Sessions

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn entries_can_be_imported_only_into_an_empty_session() {
    let fixture = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    let entries: Vec<Entry> =
        (0..300).map(|n| Item::user(format!("{n} {}", "ä".repeat(n * 7))).into()).collect();
    fixture.client.import("s", entries.clone()).await.unwrap();
    assert_eq!(fixture.client.history("s", 0).await.unwrap(), entries);
    assert_eq!(fixture.client.status("s").await.unwrap().version, 300);
    let error = fixture.client.import("s", entries.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(fixture.client.history("s", 0).await.unwrap(), entries, "nothing was written");
    fixture.ensure_next_run_works("s").await;
    fixture.run("t", NEXT).await.unwrap();
    let error = fixture.client.import("t", entries).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_session_copied_to_a_store_and_back_has_the_same_history() {
    let model = calling(&[("c1", "pay"), ("c2", "look")]);
    let pay = quick("pay").requires_approval();
    let fixture = Fixture::with_agent(Agent::new(model).with_tools([pay, quick("look")])).await;
    fixture.run("s", NEXT).await.unwrap();
    let calls = fixture.run("s", "Pay.").await.unwrap().pending;
    // Copies entries from Restate to a store.
    let entries = fixture.client.history("s", 0).await.unwrap();
    let store = MemoryStore::new();
    store.append("s", 0, entries.clone()).await.unwrap();
    let session = Session::open(store.clone(), "s").await.unwrap();
    assert_eq!(session.history(), fixture.history("s").await);
    let state = SessionState::Pending { calls: calls.clone() };
    assert_eq!(session.state(), state);
    // Copies them back.
    let entries = store.load("s", 0).await.unwrap().unwrap();
    fixture.client.import("back", entries.clone()).await.unwrap();
    assert_eq!(fixture.client.history("back", 0).await.unwrap(), entries);
    assert_eq!(fixture.client.status("back").await.unwrap().state, state);
    let [call] = &*calls else { panic!("one call is pending: {calls:?}") };
    let judged = fixture.client.judge("back", "agent", call.clone(), Verdict::Approve).await;
    assert!(judged.unwrap().is_some(), "it was the last one");
    support::wait_until("the run has resumed", LIMIT, async || {
        fixture.client.status("back").await.unwrap().state == SessionState::Idle
    })
    .await;
    assert_eq!(texts(&fixture.history("back").await).last().unwrap(), "Done.");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_removed_session_is_empty_and_can_be_used_again() {
    let pay = quick("pay").requires_approval();
    let fixture = Fixture::with_agent(Agent::new(calling(&[("c1", "pay")])).with_tool(pay)).await;
    // The second session with this id has the same number of entries as the first one when the
    // verdict arrives.
    let mut removed = None;
    for _ in 0..2 {
        let outcome = fixture.run("s", "Pay.").await.unwrap();
        assert_eq!(outcome.reason, EndReason::Pending);
        if let Some(call) = removed {
            let judged = fixture.client.judge("s", "agent", call, Verdict::Approve).await;
            assert_eq!(judged.map_err(|error| error.kind()), Err(ErrorKind::Conflict));
        }
        let call = fixture.pending_call("s").await;
        removed = Some(call.clone());
        let run = fixture.client.judge("s", "agent", call, Verdict::Approve).await.unwrap();
        fixture.outcome(&run.expect("it was the last one")).await.unwrap();
        assert_eq!(texts(&fixture.history("s").await), ["Pay.", "Done."]);
        fixture.client.remove("s").await.unwrap();
        assert_eq!(fixture.client.history("s", 0).await.unwrap(), []);
        let status = fixture.client.status("s").await.unwrap();
        assert_eq!((status.version, status.state), (0, SessionState::Idle));
    }
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn separately_executed_calls_run_again_in_a_recreated_session() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let look = tool("look", move || {
        let number = counted.fetch_add(1, Ordering::Relaxed);
        async move { number.to_string() }
    });
    let model = calling(&[("c1", "look"), ("c2", "look")]);
    let fixture = Fixture::with_agent(Agent::new(model).with_tool(look)).await;
    for _ in 0..2 {
        fixture.run("s", "Look.").await.unwrap();
        fixture.client.remove("s").await.unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_session_id_may_contain_any_characters() {
    let agent = Agent::new(calling(&[("c1", "look"), ("c2", "look"), ("c3", "pay")]))
        .with_tools([quick("look"), quick("pay").requires_approval()]);
    let fixture = Fixture::with_agent(agent).await;
    let client = &fixture.client;
    let ids = ["a/b", "/", "two words", "Grüße", "'quoted' \"twice\"", "?#%2F&", "日本", "a\nb\t"];
    let mut failures = Vec::new();
    for id in ids {
        let used = async {
            client.steer(id, "And this.").await.map_err(|error| ("steer", error))?;
            let run = client.start(id, "agent", "Do it.", id).await;
            let run = run.map_err(|error| ("start", error))?;
            let outcome = within_limit(client.outcome(&run)).await;
            let outcome = outcome.map_err(|error| ("outcome", error))?;
            assert_eq!(outcome.reason, EndReason::Pending, "{id:?}");
            let call = fixture.pending_call(id).await;
            let judged = client.judge(id, "agent", call, Verdict::Approve).await;
            judged.map_err(|error| ("judge", error))?;
            support::wait_until("the run has resumed", LIMIT, async || {
                client.status(id).await.unwrap().state == SessionState::Idle
            })
            .await;
            let entries = client.history(id, 0).await.map_err(|error| ("history", error))?;
            let copy = format!("{id} copy");
            client.import(&copy, entries).await.map_err(|error| ("import", error))?;
            assert_eq!(texts(&fixture.history(&copy).await), texts(&fixture.history(id).await));
            client.remove(id).await.map_err(|error| ("remove", error))?;
            assert_eq!(client.history(id, 0).await.unwrap(), [], "{id:?}");
            Ok(())
        };
        let used: Result<(), (&str, Error)> = used.await;
        failures
            .extend(used.err().map(|(operation, error)| format!("{id:?}, {operation}: {error}")));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_empty_session_id_is_an_invalid_request() {
    let fixture = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    let error = fixture.run("", "Do it.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error:?}");
    let error = fixture.client.history("", 0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error:?}");
    let error = fixture.client.status("").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error:?}");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_client_is_a_read_only_store() {
    let pay = quick("pay").requires_approval();
    let fixture = Fixture::with_agent(Agent::new(calling(&[("c1", "pay")])).with_tool(pay)).await;
    let calls = fixture.run("s", "Pay.").await.unwrap().pending;
    let session = Session::open(fixture.client.clone(), "s").await.unwrap();
    assert_eq!(session.history(), fixture.history("s").await);
    assert_eq!(session.state(), SessionState::Pending { calls });
    let version = session.version();
    fixture.run("s", NEXT).await.unwrap();
    session.reload().await.unwrap();
    assert!(session.version() > version);
    assert_eq!(session.state(), SessionState::Idle);
    assert_eq!(texts(&session.history()), ["Pay.", NEXT, "Done."]);
    assert_eq!(fixture.client.load("nobody", 0).await.unwrap(), None);
    let end = session.version();
    assert_eq!(fixture.client.load("s", end).await.unwrap(), Some(Vec::new()));
    // It writes no entries.
    let entries = vec![Item::user("Hello.").into()];
    let error = fixture.client.append("s", end, entries).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(fixture.client.list().await.unwrap_err().kind(), ErrorKind::Unsupported);
    let error = session.run(&Agent::new(Scripted::new(["No."])), "Hi.").await;
    let error = match error {
        Ok(run) => run.outcome().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_removed_session_leaves_no_state() {
    let fixture = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    fixture.run("s", NEXT).await.unwrap();
    fixture.client.steer("s", "And this.").await.unwrap();
    assert_eq!(fixture.client.queued("s").await.unwrap().commands().count(), 1);
    fixture.client.remove("s").await.unwrap();
    assert_eq!(fixture.client.queued("s").await.unwrap().commands().count(), 0);
    let sql = "SELECT service_name, key FROM state WHERE service_key = 's'";
    assert_eq!(support::query(&fixture.server.admin_url(), sql).await, Vec::<Value>::new());
    fixture.run("s", NEXT).await.unwrap();
    assert_eq!(texts(&fixture.history("s").await), [NEXT, "Done."]);
}

// ---- Copies

/// A store that can be out of service. Clones share it.
#[derive(Clone, Default)]
struct FragileStore {
    store: MemoryStore,
    is_down: Arc<AtomicBool>,
    /// How many calls have failed.
    failures: Arc<AtomicUsize>,
}

impl FragileStore {
    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// The store, unless it is out of service.
    fn get(&self) -> Result<&MemoryStore, Error> {
        if !self.is_down.load(Ordering::Relaxed) {
            return Ok(&self.store);
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(ErrorKind::Store, "the store is down"))
    }

    /// Waits until a copy has failed.
    async fn wait_for_failure(&self) {
        support::wait_until("a copy has failed", LIMIT, async || {
            self.failures.load(Ordering::Relaxed) > 0
        })
        .await;
    }
}

impl Store for FragileStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        async move { self.get()?.append(id, expected, entries).await }.boxed()
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        async move { self.get()?.load(id, from).await }.boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        async move { self.get()?.list().await }.boxed()
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        async move { self.get()?.fork(id, at, new).await }.boxed()
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        async move { self.get()?.delete(id).await }.boxed()
    }
}

impl Fixture {
    /// With an agent that is called `agent`, and a store that has a copy of each session.
    async fn with_copy() -> (Self, FragileStore) {
        let (model, store) = (model(|_| Reply::text("Done.")), FragileStore::default());
        let worker = Worker::new().with_agent("agent", Agent::new(model));
        (Self::start(worker.with_copy(store.clone())).await, store)
    }

    /// Waits until nothing is active, and checks that the store has what the session has.
    async fn check_copy(&self, store: &FragileStore, session: &str) {
        support::wait_until("no copy is left to be made", LIMIT, async || {
            let counts = support::count_by_status(&self.server.admin_url()).await;
            counts.keys().all(|status| status == "completed")
        })
        .await;
        let entries = self.client.history(session, 0).await.unwrap();
        let expected = (!entries.is_empty()).then_some(entries);
        assert_eq!(store.store.load(session, 0).await.unwrap(), expected);
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_session_is_copied_after_each_run_import_and_removal() {
    let (fixture, store) = Fixture::with_copy().await;
    fixture.run("s", "Do it.").await.unwrap();
    fixture.check_copy(&store, "s").await;
    fixture.run("s", NEXT).await.unwrap();
    fixture.check_copy(&store, "s").await;
    let entries = fixture.client.history("s", 0).await.unwrap();
    fixture.client.import("t", entries).await.unwrap();
    fixture.check_copy(&store, "t").await;
    let listed = store.list().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|info| (&*info.id, info.version)).collect();
    assert_eq!(listed, [("t", 4), ("s", 4)]);
    fixture.client.remove("s").await.unwrap();
    fixture.check_copy(&store, "s").await;
    assert_eq!(store.list().await.unwrap().len(), 1);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_unavailable_store_delays_no_run_and_receives_its_copy_later() {
    let (fixture, store) = Fixture::with_copy().await;
    store.set_down(true);
    for _ in 0..3 {
        fixture.ensure_next_run_works("s").await;
    }
    store.wait_for_failure().await;
    store.set_down(false);
    fixture.check_copy(&store, "s").await;
    assert_eq!(store.list().await.unwrap().len(), 1);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_delayed_copy_does_not_restore_a_removed_session() {
    let (fixture, store) = Fixture::with_copy().await;
    store.set_down(true);
    for session in ["s", "t", "u"] {
        fixture.run(session, NEXT).await.unwrap();
    }
    store.wait_for_failure().await;
    for session in ["s", "t", "u"] {
        fixture.client.remove(session).await.unwrap();
    }
    // A session of the same id that is made later is copied.
    fixture.run("u", "Do it.").await.unwrap();
    store.set_down(false);
    for session in ["s", "t", "u"] {
        fixture.check_copy(&store, session).await;
    }
    assert_eq!(store.list().await.unwrap().len(), 1);
}

// ---- Workers

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_pending_call_whose_tool_is_missing_remains_pending() {
    let agent = || Agent::new(calling(&[("c1", "pay")]));
    let with_tool = || agent().with_tool(quick("pay").requires_approval());
    let fixture = Fixture::with_agent(with_tool()).await;
    assert_eq!(fixture.run("s", "Pay.").await.unwrap().reason, EndReason::Pending);
    let call = fixture.pending_call("s").await;
    let fixture = fixture.replace_worker(&Worker::new().with_agent("agent", agent()));
    let client = fixture.client.clone();
    let resume = |id| client.resume("s", "agent", [(call.clone(), Verdict::Approve)], id);
    let error = fixture.outcome(&resume("early").await.unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error:?}");
    let status = client.status("s").await.unwrap();
    assert_eq!(status.state, SessionState::Pending { calls: vec![call.clone()] });
    assert_eq!(status.run, None);
    let fixture = fixture.replace_worker(&Worker::new().with_agent("agent", with_tool()));
    let outcome = fixture.outcome(&resume("later").await.unwrap()).await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Done."));
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_verdict_for_a_call_whose_tool_was_missing_can_be_given_again() {
    let agent = || Agent::new(calling(&[("c1", "pay")]));
    let with_tool = || agent().with_tool(quick("pay").requires_approval());
    let fixture = Fixture::with_agent(with_tool()).await;
    assert_eq!(fixture.run("s", "Pay.").await.unwrap().reason, EndReason::Pending);
    let call = fixture.pending_call("s").await;
    let fixture = fixture.replace_worker(&Worker::new().with_agent("agent", agent()));
    let client = fixture.client.clone();
    let judge = || client.judge("s", "agent", call.clone(), Verdict::Approve);
    // The verdict may be refused here, or in the run that resumes.
    let _ = judge().await;
    support::wait_until("the run has ended", LIMIT, async || {
        let counts = support::count_by_status(&fixture.server.admin_url()).await;
        counts.keys().all(|status| status == "completed")
    })
    .await;
    let fixture = fixture.replace_worker(&Worker::new().with_agent("agent", with_tool()));
    let run = judge().await.unwrap().expect("it is the only call");
    assert_eq!(fixture.outcome(&run).await.unwrap().reason, EndReason::Completed);
    assert_eq!(texts(&fixture.history("s").await), ["Pay.", "Done."]);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_lost_call_whose_tool_is_missing_is_answered_as_interrupted() {
    let gate = Gate::closed();
    let agent = || Agent::new(calling(&[("c1", "wait")]));
    let fixture = Fixture::with_agent(agent().with_tool(gate.tool("wait").idempotent())).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    let fixture = fixture.replace_worker(&Worker::new().with_agent("agent", agent()));
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Done."));
    assert_eq!(results(&outcome.history)[0].0, ResultKind::Interrupted);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn lost_separately_executed_calls_wait_for_a_worker_that_has_their_tool() {
    let gate = Gate::closed();
    let agent = || Agent::new(calling(&[("c1", "wait"), ("c2", "wait")]));
    let with_tool = || agent().with_tool(gate.tool("wait").idempotent());
    let fixture = Fixture::with_agent(with_tool()).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(2).await;
    let fixture = fixture.replace_worker(&Worker::new().with_agent("agent", agent()));
    let sql = "SELECT event_json FROM sys_journal_events";
    support::wait_for("an attempt without the tool fails", LIMIT, async || {
        let events = support::query(&fixture.server.admin_url(), sql).await;
        let is_mismatch = |event: &Value| event["event_json"].to_string().contains("RT0016");
        if events.iter().any(is_mismatch) { Ok(()) } else { Err(format!("{events:#?}")) }
    })
    .await;
    gate.open();
    let fixture = fixture.replace_worker(&Worker::new().with_agent("agent", with_tool()));
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Done."));
    let passed = (ResultKind::Ok, "passed".to_owned());
    assert_eq!(results(&outcome.history), [passed.clone(), passed]);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_pending_approval_survives_the_death_of_the_worker() {
    let count = Arc::new(AtomicUsize::new(0));
    let worker = || {
        let count = Arc::clone(&count);
        let pay = tool("pay", move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { "paid".to_owned() }
        });
        let agent = Agent::new(calling(&[("c1", "pay")])).with_tool(pay.requires_approval());
        Worker::new().with_agent("agent", agent.interactive())
    };
    let fixture = Fixture::start(worker()).await;
    let run = fixture.start_run("s", "Pay.").await;
    let call = fixture.awaited_call("s").await;
    let fixture = fixture.replace_worker(&worker());
    assert_eq!(fixture.pending_call("s").await, call, "the run still waits");
    let command = Command::Verdict { call, verdict: Verdict::Approve };
    fixture.client.send("s", "verdict-1", command).await.unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(results(&outcome.history), [(ResultKind::Ok, "paid".to_owned())]);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let status = fixture.client.status("s").await.unwrap();
    assert_eq!((status.run, status.awaited_calls), (None, Vec::new()));
}

// ---- Verdicts

/// Counts the payments of a tool, and the attempts at each run. Clones share the counts.
#[derive(Clone, Default)]
struct Counts {
    payments: Arc<AtomicUsize>,
    attempts: Arc<Mutex<HashMap<String, usize>>>,
}

impl Counts {
    /// A tool that requires an approval.
    fn pay(&self) -> Tool {
        self.pay_with_description("Pays")
    }

    fn pay_with_description(&self, description: &str) -> Tool {
        let payments = Arc::clone(&self.payments);
        let spec = ToolSpec::new("pay", description, json!({ "type": "object" }));
        let pay = Tool::raw(spec, move |_args, _cx| {
            payments.fetch_add(1, Ordering::Relaxed);
            async { "paid" }
        });
        pay.expect("the tool is valid").requires_approval()
    }

    /// A worker with an agent that is called `agent`.
    fn worker(&self, agent: Agent) -> Worker {
        let attempts = Arc::clone(&self.attempts);
        Worker::new().with_agent("agent", agent).on_attempt(move |_, run| {
            *attempts.lock().unwrap().entry(run.to_owned()).or_default() += 1;
        })
    }

    fn payments(&self) -> usize {
        self.payments.load(Ordering::Relaxed)
    }

    fn attempts(&self, run: &str) -> usize {
        self.attempts.lock().unwrap().get(run).copied().unwrap_or_default()
    }
}

/// A model that calls `pay` in each of this number of turns, always with the same arguments.
fn paying(turns: usize) -> Scripted {
    model(move |history| match results_since_input(history) {
        paid if paid < turns => Reply::new().call_raw(&format!("c{}", paid + 1), "pay", "{}"),
        _ => Reply::text("Done."),
    })
}

impl Fixture {
    /// Gives a verdict, and returns the id of the run that resumes the calls, if any.
    async fn judge(
        &self,
        session: &str,
        call: &PendingCall,
        verdict: Verdict,
    ) -> Result<Option<String>, ErrorKind> {
        let judged = within_limit(self.client.judge(session, "agent", call.clone(), verdict)).await;
        judged.map_err(|error| error.kind())
    }

    /// Approves a session's last pending call, and returns the outcome of the run that resumes it.
    async fn approve(&self, session: &str, call: &PendingCall) -> Result<Outcome, Error> {
        let run = self.judge(session, call, Verdict::Approve).await.expect("the call is pending");
        self.outcome(&run.expect("no other call is pending")).await
    }

    async fn send_verdict(&self, session: &str, id: &str, call: &PendingCall, verdict: Verdict) {
        let command = Command::Verdict { call: call.clone(), verdict };
        self.client.send(session, id, command).await.expect("a run is active");
    }

    /// Checks that an approval of the call is a conflict, and neither runs anything nor changes the
    /// pending calls.
    async fn check_conflict(&self, counts: &Counts, session: &str, call: &PendingCall) {
        let paid = counts.payments();
        let pending = self.client.status(session).await.unwrap().pending_calls().to_vec();
        let judged = self.judge(session, call, Verdict::Approve).await;
        assert_eq!(judged, Err(ErrorKind::Conflict));
        let verdicts = [(call.clone(), Verdict::Approve)];
        let request_id = format!("conflict {}", counts.attempts.lock().unwrap().len());
        let run = self.client.resume(session, "agent", verdicts, &request_id).await.unwrap();
        let error = self.outcome(&run).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(counts.attempts(&run), 1, "the run is not tried again");
        // Without an active run, no verdict is stored. The end of a run reaches the inbox later.
        let number = AtomicUsize::new(0);
        support::wait_for("the inbox has no active run", LIMIT, async || {
            let command = Command::Verdict { call: call.clone(), verdict: Verdict::Approve };
            let id = format!("{request_id}/{}", number.fetch_add(1, Ordering::Relaxed));
            match self.client.send(session, &id, command).await {
                Err(error) if error.find_source::<NotRunning>().is_some() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        assert_eq!(counts.payments(), paid);
        assert_eq!(self.client.status(session).await.unwrap().pending_calls(), pending);
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_repeated_verdict_is_not_used_for_the_sub_agents_next_call() {
    let counts = Counts::default();
    let child = Agent::new(paying(2)).with_tool(counts.pay()).as_tool("child", "Pays").unwrap();
    let parent = model(|history| match results_since_input(history) {
        0 => Reply::new().call_raw("c1", "child", r#"{"prompt":"Pay."}"#),
        _ => Reply::text("Done."),
    });
    let fixture = Fixture::start(counts.worker(Agent::new(parent).with_tool(child))).await;
    fixture.run("s", "Pay.").await.unwrap();
    let first = fixture.pending_call("s").await;
    assert_eq!((&*first.path, &*first.call_id), (&["c1".to_owned()][..], "c1"));
    let outcome = fixture.approve("s", &first).await.unwrap();
    assert_eq!((outcome.reason, counts.payments()), (EndReason::Pending, 1));

    let second = fixture.pending_call("s").await;
    assert_eq!((&*second.path, &*second.call_id), (&["c1".to_owned()][..], "c2"));
    fixture.check_conflict(&counts, "s", &first).await;
    let forged = PendingCall { approval_id: first.approval_id.clone(), ..second.clone() };
    fixture.check_conflict(&counts, "s", &forged).await;
    let unnamed = PendingCall { approval_id: String::new(), ..second.clone() };
    fixture.check_conflict(&counts, "s", &unnamed).await;

    let outcome = fixture.approve("s", &second).await.unwrap();
    assert_eq!((outcome.reason, counts.payments()), (EndReason::Completed, 2));
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_verdict_on_an_identical_call_of_another_session_is_a_conflict() {
    let counts = Counts::default();
    let agent = Agent::new(paying(1)).with_tool(counts.pay());
    let fixture = Fixture::start(counts.worker(agent)).await;
    for session in ["s", "t"] {
        assert_eq!(fixture.run(session, "Pay.").await.unwrap().reason, EndReason::Pending);
    }
    let (of_s, of_t) = (fixture.pending_call("s").await, fixture.pending_call("t").await);
    let with_id_of_t = PendingCall { approval_id: of_t.approval_id.clone(), ..of_s.clone() };
    assert_eq!(with_id_of_t, of_t, "the calls differ only in their approval ids");
    fixture.check_conflict(&counts, "t", &of_s).await;
    fixture.check_conflict(&counts, "s", &of_t).await;
    assert_eq!(fixture.approve("t", &of_t).await.unwrap().reason, EndReason::Completed);
    assert_eq!(counts.payments(), 1);
    assert_eq!(fixture.pending_call("s").await, of_s);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_verdict_with_an_old_approval_id_does_not_approve_a_waiting_run() {
    let counts = Counts::default();
    let agent = Agent::new(paying(2)).with_tool(counts.pay()).interactive();
    let fixture = Fixture::start(counts.worker(agent)).await;
    let run = fixture.start_run("s", "Pay.").await;
    let first = fixture.awaited_call("s").await;
    fixture.send_verdict("s", "first", &first, Verdict::Approve).await;
    let second = support::wait_for("the run waits for the next verdict", LIMIT, async || {
        let status = fixture.client.status("s").await.unwrap();
        let next = status.awaited_calls.iter().find(|call| call.call_id == "c2").cloned();
        next.ok_or_else(|| format!("{status:?}"))
    });
    let second = second.await;
    assert_eq!(fixture.pending_call("s").await, second, "the first call is no longer listed");
    assert_eq!(counts.payments(), 1);

    let forged = PendingCall { approval_id: first.approval_id.clone(), ..second.clone() };
    let unnamed = PendingCall { approval_id: String::new(), ..second.clone() };
    for (id, call) in [("old", &first), ("forged", &forged), ("unnamed", &unnamed)] {
        fixture.send_verdict("s", id, call, Verdict::Approve).await;
    }
    fixture.send_verdict("s", "old denial", &forged, Verdict::deny("old")).await;
    support::wait_until("the run has taken the verdicts", LIMIT, async || {
        fixture.client.queued("s").await.unwrap().commands().count() == 0
    })
    .await;
    // The first verdict that answers the request counts.
    fixture.send_verdict("s", "second", &second, Verdict::deny("too much")).await;
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    let denial = &results(&outcome.history)[1];
    assert_eq!(denial.0, ResultKind::Denied);
    assert!(denial.1.contains("too much"), "{denial:?}");
    assert_eq!((counts.payments(), counts.attempts(&run)), (1, 1));
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_verdict_is_a_conflict_if_a_new_deployment_has_changed_the_tool() {
    let counts = Counts::default();
    let worker = |description| {
        let pay = counts.pay_with_description(description);
        counts.worker(Agent::new(paying(1)).with_tool(pay))
    };
    let fixture = Fixture::start(worker("Pays up to 10")).await;
    for session in ["s", "t"] {
        assert_eq!(fixture.run(session, "Pay.").await.unwrap().reason, EndReason::Pending);
    }
    let admin_url = fixture.server.admin_url();
    let changed = Process::start(worker("Pays any amount").endpoint());
    support::register(&admin_url, &changed.url()).await;
    let call = fixture.pending_call("s").await;
    for _ in 0..2 {
        // The verdict is accepted, since the request is open. The run that resumes the call knows
        // the tool.
        let run = fixture.judge("s", &call, Verdict::Approve).await.unwrap().unwrap();
        let error = fixture.outcome(&run).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains("`pay` has changed"), "{error}");
        assert_eq!((counts.payments(), counts.attempts(&run)), (0, 1));
        assert_eq!(fixture.pending_call("s").await, call);
    }
    // Nothing runs after a denial.
    let denied = fixture.pending_call("t").await;
    let run = fixture.judge("t", &denied, Verdict::deny("no")).await.unwrap().unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(results(&outcome.history)[0].0, ResultKind::Denied);
    // A worker with the original tool accepts the same verdict.
    let original = Process::start(worker("Pays up to 10").endpoint());
    support::register(&admin_url, &original.url()).await;
    assert_eq!(fixture.approve("s", &call).await.unwrap().reason, EndReason::Completed);
    assert_eq!(counts.payments(), 1);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_run_whose_tool_changes_during_a_wait_ends_with_a_conflict_and_runs_nothing() {
    let counts = Counts::default();
    let worker = |description| {
        let pay = counts.pay_with_description(description);
        counts.worker(Agent::new(paying(1)).with_tool(pay).interactive())
    };
    let fixture = Fixture::start(worker("Pays up to 10")).await;
    let run = fixture.start_run("s", "Pay.").await;
    let call = fixture.awaited_call("s").await;
    let fixture = fixture.replace_worker(&worker("Pays any amount"));
    fixture.send_verdict("s", "verdict", &call, Verdict::Approve).await;
    let outcome = fixture.outcome(&run).await.unwrap();
    let error = outcome.error.expect("the run has failed");
    assert_eq!((error.kind(), counts.payments()), (ErrorKind::Conflict, 0), "{error}");
    // One attempt in each worker.
    assert_eq!(counts.attempts(&run), 2);
    fixture.check_conflict(&counts, "s", &call).await;
    fixture.ensure_next_run_works("s").await;
    assert_eq!(counts.payments(), 0);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn the_status_lists_no_awaited_call_after_an_interrupt() {
    let counts = Counts::default();
    let agent = Agent::new(paying(1)).with_tool(counts.pay()).interactive();
    let fixture = Fixture::start(counts.worker(agent)).await;
    let run = fixture.start_run("s", "Pay.").await;
    let call = fixture.awaited_call("s").await;
    fixture.client.interrupt("s").await.unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Tools));
    let status = fixture.client.status("s").await.unwrap();
    assert_eq!((&status.run, &*status.awaited_calls), (&None, &[][..]));
    assert_eq!(status.pending_calls(), []);
    fixture.check_conflict(&counts, "s", &call).await;
    assert_eq!(counts.payments(), 0);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn the_status_lists_the_awaited_call_of_a_killed_run_until_the_next_run_or_verdict() {
    let counts = Counts::default();
    let agent = Agent::new(paying(1)).with_tool(counts.pay()).interactive();
    let fixture = Fixture::start(counts.worker(agent)).await;
    for session in ["s", "t"] {
        let run = fixture.start_run(session, "Pay.").await;
        let call = fixture.awaited_call(session).await;
        support::kill(&fixture.server.admin_url(), &run).await;
        fixture.outcome(&run).await.unwrap_err();
        // A verdict on the killed run is stored, and no run takes it.
        fixture.send_verdict(session, "late", &call, Verdict::Approve).await;
        match session {
            "s" => {
                let judged = fixture.judge(session, &call, Verdict::Approve).await;
                assert_eq!(judged, Err(ErrorKind::Conflict));
            }
            _ => fixture.ensure_next_run_works(session).await,
        }
        let status = fixture.client.status(session).await.unwrap();
        assert_eq!((status.run, status.awaited_calls), (None, Vec::new()), "{session}");
    }
    assert_eq!(counts.payments(), 0);
}

// ---- Interrupts

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_interrupt_through_a_hub_ends_a_hanging_turn_at_once() {
    let hub = Hub::new();
    let script = model(|_| Reply::text("This is what ").hang());
    let agent = Agent::new(script.clone());
    let mut fixture = Fixture::start(Worker::new().with_agent("agent", agent).with_hub(&hub)).await;
    fixture.client = fixture.client.clone().with_hub(&hub);
    let run = fixture.start_run("s", "Talk.").await;
    support::wait_until("the model talks", LIMIT, async || {
        let Ok(reader) = hub.read("s", None) else { return false };
        let mut reader = std::pin::pin!(reader);
        let first = futures::StreamExt::next(&mut reader).await;
        format!("{first:?}").contains("This is what") || script.in_flight() == 1
    })
    .await;
    let since = Instant::now();
    fixture.client.interrupt("s").await.unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    println!("the run has ended {:?} after the interrupt", since.elapsed());
    assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Streaming));
    assert_eq!(texts(&fixture.history("s").await), ["Talk.", "This is what "]);
    assert_eq!(script.in_flight(), 0);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn without_a_hub_an_interrupt_ends_the_run_after_its_step() {
    let gate = Gate::closed();
    let script = calling(&[("c1", "wait")]);
    let agent = Agent::new(script.clone()).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    fixture.client.interrupt("s").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(500), fixture.client.outcome(&run));
    assert!(early.await.is_err(), "the step has not ended");
    gate.open();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Tools));
    assert_eq!(results(&outcome.history), [(ResultKind::Ok, "passed".to_owned())]);
    assert_eq!(script.requests().len(), 1);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_interrupt_of_the_model_is_answered_with_the_steered_input() {
    let hub = Hub::new();
    let script = model(|history| match history.len() {
        1 => Reply::text("This is what ").hang(),
        _ => Reply::text("Then not."),
    });
    let agent = Agent::new(script.clone());
    let mut fixture = Fixture::start(Worker::new().with_agent("agent", agent).with_hub(&hub)).await;
    fixture.client = fixture.client.clone().with_hub(&hub);
    let run = fixture.start_run("s", "Talk.").await;
    support::wait_until("the model talks", LIMIT, async || script.in_flight() == 1).await;
    fixture.client.steer("s", "Do not.").await.unwrap();
    fixture.client.send("s", "i", Command::InterruptTurn).await.unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 2));
    let texts = texts(&fixture.history("s").await);
    assert!(
        matches!(&texts[..], [talk, said @ .., not, then]
            if talk == "Talk." && said.len() <= 1 && not == "Do not." && then == "Then not."),
        "{texts:?}"
    );
    assert_eq!(script.in_flight(), 0);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn without_a_hub_an_interrupt_of_the_model_lets_the_tools_finish() {
    let gate = Gate::closed();
    let script = calling(&[("c1", "wait")]);
    let agent = Agent::new(script.clone()).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    fixture.client.send("s", "i", Command::InterruptTurn).await.unwrap();
    gate.open();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Tools));
    assert_eq!(results(&outcome.history), [(ResultKind::Ok, "passed".to_owned())]);
    assert_eq!(script.requests().len(), 1);
    fixture.ensure_next_run_works("s").await;
}

/// A tool that hangs. Returns the tool, and a counter of its running calls plus one.
fn hanging_tool() -> (Tool, Arc<()>) {
    let alive = Arc::new(());
    let guard = Arc::clone(&alive);
    let hang = tool("hang", move || {
        let guard = Arc::clone(&guard);
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            "never".to_owned()
        }
    });
    (hang, alive)
}

async fn wait_for_alive(alive: &Arc<()>, count: usize) {
    support::wait_for("the calls run", LIMIT, async || match Arc::strong_count(alive) {
        found if found == count => Ok(()),
        found => Err(format!("{found} of {count}")),
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_interrupt_without_a_hub_cancels_separately_executed_calls_before_the_next_run() {
    let (hang, alive) = hanging_tool();
    let agent = Agent::new(calling(&[("c1", "hang"), ("c2", "hang"), ("c3", "quick")]))
        .with_tools([hang, quick("quick")]);
    let fixture = Fixture::with_agent(agent).await;
    let idle = Arc::strong_count(&alive);
    let run = fixture.start_run("s", "Do it.").await;
    wait_for_alive(&alive, idle + 2).await;
    fixture.client.interrupt("s").await.unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(Arc::strong_count(&alive), idle, "no tool runs once the run has ended");
    assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Tools));
    let kinds: Vec<_> = results(&outcome.history).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [ResultKind::Interrupted, ResultKind::Interrupted, ResultKind::Ok]);
    fixture.ensure_next_run_works("s").await;
    support::wait_until("no call is left", LIMIT, async || {
        let counts = support::count_by_status(&fixture.server.admin_url()).await;
        counts.keys().all(|status| status == "completed")
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_interrupt_that_only_the_hub_receives_ends_separately_executed_calls_and_the_run() {
    let (hang, alive) = hanging_tool();
    let agent = Agent::new(calling(&[("c1", "hang"), ("c2", "hang")])).with_tool(hang);
    let hub = Hub::new();
    let fixture = Fixture::start(Worker::new().with_agent("agent", agent).with_hub(&hub)).await;
    let idle = Arc::strong_count(&alive);
    let run = fixture.start_run("s", "Do it.").await;
    wait_for_alive(&alive, idle + 2).await;
    hub.send(&run, Command::Interrupt).await.unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(Arc::strong_count(&alive), idle, "no tool runs once the run has ended");
    assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Tools));
    let kinds: Vec<_> = results(&outcome.history).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [ResultKind::Interrupted; 2]);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn separately_executed_calls_end_before_a_cancelled_run() {
    let (hang, alive) = hanging_tool();
    let agent = Agent::new(calling(&[("c1", "hang"), ("c2", "hang")])).with_tool(hang);
    let fixture = Fixture::with_agent(agent).await;
    let idle = Arc::strong_count(&alive);
    let run = fixture.start_run("s", "Do it.").await;
    wait_for_alive(&alive, idle + 2).await;
    support::cancel(&fixture.server.admin_url(), &run).await;
    fixture.outcome(&run).await.unwrap_err();
    assert_eq!(Arc::strong_count(&alive), idle, "no tool runs once the run has ended");
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn separately_executed_calls_show_their_progress_and_are_dropped_by_an_interrupt() {
    let alive = Arc::new(());
    let guard = Arc::clone(&alive);
    let run = move |_: Value, _| {
        let guard = Arc::clone(&guard);
        let hang = stream::once(async move {
            std::future::pending::<()>().await;
            drop(guard);
            ToolUpdate::progress("never")
        });
        ready(stream::iter([ToolUpdate::progress(&"half of it")]).chain(hang).boxed())
    };
    let spec = ToolSpec::new("hang", "Hangs", json!({ "type": "object" }));
    let tool = Tool::raw(spec, run).unwrap();
    let agent = Agent::new(calling(&[("c1", "hang"), ("c2", "hang")])).with_tool(tool);
    let hub = Hub::new();
    let mut fixture = Fixture::start(Worker::new().with_agent("agent", agent).with_hub(&hub)).await;
    fixture.client = fixture.client.clone().with_hub(&hub);
    let idle = Arc::strong_count(&alive);
    let run = fixture.start_run("s", "Do it.").await;
    let reported = within_limit(async {
        let mut reported = BTreeSet::new();
        while reported.len() < 2 {
            let Ok(mut reader) = hub.read("s", None) else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            while reported.len() < 2
                && let Some(Ok(read)) = reader.next().await
            {
                let events = match read {
                    HubEvent::Snapshot { snapshot, .. } => snapshot.events().to_vec(),
                    HubEvent::Event { event, .. } => vec![event],
                    other => panic!("{other:?}"),
                };
                for event in events {
                    if let Event::Tool(ToolEvent::Progress { call_id, data, .. }) = &*event {
                        assert_eq!(data.as_str(), r#""half of it""#);
                        reported.insert(call_id.clone());
                    }
                }
            }
        }
        reported
    });
    assert_eq!(reported.await.into_iter().collect::<Vec<_>>(), ["c1", "c2"]);
    assert_eq!(Arc::strong_count(&alive), idle + 2);
    fixture.client.interrupt("s").await.unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Tools));
    support::wait_until("both calls are dropped", LIMIT, async || {
        Arc::strong_count(&alive) == idle
    })
    .await;
    fixture.ensure_next_run_works("s").await;
}

// ---- Large input and large commands

/// Input of `mebibytes` MiB.
fn large_input(mebibytes: usize) -> Command {
    Command::Steer(vec![Item::user("x".repeat(mebibytes << 20))])
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn input_that_a_run_has_no_place_for_is_refused_and_the_rest_is_delivered() {
    let gate = Gate::closed();
    let answer = |history: &History| match results_since_input(history) {
        0 if last_input(history) == "Do it." => Reply::new().call_raw("c1", "wait", "{}"),
        // Together with the input, this turn is larger than a turn may be.
        _ => Reply::text("y".repeat(7 << 20)),
    };
    let agent = Agent::new(model(answer)).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    let client = &fixture.client;
    client.send("s", "a", large_input(5)).await.unwrap();
    let error = client.send("s", "b", large_input(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.message().contains("at most 8388608 are stored"), "{error}");
    client.send("s", "c", Command::Steer(vec![Item::user("small")])).await.unwrap();
    gate.open();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!((outcome.reason, outcome.text.len()), (EndReason::Completed, 7 << 20));
    let inputs: Vec<usize> =
        outcome.history.iter().filter_map(Item::as_user).map(|said| said.text().len()).collect();
    assert_eq!(inputs, ["Do it.".len(), 5 << 20, "small".len()]);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn input_larger_than_a_step_starts_a_run_and_the_next_run_works() {
    let fixture = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    let outcome = fixture.run("s", &"x".repeat(12 << 20)).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn follow_ups_that_a_run_has_not_delivered_count_until_it_delivers_them() {
    let gate = Gate::closed();
    let calls = [("c1", "wait"), ("c2", "wait")];
    let answer = move |history: &History| match results_since_input(history) {
        n if n < 2 && last_input(history) == "Do it." => {
            Reply::new().call_raw(calls[n].0, calls[n].1, "{}")
        }
        _ => Reply::text("Done."),
    };
    let agent = Agent::new(model(answer)).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let client = &fixture.client;
    let follow_up = || Command::FollowUp(vec![Item::user("x".repeat(5 << 20))]);
    client.send("s", "a", follow_up()).await.unwrap();
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    // The run has taken the first follow-up, and delivers it once the model stops.
    let error = client.send("s", "b", follow_up()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    gate.open();
    assert_eq!(fixture.outcome(&run).await.unwrap().reason, EndReason::Completed);
    client.send("s", "c", follow_up()).await.unwrap();
    fixture.ensure_next_run_works("s").await;
    let queued = client.queued("s").await.unwrap();
    assert_eq!(queued.commands().count(), 0);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn large_commands_that_end_a_run_do_not_block_the_session() {
    let gate = Gate::closed();
    let agent = Agent::new(calling(&[("c1", "wait")])).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    let reason = "x".repeat(12 << 20);
    for id in ["a", "b"] {
        let interrupt = Command::InterruptWithReason(reason.clone());
        within_limit(fixture.client.send("s", id, interrupt)).await.unwrap();
        // Another program may send a command that this client would have shortened.
        let url = format!("{}/Inbox/s/push", fixture.server.ingress_url());
        let stored = json!({ "v": 1, "id": format!("raw {id}"), "command": {
            "type": "interrupt", "reason": reason,
        } });
        let sent = reqwest::Client::new().post(url).json(&stored).send();
        assert_eq!(within_limit(sent).await.unwrap().status(), 200);
    }
    let queued = fixture.client.queued("s").await.unwrap();
    let json = serde_json::to_string(&queued).unwrap();
    assert!(json.len() < 5_000 && queued.commands().count() == 1, "{} bytes", json.len());
    gate.open();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Interrupted(InterruptedPhase::Tools));
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn calls_with_long_ids_are_executed_separately() {
    let answer = |history: &History| match results_since_input(history) {
        0 => ["a", "b"]
            .iter()
            .fold(Reply::new(), |reply, id| reply.call_raw(&id.repeat(20_000), "quick", "{}")),
        _ => Reply::text("Done."),
    };
    let agent = Agent::new(model(answer)).with_tool(quick("quick"));
    let fixture = Fixture::with_agent(agent).await;
    let outcome = fixture.run("s", "Do it.").await.unwrap();
    assert_eq!(results(&outcome.history), vec![(ResultKind::Ok, "quick".to_owned()); 2]);
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn the_longest_accepted_ids_work() {
    let fixture = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    // Each byte is encoded in three bytes of the path or the header.
    let id = "é".repeat(512);
    fixture.client.send(&id, &id, Command::Steer(vec![Item::user("And this.")])).await.unwrap();
    let run = fixture.client.start(&id, "agent", NEXT, &id).await.unwrap();
    assert_eq!(fixture.outcome(&run).await.unwrap().reason, EndReason::Completed);
    let history = fixture.history(&id).await;
    assert_eq!(texts(&history), [NEXT, "And this.", "Done."]);
}

// ---- Panics

/// Runs an agent that panics, and checks that it panics at most a few times and that the next run
/// works.
async fn check_panic(agent: Agent, panics: &AtomicUsize) -> Result<Outcome, Error> {
    let fixture = Fixture::with_agent(agent).await;
    let ended = fixture.run("s", "Do it.").await;
    assert_eq!(panics.load(Ordering::Relaxed), 1);
    fixture.ensure_next_run_works("s").await;
    ended
}

fn panic_counted(panics: &AtomicUsize) -> ! {
    panics.fetch_add(1, Ordering::Relaxed);
    panic!("of the test")
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_panicking_model_ends_its_run() {
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let agent = Agent::new(model(move |_| panic_counted(&counted)));
    let ended = check_panic(agent, &panics).await;
    let error = ended.map_or_else(Some, |outcome| outcome.error).expect("the run has failed");
    assert_eq!(error.kind(), ErrorKind::Panic, "{error:?}");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_panicking_hook_ends_its_run() {
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let hook = hook::before_stop(move |state, _| {
        if last_input(&state.history) != NEXT {
            panic_counted(&counted);
        }
        std::future::ready(StopDecision::Allow)
    });
    let agent = Agent::new(model(|_| Reply::text("Done."))).with_hook(hook);
    let ended = check_panic(agent, &panics).await;
    let error = ended.map_or_else(Some, |outcome| outcome.error).expect("the run has failed");
    assert!(matches!(error.kind(), ErrorKind::Hook | ErrorKind::Panic), "{error:?}");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_panicking_tool_has_an_error_as_its_result() {
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let broken = tool("broken", move || -> std::future::Ready<String> { panic_counted(&counted) });
    let agent = Agent::new(calling(&[("c1", "broken")])).with_tool(broken);
    let outcome = check_panic(agent, &panics).await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Done."));
    assert_eq!(results(&outcome.history)[0].0, ResultKind::Panic);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_panicking_tool_that_is_executed_separately_has_an_error_as_its_result() {
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let broken = tool("broken", move || -> std::future::Ready<String> { panic_counted(&counted) });
    let agent = Agent::new(calling(&[("c1", "broken"), ("c2", "quick")]))
        .with_tools([broken, quick("quick")]);
    let outcome = check_panic(agent, &panics).await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Done."));
    let kinds: Vec<_> = results(&outcome.history).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [ResultKind::Panic, ResultKind::Ok]);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_panicking_data_source_ends_its_run() {
    let agent = Agent::new(model(|_| Reply::text("Done.")));
    let is_broken = Arc::new(AtomicUsize::new(1));
    let broken = Arc::clone(&is_broken);
    let worker = Worker::new().with_agent("agent", agent).with_data(move |_| {
        match broken.load(Ordering::Relaxed) {
            0 => RunData::new(),
            _ => panic!("of the test"),
        }
    });
    let fixture = Fixture::start(worker).await;
    let error = fixture.run("s", "Do it.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panic, "{error:?}");
    is_broken.store(0, Ordering::Relaxed);
    fixture.ensure_next_run_works("s").await;
}

// ---- Errors of the engine

#[tokio::test]
async fn an_unreachable_server_is_a_connect_error() {
    // The port is free again, and the server does not listen on it.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(&format!("http://{address}")).unwrap();
    let kind = |error: Error| error.kind();
    assert_eq!(client.run("s", "agent", "Hi.").await.map_err(kind), Err(ErrorKind::Connect));
    assert_eq!(client.history("s", 0).await.map_err(kind), Err(ErrorKind::Connect));
    assert_eq!(client.status("s").await.map_err(kind), Err(ErrorKind::Connect));
    assert_eq!(client.interrupt("s").await.map_err(kind), Err(ErrorKind::Connect));
    assert_eq!(client.remove("s").await.map_err(kind), Err(ErrorKind::Connect));
    assert_eq!(client.outcome("inv_1").await.map_err(kind), Err(ErrorKind::Connect));
    assert_eq!(client.load("s", 0).await.map_err(kind), Err(ErrorKind::Connect));
    assert_eq!(Client::new("no url").map(drop).map_err(kind), Err(ErrorKind::InvalidRequest));
}

/// A listener on the loopback interface, and a client for it.
async fn listen() -> (TcpListener, Client) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    (listener, client)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_a_timeout_error() {
    let (listener, client) = listen().await;
    // The connections stay open.
    let serve = async {
        let mut connections = Vec::new();
        loop {
            connections.push(listener.accept().await.unwrap());
        }
    };
    let requests = async {
        let kind = |error: Error| error.kind();
        let timeout = Some(ErrorKind::Timeout);
        assert_eq!(client.run("s", "agent", "Hi.").await.map_err(kind).err(), timeout);
        assert_eq!(client.history("s", 0).await.map_err(kind).err(), timeout);
        assert_eq!(client.status("s").await.map_err(kind).err(), timeout);
        assert_eq!(client.queued("s").await.map_err(kind).err(), timeout);
        assert_eq!(client.interrupt("s").await.map_err(kind).err(), timeout);
        assert_eq!(client.import("s", Vec::new()).await.map_err(kind).err(), timeout);
        assert_eq!(client.remove("s").await.map_err(kind).err(), timeout);
        assert_eq!(client.outcome("inv_1").await.map_err(kind).err(), timeout);
    };
    tokio::select! {
        () = requests => {}
        () = serve => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_waits_for_an_outcome_as_long_as_the_server_says_that_the_run_is_active() {
    let (listener, client) = listen().await;
    // The server answers only the requests for the current output.
    let serve = async {
        let (mut open, mut answered) = (Vec::new(), 0);
        while answered < 100 {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4_096];
            let read = connection.read(&mut request).await.unwrap();
            if request[..read].starts_with(b"GET /restate/output/") {
                let answer = b"HTTP/1.1 470 \r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                connection.write_all(answer).await.unwrap();
                answered += 1;
            }
            open.push(connection);
        }
    };
    tokio::select! {
        outcome = client.outcome("inv_1") => panic!("{outcome:?}"),
        () = serve => {}
    }
}

#[tokio::test]
async fn ids_that_restate_cannot_take_are_refused_without_sending_them() {
    let (listener, client) = listen().await;
    let (long, kind) = ("x".repeat(16_500), |error: Error| error.kind());
    let call = || {
        PendingCall::from(ToolCall {
            call_id: "c1".to_owned(),
            name: "pay".to_owned(),
            arguments: "{}".to_owned(),
        })
    };
    let too_large = Some(ErrorKind::TooLarge);
    let started = async |session: &str, agent: &str, request: &str| {
        let run = client.start(session, agent, "Hi.", request).await.map_err(kind).err();
        assert_eq!(client.resume(session, agent, [], request).await.map_err(kind).err(), run);
        run
    };
    assert_eq!(started(&long, "agent", "r").await, too_large);
    assert_eq!(started("s", &long, "r").await, too_large);
    assert_eq!(started("s", "agent", &long).await, too_large);
    assert_eq!(client.outcome(&long).await.map_err(kind).err(), too_large);
    for (session, agent) in [(&*long, "agent"), ("s", &*long)] {
        let judged = client.judge(session, agent, call(), Verdict::Approve).await;
        assert_eq!(judged.map_err(kind).err(), too_large);
    }
    for (session, id) in [(&*long, "i"), ("s", &*long)] {
        let sent = client.send(session, id, Command::Interrupt).await;
        assert_eq!(sent.map_err(kind).err(), too_large);
    }
    assert_eq!(client.history(&long, 0).await.map_err(kind).err(), too_large);
    assert_eq!(client.status(&long).await.map_err(kind).err(), too_large);
    assert_eq!(client.queued(&long).await.map_err(kind).err(), too_large);
    assert_eq!(client.import(&long, Vec::new()).await.map_err(kind).err(), too_large);
    assert_eq!(client.remove(&long).await.map_err(kind).err(), too_large);
    assert!(listener.accept().now_or_never().is_none(), "nothing was sent");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn an_unknown_run_is_an_invalid_request() {
    let fixture = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    let run = fixture.start_run("s", NEXT).await;
    fixture.outcome(&run).await.unwrap();
    // The id of a run that the other server has never had.
    let other = Fixture::with_agent(Agent::new(model(|_| Reply::text("Done.")))).await;
    for run in ["inv_1", &*run] {
        let error = other.outcome(run).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{run}: {error:?}");
    }
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_cancelled_run_ends_with_an_error_and_the_next_one_works() {
    let gate = Gate::closed();
    let agent = Agent::new(calling(&[("c1", "wait")])).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    support::cancel(&fixture.server.admin_url(), &run).await;
    gate.open();
    let error = fixture.outcome(&run).await.unwrap_err();
    println!("a cancelled run: {error:?}");
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_run_cancelled_during_separately_executed_calls_ends_with_an_error() {
    let gate = Gate::closed();
    let agent = Agent::new(calling(&[("c1", "wait"), ("c2", "wait")])).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(2).await;
    support::cancel(&fixture.server.admin_url(), &run).await;
    fixture.outcome(&run).await.unwrap_err();
    gate.open();
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_run_cancelled_while_it_waits_for_a_verdict_ends_with_an_error() {
    let pay = quick("pay").requires_approval();
    let agent = Agent::new(calling(&[("c1", "pay")])).with_tool(pay).interactive();
    let fixture = Fixture::with_agent(agent).await;
    let run = fixture.start_run("s", "Pay.").await;
    fixture.awaited_call("s").await;
    support::cancel(&fixture.server.admin_url(), &run).await;
    let error = fixture.outcome(&run).await.unwrap_err();
    println!("a cancelled run: {error:?}");
    let status = fixture.client.status("s").await.unwrap();
    assert_eq!((status.run, status.awaited_calls), (None, Vec::new()));
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_killed_run_ends_with_an_error_and_the_next_one_works() {
    let gate = Gate::closed();
    let agent = Agent::new(calling(&[("c1", "wait")])).with_tool(gate.tool("wait"));
    let fixture = Fixture::with_agent(agent).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    support::kill(&fixture.server.admin_url(), &run).await;
    let error = fixture.outcome(&run).await.unwrap_err();
    println!("a killed run: {error:?}");
    fixture.wait_for_status(&run, "completed").await;
    // The saved entries stay, and unfinished calls are settled.
    fixture.ensure_next_run_works("s").await;
    let history = fixture.history("s").await;
    assert_eq!(texts(&history), ["Do it.", NEXT, "Done."]);
    assert_eq!(results(&history)[0].0, ResultKind::Interrupted);
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_run_killed_during_a_call_can_be_resumed() {
    let gate = Gate::closed();
    let tool = gate.tool("wait").idempotent();
    let fixture = Fixture::with_agent(Agent::new(calling(&[("c1", "wait")])).with_tool(tool)).await;
    let run = fixture.start_run("s", "Do it.").await;
    gate.wait_for(1).await;
    support::kill(&fixture.server.admin_url(), &run).await;
    fixture.outcome(&run).await.unwrap_err();
    gate.open();
    let run = fixture.client.resume("s", "agent", [], "resume").await.unwrap();
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Done."));
    let history = fixture.history("s").await;
    assert_eq!(results(&history), [(ResultKind::Ok, "passed".to_owned())]);
    assert_eq!(fixture.invocations("s", "resume").await, 1);
}

/// A run resumes an approved call, and is ended while the call's tool runs. The same verdicts are
/// then given again.
async fn check_that_a_call_of_an_ended_run_does_not_start_again(
    end: impl AsyncFn(&Fixture, &str),
    gate: Gate,
) {
    let pay = gate.tool("pay").requires_approval();
    let fixture = Fixture::with_agent(Agent::new(calling(&[("c1", "pay")])).with_tool(pay)).await;
    let outcome = fixture.run("s", "Pay.").await.unwrap();
    assert_eq!(outcome.reason, EndReason::Pending);
    let call = fixture.pending_call("s").await;
    let verdicts = || [(call.clone(), Verdict::Approve)];
    let run = fixture.client.resume("s", "agent", verdicts(), "first").await.unwrap();
    gate.wait_for(1).await;
    end(&fixture, &run).await;
    fixture.outcome(&run).await.unwrap_err();
    gate.open();

    // The request for a verdict is void.
    let run = fixture.client.resume("s", "agent", verdicts(), "second").await.unwrap();
    let error = fixture.outcome(&run).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let run = fixture.client.resume("s", "agent", [], "third").await.unwrap();
    fixture.outcome(&run).await.unwrap();
    let history = fixture.history("s").await;
    let (kind, text) = &results(&history)[0];
    assert_eq!((*kind, &**text), (ResultKind::Interrupted, "Interrupted mid-execution"));
    assert_eq!(*gate.reached.borrow(), 1, "the call has begun once");
    fixture.ensure_next_run_works("s").await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_call_whose_resumed_run_was_killed_does_not_start_again() {
    let end = async |fixture: &Fixture, run: &str| {
        support::kill(&fixture.server.admin_url(), run).await;
    };
    check_that_a_call_of_an_ended_run_does_not_start_again(end, Gate::closed()).await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_verdict_for_a_call_of_a_killed_run_is_refused_and_the_next_run_works() {
    let gate = Gate::closed();
    let pay = gate.tool("pay").requires_approval();
    let fixture = Fixture::with_agent(Agent::new(calling(&[("c1", "pay")])).with_tool(pay)).await;
    fixture.run("s", "Pay.").await.unwrap();
    let call = fixture.pending_call("s").await;
    let judge = || fixture.client.judge("s", "agent", call.clone(), Verdict::Approve);
    let run = judge().await.unwrap().unwrap();
    gate.wait_for(1).await;
    support::kill(&fixture.server.admin_url(), &run).await;
    fixture.outcome(&run).await.unwrap_err();
    gate.open();
    // The call may have started, so it waits for no verdict.
    let error = judge().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    support::wait_for("the inbox has no active run", LIMIT, async || {
        match fixture.client.interrupt("s").await {
            Err(error) if error.find_source::<NotRunning>().is_some() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    fixture.ensure_next_run_works("s").await;
    assert_eq!(results(&fixture.history("s").await)[0].0, ResultKind::Interrupted);
    assert_eq!(*gate.reached.borrow(), 1, "the call has begun once");
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_call_whose_resumed_run_was_cancelled_does_not_start_again() {
    let gate = Gate::closed();
    let opened = gate.clone();
    let end = async |fixture: &Fixture, run: &str| {
        support::cancel(&fixture.server.admin_url(), run).await;
        // A step that has begun ends before its run does.
        opened.open();
    };
    check_that_a_call_of_an_ended_run_does_not_start_again(end, gate).await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_pending_call_stays_approvable_if_a_run_with_new_input_is_killed() {
    let gate = Gate::closed();
    let paying = calling(&[("c1", "pay")]);
    let waiting = gate.clone();
    let hook = hook::transform_context(move |_, history| {
        let waiting = waiting.clone();
        let waits = last_input(&history) == "Wait.";
        async move {
            if waits {
                waiting.reached.send_modify(|count| *count += 1);
                let _ = waiting.is_open.subscribe().wait_for(|is_open| *is_open).await;
            }
            history
        }
    });
    let agent = Agent::new(paying).with_tool(quick("pay").requires_approval()).with_hook(hook);
    let fixture = Fixture::with_agent(agent).await;
    fixture.run("s", "Pay.").await.unwrap();
    let call = fixture.pending_call("s").await;
    let run = fixture.start_run("s", "Wait.").await;
    gate.wait_for(1).await;
    support::kill(&fixture.server.admin_url(), &run).await;
    fixture.outcome(&run).await.unwrap_err();
    gate.open();
    // The killed run has not started the call.
    let judge = fixture.client.judge("s", "agent", call, Verdict::Approve);
    let run = judge.await.unwrap().unwrap();
    fixture.outcome(&run).await.unwrap();
    assert_eq!(results(&fixture.history("s").await), [(ResultKind::Ok, "quick".to_owned())]);
    // No run is active, also as far as the inbox knows.
    let error = fixture.client.interrupt("s").await.unwrap_err();
    assert!(error.find_source::<NotRunning>().is_some(), "{error}");
}

/// Entries of 35 MiB. Restate's messages are smaller.
fn large_entries() -> Vec<Entry> {
    let question = |n| Item::user(format!("{n}{}", "x".repeat(7 << 20)));
    let items = (0..5).flat_map(|n| [question(n), Item::text("Done.")]);
    items.map(Entry::from).collect()
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn a_session_larger_than_a_message_is_read_copied_and_continued_by_another_worker() {
    let (gate, copy) = (Gate::closed(), MemoryStore::new());
    let worker = |tool| {
        let agent = Agent::new(calling(&[("c1", "wait")])).with_tool(tool);
        Worker::new().with_agent("agent", agent).with_copy(copy.clone())
    };
    let fixture = Fixture::start(worker(gate.tool("wait").idempotent())).await;
    fixture.client.import("s", large_entries()).await.unwrap();
    let error = fixture.client.import("s", large_entries()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let run = fixture.start_run("s", "Go.").await;
    gate.wait_for(1).await;
    let fixture = fixture.replace_worker(&worker(quick("wait").idempotent()));
    let outcome = fixture.outcome(&run).await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Done."));
    let status = fixture.client.status("s").await.unwrap();
    assert_eq!((status.version, status.run), (14, None));
    let read = fixture.client.history("s", 0).await.unwrap();
    assert!(read.len() == 14 && read[..10] == large_entries());
    assert!(fixture.client.history("s", 7).await.unwrap() == read[7..]);
    assert_eq!(fixture.client.history("s", 14).await.unwrap(), []);
    support::wait_for("the session is copied", LIMIT, async || {
        let copied = copy.load("s", 0).await.unwrap().unwrap_or_default();
        if copied == read { Ok(()) } else { Err(format!("{} entries", copied.len())) }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a Restate server: crates/restate/tests/run.sh"]
async fn input_and_outcomes_larger_than_a_message_are_errors_and_the_session_continues() {
    // Four turns of 7 MiB each.
    let answer = |history: &History| match results_since_input(history) {
        4 => Reply::text("Done."),
        n => {
            let arguments = format!(r#"{{"n":{n}}}"#);
            Reply::text("x".repeat(7 << 20)).call_raw(&format!("c{n}"), "look", &arguments)
        }
    };
    let fixture = Fixture::with_agent(Agent::new(model(answer)).with_tool(quick("look"))).await;
    let error = fixture.run("s", &"x".repeat(25 << 20)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let error = fixture.run("s", "Go.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    let history = fixture.history("s").await;
    assert_eq!((results(&history).len(), texts(&history).len()), (4, 6));
    fixture.ensure_next_run_works("s").await;
}
