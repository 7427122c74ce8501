//! Durable runs whose process dies, and which continue elsewhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use opentelemetry::trace::SpanId;
use serde_json::json;
use turnstream::agent::{Agent, EventObserver};
use turnstream::durable::Attempt;
use turnstream::event::{Event, ToolEvent};
use turnstream::hub::Hub;
use turnstream::propagation::TraceContext;
use turnstream::provider::Scripted;
use turnstream::tool::{RunData, Tool, ToolSpec};
use turnstream_testing::durable_suite::MemoryEngine;

use crate::recorder::{RecordedSpan, Recorder};
use crate::scenarios::{agent, answer, call, hosted, model, scenario, usage};
use crate::trees::{recorded_telemetry, start};

fn roots(recorder: &Recorder) -> Vec<RecordedSpan> {
    recorder.spans().into_iter().filter(|it| it.parent.is_none()).collect()
}

/// A model whose runs have two turns, with a call in the first one.
fn two_turns(tool: &'static str) -> Scripted {
    let model = Scripted::from_fn(move |request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            true => answer("Done."),
            false => call(tool),
        }
    });
    model.with_model("m")
}

fn recorded_agent(recorder: &Recorder) -> Agent {
    let agent = agent(two_turns("look")).with_label("main");
    agent.with_run_observer(recorded_telemetry(recorder))
}

