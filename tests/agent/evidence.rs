//! An agent that ends only with evidence: the messages that are sent back to it, and how the run
//! ends.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use turnstream::agent::evidence::RequireEvidence;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::agent::{Budget, Limits, Target};
use turnstream::context::{Compaction, Truncator, compactor_fn};
use turnstream::env::CountingIds;
use turnstream::event::{EndReason, Transition};
use turnstream::item::{Evidence, SideEffect};
use turnstream::provider::{Reply, Scripted};
use turnstream::request::System;
use turnstream::tool::{Tool, ToolContext, Toolkit, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Outcome};

use futures::StreamExt;

use turnstream_test_support::runs::limits_with_max_turns;
use turnstream_test_support::tools::spec;

/// A tool that changes a file.
fn edit_tool() -> Tool {
    Tool::raw(spec("edit"), |_, cx: ToolContext| async move {
        cx.record_change("a.rs");
        "edited"
    })
    .unwrap()
}

/// A tool that runs a command and ends with a code: `{"command": "test", "code": 0}`.
fn check_tool() -> Tool {
    Tool::raw(spec("check"), |args: serde_json::Value, cx: ToolContext| async move {
        let command = args["command"].as_str().unwrap_or("test").to_owned();
        let code = i32::try_from(args["code"].as_i64().unwrap_or(0)).unwrap();
        cx.record_evidence(Evidence::from_command(command, code));
        "ran"
    })
    .unwrap()
}

fn edit_call() -> Reply {
    Reply::new().call("edit", json!({}))
}

fn check_call(command: &str, code: i32) -> Reply {
    Reply::new().call("check", json!({ "command": command, "code": code }))
}

fn edit_and_check_tools() -> [Tool; 2] {
    [edit_tool(), check_tool()]
}

fn evidence_agent(replies: impl IntoIterator<Item = Reply>) -> (Agent, Scripted) {
    let model = Scripted::new(replies);
    let agent = Agent::new(model.clone())
        .with_tools(edit_and_check_tools())
        .with_ids(CountingIds::new("id"));
    (agent.with_evidence(RequireEvidence::new()), model)
}

async fn run_outcome(replies: impl IntoIterator<Item = Reply>) -> Outcome {
    evidence_agent(replies).0.run("go").outcome().await
}

#[track_caller]
fn assert_outcome(outcome: &Outcome, reason: EndReason, turns: u32, why: Option<&str>) {
    let found = (outcome.reason, outcome.turns, outcome.why.as_deref());
    assert_eq!(found, (reason, turns, why));
    assert_eq!(outcome.proof.is_some(), reason == EndReason::Completed);
    assert!(outcome.unproven.is_none() || reason != EndReason::Completed);
}

#[tokio::test]
async fn the_outcome_names_what_is_unproven_at_every_end() {
    let limits = limits_with_max_turns(2);
    let ends = |replies: Vec<Reply>| {
        let agent = evidence_agent(replies).0.with_limits(limits);
        async move { agent.run("go").outcome().await }
    };
    let outcome = ends(vec![check_call("test", 0), edit_call()]).await;
    assert_outcome(&outcome, EndReason::MaxTurns, 2, None);
    assert_eq!(outcome.unproven.as_deref(), Some(UNCHECKED_CHANGE_MESSAGE));
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["unproven"], UNCHECKED_CHANGE_MESSAGE);
    assert_eq!(serde_json::from_value::<Outcome>(json).unwrap().unproven, outcome.unproven);

    let proven = ends(vec![edit_call(), check_call("test", 0)]).await;
    assert_eq!((proven.reason, proven.unproven), (EndReason::MaxTurns, None));

    // The result of the interrupted call arrives with the end.
    let mut run = evidence_agent([edit_call(), "Unused.".into()]).0.run("go");
    while let Some(event) = run.next().await {
        if event.unwrap().tool_output().is_some() {
            run.handle().interrupt();
        }
    }
    let outcome = run.outcome().await;
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
    assert_eq!(outcome.unproven.as_deref(), Some(UNCHECKED_CHANGE_MESSAGE));

    let agent = Agent::new(Scripted::new([edit_call()])).with_tools(edit_and_check_tools());
    let outcome = agent.with_limits(limits_with_max_turns(1)).run("go").outcome().await;
    assert_eq!(outcome.unproven, None, "the agent does not require evidence");
}

/// The user messages that the agent injected, without the input.
fn injected_messages(outcome: &Outcome) -> Vec<String> {
    let words = outcome.new_items().iter().skip(1).filter_map(Item::as_user);
    words.map(turnstream::item::Content::text).collect()
}

const UNCHECKED_CHANGE_MESSAGE: &str =
    "no check has passed since the last change: changed `a.rs` (by `edit`)";
