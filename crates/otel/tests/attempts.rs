//! Durable runs whose process dies, and which continue elsewhere.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use turnstream::agent::Agent;
use turnstream::durable::Attempt;
use turnstream::event::Event;
use turnstream::hub::Hub;
use turnstream_testing::durable_suite::MemoryEngine;

use crate::recorder::{RecordedSpan, Recorder};
use crate::scenarios::{agent, answer, call, hosted, model, scenario, usage};
use crate::trees::{recorded_telemetry, start};

fn roots(recorder: &Recorder) -> Vec<RecordedSpan> {
    recorder.spans().into_iter().filter(|it| it.parent.is_none()).collect()
}

/// An agent whose runs have two turns, with a call in the first one.
fn recorded_agent(recorder: &Recorder) -> Agent {
    let model = turnstream::provider::Scripted::from_fn(|request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            true => answer("Done."),
            false => call("look"),
        }
    });
    let agent = agent(model.with_model("m")).with_label("main");
    agent.with_run_observer(recorded_telemetry(recorder))
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
    let (mut losses, mut linked) = (0, 0);
    for polls in 0.. {
        let recorder = Recorder::default();
        let agent = recorded_agent(&recorder);
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
        assert!(whole("chat m") <= 2 && whole("execute_tool look") <= 1, "{}", recorder.trees());
        let second = spans[first_spans..].iter().find(|it| it.parent.is_none());
        if let (Some(second), true, true) = (second, has_step, first_spans > 0) {
            assert_eq!(*second.links, [spans[0].id], "after {polls} polls");
            linked += 1;
        }
        losses += 1;
    }
    println!("{losses} losses, {linked} attempts linked to an earlier one");
    assert!(losses > 20 && linked > 5, "{losses} losses, {linked} linked");
}
