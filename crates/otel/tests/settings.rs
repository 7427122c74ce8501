//! Telemetry as a setting of an agent or of a hub.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::hub::{Hub, RunSource};
use turnstream::propagation::{TraceContext, TraceContexts};
use turnstream::provider::Scripted;
use turnstream::request::{Effort, Options, Reasoning};
use turnstream::usage::Billing;
use turnstream::{History, Run};
use turnstream_otel::TelemetryExt;

use crate::recorder::Recorder;
use crate::scenarios::{agent, answer, model};
use crate::trees::recorded_telemetry;

fn parent() -> TraceContext {
    let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    TraceContext::parse(value, None).unwrap()
}

async fn finish(run: Run) {
    run.collect::<Vec<_>>().await;
}

#[tokio::test(start_paused = true)]
async fn each_run_of_an_agent_has_a_tree() {
    let recorder = Recorder::default();
    let agent = agent(model([answer("One."), answer("Two.")])).with_label("greeter");
    let agent = agent.with_run_observer(recorded_telemetry(&recorder));
    let first = agent.run("1").outcome().await;
    let conversation = first.history.id().to_owned();
    finish(agent.run_from(first.history, "2")).await;
    let tree = "invoke_agent greeter\n  chat m\n";
    assert_eq!(recorder.trees(), tree.repeat(2));
    for span in recorder.spans() {
        assert_eq!(span.text("gen_ai.conversation.id").as_ref(), Some(&conversation));
    }
}

#[tokio::test(start_paused = true)]
async fn the_options_of_an_agent_are_attributes_of_its_requests() {
    let recorder = Recorder::default();
    let options = Options {
        max_output_tokens: Some(500),
        reasoning: Some(Reasoning::Effort(Effort::Low)),
        stop_sequences: vec!["END".into()],
        ..Options::default()
    };
    let agent = agent(model([answer("One.")])).with_options(options);
    finish(agent.with_run_observer(recorded_telemetry(&recorder)).run("1")).await;
    let chat = recorder.span("chat m");
    assert_eq!(chat.number("gen_ai.request.max_tokens"), 500);
    assert_eq!(chat.text("gen_ai.request.reasoning.level").as_deref(), Some("low"));
    assert_eq!(chat.text("gen_ai.request.stop_sequences").as_deref(), Some("[\"END\"]"));
}

#[tokio::test(start_paused = true)]
async fn the_parent_of_a_run_is_the_context_in_its_data() {
    let (recorder, model) = (Recorder::default(), model([answer("One.")]));
    let agent = agent(model.clone()).with_run_observer(recorded_telemetry(&recorder));
    finish(agent.run("1").with_data(parent())).await;
    let run = recorder.span("invoke_agent");
    assert_eq!(run.parent, Some(0x00f0_67aa_0ba9_02b7_u64.into()));
    // The request continues the trace.
    let sent = Scripted::requests(&model)[0].trace_context.clone().unwrap();
    let chat = recorder.span("chat m").id;
    assert!(sent.traceparent().contains(&format!("4736-{chat}-")), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_recorded_in_both_ways_has_one_tree() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder);
    let agent = agent(model([answer("One.")])).with_run_observer(telemetry.clone());
    let spans = telemetry.start_run().with_agent_name("outer");
    let run = agent.run("1").with_data(spans.contexts()).with_telemetry(spans);
    run.collect::<Vec<_>>().await;
    assert_eq!(recorder.trees(), "invoke_agent outer\n  chat m\n");
}

#[tokio::test(start_paused = true)]
async fn contexts_that_the_program_has_created_are_the_parent_of_a_run() {
    let recorder = Recorder::default();
    let contexts = TraceContexts::new();
    contexts.set_current(Some(parent()));
    let look = |agent: &str| answer("I ask.").call(agent, json!({ "prompt": "Look." }));
    let inner = agent(model([answer("Found.")])).as_tool("inner", "Looks.").unwrap();
    let agent = agent(model([look("inner"), answer("Done.")])).with_tool(inner);
    let agent = agent.with_run_observer(recorded_telemetry(&recorder));
    finish(agent.run("1").with_data(contexts)).await;
    let run = recorder.span("invoke_agent");
    assert_eq!(run.parent, Some(0x00f0_67aa_0ba9_02b7_u64.into()));
    assert_eq!(
        recorder.trees(),
        "invoke_agent
  chat m
  execute_tool inner
    invoke_agent inner
      chat m
  chat m
"
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_conversation_id_is_not_recorded() {
    let recorder = Recorder::default();
    let agent = agent(model([answer("One.")])).with_run_observer(recorded_telemetry(&recorder));
    finish(agent.run_from(History::empty(""), "1")).await;
    assert_eq!(recorder.span("invoke_agent").get("gen_ai.conversation.id"), None);
}

#[tokio::test(start_paused = true)]
async fn only_a_name_is_recorded_as_a_service_tier() {
    let long = "a".repeat(33);
    let tiers = ["flex", "on-demand_2", "Flex for xyzzy", "\u{fc}ber", &long];
    let mut found = Vec::new();
    for tier in tiers {
        let mut billing = Billing::default();
        billing.set_service_tier(tier);
        let recorder = Recorder::default();
        let agent = agent(model([answer("One.").billing(billing)]));
        finish(agent.with_run_observer(recorded_telemetry(&recorder)).run("1")).await;
        found.extend(recorder.span("chat m").text("turnstream.response.service_tier"));
    }
    assert_eq!(found, ["flex", "on-demand_2"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_hand_written_loop_in_a_hub_is_the_error_of_its_span() {
    let recorder = Recorder::default();
    let hub = Hub::builder().with_run_observer(recorded_telemetry(&recorder)).build();
    let events = futures::stream::poll_fn(|_| panic!("the loop panics"));
    let source = RunSource::new(History::empty("h"), events);
    hub.start("chat", source).await.unwrap().read().count().await;
    assert_eq!(recorder.trees(), "invoke_agent !panic\n");
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_hub_ends_its_spans_when_the_hub_is_dropped() {
    let recorder = Recorder::default();
    let hub = Hub::builder().with_run_observer(recorded_telemetry(&recorder)).build();
    let run = agent(model([answer("Half").hang()])).run("Go.");
    let owner = hub.start("chat", run).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(recorder.open_spans().len(), 2);
    drop((owner, hub));
    assert_eq!(recorder.open_spans(), Vec::<String>::new());
    assert_eq!(recorder.trees(), "invoke_agent !cancelled\n  chat m !cancelled\n");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_never_polled_has_no_spans() {
    let recorder = Recorder::default();
    let agent = agent(model([answer("One.")])).with_run_observer(recorded_telemetry(&recorder));
    drop(agent.run("1"));
    assert_eq!(recorder.spans().len(), 0);
}