const NO_CHECK_MESSAGE: &str = "no check was recorded";

#[tokio::test]
async fn a_completion_claim_after_a_passing_check_is_a_success() {
    let outcome = run_outcome([edit_call(), check_call("test", 0), "done".into()]).await;
    assert_outcome(&outcome, EndReason::Completed, 3, None);
    assert_eq!(outcome.proof.as_deref(), Some(&Evidence::from_command("test", 0)));
    assert_eq!(outcome.evidence.len(), 1);
}

#[tokio::test]
async fn a_claim_without_evidence_is_rejected_once_and_then_ends_as_unproven() {
    let outcome = run_outcome([edit_call(), "done".into(), "really".into()]).await;
    assert_outcome(&outcome, EndReason::Unproven, 3, Some(UNCHECKED_CHANGE_MESSAGE));
    assert!(!outcome.partial);
    let [said] = &injected_messages(&outcome)[..] else { panic!("not once") };
    assert!(said.contains(UNCHECKED_CHANGE_MESSAGE) && said.contains("`BLOCKED: `"), "{said}");
    assert!(outcome.into_result().is_err());
}

#[tokio::test]
async fn a_rejected_claim_can_be_proven_afterwards() {
    let replies = [edit_call(), "done".into(), check_call("test", 0), "done".into()];
    let events: Vec<_> = evidence_agent(replies).0.run("go").collect().await;
    let transitions = events.iter().filter_map(|event| match event {
        Ok(Event::Continued { reason }) => Some(*reason),
        _ => None,
    });
    let next = Transition::NextTurn;
    assert!(transitions.eq([next, Transition::StopHookBlocking, next]));
    assert_outcome(
        events.last().unwrap().as_ref().unwrap().outcome().unwrap(),
        EndReason::Completed,
        4,
        None,
    );
}

#[tokio::test]
async fn a_claim_is_rejected_once_no_matter_how_much_happens_in_between() {
    let replies = ["done".into(), edit_call(), check_call("test", 1), "done".into()];
    let outcome = run_outcome(replies).await;
    let why = format!(
        "`test` failed with exit code 1 and has not passed since, and {UNCHECKED_CHANGE_MESSAGE}"
    );
    assert_outcome(&outcome, EndReason::Unproven, 4, Some(&why));
}

#[tokio::test]
async fn the_rejection_message_names_the_failed_check() {
    let outcome = run_outcome([
        edit_call(),
        check_call("a", 0),
        check_call("b", 7),
        "done".into(),
        "done".into(),
    ])
    .await;
    let why = "`b` failed with exit code 7 and has not passed since";
    assert_outcome(&outcome, EndReason::Unproven, 5, Some(why));
    assert!(injected_messages(&outcome)[0].contains(why));
}

#[tokio::test]
async fn a_run_without_changes_needs_evidence_unless_configured_otherwise() {
    let (agent, _) = evidence_agent(["It is 7.".into(), "It is 7.".into()]);
    assert_outcome(
        &agent.run("go").outcome().await,
        EndReason::Unproven,
        2,
        Some(NO_CHECK_MESSAGE),
    );

    let lenient = || RequireEvidence { only_after_changes: true, ..RequireEvidence::new() };
    let run = |replies: Vec<Reply>| {
        let agent = Agent::new(Scripted::new(replies)).with_tools(edit_and_check_tools());
        agent.with_evidence(lenient()).run("go").outcome()
    };
    let looked = run(vec!["It is 7.".into()]).await;
    assert_eq!((looked.reason, looked.proof), (EndReason::Completed, None));
    // The question was whether the tests pass.
    let failing = run(vec![check_call("test", 1), "No, they fail.".into()]).await;
    assert_eq!((failing.reason, failing.proof), (EndReason::Completed, None));
    let changed = run(vec![edit_call(), "done".into(), "done".into()]).await;
    assert_outcome(&changed, EndReason::Unproven, 3, Some(UNCHECKED_CHANGE_MESSAGE));
}

#[tokio::test]
async fn a_check_in_the_same_turn_as_a_change_does_not_count() {
    let both = Reply::new().call("edit", json!({})).call("check", json!({}));
    assert_outcome(
        &run_outcome([both, "done".into(), "done".into()]).await,
        EndReason::Unproven,
        3,
        Some(UNCHECKED_CHANGE_MESSAGE),
    );
}

#[tokio::test]
async fn a_blocked_answer_must_state_a_reason() {
    let outcome =
        run_outcome([edit_call(), "BLOCKED: a key for the registry\nAll else is done.".into()])
            .await;
    assert_outcome(&outcome, EndReason::Blocked, 2, Some("a key for the registry"));
}

