//! Properties of durable runs that hold for random agents, commands and losses.
//!
//! A seed is one session of three runs. `DRAWN_FROM` and `DRAWN_SEEDS` select the seeds, and
//! `DRAWN_SHOW` prints each.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use turnstream::agent::evidence::RequireEvidence;
use turnstream::agent::hook::{self, CallDecision, StopDecision};
use turnstream::agent::{Budget, Limits, Pool};
use turnstream::context::{Compaction, Compactor, Window};
use turnstream::env::SystemIds;
use turnstream::event::ToolEvent;
use turnstream::hub::Command;
use turnstream::item::Evidence;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::Entry;
use turnstream::tool::{Tool, ToolContext, Toolkit, Verdict};
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Outcome, Usage};

use crate::lossy_run::{BeforeOperation, LossyRun, Start};
use turnstream_test_support::cases;
use turnstream_test_support::clock::paused_runtime;
use turnstream_test_support::random_agent::{self, ToolLog};
use turnstream_test_support::runs::limits_with_max_turns;
use turnstream_test_support::seeded_random::Dice;
use turnstream_test_support::seeds::count_endings;
use turnstream_test_support::tools::spec;
use turnstream_testing::durable_suite::{Loss, LossMoment, MemoryEngine};

#[test]
fn runs_with_random_losses_stay_valid_and_repeat_no_call() {
    let from = env_number("DRAWN_FROM").unwrap_or(1);
    let seeds = env_number("DRAWN_SEEDS").unwrap_or(300);
    let sample = (from..from + seeds).step_by(cases::sample_step(5));
    count_endings(sample, |seed| paused_runtime().block_on(check_seed(seed)));
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The choices that are drawn before the session starts.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn independently")]
struct Scenario {
    /// All choices are random, as in the tests of ordinary runs.
    is_mixed: bool,
    separate_calls: bool,
    interactive: bool,
    structured: bool,
    evidence: bool,
    notes: bool,
    compaction: bool,
    prepares: bool,
    judges_calls: bool,
    objects: bool,
    rewrites_results: bool,
    falls_back: bool,
    one_at_a_time: bool,
    tool_calls: Option<u32>,
    output_tokens: Option<u64>,
    time_limit: Option<u64>,
    wrap_up: bool,
    max_turns: u32,
    /// The operation of a run, counted across its attempts, before which a command is sent.
    commands: Vec<(usize, Sent)>,
    /// Tools send commands.
    tools_send: bool,
    /// The losses of each run.
    losses: Vec<Vec<Loss>>,
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    Steer,
    FollowUp,
    Stop,
    Interrupt,
}

impl Sent {
    fn draw(dice: &Dice) -> Self {
        match dice.roll(9) {
            0..4 => Self::Steer,
            4..7 => Self::FollowUp,
            7 => Self::Stop,
            _ => Self::Interrupt,
        }
    }
}

impl Scenario {
    fn draw(dice: &Dice) -> Self {
        let commands = (0..dice.roll(4)).map(|_| (at(dice, 20), Sent::draw(dice))).collect();
        let losses = (0..3).map(|_| (0..=dice.roll(3)).map(|_| draw_loss(dice)).collect());
        Self {
            is_mixed: dice.one_in(3),
            separate_calls: dice.one_in(2),
            interactive: dice.one_in(3),
            structured: dice.one_in(6),
            evidence: dice.one_in(6),
            notes: dice.one_in(3),
            compaction: dice.one_in(4),
            prepares: dice.one_in(3),
            judges_calls: dice.one_in(3),
            objects: dice.one_in(4),
            rewrites_results: dice.one_in(5),
            falls_back: dice.one_in(3),
            one_at_a_time: dice.one_in(4),
            tool_calls: dice.one_in(5).then(|| dice.roll_u32(6)),
            output_tokens: dice.one_in(6).then(|| dice.roll(60)),
            time_limit: dice.one_in(5).then(|| 1 + dice.roll(300)),
            wrap_up: dice.one_in(2),
            max_turns: 1 + dice.roll_u32(8),
            commands,
            tools_send: dice.one_in(4),
            losses: losses.collect(),
        }
    }
}

fn at(dice: &Dice, sides: u64) -> usize {
    usize::try_from(dice.roll(sides)).unwrap()
}

fn draw_loss(dice: &Dice) -> Loss {
    let moment = match dice.roll(6) {
        0 => LossMoment::Before,
        1 => LossMoment::Kept,
        n => LossMoment::After(usize::try_from(n - 1).unwrap()),
    };
    Loss { operation: at(dice, 18), moment }
}

/// A record of the agent's actions for a seed, across all attempts.
#[derive(Default)]
struct Deeds {
    requests: AtomicUsize,
    hooks: AtomicUsize,
    next_call: AtomicUsize,
    /// Each execution: its key and the name of its tool.
    begun: Mutex<Vec<(String, &'static str)>>,
    /// The engine of the active run.
    engine: Mutex<Option<MemoryEngine>>,
    /// The id and the text of each command that was sent; the text is empty if it is not input.
    said: Mutex<Vec<(String, String)>>,
    running: AtomicUsize,
}

/// Counts a tool while it runs, however it ends.
struct Running(Arc<Deeds>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deeds {
    fn send(&self, engine: &MemoryEngine, sent: Sent) {
        let mut said = self.said.lock().unwrap();
        let id = format!("w{}", said.len());
        let text = format!("said {id}");
        let items = vec![Item::user(&*text)];
        let command = match sent {
            Sent::Steer => Command::Steer(items),
            Sent::FollowUp => Command::FollowUp(items),
            Sent::Stop => Command::StopAfterTurn,
            Sent::Interrupt => Command::Interrupt,
        };
        let is_input = matches!(sent, Sent::Steer | Sent::FollowUp);
        let taken = engine.send(&*id, command);
        assert!(taken.is_ok() || !is_input, "input is always taken");
        let text = if is_input { text } else { String::new() };
        said.push((id, text));
    }
}

fn tool(name: &'static str, dice: &Arc<Dice>, deeds: &Arc<Deeds>, sends: bool) -> Tool {
    let (dice, deeds) = (Arc::clone(dice), Arc::clone(deeds));
    let run = move |_args: Value, cx: ToolContext| {
        deeds.begun.lock().unwrap().push((cx.idempotency_key().to_owned(), name));
        deeds.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(Arc::clone(&deeds));
        let (dice, deeds) = (Arc::clone(&dice), Arc::clone(&deeds));
        async move {
            let _running = running;
            if sends && dice.one_in(3) {
                let engine = deeds.engine.lock().unwrap().as_ref().map(MemoryEngine::next_attempt);
                if let Some(engine) = engine {
                    deeds.send(&engine, Sent::draw(&dice));
                }
            }
            match dice.roll(4) {
                0 => {}
                1 => tokio::task::yield_now().await,
                _ => tokio::time::sleep(Duration::from_millis(dice.roll(60))).await,
            }
            if dice.one_in(2) {
                cx.record_change("a thing");
            }
            if dice.one_in(2) {
                cx.record_evidence(Evidence::from_command("test", 0));
            }
            match dice.roll(8) {
                0 => panic!("the tool"),
                1 => Err("it does not work".to_owned()),
                2 => Ok("ä long result ".repeat(40)),
                n => Ok(n.to_string()),
            }
        }
    };
    Tool::raw(spec(name), run).unwrap()
}

const TOOL_NAMES: [&str; 7] = ["pay", "look", "alone", "ask", "timed", "child", "nobody"];

fn reply(dice: &Dice, deeds: &Deeds, structured: bool) -> Reply {
    let usage = Usage { input_tokens: dice.roll(50), output_tokens: 7, ..Usage::default() };
    let reply = Reply::new().usage(usage);
    let calls = |mut reply: Reply| {
        for _ in 0..=dice.roll(4) {
            let name = TOOL_NAMES[at(dice, 7)];
            let arguments = match name {
                "child" => r#"{"prompt":"Look."}"#,
                _ if dice.one_in(8) => "{ no",
                _ => "{}",
            };
            let id = format!("c{}", deeds.next_call.fetch_add(1, Ordering::Relaxed));
            reply = reply.call_raw(&id, name, arguments);
        }
        reply
    };
    let kinds = [ErrorKind::Overloaded, ErrorKind::ContextWindow, ErrorKind::Auth];
    let error = Error::new(kinds[at(dice, 3)], "it failed");
    match dice.roll(24) {
        0..5 => reply.say(if structured && dice.one_in(2) { "{" } else { r#"{"n":1}"# }),
        5 => reply.say("Half").stop(StopReason::MaxTokens),
        6 => reply.say("Half a").disconnect(),
        7 => calls(reply.say("Half a").retract("again")),
        8 => calls(reply).fail(error),
        9 => reply.fail(error),
        10 => calls(reply).disconnect(),
        11 => calls(reply.say("Late.")).delay(Duration::from_millis(30)),
        12 => reply.say("BLOCKED: it is missing"),
        13 => calls(reply).stop(StopReason::MaxTokens),
        _ => calls(reply),
    }
}

/// A compactor that drops the older half, or fails, after a delay.
struct SlowCompactor(Arc<Dice>, Arc<Deeds>);

impl Compactor for SlowCompactor {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        self.1.hooks.fetch_add(1, Ordering::Relaxed);
        let (fate, len) = (self.0.roll(6), history.len());
        async move {
            if fate > 2 {
                tokio::time::sleep(Duration::from_millis(fate * 5)).await;
            }
            match fate {
                0 => Err(Error::new(ErrorKind::Other, "it failed")),
                1 => Ok(None),
                _ => Ok(Some(Compaction::new(0, len / 2, vec![Item::user("in short")]))),
            }
        }
        .boxed()
    }
}

async fn pause(dice: &Dice) {
    match dice.roll(3) {
        0 => {}
        1 => tokio::task::yield_now().await,
        _ => tokio::time::sleep(Duration::from_millis(dice.roll(30))).await,
    }
}

fn drawn_agent(scenario: &Scenario, dice: &Arc<Dice>, deeds: &Arc<Deeds>) -> Agent {
    if scenario.is_mixed {
        let tools = Arc::new(ToolLog::default());
        let pool = Pool::unlimited();
        return random_agent::agent(dice, &tools, &pool, 1).with_ids(SystemIds);
    }
    let model = || {
        let (dice, deeds, structured) = (Arc::clone(dice), Arc::clone(deeds), scenario.structured);
        Scripted::from_fn(move |request, _| {
            deeds.requests.fetch_add(1, Ordering::Relaxed);
            assert!(request.history.is_settled(), "a request whose history is not settled");
            reply(&dice, &deeds, structured)
        })
    };
    let one = |name| tool(name, dice, deeds, scenario.tools_send);
    let child = Agent::new(model())
        .with_tools([one("pay"), one("look").idempotent()])
        .with_limits(limits_with_max_turns(3))
        .as_tool("child", "Looks")
        .unwrap();
    let tools = vec![
        one("pay"),
        one("look").idempotent(),
        one("alone").exclusive(),
        one("ask").requires_approval(),
        one("timed").idempotent().with_timeout(Duration::from_millis(25)),
        child,
    ];
    let mut kit = Toolkit::new(tools);
    if scenario.one_at_a_time {
        kit = kit.with_max_concurrency(std::num::NonZero::new(1).unwrap());
    }
    let mut agent = Agent::new(model()).with_toolkit(kit).with_limits(Limits {
        max_turns: Some(scenario.max_turns),
        max_turn_retries: 2,
        ..Limits::default()
    });
    let mut budget = Budget::new();
    if let Some(calls) = scenario.tool_calls {
        budget = budget.with_tool_calls(calls);
    }
    if let Some(tokens) = scenario.output_tokens {
        budget = budget.with_output_tokens(tokens);
    }
    if let Some(time) = scenario.time_limit {
        budget = budget.with_time_limit(Duration::from_millis(time));
    }
    if scenario.wrap_up {
        budget = budget.with_wrap_up();
    }
    agent = agent.with_budget(budget);
    if scenario.interactive {
        agent = agent.interactive();
    }
    if scenario.falls_back {
        agent = agent.with_fallback(model());
    }
    if scenario.structured {
        agent = agent.with_validation(|turn| match serde_json::from_str::<Value>(&turn.text()) {
            Ok(_) => Ok(()),
            Err(_) => Err("not JSON"),
        });
    }
    if scenario.evidence {
        agent = agent.with_evidence(RequireEvidence::new());
    }
    if scenario.compaction {
        agent = agent
            .with_window(Window::new(300))
            .with_compactor(SlowCompactor(Arc::clone(dice), Arc::clone(deeds)));
    }
    with_hooks(agent, scenario, dice, deeds)
}

fn with_hooks(
    mut agent: Agent,
    scenario: &Scenario,
    dice: &Arc<Dice>,
    deeds: &Arc<Deeds>,
) -> Agent {
    let given = || (Arc::clone(dice), Arc::clone(deeds));
    if scenario.prepares {
        let (dice, deeds) = given();
        agent = agent.with_hook(hook::prepare_request(move |_, request| {
            let (dice, deeds) = (Arc::clone(&dice), Arc::clone(&deeds));
            async move {
                deeds.hooks.fetch_add(1, Ordering::Relaxed);
                pause(&dice).await;
                request
            }
        }));
    }
    if scenario.judges_calls {
        let (dice, deeds) = given();
        agent = agent.with_hook(hook::before_tool(move |_, _| {
            let (dice, deeds) = (Arc::clone(&dice), Arc::clone(&deeds));
            async move {
                deeds.hooks.fetch_add(1, Ordering::Relaxed);
                pause(&dice).await;
                match dice.roll(6) {
                    0 => CallDecision::Deny("no".into()),
                    1 => CallDecision::RequireApproval,
                    2 => CallDecision::RewriteArguments(
                        json!({ "prompt": "Look there.", "n": dice.roll(9) }).to_string(),
                    ),
                    _ => CallDecision::Allow,
                }
            }
        }));
    }
    if scenario.rewrites_results {
        let dice = Arc::clone(dice);
        agent = agent.with_hook(hook::after_tool(move |_, _, result| {
            if dice.one_in(2) {
                result.content = format!("rewritten {}", dice.roll(9)).into();
            }
        }));
    }
    if scenario.notes {
        // Observing hooks are called in each attempt.
        let dice = Arc::clone(dice);
        agent = agent.with_hook(hook::after_sampling(move |_, _| {
            let dice = Arc::clone(&dice);
            async move {
                pause(&dice).await;
                match dice.one_in(2) {
                    true => vec![Item::user("A note.")],
                    false => Vec::new(),
                }
            }
        }));
    }
    if scenario.objects {
        let (dice, deeds) = given();
        agent = agent.with_hook(hook::before_stop(move |state, _| {
            let (dice, deeds) = (Arc::clone(&dice), Arc::clone(&deeds));
            async move {
                deeds.hooks.fetch_add(1, Ordering::Relaxed);
                pause(&dice).await;
                let usage = Usage { input_tokens: 3, ..Usage::default() };
                state.report_helper("judge", None, usage);
                match dice.one_in(3) {
                    true => StopDecision::Continue("Not yet.".into()),
                    false => StopDecision::Allow,
                }
            }
        }));
    }
    agent
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

async fn check_seed(seed: u64) -> Vec<String> {
    let dice = Dice::new(seed);
    let scenario = Scenario::draw(&dice);
    if env_number("DRAWN_SHOW").is_some() {
        println!("{scenario}");
    }
    let checked = std::panic::AssertUnwindSafe(check_scenario(&scenario, &dice)).catch_unwind();
    checked.await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        if env_number("DRAWN_SHOW").is_some() {
            println!("FAIL {seed}: {}", text.clone().unwrap_or_default());
        }
        panic!("{scenario}\n{}", text.unwrap_or_default())
    })
}

async fn check_scenario(scenario: &Scenario, dice: &Arc<Dice>) -> Vec<String> {
    let deeds = Arc::new(Deeds::default());
    let agent = drawn_agent(scenario, dice, &deeds);
    let mut engine = MemoryEngine::new();
    if scenario.separate_calls {
        engine = engine.with_worker(&agent);
    }
    let mut ends = Vec::new();
    let mut pending = Vec::new();
    for number in 0..3 {
        let start = match pending.is_empty() {
            true => Start::Input("Do it."),
            false => Start::Verdicts(std::mem::take(&mut pending)),
        };
        let mut run = LossyRun::new(&agent, &engine, start);
        run = run.with_losses(scenario.losses[number].iter().copied());
        *deeds.engine.lock().unwrap() = Some(run.engine.next_attempt());
        run.before_operation = Some(sender(scenario, dice, &deeds, &run));
        let outcome = match run.drive().await {
            Ok(outcome) => outcome,
            Err(error) => panic!("the run has ended without an outcome: {error}"),
        };
        *deeds.engine.lock().unwrap() = None;
        assert_eq!(deeds.running.load(Ordering::Relaxed), 0, "a tool still runs");
        check_deeds(&deeds, &run, &outcome).await;
        ends.push(outcome.reason.as_str().to_owned());
        let verdicts = outcome.pending.into_iter().map(|call| (call, draw_verdict(dice)));
        pending = verdicts.collect();
        engine = run.engine.next_attempt();
    }
    ends
}

fn draw_verdict(dice: &Dice) -> Verdict {
    match dice.roll(4) {
        0 => Verdict::deny("no"),
        1 => Verdict::Output(random_agent::tool_output(dice)),
        // A call of an external tool needs a result, not an approval.
        2 => Verdict::Output(turnstream::tool::ToolOutput::ok("from elsewhere")),
        _ => Verdict::deny("not now"),
    }
}

/// Sends the commands of the scenario, and verdicts on pending calls.
fn sender(
    scenario: &Scenario,
    dice: &Arc<Dice>,
    deeds: &Arc<Deeds>,
    run: &LossyRun,
) -> BeforeOperation {
    let (commands, dice, deeds) = (scenario.commands.clone(), Arc::clone(dice), Arc::clone(deeds));
    let (events, mut operation, mut verdicts) = (Arc::clone(&run.events), 0, 0);
    Arc::new(Mutex::new(move |engine: &MemoryEngine, name: &'static str| {
        for (_, sent) in commands.iter().filter(|(at, _)| *at == operation) {
            deeds.send(engine, *sent);
        }
        operation += 1;
        if name != "wait" {
            return;
        }
        let events = events.lock().unwrap();
        for call in asked_calls(events.last().unwrap()) {
            verdicts += 1;
            let verdict = match dice.one_in(3) {
                true => draw_verdict(&dice),
                false => Verdict::Approve,
            };
            let command = Command::Verdict { call, verdict };
            // A run that was lost while it finished waits for nothing.
            let _ = engine.send(format!("v{verdicts}"), command);
        }
    }))
}

/// The calls whose approval was requested, including those of sub-agents.
fn asked_calls(events: &[Event]) -> Vec<turnstream::item::PendingCall> {
    fn collect(
        event: &Event,
        path: &mut Vec<String>,
        calls: &mut Vec<turnstream::item::PendingCall>,
    ) {
        match event {
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                let (call, path) = ((**call).clone(), path.clone());
                calls.push(turnstream::item::PendingCall { path, ..call });
            }
            Event::Nested { call_id, event, .. } => {
                path.push(call_id.clone());
                collect(event, path, calls);
                path.pop();
            }
            _ => {}
        }
    }
    let mut calls = Vec::new();
    for event in events {
        collect(event, &mut Vec::new(), &mut calls);
    }
    calls
}

async fn check_deeds(deeds: &Deeds, run: &LossyRun, outcome: &Outcome) {
    let count = || {
        let (requests, hooks) = (&deeds.requests, &deeds.hooks);
        let begun = deeds.begun.lock().unwrap().len();
        (requests.load(Ordering::Relaxed), hooks.load(Ordering::Relaxed), begun)
    };
    let before = count();
    run.check(outcome).await;
    assert_eq!(count(), before, "the replay calls no providers, hooks or tools");
    let mut begun: HashMap<String, usize> = HashMap::new();
    for (key, name) in deeds.begun.lock().unwrap().iter() {
        if matches!(*name, "pay" | "alone" | "ask") {
            *begun.entry(key.clone()).or_default() += 1;
        }
    }
    assert!(begun.values().all(|count| *count == 1), "a call began twice: {begun:?}");
    let entries = run.engine.entries();
    let was_rewritten = entries.iter().any(|entry| matches!(entry, Entry::Rewritten { .. }));
    let (history, queued) = (run.history(), run.engine.queued());
    for (id, text) in deeds.said.lock().unwrap().iter().filter(|(_, text)| !text.is_empty()) {
        let is_it = |item: &&Item| item.as_user().is_some_and(|said| said.text() == *text);
        let delivered = history.iter().filter(is_it).count();
        let waiting = queued.iter().filter(|stored| stored.id == *id).count();
        let all = delivered + waiting;
        assert!(
            all == 1 || was_rewritten && all == 0,
            "`{text}` was delivered {delivered} times, and waits {waiting} times"
        );
    }
}
