//! The tool with which a model ends its run: when it ends the run, and what the outcome and the
//! trace contain.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::agent::Budget;
use turnstream::agent::detect::{Detectors, FailureMode};
use turnstream::agent::evidence::RequireEvidence;
use turnstream::agent::hook::{self, CallDecision, StopDecision};
use turnstream::event::{EndReason, StopAction, StopActionReason};
use turnstream::item::{Evidence, ResultKind, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolContext, Verdict};
use turnstream::trace::TraceAction;
use turnstream::{Agent, EventStreamExt, Item, Outcome, Toolkit};

use turnstream_test_support::tools::{spec, uncounted_tool};

fn edit_tool() -> Tool {
    Tool::raw(spec("edit"), |_, cx: ToolContext| async move { cx.record_change("a.rs") }).unwrap()
}

/// A tool whose check passes if its argument is `{"code": 0}`.
fn check_tool() -> Tool {
    Tool::raw(spec("check"), |args: Value, cx: ToolContext| async move {
        let code = i32::try_from(args["code"].as_i64().unwrap()).unwrap();
        cx.record_evidence(Evidence::from_command("cargo test", code));
    })
    .unwrap()
}

fn stop_call(arguments: Value) -> Reply {
    Reply::new().call("stop", arguments)
}

fn success(summary: &str) -> Reply {
    stop_call(json!({ "reason": "success", "summary": summary }))
}

fn cited(command: &str) -> Reply {
    stop_call(json!({ "reason": "success", "summary": "Done.", "evidence": command }))
}

fn blocked() -> Reply {
    stop_call(json!({ "reason": "blocked", "summary": "", "missing": "a key" }))
}

/// An agent with the model's script. The script is also returned, to count its requests.
fn agent(replies: impl IntoIterator<Item = Reply>) -> (Agent, Scripted) {
    let model = Scripted::new(replies);
    let tools = [edit_tool(), check_tool(), uncounted_tool("t"), Tool::stop()];
    (Agent::new(model.clone()).with_tools(tools), model)
}

async fn outcome_of(replies: impl IntoIterator<Item = Reply>) -> Outcome {
    agent(replies).0.run("go").outcome().await
}

fn results(outcome: &Outcome) -> Vec<&ToolResult> {
    outcome.new_items().iter().filter_map(Item::as_tool_result).collect()
}

#[tokio::test]
async fn a_stop_action_ends_the_run_without_another_request() {
    let arguments = json!({
        "reason": "success",
        "summary": " All links work. ",
        "evidence": "",
        "stop_condition": "no dead link",
    });
    let (agent, model) = agent([stop_call(arguments), "Unused.".into()]);
    let outcome = agent.run("Check the links").outcome().await;
    assert_eq!((outcome.reason, outcome.turns, outcome.partial), (EndReason::Completed, 1, false));
    assert_eq!((&*outcome.text, model.requests().len()), ("All links work.", 1));
    let action = outcome.stop_action.as_deref().unwrap();
    assert_eq!((action.reason, action.evidence.as_deref()), (StopActionReason::Success, None));
    assert_eq!(action.stop_condition.as_deref(), Some("no dead link"));
    assert!(outcome.history.is_settled());

    let json = serde_json::to_value(&outcome).unwrap();
    let expected = json!({ "reason": "success", "summary": "All links work.", "stop_condition": "no dead link" });
    assert_eq!(json["stop_action"], expected);
    assert_eq!(serde_json::from_value::<Outcome>(json).unwrap(), outcome);
}

#[tokio::test]
async fn text_beside_a_stop_action_is_the_text_of_the_outcome() {
    let reply = Reply::text("All of them work.")
        .call("stop", json!({ "reason": "success", "summary": "Links checked" }));
    let outcome = outcome_of([reply]).await;
    assert_eq!(outcome.text, "All of them work.");
    assert_eq!(outcome.stop_action.unwrap().summary, "Links checked");
}