#[tokio::test]
async fn a_blocked_answer_without_a_reason_is_rejected_once() {
    let named = run_outcome(["blocked:".into(), "BLOCKED: a key".into()]).await;
    assert_outcome(&named, EndReason::Blocked, 2, Some("a key"));
    assert!(injected_messages(&named)[0].contains("but not by what"));

    let unnamed = run_outcome(["BLOCKED: ".into(), "BLOCKED:".into()]).await;
    let why = "it says that it is blocked without naming what is missing";
    assert_outcome(&unnamed, EndReason::Unproven, 2, Some(why));

    // The two requirements share one chance.
    let mixed = run_outcome(["done".into(), "BLOCKED:".into()]).await;
    assert_outcome(&mixed, EndReason::Unproven, 2, Some(why));
}

#[tokio::test]
async fn a_reported_failure_needs_evidence_like_any_claim() {
    let outcome = run_outcome(["I could not do it.".into(), "I am blocked by a key.".into()]).await;
    assert_outcome(&outcome, EndReason::Unproven, 2, Some(NO_CHECK_MESSAGE));
}

#[tokio::test]
async fn the_marker_of_a_blocked_answer_is_configurable() {
    let mut policy = RequireEvidence::new();
    policy.blocked_detector = Arc::new(|turn| {
        let json: serde_json::Value = serde_json::from_str(&turn.text()).ok()?;
        json["needs"].as_str().map(str::to_owned)
    });
    let agent = Agent::new(Scripted::new([r#"{"needs":"a key"}"#])).with_evidence(policy);
    assert_outcome(&agent.run("go").outcome().await, EndReason::Blocked, 1, Some("a key"));
}

#[tokio::test]
async fn a_panic_in_the_evidence_policy_ends_the_run_like_a_panic_in_a_hook() {
    let mut policy = RequireEvidence::new();
    policy.blocked_detector = Arc::new(|_| panic!("oops"));
    let agent = Agent::new(Scripted::new(["done"])).with_evidence(policy);
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::HookError);
    let error = outcome.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Hook);
    assert!(error.to_string().contains("oops"), "{error}");
}

#[tokio::test]
async fn the_evidence_instructions_are_appended_to_the_stable_system_prompt() {
    let (asked, model) = evidence_agent(["BLOCKED: all".into()]);
    let system = System { stable: "Be kind.".into(), volatile: "It is noon.".into() };
    asked.with_system(system).run("go").outcome().await;
    let system = &model.requests()[0].system;
    assert!(system.stable.starts_with("Be kind.\n\nEnd only with evidence."));
    assert!(system.stable.contains("`BLOCKED: `"));
    assert_eq!(system.volatile, "It is noon.");

    let (silent, model) = evidence_agent(["BLOCKED: all".into()]);
    let policy = RequireEvidence { instructions: String::new(), ..RequireEvidence::new() };
    silent.with_system("Be kind.").with_evidence(policy).run("go").outcome().await;
    assert_eq!(model.requests()[0].system.stable, "Be kind.");
}

#[tokio::test]
async fn evidence_of_an_earlier_run_does_not_count() {
    let (agent, _) = evidence_agent([
        check_call("test", 0),
        "done".into(),
        edit_call(),
        "done".into(),
        "done".into(),
        "thanks".into(),
        "thanks".into(),
    ]);
    let first = agent.run("go").outcome().await;
    assert_outcome(&first, EndReason::Completed, 2, None);
    let second = agent.run_from(first.history, "and this").outcome().await;
    assert_outcome(&second, EndReason::Unproven, 3, Some(UNCHECKED_CHANGE_MESSAGE));
    // The next run does not have to prove the changes of this one either.
    let third = agent.run_from(second.history, "and that").outcome().await;
    assert_outcome(&third, EndReason::Unproven, 2, Some(NO_CHECK_MESSAGE));
}

#[tokio::test]
async fn a_run_without_input_must_prove_changes_of_the_previous_run() {
    let (agent, _) = evidence_agent([edit_call(), "done".into(), "done".into()]);
    let mut run = agent.run("go");
    while let Some(Ok(event)) = run.next().await {
        if matches!(event, Event::Continued { .. }) {
            break;
        }
    }
    let history = run.history();
    drop(run);
    let outcome = agent.run_from(history, turnstream::agent::Input::default()).outcome().await;
    assert_outcome(&outcome, EndReason::Unproven, 2, Some(UNCHECKED_CHANGE_MESSAGE));
}

#[tokio::test]
async fn a_resumed_run_must_prove_changes_made_before_the_resume() {
    let cases = [
        (Verdict::Approve, EndReason::Completed),
        (Verdict::Deny("no".into()), EndReason::Unproven),
    ];
    for (verdict, reason) in cases {
        let (agent, _) =
            evidence_agent([edit_call(), check_call("test", 0), "done".into(), "done".into()]);
        let tools = [edit_tool(), check_tool().requires_approval()];
        let agent = agent.with_toolkit(Toolkit::new(tools));
        let paused = agent.run("go").outcome().await;
        assert_eq!(paused.reason, EndReason::Pending);
        let verdicts = paused.pending.into_iter().map(|call| (call, verdict.clone()));
        let run = agent.resume(paused.history, verdicts).unwrap();
        assert_eq!(run.outcome().await.reason, reason);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_call_counts_as_a_possible_change() {
    let slow = Tool::raw(spec("slow"), |_, _| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        "late"
    })
    .unwrap()
    .with_timeout(Duration::from_secs(1));
    let replies = || {
        let slow = || Reply::new().call("slow", json!({}));
        Scripted::new([check_call("test", 0), slow(), "done".into(), "done".into()])
    };
    let agent = |policy| {
        Agent::new(replies()).with_tools([check_tool(), slow.clone()]).with_evidence(policy)
    };
    let outcome = agent(RequireEvidence::new()).run("go").outcome().await;
    let why = "no check has passed since the last change: a call of `slow` was interrupted and may \
               have changed something";
    assert_outcome(&outcome, EndReason::Unproven, 4, Some(why));
    let harmless =
        RequireEvidence { read_only_tools: vec!["slow".to_owned()], ..RequireEvidence::new() };
    let outcome = agent(harmless).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Completed, 3, None);
}

#[tokio::test]
async fn evidence_survives_a_compaction() {
    // Everything but the newest entry is compacted when the context is full.
    let forget = Arc::new(compactor_fn(|history: &History| {
        let to = history.len();
        let items = vec![Item::user("So far so good.")];
        Ok((to > 1).then_some(Compaction { from: 0, to, items, ..Compaction::default() }))
    }));
    let full = || Reply::new().stop(turnstream::turn::StopReason::ContextWindow);
    let forgetful = |replies: Vec<Reply>| evidence_agent(replies).0.with_compactor(forget.clone());

    let proven = [edit_call(), check_call("test", 0), full(), "done".into()];
    let outcome = forgetful(proven.into()).run("go").outcome().await;
    assert!(outcome.history.iter().all(|item| item.as_tool_result().is_none()));
    assert_eq!((outcome.reason, outcome.evidence.len()), (EndReason::Completed, 1));
    assert_eq!(outcome.proof.as_deref(), Some(&Evidence::from_command("test", 0)));

    let unproven = [edit_call(), full(), "done".into(), "done".into()];
    let outcome = forgetful(unproven.into()).run("go").outcome().await;
    assert_eq!(
        (outcome.reason, outcome.why.as_deref()),
        (EndReason::Unproven, Some(UNCHECKED_CHANGE_MESSAGE))
    );
}

#[tokio::test]
async fn a_truncated_or_shortened_result_keeps_its_report() {
    let loud = Tool::raw(spec("loud"), |_, cx: ToolContext| async move {
        cx.record_change("a.rs");
        cx.record_evidence(Evidence::from_command("test", 0));
        "x".repeat(9_000)
    })
    .unwrap();
    let kit = Toolkit::new([loud]).with_max_result_bytes(5_000);
    let model = Scripted::new([Reply::new().call("loud", json!({})), "done".into()]);
    let agent = Agent::new(model).with_toolkit(kit).with_evidence(RequireEvidence::new());
    let mut outcome = agent.run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Completed, 2, None);
    let result = |history: &History| {
        let result = history.iter().find_map(|item| item.as_tool_result().cloned()).unwrap();
        (result.content.text().len(), result.report)
    };
    let before = result(&outcome.history);
    assert!(before.0 <= 5_000 && before.1.is_some());
    let shorten = Truncator { max_result_bytes: Some(100), ..Truncator::new() };
    shorten.plan_compaction(&outcome.history).unwrap().apply(&mut outcome.history);
    let after = result(&outcome.history);
    assert!(after.0 <= 800);
    assert_eq!(after.1, before.1);
}

