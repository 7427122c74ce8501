//! Values that models write in another form than the schema accepts: they are read before hooks,
//! approvers and the tool see them, and the history keeps the model's text.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{PendingCall, ResultKind, ToolCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{
    PreparedCall, Tool, ToolHandler, ToolOutput, ToolSpec, ToolUpdate, Verdict,
};
use turnstream::{Agent, ErrorKind, Event, History, Item, Outcome};

const WRITTEN: &str = r#"{"id": 14380.0, "limit": null, "price": 2.0, "list": [1.0]}"#;
const READ: &str = r#"{"id":14380,"price":2.0,"list":[1]}"#;

fn spec() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "id": { "type": "integer" },
            "limit": { "type": "integer" },
            "price": { "type": "number" },
            "list": { "type": "array", "items": { "type": "integer" } },
        },
        "required": ["id"],
    });
    ToolSpec::new("find", "Finds", schema)
}

/// A tool that returns its arguments.
fn echo() -> Tool {
    Tool::raw(spec(), |args, _| async move { args }).unwrap()
}

fn model(arguments: &str) -> Scripted {
    Scripted::new([Reply::new().call_raw("c1", "find", arguments), Reply::text("Done.")])
}

fn result_text(outcome: &Outcome) -> (ResultKind, String) {
    let result = outcome.history.iter().find_map(Item::as_tool_result).unwrap();
    (result.kind, result.content.text())
}

#[track_caller]
fn check_ran(outcome: &Outcome) {
    assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
    assert_eq!(result_text(outcome), (ResultKind::Ok, READ.to_owned()));
}

#[tokio::test]
async fn hooks_events_and_the_tool_receive_the_read_arguments_and_the_history_the_written_ones() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |seen: &Arc<Mutex<Vec<String>>>| {
        let seen = Arc::clone(seen);
        move |call: &ToolCall| seen.lock().unwrap().push(call.arguments.clone())
    };
    let (before, after, progress) = (note(&seen), note(&seen), note(&seen));
    let tool = Tool::raw(spec(), |args, _| async {
        futures::stream::iter([ToolUpdate::progress(&1), ToolUpdate::output(args)]).boxed()
    });
    let model = model(WRITTEN);
    let mut run = Agent::new(model.clone())
        .with_tool(tool.unwrap())
        .with_hook(hook::before_tool(move |_, call| {
            before(&call);
            async { CallDecision::Allow }
        }))
        .with_hook(hook::after_tool(move |_, call, _| after(call)))
        .with_hook(hook::redact_progress(move |_, call, _| progress(call)))
        .run("Go");
    let mut started = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Tool(ToolEvent::Started { arguments, .. }) = event.unwrap() {
            started.push(arguments);
        }
    }
    let outcome = run.outcome().await;
    check_ran(&outcome);
    assert_eq!(started, [READ]);
    assert_eq!(*seen.lock().unwrap(), [READ; 3]);
    for history in [&outcome.history, &model.requests()[1].history] {
        let call = history.iter().find_map(Item::as_tool_call).unwrap();
        assert_eq!(call.arguments, WRITTEN);
    }
}

#[tokio::test]
async fn an_approver_is_shown_the_read_arguments_and_an_approval_holds_for_them() {
    let agent = Agent::new(model(WRITTEN)).with_tool(echo().requires_approval());
    let paused = agent.run("Go").outcome().await;
    assert_eq!(paused.pending[0].arguments, READ);
    let history: History =
        serde_json::from_str(&serde_json::to_string(&paused.history).unwrap()).unwrap();
    let verdict = |call: PendingCall| [(call, Verdict::Approve)];

    // An approval still names the request exactly.
    let written = PendingCall { arguments: WRITTEN.to_owned(), ..paused.pending[0].clone() };
    let refused = agent.resume(history.clone(), verdict(written)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);

    let request = history.pending_calls().remove(0);
    check_ran(&agent.resume(history, verdict(request)).unwrap().outcome().await);
}

#[tokio::test]
async fn an_approval_of_a_call_that_a_dropped_run_left_open_holds() {
    let agent = Agent::new(model(WRITTEN)).with_tool(echo().requires_approval());
    let mut run = agent.run("Go");
    let is_turn = |event: &Event| event.turn_complete().is_some();
    while !run.next().await.unwrap().is_ok_and(|event| is_turn(&event)) {}
    let history = run.history();
    drop(run);
    let open = history.pending_calls().remove(0);
    assert_eq!((open.approval_id.as_str(), open.arguments.as_str()), ("", WRITTEN));
    check_ran(&agent.resume(history, [(open, Verdict::Approve)]).unwrap().outcome().await);
}

