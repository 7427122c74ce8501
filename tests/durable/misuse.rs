//! Panics, drops, large values and unusual tools.

use std::future::poll_fn;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use turnstream::agent::Budget;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::context::{Compaction, Compactor, Window};
use turnstream::durable::{
    Attempt, Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest, is_attempt_lost,
};
use turnstream::event::EndReason;
use turnstream::hub::Command;
use turnstream::item::{PendingCall, RawJson, ResultKind, ToolResult};
use turnstream::provider::{Reply, Scripted, openai_responses};
use turnstream::request::{McpServer, McpToken};
use turnstream::session::Entry;
use turnstream::tool::{Tool, Toolkit};
use turnstream::{Agent, Error, ErrorKind, History, Item};

use crate::lossy_run::{LossyRun, Start};
use turnstream_test_support::tools::{nap_tool, spec};
use turnstream_testing::durable_suite::{Loss, LossMoment, MemoryEngine};

fn results(history: &History) -> usize {
    history.iter().filter(|item| item.as_tool_result().is_some()).count()
}

const MOMENTS: [LossMoment; 3] = [LossMoment::After(1), LossMoment::After(3), LossMoment::Kept];

/// Performs a run without a loss, and then with a loss at each operation; checks all of them.
async fn check_each_loss(make: impl AsyncFn() -> LossyRun) -> turnstream::Outcome {
    let run = make().await;
    let reference = run.drive().await.unwrap();
    run.check(&reference).await;
    for operation in 0..run.plan.operations() {
        for moment in MOMENTS {
            println!("with a loss at {operation}, {moment:?}");
            let run = make().await.with_losses([Loss { operation, moment }]);
            let outcome = run.drive().await.unwrap();
            run.check(&outcome).await;
        }
    }
    reference
}

fn run_of(agent: &Agent) -> LossyRun {
    LossyRun::new(agent, &MemoryEngine::new(), Start::Input("Do it."))
}

/// A model that makes a turn of calls, and then stops.
fn caller(calls: &'static [(&'static str, &'static str)]) -> Scripted {
    Scripted::from_fn(move |request, _| match results(&request.history) {
        0 => calls.iter().enumerate().fold(Reply::new(), |reply, (at, (name, arguments))| {
            reply.call_raw(&format!("c{at}"), name, arguments)
        }),
        _ => Reply::text("Done."),
    })
}

/// An engine with a delay in every operation, including replayed ones.
struct SlowEngine(MemoryEngine, Duration);

impl StepRunner for SlowEngine {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        async move {
            tokio::time::sleep(self.1).await;
            self.0.step(name, step).await
        }
        .boxed()
    }
}