#[tokio::test]
async fn stop_hooks_run_before_the_evidence_policy() {
    let (agent, _) = evidence_agent([check_call("test", 0), "done".into(), "Done, kindly.".into()]);
    let kind = hook::before_stop(|_, turn| async move {
        match turn.text().contains("kindly") {
            true => StopDecision::Allow,
            false => StopDecision::Continue("Kindly.".into()),
        }
    });
    assert_outcome(&agent.with_hook(kind).run("go").outcome().await, EndReason::Completed, 3, None);
}

#[tokio::test]
async fn a_blocking_stop_hook_does_not_use_up_the_one_rejection() {
    let (agent, _) = evidence_agent(["done".into(), "kindly".into(), "kindly".into()]);
    let kind = hook::before_stop(|_, turn| async move {
        match turn.text().contains("kindly") {
            true => StopDecision::Allow,
            false => StopDecision::Continue("Kindly.".into()),
        }
    });
    let outcome = agent.with_hook(kind).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Unproven, 3, Some(NO_CHECK_MESSAGE));
    assert_eq!(injected_messages(&outcome).len(), 2);
}

#[tokio::test]
async fn a_rejected_claim_is_not_rejected_again_after_another_objection() {
    let answers = || ["done".into(), "perhaps".into(), "done".into()];
    let by_hook = hook::before_stop(|_, turn| async move {
        match turn.text().contains("perhaps") {
            true => StopDecision::Continue("Be sure.".into()),
            false => StopDecision::Allow,
        }
    });
    let by_validation = |turn: &turnstream::Turn| match turn.text().contains("perhaps") {
        true => Err("Be sure."),
        false => Ok(()),
    };
    let hooked = evidence_agent(answers()).0.with_hook(by_hook);
    let validated = evidence_agent(answers()).0.with_validation(by_validation);
    for agent in [hooked, validated] {
        let outcome = agent.run("go").outcome().await;
        assert_outcome(&outcome, EndReason::Unproven, 3, Some(NO_CHECK_MESSAGE));
        let messages = injected_messages(&outcome);
        let [missing, objection] = &messages[..] else { panic!("{messages:?}") };
        assert!(missing.contains(NO_CHECK_MESSAGE) && objection.contains("Be sure."));
    }
}