#[tokio::test]
async fn calls_beside_a_stop_action_run_and_receive_results() {
    let arguments = json!({ "reason": "success", "summary": "Done." });
    let reply =
        Reply::new().call("stop", arguments).call("t", json!({})).call("no_tool", json!({}));
    let outcome = outcome_of([reply, "Unused.".into()]).await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 1));
    let kinds: Vec<_> = results(&outcome).iter().map(|result| result.kind).collect();
    assert_eq!(kinds, [ResultKind::Ok, ResultKind::Ok, ResultKind::UnknownTool]);
}

#[tokio::test]
async fn an_invalid_stop_action_receives_an_error_and_does_not_end_the_run() {
    let invalid = [
        json!({ "reason": "blocked", "summary": "" }),
        json!({ "reason": "blocked", "summary": "", "missing": "  " }),
        json!({ "reason": "finished", "summary": "" }),
        json!({ "summary": "Done." }),
        json!({ "reason": "success", "summary": 3 }),
    ];
    for arguments in invalid {
        let outcome = outcome_of([stop_call(arguments.clone()), "Then this.".into()]).await;
        assert_eq!(results(&outcome)[0].kind, ResultKind::InvalidArguments, "{arguments}");
        assert_eq!((&*outcome.text, outcome.turns), ("Then this.", 2), "{arguments}");
        assert_eq!(outcome.stop_action, None, "{arguments}");
    }
}

#[tokio::test]
async fn a_hook_that_rewrites_the_arguments_changes_the_action() {
    let (agent, _) = agent([success("The key is hunter2.")]);
    let agent = agent.with_hook(hook::before_tool(|_, call| {
        let arguments = call.arguments.replace("hunter2", "***");
        async move { CallDecision::RewriteArguments(arguments) }
    }));
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.text, "The key is ***.");
    assert_eq!(outcome.stop_action.unwrap().summary, "The key is ***.");
}

#[tokio::test]
async fn a_stop_action_needs_no_tool_call_of_the_budget_and_waits_for_calls_that_could_not_run() {
    let reply = |with_work: bool| {
        let stop = json!({ "reason": "success", "summary": "Done." });
        let reply = Reply::new().call("t", json!({})).call("stop", stop);
        if with_work { reply.call("t", json!({})) } else { reply }
    };
    for (with_work, reason) in [(false, EndReason::Completed), (true, EndReason::Budget)] {
        let agent = agent([reply(with_work)]).0.with_budget(Budget::new().with_tool_calls(1));
        assert_eq!(agent.run("go").outcome().await.reason, reason);
    }
}

#[tokio::test]
async fn the_first_valid_stop_action_of_a_turn_counts() {
    let reply = Reply::new()
        .call("stop", json!({ "reason": "blocked", "summary": "" }))
        .call("stop", json!({ "reason": "success", "summary": "one" }))
        .call("stop", json!({ "reason": "success", "summary": "two" }));
    let outcome = outcome_of([reply]).await;
    assert_eq!((&*outcome.text, outcome.turns), ("one", 1));
}

#[tokio::test]
async fn a_blocked_action_ends_the_run_as_blocked_with_what_is_missing() {
    for requires_evidence in [false, true] {
        let (mut agent, model) = agent([blocked()]);
        if requires_evidence {
            agent = agent.with_evidence(RequireEvidence::new());
        }
        // A blocked model has no answer to validate.
        let agent = agent.with_validation(|_| Err("never".to_owned()));
        let outcome = agent.run("go").outcome().await;
        assert_eq!((outcome.reason, outcome.why.as_deref()), (EndReason::Blocked, Some("a key")));
        assert_eq!((outcome.stop_action.is_some(), model.requests().len()), (true, 1));
    }
}