#[tokio::test]
async fn the_result_of_an_external_call_may_name_the_call_as_the_model_wrote_it() {
    let agent = || Agent::new(model(WRITTEN)).with_tool(Tool::external(spec()).unwrap());
    let answer = || Verdict::Output(ToolOutput::ok("found"));
    let waiting = agent().run("Go").outcome().await;
    assert_eq!(waiting.pending[0].arguments, READ);
    let call = waiting.history.iter().find_map(Item::as_tool_call).unwrap().clone();
    let answers = [(PendingCall::from(call), answer())];
    let outcome = agent().resume(waiting.history, answers).unwrap().outcome().await;
    assert_eq!(result_text(&outcome), (ResultKind::Ok, "found".to_owned()));

    // While a sibling still runs, the result may be submitted to the run itself.
    let nap = ToolSpec::new("nap", "Naps", json!({ "type": "object" }));
    let nap = Tool::raw(nap, |_, _| async {
        tokio::task::yield_now().await;
        "rested"
    });
    let calls = Reply::new().call_raw("c1", "find", WRITTEN).call_raw("c2", "nap", "{}");
    let agent = Agent::new(Scripted::new([calls, Reply::text("Done.")]))
        .with_tools([Tool::external(spec()).unwrap(), nap.unwrap()]);
    let mut run = agent.run("Go");
    while let Some(event) = run.next().await {
        if let Event::Tool(ToolEvent::Started { .. }) = event.unwrap() {
            let written =
                ToolCall { call_id: "c1".into(), name: "find".into(), arguments: WRITTEN.into() };
            let other = ToolCall { arguments: r#"{"id":14381}"#.into(), ..written.clone() };
            assert!(run.handle().submit_verdict(other, answer()).is_err());
            run.handle().submit_verdict(written, answer()).unwrap();
        }
    }
    assert_eq!(result_text(&run.outcome().await), (ResultKind::Ok, "found".to_owned()));
}

#[tokio::test]
async fn values_whose_meaning_is_uncertain_are_invalid_and_a_repair_sees_them_as_written() {
    for wrong in [r#"{"id": 5.5}"#, r#"{"id": "5"}"#, r#"{"id": null}"#, r#"{"limit": 1.0}"#] {
        let outcome = Agent::new(model(wrong)).with_tool(echo()).run("Go").outcome().await;
        assert_eq!(result_text(&outcome).0, ResultKind::InvalidArguments, "{wrong}");
        let repair = hook::repair_arguments(move |_, call, _| {
            (call.arguments == wrong).then(|| WRITTEN.to_owned())
        });
        let agent = Agent::new(model(wrong)).with_tool(echo()).with_hook(repair);
        check_ran(&agent.run("Go").outcome().await);
    }
}

#[tokio::test]
async fn arguments_that_a_hook_has_rewritten_are_read_too() {
    let rewrite =
        hook::before_tool(|_, _| async { CallDecision::RewriteArguments(WRITTEN.to_owned()) });
    let agent = Agent::new(model(r#"{"id":1}"#)).with_tool(echo()).with_hook(rewrite);
    check_ran(&agent.run("Go").outcome().await);
}

#[tokio::test]
async fn handlers_and_tools_with_a_rationale_receive_the_read_arguments() {
    struct Handler(ToolSpec);
    impl ToolHandler for Handler {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
            let arguments = arguments.to_owned();
            let update = || futures::stream::iter([ToolUpdate::output(arguments)]).boxed();
            Ok(PreparedCall::new(|_| update()))
        }
    }
    let agent = Agent::new(model(WRITTEN)).with_tool(Tool::from_handler(Handler(spec())));
    check_ran(&agent.run("Go").outcome().await);

    let written = WRITTEN.replacen('{', r#"{"_why":{"risk":null},"#, 1);
    let agent = Agent::new(model(&written)).with_tool(echo().with_rationale());
    check_ran(&agent.run("Go").outcome().await);
}

#[tokio::test]
async fn a_typed_tool_accepts_whole_numbers_and_null_for_a_default() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Args {
        id: u64,
        #[serde(default)]
        limit: u32,
    }
    let tool =
        Tool::new("find", "Finds", |args: Args, _| async move { args.id + u64::from(args.limit) });
    let agent = Agent::new(model(r#"{"id":5.0,"limit":null}"#)).with_tool(tool);
    let outcome = agent.run("Go").outcome().await;
    assert_eq!(result_text(&outcome), (ResultKind::Ok, "5".to_owned()));
}