#[tokio::test]
async fn a_stop_hook_that_ends_the_run_determines_the_reason() {
    let (agent, _) = evidence_agent(["done".into()]);
    let agent =
        agent.with_hook(hook::before_stop(|_, _| async { StopDecision::EndRun("no".into()) }));
    assert_outcome(&agent.run("go").outcome().await, EndReason::StopHookPrevented, 1, Some("no"));
}

#[tokio::test]
async fn output_is_validated_before_evidence_is_checked_unless_the_answer_is_blocked() {
    let (strict, _) =
        evidence_agent(["done".into(), "7".into(), check_call("test", 0), "7".into()]);
    let number = |turn: &turnstream::Turn| match turn.text().parse::<u32>() {
        Ok(_) => Ok(()),
        Err(_) => Err("it is no number"),
    };
    let outcome = strict.with_validation(number).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Completed, 4, None);
    assert!(
        injected_messages(&outcome)[0].contains("it is no number")
            && injected_messages(&outcome)[1].contains(NO_CHECK_MESSAGE)
    );

    let (strict, _) = evidence_agent(["BLOCKED: a calculator".into()]);
    let outcome = strict.with_validation(number).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Blocked, 1, Some("a calculator"));
}

#[tokio::test]
async fn without_a_further_turn_a_claim_without_evidence_ends_as_unproven_immediately() {
    let (capped, _) = evidence_agent([edit_call(), "done".into()]);
    let outcome = capped.with_limits(limits_with_max_turns(2)).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Unproven, 2, Some(UNCHECKED_CHANGE_MESSAGE));

    let (stopped, _) = evidence_agent([edit_call(), "done".into()]);
    let mut run = stopped.run("go");
    while let Some(Ok(event)) = run.next().await {
        if matches!(event, Event::TurnStarted { turn: 2, .. }) {
            run.stop_after_turn();
        }
    }
    assert_outcome(&run.outcome().await, EndReason::Unproven, 2, Some(UNCHECKED_CHANGE_MESSAGE));
}

#[tokio::test]
async fn a_run_in_its_wrap_up_turn_ends_with_its_limit_as_the_reason() {
    let (capped, _) = evidence_agent([edit_call(), edit_call(), "I did what I could.".into()]);
    let agent =
        capped.with_limits(limits_with_max_turns(3)).with_budget(Budget::new().with_wrap_up());
    assert_outcome(&agent.run("go").outcome().await, EndReason::MaxTurns, 3, None);
}

#[tokio::test]
async fn new_input_allows_a_claim_to_be_rejected_once_more() {
    let (agent, _) = evidence_agent([
        "done".into(),
        "done".into(),
        "done".into(),
        "BLOCKED: nothing else".into(),
    ]);
    let mut run = agent.run("go");
    let mut blocks = 0;
    while let Some(Ok(event)) = run.next().await {
        if event == (Event::Continued { reason: Transition::StopHookBlocking }) {
            blocks += 1;
            if blocks == 1 {
                run.steer("Do not forget the docs").unwrap();
            }
        }
    }
    let outcome = run.outcome().await;
    assert_eq!(blocks, 2);
    assert_outcome(&outcome, EndReason::Unproven, 3, Some(NO_CHECK_MESSAGE));
}