/// A tool `count` that takes a second, which runs again if its attempt was lost, and that adds the
/// span that it sees to `seen` each time it runs.
fn counting_tool(seen: &Arc<Mutex<Vec<Option<TraceContext>>>>) -> Tool {
    let seen = Arc::clone(seen);
    let spec = ToolSpec::new("count", "Counts.", json!({ "type": "object" }));
    let count = Tool::raw(spec, move |_, cx| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().push(cx.trace_context());
            tokio::time::sleep(Duration::from_secs(1)).await;
            "counted".to_owned()
        }
    });
    count.unwrap().idempotent()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_continues_elsewhere_is_linked_to_the_span_with_which_it_began() {
    let (recorder, events) = start(scenario("a durable run that is killed in a turn"));
    events.collect::<Vec<_>>().await;
    let roots = roots(&recorder);
    assert_eq!(roots.len(), 2);
    assert_eq!((&*roots[0].links, &*roots[1].links), (&[][..], &[roots[0].id][..]));
    // The second attempt counts its own request only.
    let requests = |root: &RecordedSpan| {
        let spans = recorder.spans();
        spans.iter().filter(|it| it.parent == Some(root.id) && it.name == "chat m").count()
    };
    assert_eq!((requests(&roots[0]), requests(&roots[1])), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_after_a_loss_before_the_first_step_is_joined_only_by_a_given_parent() {
    let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let given = TraceContext::parse(value, None);
    for parent in [None, given] {
        let recorder = Recorder::default();
        let agent = agent(model([answer("Half").hang(), answer("Done.")]));
        let agent = agent.with_run_observer(recorded_telemetry(&recorder));
        let engine = MemoryEngine::new();
        let attempt = || {
            let (agent, mut engine) = (agent.clone(), engine.next_attempt());
            let attempt = Attempt::run(&agent, "s", Vec::new(), "Go.");
            let attempt = match &parent {
                Some(parent) => attempt.with_data(RunData::new().insert(parent.clone())),
                None => attempt,
            };
            async move { attempt.drive(&mut engine).await.map(drop) }
        };
        // The process dies in the first turn, before the engine has recorded a step.
        let lost = tokio::time::timeout(Duration::from_mins(1), attempt()).await;
        assert!(lost.is_err());
        attempt().await.unwrap();
        let spans = recorder.spans();
        let runs: Vec<_> = spans.iter().filter(|it| it.name == "invoke_agent").collect();
        assert_eq!(runs.len(), 2);
        assert!(runs.iter().all(|it| it.links.is_empty()));
        let are_joined = runs[0].trace == runs[1].trace && runs[0].parent.is_some();
        assert_eq!(are_joined, parent.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_only_read_back_has_no_spans() {
    let recorder = Recorder::default();
    let agent = recorded_agent(&recorder);
    let engine = MemoryEngine::new();
    hosted::attempt(&agent, engine.next_attempt()).collect::<Vec<_>>().await;
    let spans = recorder.spans().len();
    assert_eq!(spans, 4);
    let events: Vec<_> = hosted::attempt(&agent, engine.next_attempt()).collect().await;
    assert!(events.iter().flatten().any(|event| event.outcome().is_some()));
    assert_eq!(recorder.spans().len(), spans);
}

#[tokio::test(start_paused = true)]
async fn the_hub_of_a_durable_run_links_its_attempts_too() {
    let recorder = Recorder::default();
    let hub = Hub::builder().with_run_observer(recorded_telemetry(&recorder)).build();
    let agent = agent(model([call("look"), answer("Half").hang(), answer("Done.")]));
    let engine = MemoryEngine::new();
    let attempt = || {
        let (agent, hub, mut engine) = (agent.clone(), hub.clone(), engine.next_attempt());
        let attempt = Attempt::run(&agent, "s", Vec::new(), "Go.").with_hub(&hub, "run");
        async move { attempt.drive(&mut engine).await.map(drop) }
    };
    let lost = tokio::time::timeout(Duration::from_mins(1), attempt()).await;
    assert!(lost.is_err());
    attempt().await.unwrap();
    assert_eq!(
        recorder.trees(),
        "invoke_agent !cancelled\n  chat m\n  execute_tool look\n  chat m !cancelled\n\
         invoke_agent\n  chat m\n",
    );
    let roots = roots(&recorder);
    assert_eq!(*roots[1].links, [roots[0].id]);
}

#[tokio::test(start_paused = true)]
async fn at_any_loss_all_spans_end_and_no_recorded_step_has_a_second_span() {
    let (mut losses, mut linked, mut repeated_calls) = (0, 0, 0);
    for polls in 0.. {
        let (recorder, seen) = (Recorder::default(), Arc::default());
        let model = two_turns("count");
        let agent = agent(model.clone()).with_label("main").with_tool(counting_tool(&seen));
        let agent = agent.with_run_observer(recorded_telemetry(&recorder));
        let engine = MemoryEngine::new();
        let mut first = hosted::attempt(&agent, engine.next_attempt());
        let mut is_over = false;
        for _ in 0..polls {
            match first.next().now_or_never() {
                Some(event) => is_over |= event.is_none(),
                None => tokio::time::advance(Duration::from_secs(1)).await,
            }
        }
        drop(first);
        assert_eq!(recorder.open_spans(), Vec::<String>::new(), "after {polls} polls");
        if is_over {
            break;
        }
        let first_spans = recorder.spans().len();
        let has_step = engine.operations().contains(&"step");
        let events: Vec<_> = hosted::attempt(&agent, engine.next_attempt()).collect().await;
        let outcome = events.iter().flatten().find_map(Event::outcome).unwrap();
        assert_eq!(outcome.usage, usage(100, 10) + usage(100, 10));
        assert_eq!(recorder.open_spans(), Vec::<String>::new());
        let spans = recorder.spans();
        let whole = |name: &str| {
            let named = spans.iter().filter(|it| it.name == name);
            named.filter(|it| it.text("error.type").is_none()).count()
        };
        let trees = recorder.trees();
        assert!(whole("chat m") <= 2, "after {polls} polls:\n{trees}");
        // Each execution of the tool has a span of its own, which is the one that the tool sees.
        let seen = seen.lock().unwrap();
        let ids = |name: &str| -> Vec<SpanId> {
            spans.iter().filter(|it| it.name == name).map(|it| it.id).collect()
        };
        let (calls, executed) = (ids("execute_tool count"), seen.len());
        for context in seen.iter() {
            let context = context.as_ref().expect("a tool that runs again has a context");
            let is_seen = |id: &SpanId| context.traceparent().contains(&format!("-{id}-"));
            assert!(calls.iter().any(is_seen), "after {polls} polls: {context:?}\n{trees}");
        }
        assert!(whole("execute_tool count") <= executed, "{trees}");
        repeated_calls += usize::from(executed > 1);
        let requests = model.requests().len();
        assert!(ids("chat m").len() >= requests, "after {polls} polls:\n{trees}");
        // The end of the run is recorded, whichever attempt performs it.
        let ends = spans.iter().filter(|it| it.text("turnstream.reason").is_some()).count();
        assert!(ends > 0, "after {polls} polls:\n{trees}");
        let second = spans[first_spans..].iter().find(|it| it.parent.is_none());
        if let (Some(second), true, true) = (second, has_step, first_spans > 0) {
            assert_eq!(*second.links, [spans[0].id], "after {polls} polls");
            linked += 1;
        }
        losses += 1;
    }
    println!("{losses} losses, {linked} attempts linked, {repeated_calls} calls run again");
    assert!(losses > 20 && linked > 5, "{losses} losses, {linked} linked");
    assert!(repeated_calls > 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_continues_a_run_has_the_model_of_its_first_request() {
    let (recorder, events) = start(scenario("a durable run that is killed in a turn"));
    events.collect::<Vec<_>>().await;
    for root in roots(&recorder) {
        assert_eq!(root.text("gen_ai.request.model").as_deref(), Some("m"), "{root:?}");
    }
}

/// The event of a question for an approval of the call `c1`.
fn approval_request() -> Event {
    let call = json!({ "call_id": "c1", "name": "drop", "arguments": "{}" });
    ToolEvent::ApprovalRequested(serde_json::from_value(call).unwrap()).into()
}

#[tokio::test(start_paused = true)]
async fn a_question_of_an_earlier_attempt_is_one_wait_of_unknown_duration() {
    let recorder = Recorder::default();
    let mut telemetry = recorded_telemetry(&recorder).start_run();
    // The question was asked again in the earlier attempt.
    for _ in 0..2 {
        EventObserver::observe_repeated(&mut telemetry, &approval_request());
    }
    tokio::time::advance(Duration::from_mins(1)).await;
    let (call_id, name) = ("c1".to_owned(), "drop".to_owned());
    let started = ToolEvent::Started { call_id, name, arguments: String::new(), grant_id: None };
    telemetry.observe(&started.into());
    telemetry.end_of_events();
    let root = recorder.span("invoke_agent");
    let waits: Vec<_> =
        root.events.iter().filter(|(name, _)| name == "turnstream.approval_wait").collect();
    assert_eq!(waits.len(), 1, "{:?}", root.events);
    let keys: Vec<_> = waits[0].1.iter().map(|it| it.key.as_str()).collect();
    assert!(keys.contains(&"turnstream.approval.decision"), "{keys:?}");
    assert!(!keys.contains(&"turnstream.wait.duration"), "{keys:?}");
}