#[tokio::test]
async fn a_validation_sees_the_summary_of_a_stop_action_if_the_turn_has_no_text() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let beside = Reply::text("Beside.")
        .call("stop", json!({ "reason": "success", "summary": "Long enough." }));
    let (agent, _) = agent([success("Short."), beside, success("Also long enough.")]);
    let agent = agent.with_validation(move |turn| {
        assert_eq!(turn.tool_calls().count(), 1);
        log.lock().unwrap().push(turn.text());
        match turn.text().starts_with("Also") {
            true => Ok(()),
            false => Err("rejected"),
        }
    });
    let outcome = agent.run("go").outcome().await;
    assert_eq!(*seen.lock().unwrap(), ["Short.", "Beside.", "Also long enough."]);
    // The user sees the text that was validated, and the history what the model wrote.
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Also long enough."));
    assert!(outcome.history.iter().filter_map(Item::as_text).eq(["Beside."]));
}

#[tokio::test]
async fn a_success_must_be_proven_if_the_agent_requires_evidence() {
    let edit = || Reply::new().call("edit", json!({}));
    let check = |code: i32| Reply::new().call("check", json!({ "code": code }));
    let run = |replies: Vec<Reply>| {
        let agent = agent(replies).0.with_evidence(RequireEvidence::new());
        async move { agent.run("go").outcome().await }
    };
    let proven = run(vec![edit(), check(0), cited("cargo test")]).await;
    assert_eq!((proven.reason, proven.turns), (EndReason::Completed, 3));
    assert_eq!(proven.proof.unwrap().command, "cargo test");

    let unchecked = run(vec![edit(), success("Done."), success("Done!")]).await;
    assert_eq!((unchecked.reason, unchecked.turns), (EndReason::Unproven, 3));
    assert_eq!(unchecked.stop_action.unwrap().summary, "Done!");

    let other_check = vec![edit(), check(0), cited("make lint"), cited("make lint")];
    let outcome = run(other_check).await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Unproven, 4));
    let why = "the cited check `make lint` was not recorded as passed since the last change";
    assert_eq!(outcome.why.as_deref(), Some(why));
    let rejection = outcome.new_items().iter().rev().find_map(Item::as_user).unwrap().text();
    assert!(rejection.contains(why), "{rejection}");

    let failing = run(vec![check(1), cited("cargo test"), blocked()]).await;
    assert_eq!((failing.reason, failing.turns), (EndReason::Blocked, 3));
}

#[tokio::test]
async fn a_stop_hook_can_reject_a_stop_action() {
    let (agent, _) = agent([success("one"), Reply::text("two")]);
    let agent = agent.with_hook(hook::before_stop(|state, _| {
        let is_first = state.stop_action.is_some();
        async move {
            match is_first {
                true => StopDecision::Continue("Say it in words.".to_owned()),
                false => StopDecision::Allow,
            }
        }
    }));
    let outcome = agent.run("go").outcome().await;
    assert_eq!((&*outcome.text, outcome.turns), ("two", 2));
    assert_eq!(outcome.stop_action, None, "the run ended by another turn");
}

#[tokio::test]
async fn input_that_arrives_during_a_stop_action_is_answered() {
    let (agent, _) = agent([success("one"), Reply::text("two")]);
    let mut run = agent.run("go");
    while let Some(event) = run.next().await {
        if event.unwrap().tool_output().is_some() {
            run.handle().steer("And this?").unwrap();
        }
    }
    let outcome = run.outcome().await;
    assert_eq!((&*outcome.text, outcome.turns, outcome.stop_action), ("two", 2, None));
}

#[tokio::test]
async fn a_stop_action_beside_a_pending_call_has_no_effect() {
    let reply = || {
        let stop = json!({ "reason": "success", "summary": "Done." });
        Reply::new().call("stop", stop).call("pay", json!({}))
    };
    let model = Scripted::new([reply(), "Paid.".into()]);
    let tools = [Tool::stop(), uncounted_tool("pay").requires_approval()];
    let agent = Agent::new(model).with_tools(tools);
    let outcome = agent.run("go").outcome().await;
    assert_eq!((outcome.reason, &outcome.stop_action), (EndReason::Pending, &None));
    let verdicts = outcome.pending.iter().map(|call| (call.clone(), Verdict::Approve));
    let verdicts: Vec<_> = verdicts.collect();
    let outcome = agent.resume(outcome.history, verdicts).unwrap().outcome().await;
    assert_eq!((&*outcome.text, outcome.stop_action), ("Paid.", None));
}