#[tokio::test]
async fn a_follow_up_is_delivered_after_the_claim_is_proven() {
    let (agent, _) = evidence_agent([
        check_call("test", 0),
        "done".into(),
        edit_call(),
        "done".into(),
        check_call("test", 0),
        "done".into(),
    ]);
    let run = agent.run("go");
    run.follow_up("And the docs").unwrap();
    let outcome = run.outcome().await;
    assert_outcome(&outcome, EndReason::Completed, 6, None);
    assert_eq!(injected_messages(&outcome).len(), 2);
}

#[tokio::test]
async fn a_token_target_nudges_only_after_the_claim_is_proven() {
    let (agent, _) =
        evidence_agent(["done".into(), check_call("test", 0), "done".into(), "done".into()]);
    let agent = agent.with_budget(Budget::new().with_target(Target::new(1_000_000)));
    let outcome = agent.with_limits(limits_with_max_turns(4)).run("go").outcome().await;
    assert!(injected_messages(&outcome)[0].contains(NO_CHECK_MESSAGE));
    assert_eq!(outcome.reason, EndReason::Completed);
}

#[tokio::test]
async fn evidence_works_the_same_with_one_action_per_turn() {
    let kit = Toolkit::new(edit_and_check_tools()).first_call_only();
    let both = Reply::new().call("edit", json!({})).call("check", json!({}));
    let model = Scripted::new([both, check_call("test", 0), "done".into()]);
    let agent = Agent::new(model).with_toolkit(kit).with_evidence(RequireEvidence::new());
    assert_outcome(&agent.run("go").outcome().await, EndReason::Completed, 3, None);
}

#[tokio::test]
async fn the_outcome_contains_the_evidence_even_without_a_policy() {
    let run = |replies: Vec<Reply>| {
        Agent::new(Scripted::new(replies)).with_tools(edit_and_check_tools()).run("go").outcome()
    };
    let proven = run(vec![edit_call(), check_call("test", 0), "done".into()]).await;
    assert_eq!(proven.proof.as_deref(), Some(&Evidence::from_command("test", 0)));
    let json = serde_json::to_string(&proven).unwrap();
    assert!(json.contains(r#""proof":{"command":"test","exit_code":0}"#), "{json}");
    assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), proven);
    let unproven = run(vec![check_call("test", 0), edit_call(), "done".into()]).await;
    assert_eq!((unproven.reason, unproven.proof), (EndReason::Completed, None));
}

#[tokio::test]
async fn a_run_stopped_while_its_claim_is_evaluated_ends_as_stopped() {
    let (agent, _) = evidence_agent([Reply::text("Done.")]);
    let kept = std::sync::Arc::new(std::sync::OnceLock::<turnstream::RunHandle>::new());
    let stops = std::sync::Arc::clone(&kept);
    let agent = agent.with_hook(hook::before_stop(move |_, _| {
        stops.get().unwrap().stop_after_turn();
        async { StopDecision::Allow }
    }));
    let run = agent.run("go");
    kept.set(run.handle()).ok().unwrap();
    assert_outcome(&run.outcome().await, EndReason::Stopped, 1, None);
}

#[tokio::test]
async fn a_custom_stop_hook_can_reproduce_the_evidence_policy() {
    let asks = || {
        hook::before_stop(|_, turn| async move {
            match turn.text().contains("proof") {
                true => StopDecision::Allow,
                false => StopDecision::RequireEvidence {
                    text: "Prove it.".into(),
                    reason: "no proof".into(),
                },
            }
        })
    };
    let judges = hook::judge_evidence(|_| {
        Some(turnstream::agent::evidence::EvidenceVerdict::Proven(Evidence::from_command("own", 0)))
    });
    let agent = Agent::new(Scripted::new(["Done.", "With proof."])).with_hook(asks());
    let run = agent.with_hook(judges).run("go").outcome().await;
    assert_eq!(
        (run.reason, run.turns, injected_messages(&run)),
        (EndReason::Completed, 2, vec!["Prove it.".into()])
    );
    assert_eq!(run.proof.as_deref(), Some(&Evidence::from_command("own", 0)));

    let agent = Agent::new(Scripted::new(["Done.", "Done."])).with_hook(asks());
    assert_outcome(&agent.run("go").outcome().await, EndReason::Unproven, 2, Some("no proof"));

    let gives_up =
        hook::give_up_reason(|_, turn| turn.text().strip_prefix("I lack ").map(str::to_owned));
    let agent = Agent::new(Scripted::new(["I lack a key"])).with_hook(gives_up);
    let agent = agent.with_validation(|_| Err("not asked about words that are no answer"));
    let ends = hook::before_stop(|_, _| async { StopDecision::Blocked("a key".into()) });
    assert_outcome(
        &agent.with_hook(ends).run("go").outcome().await,
        EndReason::Blocked,
        1,
        Some("a key"),
    );
}

