//! Nested sub-agents: their depth, and how they are identified.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use serde_json::json;
use turnstream::agent::{Limits, State, hook};
use turnstream::event::EndReason;
use turnstream::item::{Item, RawJson, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolContext, ToolOutput, ToolUpdate};
use turnstream::{Agent, Error, ErrorKind, Event, Outcome};

use turnstream_test_support::tools::spec;

/// A model that calls the tool `sub` and then answers with its result.
fn delegating_model() -> Scripted {
    Scripted::from_fn(|request, _| match request.history.last().and_then(Item::as_tool_result) {
        None => Reply::new().call("sub", json!({ "prompt": "go" })),
        Some(result) => Reply::text(format!("{}: {}", result.kind, result.content.text())),
    })
}

fn limits_with_depth(max_depth: u32) -> Limits {
    Limits { max_depth, ..Limits::default() }
}

/// An agent above this many levels of sub-agents, each of which `tool` turns into a tool.
fn nested_agents(levels: usize, tool: fn(&Agent) -> Tool) -> Agent {
    let deepest = Agent::new(Scripted::from_fn(|_, _| Reply::text("deepest")));
    (0..levels).fold(deepest, |below, _| Agent::new(delegating_model()).with_tools([tool(&below)]))
}

fn wrap_as_tool(agent: &Agent) -> Tool {
    agent.as_tool("sub", "Goes deeper").unwrap()
}

/// A tool that runs an agent itself, and passes on the data of its run.
fn handwritten_sub_agent_tool(agent: &Agent) -> Tool {
    let agent = agent.clone();
    let run = move |_: serde_json::Value, cx: ToolContext| {
        let run = agent.run("go").with_data(cx.run_data().clone());
        async move { ToolOutput::ok(run.outcome().await.text) }
    };
    Tool::raw(spec("sub"), run).unwrap().running_sub_agents()
}

/// The depth to which events were nested, and the outcome.
fn run_and_measure_depth(agent: &Agent) -> (usize, Outcome) {
    let mut run = agent.run("go");
    let mut deepest = 0;
    block_on(async {
        while let Some(event) = run.next().await {
            let (mut event, mut depth) = (&event.unwrap(), 0);
            while let Event::Nested { event: inner, .. } = event {
                (event, depth) = (inner, depth + 1);
            }
            deepest = deepest.max(depth);
        }
        (deepest, run.outcome().await)
    })
}

#[test]
fn sub_agents_nest_eight_levels_deep_and_the_next_call_is_denied() {
    let (depth, outcome) = run_and_measure_depth(&nested_agents(8, wrap_as_tool));
    assert_eq!((depth, outcome.reason), (8, EndReason::Completed));
    assert!(outcome.text.ends_with("deepest"), "{}", outcome.text);
    let (depth, outcome) = run_and_measure_depth(&nested_agents(9, wrap_as_tool));
    assert_eq!((depth, outcome.reason), (8, EndReason::Completed));
    let denied = "denied: Denied: sub-agents are nested as deep as allowed";
    assert!(outcome.text.contains(denied), "{}", outcome.text);
}

#[test]
fn the_depth_limit_of_the_outermost_run_applies_to_all_sub_agents() {
    for (max_depth, levels, reached) in [(2, 5, 2), (12, 12, 12), (0, 1, 0)] {
        let agent = nested_agents(levels, wrap_as_tool).with_limits(limits_with_depth(max_depth));
        assert_eq!(
            run_and_measure_depth(&agent).0,
            reached,
            "{levels} levels, {max_depth} allowed"
        );
    }
}

#[test]
fn a_tool_that_runs_an_agent_itself_counts_as_a_level() {
    let text = |levels| {
        run_and_measure_depth(
            &nested_agents(levels, handwritten_sub_agent_tool).with_limits(limits_with_depth(3)),
        )
        .1
        .text
    };
    assert!(text(3).ends_with("deepest"), "{}", text(3));
    assert!(text(4).contains("denied: Denied"), "{}", text(4));
}

