//! Calls that are pending, and work inside of tools, when a run ends.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::event::EndReason;
use turnstream::item::{ResultKind, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, History, Item};

use turnstream_test_support::runs::result_summaries;
use turnstream_test_support::tools::{Counter, ok_tool, spec};

fn through_json(history: &History) -> History {
    serde_json::from_str(&serde_json::to_string(history).unwrap()).unwrap()
}

#[tokio::test]
async fn a_sibling_that_ran_before_the_pause_does_not_run_again() {
    let (sent, asked) = (Counter::default(), Counter::default());
    let calls = Reply::new().call("send", json!({})).call("ask", json!({})).call("send", json!({}));
    let agent = Agent::new(Scripted::new([calls, Reply::text("Done.")]))
        .with_tools([ok_tool("send", &sent), ok_tool("ask", &asked).requires_approval()]);
    let paused = agent.run("Go").outcome().await;
    assert_eq!((sent.started_count(), asked.started_count()), (2, 0));

    let history = through_json(&paused.history);
    let verdicts: Vec<_> =
        history.pending_calls().into_iter().map(|call| (call, Verdict::Approve)).collect();
    assert_eq!(verdicts.len(), 1);
    let outcome = agent.resume(history, verdicts).unwrap().outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "Done."));
    assert_eq!((sent.started_count(), asked.started_count()), (2, 1));
}

#[tokio::test]
async fn the_rest_of_a_partly_answered_batch_runs_when_it_is_resumed() {
    let (one, two) = (Counter::default(), Counter::default());
    let tools =
        || [ok_tool("one", &one).requires_approval(), ok_tool("two", &two).requires_approval()];
    let calls = Reply::new().call("one", json!({})).call("two", json!({}));
    let mut history =
        Agent::new(Scripted::new([calls])).with_tools(tools()).run("Go").outcome().await.history;
    // Another process has stored the answer to the first call.
    let first = history.iter().find_map(Item::as_tool_call).unwrap().clone();
    history.push(Item::tool_result(ToolResult::for_call(&first, ResultKind::Ok, "elsewhere")));

    let pending = history.pending_calls();
    assert_eq!(pending.iter().map(|call| &*call.name).collect::<Vec<_>>(), ["two"]);
    let agent = Agent::new(Scripted::new(["Done."])).with_tools(tools());
    let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve));
    let outcome = agent.resume(history, verdicts).unwrap().outcome().await;
    assert_eq!(outcome.text, "Done.");
    assert_eq!((one.started_count(), two.started_count()), (0, 1));
    let results = result_summaries(&outcome.history);
    let texts: Vec<_> = results.iter().map(|(_, kind, text)| (*kind, text.as_str())).collect();
    assert_eq!(texts[0], (ResultKind::Ok, "elsewhere"));
    assert_eq!(texts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_drops_the_models_that_running_tools_have_called() {
    let (as_tool, inside) =
        (Scripted::new([Reply::text("Hm.").hang()]), Scripted::new([Reply::text("Hm.").hang()]));
    let sub_agent = Agent::new(as_tool.clone()).as_tool("sub", "Asks another").unwrap();
    let own = {
        let model = inside.clone();
        let run = move |_, _| {
            let agent = Agent::new(model.clone());
            async move { agent.run("Go").outcome().await.text }
        };
        Tool::raw(spec("own"), run).unwrap()
    };
    let calls = Reply::new().call("sub", json!({ "prompt": "Go" })).call("own", json!({}));
    let mut run = Agent::new(Scripted::new([calls])).with_tools([sub_agent, own]).run("Go");
    let in_flight = || (as_tool.in_flight(), inside.in_flight());
    while in_flight() != (1, 1) {
        // The models hang, so the run makes no progress after both have been called.
        let _ = tokio::time::timeout(Duration::from_secs(1), run.next()).await;
    }
    run.interrupt();
    let outcome = Arc::new(run.outcome().await);
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{}", outcome.reason);
    assert_eq!(in_flight(), (0, 0));
}