/// An agent with a sub-agent that is called once.
fn agent_with_child(child: Vec<Reply>, parent: Vec<Reply>) -> Agent {
    let child = Agent::new(Scripted::new(child)).with_tools(edit_and_check_tools());
    let tool = child.as_tool("child", "").unwrap();
    let asks = Reply::new().call("child", json!({ "prompt": "go" }));
    let replies = std::iter::once(asks).chain(parent);
    Agent::new(Scripted::new(replies))
        .with_tools(edit_and_check_tools().into_iter().chain([tool]))
        .with_evidence(RequireEvidence::new())
}

#[tokio::test]
async fn changes_and_evidence_of_a_sub_agent_count_for_its_parent() {
    let proven =
        vec![edit_call(), check_call("test", 1), edit_call(), check_call("test", 0), "done".into()];
    let outcome = agent_with_child(proven, vec!["done".into()]).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Completed, 2, None);
    let result = outcome.new_items().iter().find_map(Item::as_tool_result).unwrap();
    let report = result.report.as_ref().unwrap();
    assert_eq!(report.side_effects, [SideEffect::of_change("a.rs"), SideEffect::of_change("a.rs")]);
    assert_eq!(report.evidence.len(), 1, "what was mended is the child's own story");

    // A check by the child before its last change is not evidence for the parent either.
    let stale = vec![check_call("test", 0), edit_call(), "done".into()];
    let outcome =
        agent_with_child(stale, vec!["done".into(), "done".into()]).run("go").outcome().await;
    let why = "no check has passed since the last change: changed `a.rs` (by `child`)";
    assert_outcome(&outcome, EndReason::Unproven, 3, Some(why));

    let failing = vec![edit_call(), check_call("test", 2), "done".into()];
    let outcome =
        agent_with_child(failing, vec![check_call("test", 0), "done".into()]).run("go").outcome();
    assert_outcome(&outcome.await, EndReason::Completed, 3, None);
}

#[tokio::test]
async fn a_parent_learns_which_evidence_its_sub_agent_lacks() {
    let child = Agent::new(Scripted::new(["BLOCKED: a key"])).with_evidence(RequireEvidence::new());
    let tool = child.as_tool("child", "").unwrap();
    let model = Scripted::new([
        Reply::new().call("child", json!({ "prompt": "go" })),
        Reply::text("BLOCKED: a key for the child"),
    ]);
    let agent = Agent::new(model).with_tools([tool]).with_evidence(RequireEvidence::new());
    let outcome = agent.run("go").outcome().await;
    assert_outcome(&outcome, EndReason::Blocked, 2, Some("a key for the child"));
    let result = outcome.new_items().iter().find_map(Item::as_tool_result).unwrap();
    assert!(result.is_error());
    assert!(result.content.text().ends_with("[stopped early: something is missing (a key)]"));
}

#[tokio::test]
async fn a_failed_call_that_reported_a_change_needs_evidence() {
    let breaks = Tool::raw(spec("breaks"), |_, cx: ToolContext| async move {
        cx.record_change("a.rs");
        Err::<&str, Error>(Error::new(ErrorKind::Other, "half done"))
    });
    let breaks = breaks.unwrap();
    let model = Scripted::new([
        Reply::new().call("breaks", json!({})),
        Reply::text("done"),
        Reply::text("done"),
    ]);
    let agent = Agent::new(model).with_tools([breaks]).with_evidence(RequireEvidence::new());
    let why = "no check has passed since the last change: changed `a.rs` (by `breaks`)";
    assert_outcome(&agent.run("go").outcome().await, EndReason::Unproven, 3, Some(why));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_call_of_a_sub_agent_counts_as_a_possible_change() {
    let slow = |name: &str| {
        let tool = Tool::raw(spec(name), |_, _| async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            "too late"
        });
        tool.unwrap().with_timeout(Duration::from_secs(1))
    };
    let agent = |policy: RequireEvidence| {
        let child = Agent::new(Scripted::new([
            Reply::new().call("slow", json!({})),
            Reply::text("It did not answer."),
        ]));
        let policy = RequireEvidence { only_after_changes: true, ..policy };
        let child = child.with_tools([slow("slow")]).with_evidence(policy);
        let model = Scripted::new([
            check_call("test", 0),
            Reply::new().call("child", json!({ "prompt": "go" })),
            "done".into(),
            "done".into(),
        ]);
        Agent::new(model)
            .with_tools([check_tool(), child.as_tool("child", "").unwrap()])
            .with_evidence(RequireEvidence::new())
    };
    let harmless =
        RequireEvidence { read_only_tools: vec!["slow".to_owned()], ..RequireEvidence::new() };
    assert_eq!(agent(harmless).run("go").outcome().await.reason, EndReason::Completed);
    let outcome = agent(RequireEvidence::new()).run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Unproven);
}