impl Engine for SlowEngine {
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        self.0.take_commands(undelivered_bytes)
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        self.0.wait_for_commands(awaited, limit, is_enough)
    }

    fn can_call_tools(&self) -> bool {
        self.0.can_call_tools()
    }

    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        self.0.call_tools(calls)
    }

    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>> {
        self.0.save(from, entries)
    }

    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>> {
        self.0.finish(put_back)
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_longer_than_the_time_limit_has_the_same_outcome() {
    let budget = Budget::new().with_time_limit(Duration::from_millis(100));
    let agent = Agent::new(caller(&[("nap", r#"{"ms":5}"#)]))
        .with_tool(nap_tool("nap").idempotent())
        .with_budget(budget);
    let run = run_of(&agent);
    let outcome = run.drive().await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    for pause in [10, 30, 60, 200] {
        let mut engine = SlowEngine(run.engine.next_attempt(), Duration::from_millis(pause));
        let again = run.attempt().drive(&mut engine).await.unwrap();
        assert_eq!(again, outcome, "with a pause of {pause} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interactive_sub_agent_does_not_hang_its_run() {
    let child = Agent::new(caller(&[("nap", "{}")]))
        .with_tool(nap_tool("nap").requires_approval())
        .interactive()
        .as_tool("child", "Naps")
        .unwrap();
    let agent = Agent::new(caller(&[("child", r#"{"prompt":"Nap."}"#)])).with_tool(child);
    let outcome = run_of(&agent).drive().await.unwrap();
    assert_eq!(outcome.reason, EndReason::Pending);
}

#[tokio::test(start_paused = true)]
async fn a_run_stopped_before_it_waits_for_an_approval_does_not_wait() {
    let agent = Agent::new(caller(&[("nap", "{}"), ("ask", "{}")]))
        .with_tools([nap_tool("nap").idempotent(), nap_tool("ask").requires_approval()])
        .interactive();
    let mut waited = Vec::new();
    for (operation, command) in
        (0..8).flat_map(|at| [(at, Command::StopAfterTurn), (at, Command::Interrupt)])
    {
        let mut run = run_of(&agent);
        let (mut count, sent) = (0, Arc::new(AtomicBool::new(false)));
        let (taken, name) = (Arc::clone(&sent), format!("{command:?} before {operation}"));
        run.before_operation =
            Some(Arc::new(Mutex::new(move |engine: &MemoryEngine, name: &'static str| {
                if count == operation && name != "wait" {
                    taken.store(engine.send("w1", command.clone()).is_ok(), Ordering::Relaxed);
                }
                count += 1;
            })));
        let begin = tokio::time::Instant::now();
        let outcome = run.drive().await.unwrap();
        run.check(&outcome).await;
        if begin.elapsed() >= Duration::from_mins(50) && sent.load(Ordering::Relaxed) {
            waited.push(format!("{name}: {:?}", outcome.reason));
        }
    }
    assert!(waited.is_empty(), "{waited:#?}");
}

struct PanickingCompactor {
    is_slow: bool,
}

impl Compactor for PanickingCompactor {
    fn compact(&self, _: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        let is_slow = self.is_slow;
        async move {
            if is_slow {
                tokio::task::yield_now().await;
            }
            panic!("the compactor")
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_compactor_ends_each_attempt_identically() {
    for is_slow in [false, true] {
        let make = async || {
            let agent = Agent::new(caller(&[("nap", "{}")]))
                .with_tool(nap_tool("nap").idempotent())
                .with_window(Window::new(1))
                .with_compactor(PanickingCompactor { is_slow });
            run_of(&agent)
        };
        check_each_loss(make).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_hook_ends_each_attempt_identically() {
    for is_slow in [false, true] {
        for point in 0..4 {
            println!("hook {point}, slow: {is_slow}");
            let make = async || {
                let pause = move || async move {
                    if is_slow {
                        tokio::task::yield_now().await;
                    }
                };
                let agent =
                    Agent::new(caller(&[("nap", "{}")])).with_tool(nap_tool("nap").idempotent());
                let agent = match point {
                    0 => agent.with_hook(hook::prepare_request(move |_, request| async move {
                        pause().await;
                        assert!(request.history.is_empty(), "the hook");
                        request
                    })),
                    1 => agent.with_hook(hook::before_tool(move |_, call| {
                        let panics = call.name == "nap";
                        async move {
                            pause().await;
                            assert!(!panics, "the hook");
                            CallDecision::Allow
                        }
                    })),
                    2 => agent.with_hook(hook::should_stop(move |state| {
                        let panics = !state.history.is_empty();
                        async move {
                            pause().await;
                            assert!(!panics, "the hook");
                            false
                        }
                    })),
                    _ => agent.with_hook(hook::after_sampling(move |_, turn| {
                        let panics = turn.text() != "never";
                        async move {
                            pause().await;
                            assert!(!panics, "the hook");
                            Vec::new()
                        }
                    })),
                };
                run_of(&agent)
            };
            check_each_loss(make).await;
        }
    }
}

/// Counts the live values.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_dropped_at_any_poll_leaves_nothing_running() {
    let (alive, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tool = {
        let (alive, begun) = (Arc::clone(&alive), Arc::clone(&begun));
        Tool::raw(spec("work"), move |_, _| {
            alive.fetch_add(1, Ordering::Relaxed);
            begun.fetch_add(1, Ordering::Relaxed);
            let alive = Alive(Arc::clone(&alive));
            async move {
                let _alive = alive;
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                "done"
            }
        })
        .unwrap()
    };
    let model = caller(&[("work", "{}"), ("work", "{}")]);
    let agent = Agent::new(model.clone()).with_tool(tool);
    for polls in 0..60 {
        let engine = MemoryEngine::new();
        begun.store(0, Ordering::Relaxed);
        let mut first = engine.next_attempt();
        let mut driven = Box::pin(Attempt::run(&agent, "s", Vec::new(), "Go.").drive(&mut first));
        let mut polled = 0;
        let done = poll_fn(|cx| {
            if polled == polls {
                return Poll::Ready(false);
            }
            polled += 1;
            driven.as_mut().poll(cx).map(|_| true)
        })
        .await;
        drop(driven);
        assert_eq!(alive.load(Ordering::Relaxed), 0, "a tool lives after {polls} polls");
        assert_eq!(model.in_flight(), 0, "a request lives after {polls} polls");
        let (requests, started) = (model.requests().len(), begun.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(model.requests().len(), requests);
        assert_eq!(begun.load(Ordering::Relaxed), started);
        let mut second = engine.next_attempt();
        let outcome = Attempt::run(&agent, "s", Vec::new(), "Go.").drive(&mut second).await;
        assert_eq!(outcome.unwrap().reason, EndReason::Completed);
        assert!(begun.load(Ordering::Relaxed) <= 2, "{polls} polls: a call began twice");
        if done {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn accepted_input_survives_a_failed_run() {
    let model = Scripted::from_fn(|request, _| match results(&request.history) {
        0 => Reply::new().call_raw("c1", "nap", "{}"),
        _ => Reply::text("w".repeat(10 << 20)),
    });
    let agent = Agent::new(model).with_tool(nap_tool("nap").idempotent());
    let mut run = run_of(&agent);
    run.before_operation =
        Some(Arc::new(Mutex::new(|engine: &MemoryEngine, name: &'static str| {
            if name == "take" && engine.queued().is_empty() && engine.operations().len() == 1 {
                let follow_up = Command::FollowUp(vec![Item::user("Then this.")]);
                engine.send("w1", follow_up).unwrap();
            }
        })));
    run.engine.send("w0", Command::FollowUp(vec![Item::user("Then that.")])).unwrap();
    let error = run.drive().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let history = run.history();
    let is_said = |text: &str| {
        history.iter().any(|item| item.as_user().is_some_and(|said| said.text() == text))
    };
    let is_queued = |id: &str| run.engine.queued().iter().any(|stored| stored.id == id);
    assert!(is_said("Then that.") || is_queued("w0"), "the follow-up is lost");
}

#[tokio::test(start_paused = true)]
async fn queued_input_remains_queued_if_a_run_cannot_start() {
    let agent = Agent::new(caller(&[("nap", "{}")])).with_tool(nap_tool("nap"));
    let mut engine = MemoryEngine::new();
    engine.send("w0", Command::Steer(vec![Item::user("Be quick.")])).unwrap();
    // The run has no pending calls.
    let error = Attempt::resume(&agent, "s", Vec::new(), []).drive(&mut engine).await.unwrap_err();
    assert!(!is_attempt_lost(&error), "{error}");
    let mut next = engine.next_run();
    let outcome =
        Attempt::run(&agent, "s", engine.entries(), "Go.").drive(&mut next).await.unwrap();
    let is_it = |item: &Item| item.as_user().is_some_and(|said| said.text() == "Be quick.");
    assert_eq!(outcome.history.iter().filter(|item| is_it(item)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn runs_with_unusual_tools_survive_the_loss_of_any_attempt() {
    let make = async || {
        let model = caller(&[("out", "{}"), ("nobody", "{}"), ("nap", "{ no"), ("nap", "{}")]);
        let kit = Toolkit::new([
            Tool::external(spec("out")).unwrap(),
            nap_tool("nap").idempotent(),
            nap_tool("alone").exclusive(),
        ])
        .with_max_concurrency(NonZero::new(1).unwrap());
        run_of(&Agent::new(model).with_toolkit(kit))
    };
    assert_eq!(check_each_loss(make).await.reason, EndReason::Pending);
    let dry = async || {
        let kit = Toolkit::new([nap_tool("nap"), nap_tool("alone").exclusive()]).with_dry_run(true);
        let model = caller(&[("nap", "{}"), ("alone", "{}"), ("nap", "{}")]);
        run_of(&Agent::new(model).with_toolkit(kit))
    };
    check_each_loss(dry).await;
    let rationale = async || {
        let model = caller(&[
            ("nap", r#"{"rationale":"I am tired.","ms":2}"#),
            ("nap", r#"{"ms":2}"#),
            ("alone", "{}"),
        ]);
        let tools = [nap_tool("nap").idempotent(), nap_tool("alone").exclusive()];
        let agent = Agent::new(model).with_toolkit(Toolkit::new(tools).with_rationale());
        let mut run = run_of(&agent);
        run.engine = run.engine.with_worker(&agent);
        run
    };
    check_each_loss(rationale).await;
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_does_not_break_the_run() {
    let agent = Agent::new(caller(&[("nap", "{}")])).with_tool(nap_tool("nap").idempotent());
    let engine = MemoryEngine::new();
    let mut first = engine.next_attempt();
    let attempt = Attempt::run(&agent, "s", Vec::new(), "Go.")
        .inspect(|event| assert!(event.turn_complete().is_none(), "the observer"));
    let driven = std::panic::AssertUnwindSafe(attempt.drive(&mut first)).catch_unwind().await;
    assert!(driven.is_err() || driven.unwrap().is_err());
    let mut second = engine.next_attempt();
    let outcome = Attempt::run(&agent, "s", Vec::new(), "Go.").drive(&mut second).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_ten_mebibyte_result_is_the_same_if_its_call_is_executed_separately() {
    let big = Tool::raw(spec("big"), |_, _| async { "word ".repeat(2 << 20) }).unwrap();
    let agent = Agent::new(caller(&[("big", "{}"), ("big", "{}")])).with_tool(big.idempotent());
    let run = run_of(&agent);
    let in_place = run.drive().await.unwrap();
    run.check(&in_place).await;
    let mut run = run_of(&agent);
    run.engine = run.engine.with_worker(&agent);
    let separate = run.drive().await.unwrap();
    run.check(&separate).await;
    assert_eq!(kinds(&separate.history), kinds(&in_place.history));
    assert!(separate.history == in_place.history, "the results differ");
}

fn kinds(history: &History) -> Vec<ResultKind> {
    history.iter().filter_map(|item| item.as_tool_result()).map(|result| result.kind).collect()
}

/// A model that reports the token of the MCP server to which it connects.
fn token_reader() -> Scripted {
    Scripted::from_fn(|request, _| match openai_responses::encode(request, "m") {
        Ok(body) => {
            let body: Value = serde_json::from_slice(&body).unwrap();
            Reply::text(body["tools"][0]["authorization"].as_str().unwrap_or("none"))
        }
        Err(error) => Reply::error(error),
    })
}

#[tokio::test(start_paused = true)]
async fn the_token_of_an_mcp_server_that_a_hook_sets_is_sent_whichever_attempt_is_lost() {
    for is_slow in [false, true] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let set_token = hook::prepare_request(move |_, mut request| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                if is_slow {
                    tokio::task::yield_now().await;
                }
                let (name, url) = ("wiki".to_owned(), "https://mcp.example".to_owned());
                let authorization = Some(McpToken::new("secret"));
                let wiki = McpServer { name, url, authorization, ..McpServer::default() };
                request.options.server_tools.push(wiki.into());
                request
            }
        });
        let agent = Agent::new(token_reader()).with_hook(set_token);
        assert_eq!(run_of(&agent).drive().await.unwrap().text, "secret");
        assert_eq!(calls.load(Ordering::Relaxed), 1, "only a lost attempt calls the hook again");
        let outcome = check_each_loss(async || run_of(&agent)).await;
        assert_eq!(outcome.text, "secret");
    }
}
