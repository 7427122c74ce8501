//! The events of calls that are executed separately from their run, and when such a call is
//! dropped.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join;
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use turnstream::agent::hook;
use turnstream::durable::{Attempt, ToolCallRequest, is_attempt_lost};
use turnstream::env::SystemIds;
use turnstream::event::{EndReason, ToolEvent};
use turnstream::hub::{Command, Hub, HubEvent, RunSource};
use turnstream::item::{ResultKind, ToolCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{RunData, Tool, ToolUpdate};
use turnstream::{Agent, Error, ErrorKind, Event, History, Outcome};

use turnstream_test_support::tools::{Counter, spec};
use turnstream_testing::durable_suite::{Loss, LossMoment, LossPlan, MemoryEngine};

const RUN: &str = "run-1";

/// A tool that reports each percentage, a second apart, and then has a result.
fn copying_tool(counter: &Counter) -> Tool {
    let counter = counter.clone();
    let run = move |_: Value, _| {
        let guard = counter.enter();
        let steps = stream::iter([50, 100]).then(|percent| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            ToolUpdate::progress(&percent)
        });
        let updates = steps.chain(stream::iter([ToolUpdate::output("copied")]));
        let updates = updates.inspect(move |_| {
            let _alive = &guard;
        });
        ready(updates.boxed())
    };
    Tool::raw(spec("copy"), run).unwrap().idempotent()
}

/// Asks for two copies at once.
fn copying_agent(counter: &Counter) -> Agent {
    let model = Scripted::from_fn(|request, _| {
        let has_results = request.history.iter().any(|item| item.as_tool_result().is_some());
        match has_results {
            false => Reply::new().call_raw("c1", "copy", "{}").call_raw("c2", "copy", "{}"),
            true => Reply::text("Done."),
        }
    });
    Agent::new(model).with_tool(copying_tool(counter))
}

/// Drives a run with separately executed calls to its end. Returns what a reader of the hub
/// received after the first snapshot.
async fn drive(agent: &Agent, plan: &LossPlan) -> (Result<Outcome, Error>, Vec<Event>) {
    let hub = Hub::new();
    let engine = MemoryEngine::new().with_worker(agent).with_worker_hub(&hub);
    let driven = async {
        loop {
            let mut engine = plan.wrap(engine.next_attempt());
            let attempt = Attempt::run(agent, "s", Vec::new(), "Go.").with_hub(&hub, RUN);
            match attempt.drive(&mut engine).await {
                Err(error) if is_attempt_lost(&error) => tokio::task::yield_now().await,
                done => return done,
            }
        }
    };
    join(driven, read(&hub)).await
}

