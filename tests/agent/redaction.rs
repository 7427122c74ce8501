//! Hooks that remove secrets from the reports of calls before any consumer sees them.

use std::future::ready;
use std::sync::{Arc, Mutex};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::agent::hook;
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{RawJson, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::Recorder;
use turnstream::session::{MemoryStore, Session};
use turnstream::tool::{Tool, ToolContext, ToolUpdate};
use turnstream::{Agent, Event, Journal};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::runs::{
    is_tool_started, pull_ready, pull_until, reply_calling, test_agent,
};
use turnstream_test_support::tools::{pending_tool, spec};
use turnstream_test_support::world::finish_run;

const SECRET: &str = "hunter2";

/// A tool that has a secret in its progress and its evidence, but not in its result.
fn leaking_tool() -> Tool {
    let run = |_: Value, cx: ToolContext| {
        cx.record_evidence(json!({ "password": SECRET }));
        cx.record_evidence(json!("nothing secret"));
        let progress = ToolUpdate::progress(&json!({ "trying": SECRET }));
        ready(stream::iter([progress, ToolUpdate::output("done")]).boxed())
    };
    Tool::raw(spec("t"), run).unwrap()
}

fn mask_secret(data: &mut RawJson) {
    let text = data.to_string().replace(SECRET, "***");
    *data = RawJson::parse(&text).unwrap();
}

fn leaking_agent() -> Agent {
    test_agent(Scripted::new([reply_calling("c", "t"), "fine".into()])).with_tools([leaking_tool()])
}

fn with_redaction(agent: Agent) -> Agent {
    agent
        .with_hook(hook::redact_progress(|_, call, data| {
            assert_eq!((call.call_id.as_str(), call.name.as_str()), ("c", "t"));
            mask_secret(data);
        }))
        .with_hook(hook::redact_evidence(|_, _, evidence| mask_secret(evidence)))
}

#[tokio::test]
async fn redacted_text_appears_in_no_event_history_journal_session_or_recording() {
    let finished = finish_run(leaking_agent().run("go")).await;
    let shown = serde_json::to_string(&finished.events).unwrap();
    assert_eq!(shown.matches(SECRET).count(), 1 + 3, "without the hooks: {shown}");

    let paper = SharedBuffer::new();
    let agent = with_redaction(leaking_agent()).with_recorder(&Recorder::to_writer(paper.clone()));
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut run = session.run(&agent, "go").await.unwrap();
    let journal = Journal::new(session.history());
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        journal.observe(&event);
        events.push(event);
    }
    let shown = serde_json::to_string(&events).unwrap();
    assert!(shown.contains("***") && !shown.contains(SECRET), "{shown}");
    drop(run);
    let history = serde_json::to_string(&journal.history()).unwrap();
    let entries = format!("{:?}", session.entries().await.unwrap());
    for text in [history, entries, paper.text()] {
        assert!(text.contains("nothing secret") && !text.contains(SECRET), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_evidence_of_a_dropped_call_is_redacted() {
    let drops = Tool::raw(spec("t"), |_, cx: ToolContext| async move {
        cx.record_evidence(json!({ "password": SECRET }));
        std::future::pending::<String>().await
    });
    let model = Scripted::new([reply_calling("c", "t").call_raw("d", "slow", "{}")]);
    let tools =
        [drops.unwrap(), pending_tool("slow", &turnstream_test_support::tools::Counter::default())];
    let agent = test_agent(model).with_tools(tools);
    let agent = agent.with_hook(hook::redact_evidence(|_, _, evidence| mask_secret(evidence)));
    let mut run = agent.run("go");
    let second = |event: &Event| matches!(event, Event::Tool(ToolEvent::Started { call_id, .. }) if call_id == "d");
    pull_until(&mut run, second).await;
    let _ = futures::FutureExt::now_or_never(run.next());
    run.interrupt();
    let outcome = run.outcome().await;
    let shown = serde_json::to_string(outcome.new_items()).unwrap();
    assert!(shown.contains("***") && !shown.contains(SECRET), "{shown}");
}

#[tokio::test]
async fn a_redaction_panic_on_the_evidence_of_a_dropped_call_is_reported() {
    let reports = Tool::raw(spec("t"), |_, cx: ToolContext| async move {
        cx.record_evidence(json!({ "password": SECRET }));
        std::future::pending::<String>().await
    });
    let finished = Arc::<Mutex<Vec<String>>>::default();
    let keep = Arc::clone(&finished);
    let agent = test_agent(Scripted::new([reply_calling("c", "t")]))
        .with_tools([reports.unwrap()])
        .with_hook(hook::redact_evidence(|_, _, _| panic!("boom")))
        .with_hook(hook::on_failure(move |_, error| keep.lock().unwrap().push(error.to_string())));
    let mut run = agent.run("go");
    pull_until(&mut run, is_tool_started).await;
    pull_ready(&mut run);
    run.interrupt();
    let outcome = run.outcome().await;
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
    let shown = serde_json::to_string(&outcome.new_items()).unwrap();
    assert!(!shown.contains(SECRET), "{shown}");
    let finished = finished.lock().unwrap();
    let [message] = &finished[..] else { panic!("{finished:?}") };
    assert!(message.ends_with("failed in `redact_evidence`: it panicked: boom"), "{message}");
}

#[tokio::test]
async fn a_panicking_redaction_hook_leaks_nothing_and_ends_the_run() {
    type AgentTransform = fn(Agent) -> Agent;
    let makes: [AgentTransform; 2] = [
        |agent| agent.with_hook(hook::redact_progress(|_, _, _| panic!("boom"))),
        |agent| agent.with_hook(hook::redact_evidence(|_, _, _| panic!("boom"))),
    ];
    for (make, left) in makes.into_iter().zip([3, 1]) {
        let finished = finish_run(make(leaking_agent()).run("go")).await;
        assert_eq!(finished.outcome.reason, EndReason::HookError, "{:?}", finished.outcome);
        let shown = serde_json::to_string(&finished.events).unwrap();
        assert_eq!(shown.matches(SECRET).count(), left, "{shown}");
    }
}

#[tokio::test]
async fn a_result_without_a_report_is_unchanged() {
    let model = Scripted::new([Reply::new().call("t", json!({})), "fine".into()]);
    let tool = Tool::raw(spec("t"), |_, _| async { "done" }).unwrap();
    let finished = finish_run(with_redaction(test_agent(model).with_tools([tool])).run("go")).await;
    let result = finished.events.iter().find_map(Event::tool_output).unwrap();
    assert_eq!((result.kind, &result.report), (ResultKind::Ok, &None));
}