#[test]
fn a_denied_sub_agent_is_not_started_and_other_tools_still_run() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let other = Tool::raw(spec("other"), move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        async { "ran" }
    });
    let below = Scripted::new(Vec::<Reply>::new());
    let batch = Reply::new().call("sub", json!({ "prompt": "go" })).call("other", json!({}));
    let agent = Agent::new(Scripted::new([batch, Reply::text("done")]))
        .with_tools([wrap_as_tool(&Agent::new(below.clone())), other.unwrap()])
        .with_limits(limits_with_depth(0));
    let (_, outcome) = run_and_measure_depth(&agent);
    let results = outcome.new_items().iter().filter_map(Item::as_tool_result);
    let kinds: Vec<_> = results.map(|result| result.kind).collect();
    assert_eq!(kinds, [ResultKind::Denied, ResultKind::Ok]);
    assert_eq!((below.requests().len(), ran.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn thirty_sub_agents_inside_one_another_fit_a_stack_of_two_mib() {
    let deep = || {
        let (depth, outcome) = run_and_measure_depth(
            &nested_agents(30, wrap_as_tool).with_limits(limits_with_depth(30)),
        );
        assert_eq!((depth, outcome.reason), (30, EndReason::Completed));
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(deep).unwrap();
    thread.join().unwrap();
}

#[test]
fn evidence_and_progress_of_deeply_nested_sub_agents_survive_serialization() {
    let deep = (0..500).fold(json!("bottom"), |inner, _| json!([inner]));
    let tool = Tool::raw(spec("sub"), move |_, cx: ToolContext| {
        cx.record_evidence(&deep);
        let progress = ToolUpdate::progress(&deep);
        ready(futures::stream::iter([progress, ToolUpdate::output("done")]).boxed())
    });
    let bottom = Agent::new(delegating_model()).with_tools([tool.unwrap()]);
    let agent = (0..8)
        .fold(bottom, |below, _| Agent::new(delegating_model()).with_tools([wrap_as_tool(&below)]));
    assert_events_round_trip(&agent);
}

#[test]
fn evidence_and_progress_set_by_hooks_survive_serialization_at_any_depth() {
    let deep = RawJson::new(&(0..500).fold(json!("bottom"), |inner, _| json!([inner]))).unwrap();
    let tool = || {
        Tool::raw(spec("sub"), |_, cx: ToolContext| {
            cx.record_evidence("shallow");
            let updates = [ToolUpdate::progress("shallow"), ToolUpdate::output("done")];
            ready(futures::stream::iter(updates).boxed())
        })
    };
    let redacting = |deep: RawJson| {
        let (of_progress, of_evidence) = (deep.clone(), deep);
        Agent::new(delegating_model())
            .with_hook(hook::redact_progress(move |_, _, data| *data = of_progress.clone()))
            .with_hook(hook::redact_evidence(move |_, _, json| *json = of_evidence.clone()))
    };
    let after = |deep: RawJson| {
        Agent::new(delegating_model()).with_hook(hook::after_tool(move |_, _, result| {
            let report = Arc::make_mut(result.report.get_or_insert_default());
            report.evidence.push(deep.clone());
        }))
    };
    for bottom in [redacting(deep.clone()), after(deep)] {
        let bottom = bottom.with_tools([tool().unwrap()]);
        let agent = (0..8).fold(bottom, |below, _| {
            Agent::new(delegating_model()).with_tools([wrap_as_tool(&below)])
        });
        assert_events_round_trip(&agent);
    }
}

/// Checks that each event of a run survives a round trip through JSON.
#[track_caller]
fn assert_events_round_trip(agent: &Agent) {
    let mut run = agent.run("go");
    while let Some(event) = block_on(run.next()) {
        let event = event.unwrap();
        let line = serde_json::to_string(&event).unwrap();
        let read: Event = serde_json::from_str(&line).expect("it reads back");
        assert_eq!(serde_json::to_string(&read).unwrap(), line);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_hook_knows_its_current_agent_even_after_an_await() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let log = {
        let seen = Arc::clone(&seen);
        let note = move |when: &str, state: &State| {
            seen.lock().unwrap().push(format!("{when} {}", state.label));
        };
        Arc::new(hook::turn_started(move |state| {
            let note = note.clone();
            note("before", &state);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                note("after", &state);
            }
        }))
    };
    let delay = Duration::from_secs(2);
    let deepest = Agent::new(Scripted::from_fn(move |_, _| Reply::new().delay(delay).say("Hi.")))
        .with_hook(Arc::clone(&log));
    let model = Scripted::from_fn(move |request, _| {
        match request.history.last().and_then(Item::as_tool_result) {
            None => Reply::new().delay(delay).call("reader", json!({ "prompt": "go" })),
            Some(_) => Reply::text("Read."),
        }
    });
    let middle = Agent::new(model)
        .with_hook(Arc::clone(&log))
        .with_tools([deepest.as_tool("reader", "Reads").unwrap()]);
    let lead = Scripted::from_fn(move |_, n| {
        let ask = |reply: Reply, name| reply.call(name, json!({ "prompt": "go" }));
        match n {
            0 => ["a", "b"].into_iter().fold(Reply::new().delay(delay), ask),
            _ => Reply::text("Done."),
        }
    });
    // One agent under two names, one of which is a label.
    let tools = [
        middle.as_tool("a", "Asks").unwrap(),
        middle.clone().with_label("second").as_tool("b", "Asks").unwrap(),
    ];
    let outcome = Agent::new(lead).with_hook(log).with_tools(tools).run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);

    let seen = seen.lock().unwrap();
    let count = |line: String| seen.iter().filter(|seen| **seen == line).count();
    for label in ["", "a", "a/reader", "second", "second/reader"] {
        assert!(count(format!("before {label}")) > 0, "{label} began: {seen:?}");
        assert!(count(format!("after {label}")) > 0, "{label} went on: {seen:?}");
    }
}

#[test]
fn the_error_of_a_hook_names_the_agent_it_ran_for() {
    let failing = hook::turn_started(|_| async { Err(Error::new(ErrorKind::Other, "no")) });
    let told = Arc::<Mutex<Vec<String>>>::default();
    let telling = {
        let told = Arc::clone(&told);
        hook::on_failure(move |_, error| told.lock().unwrap().push(error.to_string()))
    };
    let below = Agent::new(Scripted::new(["Hi."])).with_hook(failing).with_hook(telling);
    block_on(Agent::new(delegating_model()).with_tools([wrap_as_tool(&below)]).run("go").outcome());
    let told = told.lock().unwrap();
    assert!(told[0].contains("/sub` failed in `turn_started`: no"), "{told:?}");
}