/// Reads a run to its end. A snapshot takes the place of all events before it.
async fn read(hub: &Hub) -> Vec<Event> {
    let mut events = Vec::new();
    let mut number = None;
    loop {
        let Ok(mut reader) = hub.read_run(RUN, number.as_ref()) else {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        while let Some(Ok(read)) = reader.next().await {
            number = read.number().cloned();
            match read {
                HubEvent::Snapshot { snapshot, .. } => {
                    events = snapshot.events().iter().map(|event| (**event).clone()).collect();
                }
                HubEvent::Event { event, .. } => events.push((*event).clone()),
                HubEvent::Ended { .. } => return events,
                other => panic!("{other:?}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The events of one call, in short.
fn summary_of(events: &[Event], id: &str) -> Vec<String> {
    let of_call = events.iter().filter_map(|event| match event {
        Event::Tool(event) if event.call_id() == id => Some(event),
        _ => None,
    });
    let in_short = |event: &ToolEvent| match event {
        ToolEvent::Started { .. } => "started".to_owned(),
        ToolEvent::Progress { data, name, .. } => format!("{name} {data}"),
        ToolEvent::Output(result) => format!("{:?}", result.kind),
        other => panic!("{other:?}"),
    };
    of_call.map(in_short).collect()
}

#[tokio::test(start_paused = true)]
async fn progress_of_separately_executed_calls_is_shown_while_they_run() {
    let agent = copying_agent(&Counter::default());
    let (outcome, events) = drive(&agent, &LossPlan::new()).await;
    assert_eq!(outcome.unwrap().reason, EndReason::Completed);
    for call in ["c1", "c2"] {
        assert_eq!(summary_of(&events, call), ["started", "copy 50", "copy 100", "Ok"]);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_rerun_by_a_later_attempt_are_shown_from_their_start() {
    // For each loss, a reader has each call from its start to its one result.
    let plan = LossPlan::new();
    let (outcome, _) = drive(&copying_agent(&Counter::default()), &plan).await;
    outcome.unwrap();
    let mut is_shown_again = false;
    for operation in 0..plan.operations() {
        for moment in
            [LossMoment::Before, LossMoment::After(1), LossMoment::After(4), LossMoment::Kept]
        {
            let plan = LossPlan::with_losses([Loss { operation, moment }]);
            let (outcome, events) = drive(&copying_agent(&Counter::default()), &plan).await;
            assert_eq!(outcome.unwrap().reason, EndReason::Completed);
            for call in ["c1", "c2"] {
                let summary = summary_of(&events, call);
                let results = summary.iter().filter(|event| *event == "Ok").count();
                assert_eq!(results, 1, "{operation} {moment:?}: {summary:?}");
                assert_eq!(
                    summary.first().unwrap(),
                    "started",
                    "{operation} {moment:?}: {summary:?}"
                );
                is_shown_again |= plan.attempts() > 1 && summary.contains(&"copy 100".to_owned());
            }
        }
    }
    assert!(is_shown_again, "no later attempt has shown progress");
}

#[tokio::test(start_paused = true)]
async fn a_progress_report_larger_than_its_limit_is_dropped() {
    let report = |_: Value, _| {
        let reports =
            ["x".repeat(64 << 10), "y".repeat(60 << 10)].map(|it| ToolUpdate::progress(&it));
        ready(stream::iter(reports).chain(stream::iter([ToolUpdate::output("done")])).boxed())
    };
    let model = Scripted::from_fn(|request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            false => Reply::new().call_raw("c1", "copy", "{}").call_raw("c2", "copy", "{}"),
            true => Reply::text("Done."),
        }
    });
    let agent = Agent::new(model).with_tool(Tool::raw(spec("copy"), report).unwrap());
    let (outcome, events) = drive(&agent, &LossPlan::new()).await;
    assert_eq!(outcome.unwrap().reason, EndReason::Completed);
    for call in ["c1", "c2"] {
        let summary = summary_of(&events, call);
        let first: Vec<_> = summary.iter().map(|event| event.chars().take(7).collect()).collect();
        let first: Vec<String> = first;
        assert_eq!(first, ["started", "copy \"y", "Ok"]);
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_redact_the_progress_of_separately_executed_calls() {
    let agent =
        copying_agent(&Counter::default()).with_hook(hook::redact_progress(|_, call, data| {
            *data = json!({ "call": call.call_id, "arguments": call.arguments }).into();
        }));
    let (_, events) = drive(&agent, &LossPlan::new()).await;
    let redacted = r#"copy {"call":"c1","arguments":"{}"}"#;
    assert_eq!(summary_of(&events, "c1"), ["started", redacted, redacted, "Ok"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_progress_hook_ends_the_run_and_shows_null() {
    let counter = Counter::default();
    let agent = copying_agent(&counter)
        .with_hook(hook::redact_progress(|_, _, _| panic!("no progress, please")));
    let (outcome, events) = drive(&agent, &LossPlan::new()).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Hook);
    let progress = |event: &String| event.starts_with("copy");
    let shown: Vec<_> = ["c1", "c2"].iter().flat_map(|call| summary_of(&events, call)).collect();
    assert!(shown.iter().filter(|event| progress(event)).all(|event| event == "copy null"));
    assert_eq!(counter.alive_count(), 0);
}

/// Performs one call with a hub, in which the run is `run`.
async fn perform(agent: &Agent, hub: Option<&Hub>, run: &str) -> ResultKind {
    let call = ToolCall { call_id: "c1".into(), name: "copy".into(), arguments: "{}".into() };
    let request = ToolCallRequest { session: "s".into(), run: Some(run.into()), call };
    let mut engine = MemoryEngine::new();
    let data = RunData::new();
    request.perform(agent, data, hub, &SystemIds, &mut engine).await.unwrap().kind
}

#[tokio::test(start_paused = true)]
async fn a_separately_executed_call_is_dropped_when_its_run_ends() {
    let counter = Counter::default();
    let agent = copying_agent(&counter);
    let hub = Hub::new();
    let (end, ended) = futures::channel::oneshot::channel::<()>();
    let events = ended.into_stream().filter_map(|_| async { None });
    let run = RunSource::new(History::empty("s"), events).with_run_id(RUN);
    hub.start("s", run).await.unwrap().detach();
    let finish = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(counter.alive_count(), 1);
        end.send(()).unwrap();
    };
    let (kind, ()) = join(perform(&agent, Some(&hub), RUN), finish).await;
    assert_eq!(kind, ResultKind::Interrupted);
    assert_eq!((counter.started_count(), counter.alive_count()), (1, 0));
}

/// A tool that never returns.
fn hanging_agent(counter: &Counter) -> Agent {
    let model = Scripted::from_fn(|_, _| {
        Reply::new().call_raw("c1", "hang", "{}").call_raw("c2", "hang", "{}")
    });
    let counter = counter.clone();
    let hang = Tool::raw(spec("hang"), move |_, _| {
        let guard = counter.enter();
        async move {
            let _alive = guard;
            std::future::pending::<&str>().await
        }
    });
    Agent::new(model).with_tool(hang.unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_through_the_hub_ends_separately_executed_calls_before_their_run() {
    let (counter, hub) = (Counter::default(), Hub::new());
    let agent = hanging_agent(&counter);
    let mut engine = MemoryEngine::new().with_worker(&agent).with_worker_hub(&hub);
    let attempt = Attempt::run(&agent, "s", Vec::new(), "Go.").with_hub(&hub, RUN);
    let interrupt = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(counter.alive_count(), 2);
        hub.send(RUN, Command::Interrupt).await.unwrap();
    };
    let driven = async {
        let outcome = attempt.drive(&mut engine).await.unwrap();
        assert_eq!(counter.alive_count(), 0, "no tool runs once the run has ended");
        outcome
    };
    let all = async { futures::join!(driven, read(&hub), interrupt) };
    let ended = tokio::time::timeout(Duration::from_mins(1), all).await;
    let (outcome, events, ()) = ended.expect("the interrupt ends the run");
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{:?}", outcome.reason);
    for call in ["c1", "c2"] {
        assert_eq!(summary_of(&events, call), ["started", "Interrupted"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_run_is_unknown_to_the_hub_runs_to_completion() {
    let agent = copying_agent(&Counter::default());
    assert_eq!(perform(&agent, None, RUN).await, ResultKind::Ok);
    assert_eq!(perform(&agent, Some(&Hub::new()), "another run").await, ResultKind::Ok);
}

#[tokio::test(start_paused = true)]
async fn only_runs_with_separately_executed_calls_accept_progress_commands() {
    let hub = Hub::new();
    let agent = copying_agent(&Counter::default());
    let run = hub.start("s", agent.run("Go.")).await.unwrap();
    let progress = || Command::ToolProgress { call_id: "c1".into(), data: json!(1).into() };
    let refused = hub.send(run.run_id(), progress()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    drop(run);

    // A durable run takes as much as waits for it, also of calls that it has not asked for.
    let hub = Hub::new();
    let engine = MemoryEngine::new().with_worker(&agent).with_worker_hub(&hub);
    let is_over = Arc::new(AtomicBool::new(false));
    let flood = async {
        let mut refused = 0;
        while !is_over.load(Ordering::Relaxed) {
            match hub.send(RUN, progress()).await {
                Err(error) if error.kind() == ErrorKind::Overloaded => refused += 1,
                _ => {}
            }
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        refused
    };
    let driven = async {
        let mut engine = engine.next_attempt();
        let attempt = Attempt::run(&agent, "s", Vec::new(), "Go.").with_hub(&hub, RUN);
        let outcome = attempt.drive(&mut engine).await.unwrap();
        is_over.store(true, Ordering::Relaxed);
        outcome
    };
    let (outcome, _) = join(driven, flood).await;
    assert_eq!(outcome.reason, EndReason::Completed);
}
