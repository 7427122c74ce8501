//! The trace contexts of a run reach its requests and its tools.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::propagation::{TraceContext, TraceContexts};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolContext};
use turnstream::{Agent, Event};

use turnstream_test_support::runs::test_agent;
use turnstream_test_support::tools::spec;

type SeenContexts = Arc<Mutex<Vec<Option<TraceContext>>>>;

fn context(span: u32) -> Option<TraceContext> {
    TraceContext::parse(&format!("00-{:032x}-{span:016x}-01", 1), Some("a=1"))
}

/// A tool that records the context of its call.
fn recording_tool(seen: &SeenContexts) -> Tool {
    let seen = Arc::clone(seen);
    let run = move |_, cx: ToolContext| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().push(cx.trace_context());
            "seen"
        }
    };
    Tool::raw(spec("look"), run).unwrap()
}

/// A model that makes a call, and then answers.
fn calling_model(tool: &str) -> Scripted {
    let arguments = json!({ "prompt": "Look." });
    Scripted::new([Reply::new().call(tool, arguments), Reply::text("done")])
}

/// Runs an agent, and sets a context when a request is announced and when a call starts, as
/// telemetry does. The numbers of the contexts are counted from 1.
async fn run_with_contexts(agent: &Agent) {
    let contexts = TraceContexts::new();
    let mut run = agent.run("go").with_data(contexts.clone());
    let mut number = 0;
    while let Some(event) = run.next().await {
        let mut contexts = contexts.clone();
        let mut event = event.unwrap();
        while let Event::Nested { call_id, event: inner, .. } = event {
            contexts = contexts.of_call(&call_id);
            event = *inner;
        }
        match event {
            Event::TurnStarted { .. } => {
                number += 1;
                contexts.set_request(context(number));
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) => {
                number += 1;
                contexts.of_call(&call_id).set_current(context(number));
            }
            _ => {}
        }
    }
}

fn sent_contexts(model: &Scripted) -> Vec<Option<TraceContext>> {
    model.requests().into_iter().map(|request| request.trace_context).collect()
}

#[tokio::test]
async fn a_context_that_is_set_at_an_event_reaches_the_work_that_the_event_announces() {
    let (seen, model) = (SeenContexts::default(), calling_model("look"));
    run_with_contexts(&test_agent(model.clone()).with_tools([recording_tool(&seen)])).await;
    assert_eq!(sent_contexts(&model), [context(1), context(3)]);
    assert_eq!(*seen.lock().unwrap(), [context(2)]);
}

#[tokio::test]
async fn the_requests_and_tools_of_a_sub_agent_have_contexts_of_their_own() {
    let (seen, inner_model) = (SeenContexts::default(), calling_model("look"));
    let inner = test_agent(inner_model.clone()).with_tools([recording_tool(&seen)]);
    let model = calling_model("inner");
    let outer = test_agent(model.clone()).with_tool(inner.as_tool("inner", "Looks.").unwrap());
    run_with_contexts(&outer).await;
    assert_eq!(sent_contexts(&model), [context(1), context(6)]);
    assert_eq!(sent_contexts(&inner_model), [context(3), context(5)]);
    assert_eq!(*seen.lock().unwrap(), [context(4)]);
}

#[tokio::test]
async fn a_run_without_contexts_sends_none() {
    let (seen, model) = (SeenContexts::default(), calling_model("look"));
    let agent = test_agent(model.clone()).with_tools([recording_tool(&seen)]);
    agent.run("go").outcome().await;
    assert_eq!(sent_contexts(&model), [None, None]);
    assert_eq!(*seen.lock().unwrap(), [None]);
}
