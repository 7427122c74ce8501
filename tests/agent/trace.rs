//! The trace of a run, step by step.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::agent::Budget;
use turnstream::agent::evidence::RequireEvidence;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::context::{Summarizer, Window};
use turnstream::env::Clock;
use turnstream::event::{EndReason, RewriteReason, ToolEvent, Transition};
use turnstream::item::{Evidence, ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::{Steps, TurnStreamExt, loop_stream};
use turnstream::tool::Tool;
use turnstream::trace::{
    FailureKind, IterationSpan, RemainingBudget, ToolExit, TraceAction, TraceEvent, TraceLine,
    read_jsonl,
};
use turnstream::usage::{Price, Prices};
use turnstream::{
    Agent, Error, ErrorKind, Event, EventStreamExt, History, Item, Journal, Request, Trace, Usage,
};

use turnstream_test_support::runs::{collect_rest, limits_with_max_turns};
use turnstream_test_support::tools::spec;

/// A tool that records the effects in its arguments, and fails if they say so.
fn act_tool() -> Tool {
    Tool::raw(spec("act"), |args: Value, cx| async move {
        let list = |name: &str| args[name].as_array().cloned().unwrap_or_default();
        for file in list("changes") {
            cx.record_change(file.as_str().unwrap());
        }
        for code in list("checks") {
            let code = i32::try_from(code.as_i64().unwrap()).unwrap();
            cx.record_evidence(Evidence::from_command("check", code));
        }
        match args["fails"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok("done"),
        }
    })
    .unwrap()
}

fn act_agent(replies: impl IntoIterator<Item = Reply>) -> Agent {
    Agent::new(Scripted::new(replies)).with_tools([act_tool()])
}

fn act_call(args: Value) -> Reply {
    Reply::new().call("act", args)
}

/// The events of a run, and the trace that was made from them.
async fn run_with_trace(agent: &Agent) -> (Vec<Event>, Vec<TraceEvent>) {
    let trace = agent.new_trace();
    let events = collect_rest(&mut agent.run("go").trace_to(&trace)).await;
    (events, trace.events())
}

async fn trace_steps(agent: Agent) -> Vec<TraceEvent> {
    run_with_trace(&agent).await.1
}

/// Each step in one or two words.
fn step_summaries(steps: &[TraceEvent]) -> Vec<String> {
    let word = |step: &TraceEvent| match &step.action {
        TraceAction::Tool { tool, .. } => {
            let exit = serde_json::to_value(step.result.tool_exit).unwrap();
            format!("{tool} {}", exit.as_str().unwrap())
        }
        TraceAction::Say { text, .. } => format!("say {text}"),
        TraceAction::Helper { purpose, .. } => format!("helper {purpose}"),
        TraceAction::Stop { stop_reason, .. } => format!("stop {stop_reason}"),
        other => panic!("{other:?}"),
    };
    steps.iter().map(word).collect()
}

#[track_caller]
fn assert_steps(steps: &[TraceEvent], expected: &[&str]) {
    assert_eq!(step_summaries(steps), expected);
    let numbers: Vec<_> = steps.iter().map(|step| step.step).collect();
    assert!(numbers.iter().copied().eq(1..=u32::try_from(steps.len()).unwrap()), "{numbers:?}");
}

#[tokio::test]
async fn a_trace_step_is_one_call_or_the_end_of_the_run() {
    let agent = act_agent([
        act_call(json!({ "changes": ["a.md"] })),
        act_call(json!({ "checks": [1] }))
            .call("act", json!({ "fails": "no  such file\nlook again" })),
        act_call(json!({ "checks": [0] })),
        Reply::text("Done."),
    ]);
    let steps = trace_steps(agent).await;
    assert_steps(
        &steps,
        &["act success", "act failure", "act failure", "act success", "stop success"],
    );
    assert_eq!(steps[0].result.changed_files, ["a.md"]);
    let kinds = |step: &TraceEvent| step.result.normalized_error.clone().unwrap();
    assert_eq!(kinds(&steps[1]).kind, FailureKind::Validation);
    assert_eq!(kinds(&steps[2]).kind, FailureKind::Runtime);
    assert_eq!(kinds(&steps[2]).summary, "no such file");
    let turns: Vec<_> = steps.iter().map(|step| step.turn).collect();
    assert_eq!(turns, [1, 2, 2, 3, 4]);
    let left: Vec<_> = steps.iter().map(|step| step.budgets.steps_remaining.unwrap()).collect();
    assert_eq!(left, [19, 18, 18, 17, 16]);
    let proof = steps[4].result.verification_evidence.as_ref();
    assert_eq!(proof, Some(&Evidence::from_command("check", 0)));
    let TraceAction::Tool { args, call_id, .. } = &steps[0].action else { panic!("no call") };
    assert_eq!(args.as_ref().unwrap().as_str(), r#"{"changes":["a.md"]}"#);
    assert!(!call_id.is_empty());
}

#[tokio::test]
async fn only_a_check_after_the_last_change_makes_the_trace_a_success() {
    for (replies, ending) in [
        (vec![], "stop completed"),
        (vec![json!({ "checks": [0] })], "stop success"),
        (vec![json!({ "checks": [0] }), json!({ "changes": ["a"] })], "stop completed"),
        (vec![json!({ "changes": ["a"] }), json!({ "checks": [0] })], "stop success"),
        (vec![json!({ "checks": [0] }), json!({ "checks": [1] })], "stop completed"),
        (vec![json!({ "checks": [0] }), json!({})], "stop success"),
    ] {
        let replies = replies.into_iter().map(act_call).chain([Reply::text("Done.")]);
        let steps = trace_steps(act_agent(replies.collect::<Vec<_>>())).await;
        assert_eq!(step_summaries(&steps).last().unwrap(), ending, "{:?}", step_summaries(&steps));
    }
}

#[tokio::test]
async fn a_rejected_claim_is_a_step_that_names_the_missing_evidence() {
    let agent = |second: &str| {
        let change = act_call(json!({ "changes": ["a.md"] }));
        act_agent([change, Reply::text("Done."), Reply::text(second)])
            .with_evidence(RequireEvidence::new())
    };
    let unproven = trace_steps(agent("It is done.")).await;
    assert_steps(&unproven, &["act success", "say Done.", "stop unproven"]);
    let missing = unproven[2].result.missing.as_deref().unwrap();
    assert!(missing.contains("a.md"), "{missing}");
    let blocked = trace_steps(agent("BLOCKED: write access")).await;
    assert_steps(&blocked, &["act success", "say Done.", "stop blocked"]);
    assert_eq!(blocked[2].result.missing.as_deref(), Some("write access"));
}

#[tokio::test]
async fn text_that_does_not_end_the_run_is_a_step() {
    let model = Scripted::new([Reply::text("I plan to."), Reply::text("Done.")]);
    let agent = Agent::new(model).with_tools([act_tool()]).with_hook(
        turnstream::agent::hook::before_stop({
            let asked = Arc::new(Mutex::new(0));
            move |_state, _turn| {
                let mut asked = asked.lock().unwrap();
                *asked += 1;
                let first = *asked == 1;
                async move {
                    match first {
                        true => turnstream::agent::hook::StopDecision::Continue("do it".to_owned()),
                        false => turnstream::agent::hook::StopDecision::Allow,
                    }
                }
            }
        }),
    );
    let (events, steps) = run_with_trace(&agent).await;
    assert_steps(&steps, &["say I plan to.", "stop completed"]);

    // Reported before the next request is built, so that records made for that request are not its
    // input.
    let trace = agent.new_trace();
    for event in &events {
        trace.observe(event);
        if matches!(event, Event::Continued { .. }) {
            assert_steps(&trace.events(), &["say I plan to."]);
        }
    }
}

/// Checks the exit that a result of this kind is traced as.
fn assert_tool_exit(kind: ResultKind, exit: ToolExit, failure: Option<FailureKind>) {
    let trace = Trace::new();
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
    let result = ToolResult::for_call(&call, kind, "so it is");
    trace.observe(&ToolEvent::Output(result).into());
    let step = trace.last_event().unwrap();
    assert_eq!(step.result.tool_exit, Some(exit), "{kind}");
    let error = step.result.normalized_error;
    assert_eq!(error.as_ref().map(|error| error.kind), failure, "{kind}");
    assert!(error.is_none_or(|error| error.summary == "so it is"));
}

#[test]
fn every_result_kind_maps_to_one_of_four_exits() {
    use ResultKind as Kind;
    for kind in [Kind::Ok, Kind::AlreadyExists] {
        assert_tool_exit(kind, ToolExit::Success, None);
    }
    assert_tool_exit(Kind::Error, ToolExit::Failure, Some(FailureKind::Runtime));
    assert_tool_exit(Kind::Panic, ToolExit::Failure, Some(FailureKind::Runtime));
    assert_tool_exit(Kind::Timeout, ToolExit::Timeout, Some(FailureKind::Timeout));
    for kind in [Kind::InvalidArguments, Kind::UnknownTool] {
        assert_tool_exit(kind, ToolExit::ValidationError, Some(FailureKind::Validation));
    }
    assert_tool_exit(Kind::Denied, ToolExit::Failure, Some(FailureKind::Denied));
    assert_tool_exit(Kind::Interrupted, ToolExit::Failure, Some(FailureKind::Interrupted));
    for kind in [Kind::Truncated, Kind::Budget, Kind::Skipped] {
        assert_tool_exit(kind, ToolExit::Failure, Some(FailureKind::NotRun));
    }
}

/// Runs of all sorts.
fn sample_agents() -> Vec<Agent> {
    let broken = Error::new(ErrorKind::Auth, "the key is wrong");
    vec![
        act_agent([Reply::text("Hi.")]),
        act_agent([
            act_call(json!({ "changes": ["a"] })),
            act_call(json!({ "checks": [0] })),
            Reply::text("x"),
        ]),
        act_agent([act_call(json!({})).call("nobody", json!({})), Reply::text("x")]),
        act_agent([act_call(json!({})), act_call(json!({}))]).with_limits(limits_with_max_turns(1)),
        act_agent([Reply::text("Half").fail(broken)]),
        act_agent([Reply::text(""), Reply::text("x")]),
        act_agent([act_call(json!({}))]).with_budget(Budget::new().with_tool_calls(0)),
        Agent::new(Scripted::new([act_call(json!({}))]))
            .with_tools([act_tool().requires_approval()]),
        agent_with_sub_agent(),
    ]
}

/// An agent whose sub-agent changes a file.
fn agent_with_sub_agent() -> Agent {
    let child = act_agent([act_call(json!({ "changes": ["b.md"] })), Reply::text("Changed.")]);
    let model = Scripted::new([
        act_call(json!({ "checks": [0] })),
        Reply::new().call_raw("c9", "child", r#"{"prompt":"go"}"#),
        Reply::text("Done."),
    ]);
    Agent::new(model).with_tools([act_tool(), child.as_tool("child", "Changes").unwrap()])
}

#[tokio::test]
async fn the_steps_of_a_prefix_are_a_prefix_and_the_same_events_have_the_same_steps() {
    for agent in sample_agents() {
        let (events, steps) = run_with_trace(&agent).await;
        let trace = agent.new_trace();
        let mut seen = 0;
        for event in &events {
            trace.observe(event);
            let so_far = trace.events();
            assert!(so_far.len() >= seen && steps.starts_with(&so_far));
            seen = so_far.len();
        }
        assert!(trace.events() == steps);
    }
}

#[tokio::test]
async fn every_trace_ends_with_one_stop_except_that_of_a_dropped_run() {
    for agent in sample_agents() {
        let (events, steps) = run_with_trace(&agent).await;
        let endings = |steps: &[TraceEvent]| {
            let own = steps.iter().filter(|step| step.within.is_empty());
            let ends: Vec<_> =
                own.map(|step| matches!(step.action, TraceAction::Stop { .. })).collect();
            (ends.iter().filter(|it| **it).count(), ends.last() == Some(&true))
        };
        assert_eq!(endings(&steps), (1, true), "{:?}", step_summaries(&steps));
        let trace = agent.new_trace();
        for event in events.iter().take(events.len() - 1) {
            trace.observe(event);
        }
        assert_eq!(endings(&trace.events()).0, 0);
    }
}

#[tokio::test]
async fn every_call_of_a_run_is_one_step() {
    for agent in sample_agents() {
        let (events, steps) = run_with_trace(&agent).await;
        let outputs = events.iter().map(Event::without_nesting).filter_map(Event::tool_output);
        let outputs: Vec<_> = outputs.map(|result| result.call_id.clone()).collect();
        let called = steps.iter().filter_map(|step| match &step.action {
            TraceAction::Tool { call_id, .. } => Some(call_id.clone()),
            _ => None,
        });
        assert_eq!(called.collect::<Vec<_>>(), outputs);
    }
}

#[tokio::test]
async fn a_sub_agents_steps_are_numbered_separately() {
    let (_, steps) = run_with_trace(&agent_with_sub_agent()).await;
    let (own, childs): (Vec<_>, Vec<_>) =
        steps.into_iter().partition(|step| step.within.is_empty());
    assert_steps(&own, &["act success", "child success", "stop completed"]);
    assert_steps(&childs, &["act success", "stop completed"]);
    assert!(
        childs
            .iter()
            .all(|step| step.within == ["c9"] && step.budgets == RemainingBudget::default())
    );
    assert_eq!(childs[0].result.changed_files, ["b.md"]);
}

#[tokio::test]
async fn the_trace_of_a_suspended_run_names_the_pending_calls() {
    let agent = Agent::new(Scripted::new([Reply::new().call_raw("c1", "act", "{}")]))
        .with_tools([act_tool().requires_approval()]);
    let steps = trace_steps(agent.clone()).await;
    assert_steps(&steps, &["stop pending"]);
    assert_eq!(steps[0].result.missing.as_deref(), Some("a verdict on or a result for `act` (c1)"));
}

/// The trace of a call that was pending, and of the verdict on it.
async fn trace_of_resumed_call(same_trace: bool) -> Vec<TraceEvent> {
    let model = Scripted::new([
        Reply::new().call_raw("c1", "act", r#"{"changes":["a"]}"#),
        Reply::text("Done."),
    ]);
    let agent = Agent::new(model).with_tools([act_tool().requires_approval()]);
    let first = agent.new_trace();
    let run = agent.run("go");
    let handle = run.handle();
    run.trace_to(&first).for_each(|_| async {}).await;
    let history = handle.history();
    let trace = if same_trace { first } else { agent.new_trace().with_resumed_history(&history) };
    let verdicts: Vec<_> = history
        .pending_calls()
        .into_iter()
        .map(|call| (call, turnstream::tool::Verdict::Approve))
        .collect();
    let resumed = agent.resume(history, verdicts).unwrap();
    resumed.trace_to(&trace).for_each(|_| async {}).await;
    trace.events()
}

#[tokio::test]
async fn a_resumed_call_is_traced_with_its_arguments_from_the_history_or_previous_run() {
    let told = trace_of_resumed_call(false).await;
    assert_steps(&told, &["act success", "stop completed"]);
    let same = trace_of_resumed_call(true).await;
    assert_steps(&same, &["stop pending", "act success", "stop completed"]);
    for step in [&told[0], &same[1]] {
        let TraceAction::Tool { args, .. } = &step.action else { panic!("no call") };
        assert_eq!(args.as_ref().unwrap().as_str(), r#"{"changes":["a"]}"#);
    }
}

#[tokio::test]
async fn an_interrupted_call_is_a_step() {
    let stuck = Tool::raw(spec("stuck"), |_, _| std::future::pending::<&str>()).unwrap();
    let model = Scripted::new([Reply::new().call("stuck", json!({}))]);
    let agent = Agent::new(model).with_tools([stuck]);
    let trace = agent.new_trace();
    let run = agent.run("go");
    let handle = run.handle();
    let mut run = run.trace_to(&trace);
    while let Some(event) = run.next().await {
        if matches!(event, Ok(Event::Tool(ToolEvent::Started { .. }))) {
            handle.interrupt();
        }
    }
    assert_steps(&trace.events(), &["stuck failure", "stop interrupted"]);
}

#[tokio::test(start_paused = true)]
async fn the_remaining_amount_of_each_budget_decreases() {
    let wait = Tool::raw(spec("wait"), |_, _| async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        "done"
    });
    let usage = Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() };
    let model = Scripted::new([
        Reply::new().call("wait", json!({})).usage(usage),
        Reply::text("Done.").usage(usage),
    ]);
    let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
    let budget = Budget::new()
        .with_total_tokens(1_000)
        .with_output_tokens(15)
        .with_tool_calls(3)
        .with_cost_limit(1.0, Prices::new().with_price("scripted", price))
        .with_time_limit(Duration::from_secs(1));
    let agent = Agent::new(model).with_tools([wait.unwrap()]).with_budget(budget);
    let budgets = |step: &TraceEvent| serde_json::to_value(step.budgets).unwrap();
    let (events, steps) = run_with_trace(&agent).await;
    let cost = price.cost(&usage);
    assert_eq!(
        budgets(&steps[0]),
        json!({
            "steps_remaining": 19,
            "tokens_remaining": 890,
            "output_tokens_remaining": 5,
            "tool_calls_remaining": 2,
            "cost_remaining": 1_000_000 - cost,
            "time_remaining_ms": 750,
        })
    );
    assert_eq!(budgets(&steps[1])["output_tokens_remaining"], 0);
    let spent = events.last().unwrap().outcome().unwrap().cost.unwrap();
    assert_eq!(budgets(&steps[1])["cost_remaining"], 1_000_000 - spent);
}

#[tokio::test]
async fn the_cost_at_the_stop_is_that_of_the_outcome_including_summaries() {
    let usage = |input_tokens| Usage { input_tokens, ..Usage::default() };
    let price = |input| Price { input, ..Price::default() };
    let prices = Prices::new().with_price("scripted", price(100.0)).with_price("cheap", price(1.0));
    let acts = |tokens| act_call(json!({ "note": "x".repeat(800) })).usage(usage(tokens));
    let replies = [acts(10), acts(900), "Done.".into()];
    let summary = Reply::text("In short.").usage(usage(50));
    let summarize =
        Summarizer::new(Scripted::new([summary]).with_model("cheap")).with_keep_turns(1);
    let agent = self::act_agent(replies)
        .with_window(Window::new(1_000))
        .with_compactor(summarize)
        .with_budget(Budget::new().with_cost_limit(1.0, prices));
    let (events, steps) = run_with_trace(&agent).await;
    let outcome = events.last().unwrap().outcome().unwrap();
    // The event of a compaction names no model: the trace counts it as the run's model.
    let cost = 910 * 100 + 50;
    assert_eq!((outcome.reason, outcome.cost), (EndReason::Completed, Some(cost)));
    assert_eq!(steps.last().unwrap().budgets.cost_remaining, Some(1_000_000 - cost));
}

#[tokio::test]
async fn a_trace_continues_with_the_next_run_and_resets_its_budgets() {
    let agent = act_agent([act_call(json!({})), Reply::text("Done."), Reply::text("Bye.")]);
    let trace = agent.new_trace();
    agent.run("go").trace_to(&trace).for_each(|_| async {}).await;
    agent.run("bye").trace_to(&trace).for_each(|_| async {}).await;
    let steps = trace.events();
    assert_steps(&steps, &["act success", "stop completed", "stop completed"]);
    assert_eq!(steps[2].budgets.steps_remaining, Some(19));
}

#[tokio::test]
async fn a_note_is_an_input_of_the_next_step() {
    let agent = act_agent([act_call(json!({})), Reply::text("Done.")]);
    let trace = agent.new_trace();
    trace.add_input(json!({ "files": ["a.md"] }));
    trace.add_input("because it is asked for");
    agent.run("go").trace_to(&trace).for_each(|_| async {}).await;
    let inputs: Vec<_> = trace.events().iter().map(|step| step.inputs.len()).collect();
    assert_eq!(inputs, [2, 0]);
}

/// A shared writer that fails or panics after a number of lines.
#[derive(Clone, Default)]
struct FaultyWriter {
    text: Arc<Mutex<Vec<u8>>>,
    fails_after: Option<usize>,
    panics: bool,
}

impl Write for FaultyWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut text = self.text.lock().unwrap();
        let lines = String::from_utf8_lossy(&text).lines().count();
        if self.fails_after.is_some_and(|most| lines >= most) {
            drop(text);
            assert!(!self.panics, "no more");
            return Err(std::io::Error::other("the disk is full"));
        }
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The steps and the iterations of a written trace.
fn read_lines(text: &str) -> (Vec<TraceEvent>, Vec<IterationSpan>) {
    let (mut steps, mut iterations) = (Vec::new(), Vec::new());
    for line in read_jsonl(text.as_bytes()) {
        match line.unwrap() {
            TraceLine::Step(step) => steps.push(*step),
            TraceLine::Iteration(iteration) => iterations.push(iteration),
            other => panic!("{other:?}"),
        }
    }
    (steps, iterations)
}

#[test]
fn lines_of_an_unknown_type_and_unknown_fields_are_ignored_when_a_trace_is_read() {
    let step = r#"{"step":1,"mood":"good","action":{"type":"say","text":"hm"}}"#;
    let iteration = r#"{"type":"iteration","mood":"good","turn":3}"#;
    let (steps, iterations) = read_lines(&format!("{step}\n{{\"type\":\"mood\"}}\n{iteration}\n"));
    assert_eq!((steps.len(), iterations.len()), (1, 1));
    assert_eq!((steps[0].step, iterations[0].turn), (1, 3));
    for broken in [r#"{"type":"iteration"}"#, r#"{"type":1}"#, "{}"] {
        let text = format!("{step}\n{broken}\n");
        let error = read_jsonl(text.as_bytes()).nth(1).unwrap().unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}

#[tokio::test]
async fn each_step_and_each_iteration_is_written_as_one_line_and_can_be_read_back() {
    let agent = act_agent([
        act_call(json!({ "changes": ["a"] })),
        act_call(json!({ "fails": "x" })),
        Reply::text("Done."),
    ]);
    let (trace, out) = (agent.new_trace(), FaultyWriter::default());
    trace.write_to(out.clone());
    let written = || String::from_utf8(out.text.lock().unwrap().clone()).unwrap();
    let mut run = agent.run("go").trace_to(&trace);
    while run.next().await.is_some() {
        let lines = trace.events().len() + trace.iterations().len();
        assert_eq!(written().lines().count(), lines);
    }
    let (steps, iterations) = read_lines(&written());
    assert!(steps == trace.events());
    assert_eq!(iterations, trace.iterations());
    // The step of a call precedes the end of its iteration.
    let is_iteration = |line: &str| line.starts_with(r#"{"type":"iteration","turn":"#);
    let kinds: Vec<bool> = written().lines().map(is_iteration).collect();
    assert_eq!(kinds, [false, true, false, true, false, true]);
    assert!(trace.failure().is_none());
    let late = FaultyWriter::default();
    trace.write_to(late.clone());
    assert_eq!(*late.text.lock().unwrap(), written().as_bytes());
}

#[tokio::test]
async fn a_failing_or_panicking_trace_writer_does_not_affect_the_run() {
    for panics in [false, true] {
        let agent =
            act_agent([act_call(json!({})), act_call(json!({ "a": 1 })), Reply::text("Done.")]);
        let (trace, good) = (agent.new_trace(), FaultyWriter::default());
        let bad = FaultyWriter { fails_after: Some(1), panics, ..FaultyWriter::default() };
        trace.write_to(bad.clone());
        trace.write_to(good.clone());
        agent.run("go").trace_to(&trace).for_each(|_| async {}).await;
        let lines =
            |out: &FaultyWriter| String::from_utf8_lossy(&out.text.lock().unwrap()).lines().count();
        assert_eq!((lines(&bad), lines(&good), trace.events().len()), (1, 6, 3));
        let failure = trace.failure().unwrap();
        assert_eq!(failure.kind(), ErrorKind::Store);
    }
}

#[tokio::test]
async fn a_hand_written_loop_is_traced_as_well() {
    let model = Scripted::new([act_call(json!({ "changes": ["a"] })), Reply::text("Done.")]);
    let kit = turnstream::Toolkit::new([act_tool()]);
    let mut history = History::empty("h");
    history.push(Item::user("go"));
    let budgets = RemainingBudget { steps_remaining: Some(19), ..RemainingBudget::default() };
    let (journal, trace) = (Journal::new(history.clone()), Trace::from_budgets(budgets));
    loop_stream(history, |history| {
        let turn = model.stream_turn(Request::new(history.clone()).with_tools(kit.specs()));
        let kit = kit.clone();
        turn.on_turn_complete(move |turn| async move {
            Ok(match turn.calls().is_empty() {
                true => Steps::stop(),
                false => kit.run(&history, &turn).then_next(|history| history),
            })
        })
    })
    .journal_to(&journal)
    .finish_with(&journal)
    .trace_to(&trace)
    .for_each(|_| async {})
    .await;
    let steps = trace.events();
    assert_steps(&steps, &["act success", "stop completed"]);
    assert_eq!(steps.iter().map(|step| step.turn).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(steps[0].budgets.steps_remaining, Some(18));
}

#[tokio::test]
async fn the_trace_reports_the_reason_of_the_end() {
    let auth = Error::new(ErrorKind::Auth, "the key is wrong");
    let steps = trace_steps(act_agent([Reply::text("Half").fail(auth)])).await;
    assert_steps(&steps, &["stop provider_error"]);
    let error = steps[0].result.normalized_error.as_ref().unwrap();
    assert_eq!(error.kind, FailureKind::Provider);
    assert!(error.summary.contains("the key is wrong"));
}

#[test]
fn arguments_are_traced_verbatim_and_invalid_json_as_a_string() {
    for (written, args) in [
        (r#"{"z":1,"a":2}"#, r#"{"z":1,"a":2}"#),
        ("", "{}"),
        (r#"{"a":"#, r#""{\"a\":""#),
        (r#"{"_why":{"risk":"low"},"a":1}"#, r#"{"a":1}"#),
        (r#"{"_why":{"risk":"low","more":1}}"#, r#"{"_why":{"risk":"low","more":1}}"#),
    ] {
        let mut history = History::empty("h");
        let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: written.into() };
        history.push(Item::tool_call("c", "t", written));
        let trace = Trace::new().with_resumed_history(&history);
        let result = ToolResult::for_call(&call, ResultKind::Ok, "x");
        trace.observe(&ToolEvent::Output(result).into());
        let Some(TraceAction::Tool { args: Some(kept), .. }) =
            trace.last_event().map(|it| it.action)
        else {
            panic!("no arguments")
        };
        assert_eq!(kept.as_str(), args);
    }
}

#[tokio::test]
async fn budgets_are_reset_after_a_dropped_run() {
    let agent = act_agent([act_call(json!({})), Reply::text("A plan."), Reply::text("Bye.")]);
    let trace = agent.new_trace();
    let mut dropped = agent.run("go").trace_to(&trace);
    let mut turns = 0;
    while turns < 2 {
        turns += usize::from(dropped.next().await.unwrap().unwrap().turn_complete().is_some());
    }
    drop(dropped);
    agent.run("bye").trace_to(&trace).for_each(|_| async {}).await;
    let steps = trace.events();
    assert_steps(&steps, &["act success", "stop completed"]);
    assert_eq!(steps[1].budgets.steps_remaining, Some(19));
}

#[tokio::test]
async fn the_usage_of_a_compaction_is_deducted_from_the_budgets() {
    let usage = |tokens| Usage { input_tokens: tokens, ..Usage::default() };
    let trace = Trace::from_budgets(RemainingBudget {
        tokens_remaining: Some(1_000),
        ..RemainingBudget::default()
    });
    let why = RewriteReason::Compacted;
    let rewritten = |usage: Usage| {
        let (items, usage) = (Vec::new(), usage.into());
        Event::Rewritten { why, from: 0, to: 0, items, usage, model: None }
    };
    trace.observe(&rewritten(usage(300)));
    let step = trace.last_event().unwrap();
    let purpose = "compacted".to_owned();
    assert_eq!(step.action, TraceAction::Helper { purpose, usage: usage(300) });
    let json = serde_json::to_value(&step.action).unwrap();
    assert_eq!((&json["type"], &json["purpose"]), (&json!("helper"), &json!("compacted")));
    // A rewrite without a request is not a step.
    trace.observe(&rewritten(Usage::default()));
    assert_eq!(trace.events().len(), 1);
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
    let result = ToolResult::for_call(&call, ResultKind::Ok, "x");
    trace.observe(&ToolEvent::Output(result).into());
    assert_eq!(trace.last_event().unwrap().budgets.tokens_remaining, Some(700));
}

#[tokio::test]
async fn deeply_nested_values_are_traced_and_read_back() {
    for depth in [100, 125, 126, 127, 128, 400] {
        let arguments = format!("{}{}", r#"{"a":"#.repeat(depth), "1") + &"}".repeat(depth);
        let tool = Tool::raw(spec("deep"), |args: Value, cx| async move {
            cx.record_evidence(json!([args]));
            "done"
        });
        let model =
            Scripted::new([Reply::new().call_raw("c1", "deep", &arguments), Reply::text("Done.")]);
        let agent = Agent::new(model).with_tools([tool.unwrap()]);
        let trace = agent.new_trace();
        agent.run("go").trace_to(&trace).for_each(|_| async {}).await;
        let steps = trace.events();
        assert_eq!(steps.len(), 2, "{depth}");
        for step in steps {
            let line = step.to_string();
            assert!(read_lines(&line).0 == [step], "{depth}");
        }
    }
}

#[test]
fn a_call_that_did_not_run_costs_nothing_and_a_reused_id_means_the_newest_call() {
    let tool_calls_remaining = Some(5);
    let mut trace =
        Trace::from_budgets(RemainingBudget { tool_calls_remaining, ..RemainingBudget::default() });
    for arguments in [r#"{"n":1}"#, r#"{"n":2}"#] {
        let mut history = History::empty("h");
        history.push(Item::tool_call("c", "t", arguments));
        trace = trace.with_resumed_history(&history);
    }
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
    let result = ToolResult::for_call(&call, ResultKind::Denied, "no");
    trace.observe(&ToolEvent::Output(result).into());
    let step = trace.last_event().unwrap();
    assert_eq!(step.budgets.tool_calls_remaining, tool_calls_remaining);
    let TraceAction::Tool { args: Some(args), .. } = step.action else { panic!("no arguments") };
    assert_eq!(args.as_str(), r#"{"n":2}"#);
}

#[tokio::test]
async fn a_long_error_is_shortened_to_240_characters() {
    let agent = act_agent([act_call(json!({ "fails": "é".repeat(1_000) })), Reply::text("Done.")]);
    let (_, steps) = run_with_trace(&agent).await;
    let error = steps[0].result.normalized_error.as_ref().unwrap();
    assert_eq!(error.summary, format!("{}…", "é".repeat(240)));
}

/// A clock that shows the time since its creation, as the runtime measures it, after a fixed date.
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000) + self.0.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn each_step_has_the_times_of_its_own_work() {
    let slow = |name: &str, secs| {
        Tool::raw(spec(name), move |_, _| async move {
            tokio::time::sleep(Duration::from_secs(secs)).await;
            "done"
        })
        .unwrap()
    };
    let wait = Duration::from_secs(1);
    let child = Agent::new(Scripted::new([Reply::text("Child.").delay(wait)]));
    let calls = Reply::new()
        .delay(wait)
        .call("slow", json!({}))
        .call("slower", json!({}))
        .call("waits", json!({}))
        .call("child", json!({ "prompt": "go" }));
    let agent = Agent::new(Scripted::new([calls, Reply::text("Done.").delay(wait)])).with_tools([
        slow("slow", 2),
        slow("slower", 5),
        slow("waits", 1).requires_approval(),
        child.as_tool("child", "Helps").unwrap(),
    ]);
    let trace = agent.new_trace().with_clock(RuntimeClock(tokio::time::Instant::now()));
    tokio::time::advance(Duration::from_secs(7)).await;
    let events = agent.run("go").trace_to(&trace);
    let events: Vec<_> = events.collect().await;
    assert!(matches!(events.last(), Some(Ok(Event::Finished(_)))), "{events:?}");
    let times: Vec<_> = trace
        .events()
        .iter()
        .map(|step| {
            let time = step.time.unwrap();
            assert_eq!(time.ended_at_ms - time.began_at_ms, time.duration_ms);
            (step_summaries(std::slice::from_ref(step))[0].clone(), time)
        })
        .map(|(step, time)| format!("{step}: {} + {}", time.began_at_ms / 1000, time.duration_ms))
        .collect();
    // The first request is sent in second 1007, and the calls start a second later.
    let expected = [
        "stop completed: 1008 + 1000",
        "child success: 1008 + 1000",
        "slow success: 1008 + 2000",
        "slower success: 1008 + 5000",
        "stop pending: 1007 + 6000",
    ];
    assert_eq!(times, expected);
    // The run has one iteration, and so has the sub-agent within it.
    assert_eq!(iteration_times(&trace), ["1: 1008 + 1000", "1: 1007 + 6000"]);
    let within = trace.iterations().into_iter().map(|iteration| iteration.within.len());
    assert_eq!(within.collect::<Vec<_>>(), [1, 0]);
}

/// The turn, the second of the beginning, and the duration of each iteration.
fn iteration_times(trace: &Trace) -> Vec<String> {
    let iterations = trace.iterations().into_iter();
    iterations
        .map(|iteration| {
            let time = iteration.time.unwrap();
            assert_eq!(time.ended_at_ms - time.began_at_ms, time.duration_ms);
            format!("{}: {} + {}", iteration.turn, time.began_at_ms / 1000, time.duration_ms)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn each_iteration_is_a_span_from_the_end_of_the_previous_one_to_its_own() {
    let wait = Duration::from_secs(1);
    let slow = Tool::raw(spec("slow"), |_, _| async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        "done"
    });
    let broken = Reply::text("Cut").delay(wait).disconnect();
    let call = Reply::new().delay(wait).call("slow", json!({}));
    let agent = Agent::new(Scripted::new([call, broken, Reply::text("Hm."), Reply::text("Done.")]))
        .with_tool(slow.unwrap())
        .with_hook(hook::before_stop(|_, turn| async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            match turn.text().as_str() {
                "Hm." => StopDecision::Continue("Go on.".into()),
                _ => StopDecision::Allow,
            }
        }));
    let trace = agent.new_trace().with_clock(RuntimeClock(tokio::time::Instant::now()));
    agent.run("go").trace_to(&trace).for_each(|_| async {}).await;
    // A request and a call; a request that breaks off; two answers with stop hooks after them.
    let expected = ["1: 1000 + 5000", "2: 1005 + 1000", "3: 1006 + 2000", "4: 1008 + 2000"];
    assert_eq!(iteration_times(&trace), expected);
    let continued = trace.iterations().into_iter().map(|iteration| iteration.continued);
    let expected = [
        Some(Transition::NextTurn),
        Some(Transition::Retry),
        Some(Transition::StopHookBlocking),
        None,
    ];
    assert_eq!(continued.collect::<Vec<_>>(), expected);
    let first = serde_json::to_value(&trace.iterations()[0]).unwrap();
    assert_eq!((&first["turn"], &first["continued"]), (&json!(1), &json!("next_turn")));
    assert_eq!(first["time"]["duration_ms"], 5000);

    // A hand-written loop reports turns, but not that it continues.
    let written = Trace::new();
    let turn = agent_turn(&Agent::new(Scripted::new(["Hi."]))).await;
    for _ in 0..2 {
        written.observe(&turn);
    }
    let turns: Vec<_> = written.iterations().into_iter().map(|it| (it.turn, it.time)).collect();
    assert_eq!(turns, [(1, None)], "the second iteration has not ended");
}

/// A complete turn, as an event.
async fn agent_turn(agent: &Agent) -> Event {
    let is_complete = |event: &Event| event.turn_complete().is_some();
    let events = collect_rest(&mut agent.run("go")).await;
    events.into_iter().find(is_complete).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_summary_has_the_time_of_its_request_and_a_report_of_a_hook_has_none() {
    let usage = |tokens| Usage { input_tokens: tokens, ..Usage::default() };
    let summary = Reply::text("Short.").usage(usage(50)).delay(Duration::from_secs(20));
    let summarizer = Summarizer::new(Scripted::new([summary])).with_keep_turns(1);
    let judge = hook::before_stop(move |state, _| async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        state.report_helper("judge", None, usage(5));
        StopDecision::Allow
    });
    let acts = |tokens| act_call(json!({ "note": "x".repeat(800) })).usage(usage(tokens));
    let agent = act_agent([acts(10), acts(900), "Done.".into()])
        .with_window(Window::new(1_000))
        .with_compactor(summarizer)
        .with_hook(judge);
    let trace = agent.new_trace().with_clock(RuntimeClock(tokio::time::Instant::now()));
    agent.run("go").trace_to(&trace).for_each(|_| async {}).await;
    let steps = trace.events();
    let time = |purpose: &str| {
        let is_it = |step: &&TraceEvent| matches!(&step.action, TraceAction::Helper { purpose: own, .. } if own == purpose);
        steps.iter().find(is_it).unwrap().time
    };
    let summary = time("compacted").unwrap();
    assert_eq!((summary.began_at_ms, summary.duration_ms), (1_000_000, 20_000));
    assert_eq!(time("judge"), None);
    assert!(steps.last().unwrap().time.is_some());
}

#[tokio::test]
async fn a_trace_without_a_clock_has_no_times() {
    let steps = trace_steps(act_agent([act_call(json!({})), Reply::text("Done.")])).await;
    assert!(steps.iter().all(|step| step.time.is_none()));
    assert!(!steps[0].to_string().contains("time"));
}