#[tokio::test]
async fn a_run_ends_after_too_many_failed_fixes_in_a_row() {
    let run = |replies: Vec<Reply>, max| {
        let limits = Limits { end_after_failed_fixes: max, ..Limits::default() };
        let model = Scripted::new(replies);
        let agent = Agent::new(model).with_tools(edit_and_check_tools()).with_limits(limits);
        async move { agent.run("go").outcome().await }
    };
    let failed = || [edit_call(), check_call("test", 1)];
    let two_of_two = failed().into_iter().chain(failed()).chain(["Unused.".into()]);
    let outcome = run(two_of_two.collect(), 2).await;
    assert_eq!((outcome.reason, outcome.turns, outcome.partial), (EndReason::Repeating, 4, true));
    assert_eq!(outcome.why.as_deref(), Some("a check still fails after 2 fixes"));

    // Checks that pass, and checks that follow no change, do not count.
    let passes = [check_call("test", 0)];
    let again = [check_call("test", 1), check_call("test", 1)];
    let replies = failed().into_iter().chain(passes).chain(failed()).chain(again);
    let outcome = run(replies.chain(["Done.".into()]).collect(), 2).await;
    assert_eq!((outcome.reason, outcome.why), (EndReason::Completed, None));

    let many = (0..5).flat_map(|_| failed()).chain(["Done.".into()]).collect();
    assert_eq!(run(many, 0).await.reason, EndReason::Completed);
}

#[tokio::test]
async fn evidence_that_only_the_policy_reads_as_a_check_bounds_the_fixes() {
    let review = Tool::raw(spec("review"), |_, cx: ToolContext| async move {
        cx.record_evidence(json!({ "rejected": true }));
        "rejected"
    });
    let run = |policy: Option<RequireEvidence>| {
        let review_call = || Reply::new().call("review", json!({}));
        let replies = [edit_call(), review_call(), edit_call(), review_call(), "Done.".into()];
        let limits = Limits { end_after_failed_fixes: 2, ..Limits::default() };
        let tools = edit_and_check_tools().into_iter().chain([review.as_ref().unwrap().clone()]);
        let agent = Agent::new(Scripted::new(replies)).with_tools(tools).with_limits(limits);
        let agent = match policy {
            Some(policy) => agent.with_evidence(policy),
            None => agent,
        };
        async move { agent.run("go").outcome().await }
    };
    let mut policy = RequireEvidence::new();
    policy.evidence_parser = Arc::new(|json| {
        (json.to_value()["rejected"] == true).then(|| Evidence::from_command("review", 1))
    });
    let outcome = run(Some(policy)).await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Repeating, 4));
    assert_eq!(outcome.why.as_deref(), Some("a check still fails after 2 fixes"));
    assert_eq!(run(None).await.reason, EndReason::Completed);
}

#[tokio::test]
async fn a_run_without_changes_is_unproven_at_its_limit_unless_only_changes_need_evidence() {
    let at_limit = |only_after_changes, replies: Vec<Reply>| {
        let policy = RequireEvidence { only_after_changes, ..RequireEvidence::new() };
        let limits = limits_with_max_turns(u32::try_from(replies.len()).unwrap());
        let agent = Agent::new(Scripted::new(replies)).with_tools(edit_and_check_tools());
        let agent = agent.with_evidence(policy).with_limits(limits);
        async move { agent.run("go").outcome().await }
    };
    let unknown = || Reply::new().call("unknown", json!({}));
    let outcome = at_limit(false, vec![unknown()]).await;
    assert_outcome(&outcome, EndReason::MaxTurns, 1, None);
    assert_eq!(outcome.unproven.as_deref(), Some(NO_CHECK_MESSAGE));
    assert_eq!(at_limit(true, vec![unknown()]).await.unproven, None);
    // A failed check without a change does not keep such a run from completing either.
    assert_eq!(at_limit(true, vec![check_call("test", 1)]).await.unproven, None);
    let changed = at_limit(true, vec![edit_call()]).await;
    assert_eq!(changed.unproven.as_deref(), Some(UNCHECKED_CHANGE_MESSAGE));
}