#[tokio::test]
async fn the_trace_contains_the_stop_action_in_its_last_step() {
    let (agent, _) = agent([success("All is well.")]);
    let trace = agent.new_trace();
    agent.run("go").trace_to(&trace).for_each(|_| async {}).await;
    let steps = trace.events();
    let TraceAction::Stop { stop_reason, stop_action, .. } = &steps.last().unwrap().action else {
        panic!("{steps:?}");
    };
    assert_eq!(stop_reason, "completed");
    assert_eq!(stop_action.as_deref().unwrap().summary, "All is well.");
    assert!(matches!(&steps[0].action, TraceAction::Tool { tool, .. } if tool == "stop"));
}

#[tokio::test]
async fn a_stop_action_with_a_rationale_ends_the_run() {
    let arguments = json!({
        "reason": "success",
        "summary": "Done.",
        "_why": { "expected_outcome": "The run ends" },
    });
    let model = Scripted::new([stop_call(arguments)]);
    let toolkit = Toolkit::new([Tool::stop()]).with_required_rationale();
    let outcome = Agent::new(model).with_toolkit(toolkit).run("go").outcome().await;
    assert_eq!(outcome.stop_action.unwrap().summary, "Done.");
}

#[tokio::test]
async fn an_audited_call_without_an_expected_outcome_does_not_run() {
    let expected = json!({ "_why": { "expected_outcome": "It is done" } });
    let model = Scripted::new([
        Reply::new().call("t", json!({})),
        Reply::new().call("t", json!({ "_why": { "expected_outcome": " " } })),
        Reply::new().call("t", json!({ "_why": "so" })),
        Reply::new().call("t", expected),
        "Done.".into(),
    ]);
    let toolkit = Toolkit::new([uncounted_tool("t")]).with_required_rationale();
    let schema = toolkit.get("t").unwrap().spec().parameters.to_value();
    assert_eq!(schema["required"], json!(["_why"]));
    assert_eq!(schema["properties"]["_why"]["required"], json!(["expected_outcome"]));
    let limits = turnstream::agent::Limits { max_corrections: 5, ..Default::default() };
    let agent = Agent::new(model).with_toolkit(toolkit).with_limits(limits);
    let outcome = agent.run("go").outcome().await;
    let kinds: Vec<_> = results(&outcome).iter().map(|result| result.kind).collect();
    let invalid = ResultKind::InvalidArguments;
    assert_eq!(kinds, [invalid, invalid, invalid, ResultKind::Ok]);
}

#[tokio::test]
async fn many_turns_without_a_check_are_a_signal_if_the_agent_requires_evidence() {
    for (requires_evidence, checks_at) in [(true, None), (true, Some(1)), (false, None)] {
        let mut detectors = Detectors::default();
        detectors.missing_termination.max_turns_without_evidence = 4;
        let signals = detectors.signal_log.clone();
        let replies = (0..6).map(|turn| match checks_at == Some(turn) {
            true => Reply::new().call("check", json!({ "code": 0 })),
            false => Reply::new().call("t", json!({ "n": turn })),
        });
        let (mut agent, _) = agent(replies.chain([blocked()]));
        if requires_evidence {
            agent = agent.with_evidence(RequireEvidence::new());
        }
        agent.with_hook(detectors).run("go").outcome().await;
        let found: Vec<_> =
            signals.signals().into_iter().map(|it| (it.mode, it.turn, it.what)).collect();
        let what = "no check was recorded in 4 turns".to_owned();
        let expected = match requires_evidence && checks_at.is_none() {
            true => vec![(FailureMode::MissingTermination, 5, what)],
            false => vec![],
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn a_stop_action_from_a_later_version_is_read() {
    let json = r#"{"reason":"success","summary":"x","confidence":0.9}"#;
    assert_eq!(StopAction::from_arguments(json).unwrap().summary, "x");
}
