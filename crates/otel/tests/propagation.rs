//! Requests and tools receive the contexts of their spans.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use turnstream::Agent;
use turnstream::propagation::TraceContext;
use turnstream::provider::Scripted;
use turnstream::tool::{Tool, ToolSpec};
use turnstream_otel::TelemetryExt;

use crate::recorder::Recorder;
use crate::scenarios::{answer, call, model};
use crate::trees::recorded_telemetry;

fn span_id(context: Option<&TraceContext>) -> String {
    let context = context.expect("there is a context");
    context.traceparent().split('-').nth(2).unwrap().to_owned()
}

/// An agent whose tool `look` records the context that it sees.
fn observing_agent(model: &Scripted, seen: &Arc<Mutex<Vec<String>>>) -> Agent {
    let seen = Arc::clone(seen);
    let spec = ToolSpec::new("look", "Looks.", serde_json::json!({ "type": "object" }));
    let look = Tool::raw(spec, move |_, cx| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().push(span_id(cx.trace_context().as_ref()));
            "seen".to_owned()
        }
    });
    Agent::new(model.clone()).with_tool(look.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_tool_and_a_request_see_the_contexts_of_their_spans_in_a_sub_agent_too() {
    let (recorder, seen) = (Recorder::default(), Arc::default());
    let inner_model = model([call("look"), answer("Found.")]);
    let inner = observing_agent(&inner_model, &seen);
    let ask = answer("I ask.").call("inner", serde_json::json!({ "prompt": "Look." }));
    let outer_model = model([ask.call("look", serde_json::json!({})), answer("Done.")]);
    let outer = observing_agent(&outer_model, &seen);
    let outer = outer.with_tool(inner.as_tool("inner", "Looks.").unwrap());

    let telemetry = recorded_telemetry(&recorder).start_run();
    let contexts = telemetry.contexts();
    let run = outer.run("Go.").with_data(contexts.clone());
    run.with_telemetry(telemetry).collect::<Vec<_>>().await;

    let spans = recorder.spans();
    let ids = |name: &str| -> Vec<String> {
        spans.iter().filter(|it| it.name == name).map(|it| it.id.to_string()).collect()
    };
    let mut looks = ids("execute_tool look");
    let mut seen = seen.lock().unwrap().clone();
    looks.sort();
    seen.sort();
    assert_eq!(looks.len(), 2);
    assert_eq!(seen, looks);
    let sent = [&outer_model, &inner_model].map(Scripted::requests).concat();
    let mut sent: Vec<_> =
        sent.iter().map(|request| span_id(request.trace_context.as_ref())).collect();
    let mut chats = ids("chat m");
    sent.sort();
    chats.sort();
    assert_eq!(chats.len(), 4);
    assert_eq!(sent, chats);
    // The calls that have ended are forgotten.
    assert!(!format!("{contexts:?}").contains("call_"), "{contexts:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_unless_the_contexts_are_part_of_the_runs_data() {
    let (recorder, model) = (Recorder::default(), model([answer("Hello.")]));
    let run = Agent::new(model.clone()).run("Go.");
    run.with_telemetry(&recorded_telemetry(&recorder)).collect::<Vec<_>>().await;
    assert_eq!(model.requests()[0].trace_context, None);
}
