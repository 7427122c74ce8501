//! Requests and tools receive the contexts of their spans.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use turnstream::Agent;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::context::{Compactor, Summarizer, Window, compactor_fn};
use turnstream::error::{Error, ErrorKind};
use turnstream::item::{History, Item};
use turnstream::propagation::TraceContext;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::request::Request;
use turnstream::stream::{TurnStream, TurnStreamExt};
use turnstream::tool::{Tool, ToolSpec};
use turnstream_otel::TelemetryExt;

use crate::recorder::Recorder;
use crate::scenarios::{SECRET, agent, answer, call, error, model};
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
async fn the_requests_of_a_compaction_and_of_a_hook_are_part_of_the_runs_trace() {
    let recorder = Recorder::default();
    let summaries = Scripted::new([answer("A summary.")]).with_model("small");
    // The first compactor finds nothing to replace.
    let nothing = compactor_fn(|_: &History| Ok(None));
    let compactor = nothing.or_else(Summarizer::new(summaries.clone()).with_keep_turns(1));
    let judge = Scripted::new([answer("Yes.")]).with_model("judge");
    let asked = judge.clone();
    let judged = hook::before_stop(move |state, _| {
        let judge = asked.clone();
        async move {
            let mut request = Request::new(History::from_items("judge", [Item::user("Polite?")]));
            request.trace_context = state.trace_context();
            let verdict = judge.stream_turn(request).into_turn().await?;
            state.report_helper("judge", verdict.model(), verdict.usage());
            Ok::<_, Error>(StopDecision::Allow)
        }
    });
    let too_long = Reply::error(error(ErrorKind::ContextWindow));
    let agent = agent(model([too_long, answer("Done.")]))
        .with_compactor(compactor)
        .with_hook(judged)
        .with_run_observer(recorded_telemetry(&recorder));
    let earlier = [Item::user("1"), Item::text("One."), Item::user("2"), Item::text("Two.")];
    let outcome = agent.run_from(History::from_items("h", earlier), "Go.").outcome().await;
    assert_eq!(outcome.text, format!("Done. {SECRET}"), "{outcome:?}");
    let run = recorder.span("invoke_agent").id.to_string();
    for helper in [&summaries, &judge] {
        let requests = helper.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(span_id(requests[0].trace_context.as_ref()), run);
    }
}

/// A model that counts tokens, and records the contexts of the requests that it counts.
struct Counting(Scripted, Arc<Mutex<Vec<String>>>);

impl Provider for Counting {
    fn stream_turn(&self, request: Request) -> TurnStream {
        self.0.stream_turn(request)
    }

    fn model(&self) -> &str {
        self.0.model()
    }

    fn count_tokens(&self, request: &Request) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        self.1.lock().unwrap().push(span_id(request.trace_context.as_ref()));
        Some(async { Ok(10) }.boxed())
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_counts_tokens_is_part_of_the_runs_trace() {
    let (recorder, counted) = (Recorder::default(), Arc::default());
    let provider = Counting(model([answer("Done.")]), Arc::clone(&counted));
    let window = Window::new(100).with_threshold_percent(1).with_provider_counts();
    let agent = agent(provider).with_window(window);
    agent.with_run_observer(recorded_telemetry(&recorder)).run("Go.").outcome().await;
    let run = recorder.span("invoke_agent").id.to_string();
    assert_eq!(*counted.lock().unwrap(), [run]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_unless_the_contexts_are_part_of_the_runs_data() {
    let (recorder, model) = (Recorder::default(), model([answer("Hello.")]));
    let run = Agent::new(model.clone()).run("Go.");
    run.with_telemetry(&recorded_telemetry(&recorder)).collect::<Vec<_>>().await;
    assert_eq!(model.requests()[0].trace_context, None);
}
