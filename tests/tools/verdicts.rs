//! Verdicts on pending calls: each applies to one call, and none is lost or used twice.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::time::sleep;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolOutput, Verdict};
use turnstream::{Agent, ErrorKind, Event, Item, Outcome, Toolkit};

use turnstream_test_support::runs::pull_ready;
use turnstream_test_support::tools::spec;

fn tool_results(outcome: &Outcome) -> Vec<&ToolResult> {
    outcome.new_items().iter().filter_map(Item::as_tool_result).collect()
}

#[tokio::test]
async fn an_external_call_is_pending_with_its_rewritten_arguments() {
    let model = Scripted::new([Reply::new().call("ask", json!({ "q": "raw" })), "done".into()]);
    let agent = Agent::new(model).with_tools([Tool::external(spec("ask")).unwrap()]).with_hook(
        hook::before_tool(|_, _| async {
            CallDecision::RewriteArguments(r#"{"q":"polite"}"#.into())
        }),
    );
    let run = agent.run("go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    assert_eq!(outcome.reason, EndReason::Pending);
    assert_eq!(outcome.pending[0].arguments, r#"{"q":"polite"}"#);

    let answer = |call| (call, Verdict::Output(ToolOutput::ok("42")));
    let answers = outcome.pending.into_iter().map(answer);
    let outcome = agent.resume(handle.history(), answers).unwrap().outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let [result] = tool_results(&outcome)[..] else { panic!("not one result") };
    assert_eq!((result.kind, result.content.text().as_str()), (ResultKind::Ok, "42"));
}

#[tokio::test(start_paused = true)]
async fn approving_an_external_call_is_an_error_and_its_output_is_still_accepted() {
    let nap = Tool::raw(spec("nap"), |_, _| async {
        sleep(Duration::from_secs(1)).await;
        "rested"
    });
    let reply = Reply::new().call_raw("c1", "ask", "{}").call_raw("c2", "nap", "{}");
    let agent = Agent::new(Scripted::new([reply, "done".into()]))
        .with_tools([Tool::external(spec("ask")).unwrap(), nap.unwrap()]);
    let mut run = agent.run("go");
    pull_ready(&mut run);
    let call = ToolCall { call_id: "c1".into(), name: "ask".into(), arguments: "{}".into() };
    assert_eq!(run.approve(call.clone()).unwrap_err().kind(), ErrorKind::Conflict);
    pull_ready(&mut run);
    run.handle().submit_verdict(call, Verdict::Output(ToolOutput::ok("42"))).unwrap();
    assert_eq!(run.outcome().await.reason, EndReason::Completed);
}

#[tokio::test]
async fn no_verdict_is_accepted_while_a_run_ends() {
    let tool = Tool::raw(spec("t"), |_, _| async { "fine" }).unwrap().requires_approval();
    let reply = Reply::new().call_raw("c1", "t", "{}").call_raw("c2", "t", "{}");
    let mut run = Agent::new(Scripted::new([reply])).with_tools([tool]).interactive().run("go");
    let events = pull_ready(&mut run);
    let asked: Vec<_> = events.iter().filter_map(Event::approval_request).collect();
    run.interrupt();
    let ending = run.next().await.unwrap().unwrap();
    assert!(matches!(&ending, Event::Tool(ToolEvent::Output(result)) if result.call_id == "c1"));
    assert_eq!(run.approve(&asked[1]).unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn an_external_output_is_kept_even_if_its_tool_was_removed() {
    let model = Scripted::new([Reply::new().call("ask", json!({})), "done".into()]);
    let agent = Agent::new(model.clone()).with_tools([Tool::external(spec("ask")).unwrap()]);
    let run = agent.run("go");
    let handle = run.handle();
    let pending = run.outcome().await.pending;

    let verdict = Verdict::Output(ToolOutput::ok("42"));
    let answers = pending.into_iter().map(|call| (call, verdict.clone()));
    let other = Agent::new(model).with_toolkit(Toolkit::new([]));
    let outcome = other.resume(handle.history(), answers).unwrap().outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let [result] = tool_results(&outcome)[..] else { panic!("not one result") };
    assert_eq!((result.kind, result.content.text().as_str()), (ResultKind::Ok, "42"));
}
