//! A tool choice that requires a call applies for one turn, unless a setting says otherwise.

use serde_json::json;
use turnstream::agent::hook;
use turnstream::agent::{Budget, Limits};
use turnstream::event::EndReason;
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::request::{Options, ToolChoice};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, Error, ErrorKind, Outcome, Request};

use turnstream_test_support::runs::{limits_with_max_turns, result_kinds};
use turnstream_test_support::tools::spec;

/// A model that calls `look` whenever it must, and answers otherwise.
fn obedient_model() -> Scripted {
    Scripted::from_fn(|request: &Request, _| match request.options.tool_choice {
        ToolChoice::Required | ToolChoice::Tool(_) => Reply::new().call("look", json!({})),
        _ => Reply::text("Done."),
    })
}

fn look_tool() -> Tool {
    Tool::raw(spec("look"), |_, _| async { "nothing" }).unwrap()
}

fn forced_agent(model: &Scripted, tool_choice: ToolChoice) -> Agent {
    let options = Options { tool_choice, ..Options::default() };
    Agent::new(model.clone()).with_tool(look_tool()).with_options(options)
}

fn choices(model: &Scripted) -> Vec<ToolChoice> {
    model.requests().into_iter().map(|request| request.options.tool_choice).collect()
}

fn check_completed(outcome: &Outcome) {
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "Done."));
}

#[tokio::test]
async fn a_forced_tool_choice_applies_until_a_call_has_been_answered() {
    for choice in [ToolChoice::Required, ToolChoice::Tool("look".into())] {
        let model = obedient_model();
        let outcome = forced_agent(&model, choice.clone()).run("Go").outcome().await;
        check_completed(&outcome);
        assert_eq!(choices(&model), [choice, ToolChoice::Auto]);
    }
}

#[tokio::test]
async fn every_run_of_an_agent_is_forced_again() {
    let model = obedient_model();
    let agent = forced_agent(&model, ToolChoice::Required);
    let first = agent.run("Go").outcome().await;
    check_completed(&agent.run_from(first.history, "Again").outcome().await);
    let (forced, free) = (ToolChoice::Required, ToolChoice::Auto);
    assert_eq!(choices(&model), [forced.clone(), free.clone(), forced, free]);
}

#[tokio::test]
async fn a_limit_forces_more_turns() {
    let model = obedient_model();
    let limits = Limits { forced_tool_turns: 3, ..Limits::default() };
    let agent = forced_agent(&model, ToolChoice::Required).with_limits(limits);
    check_completed(&agent.run("Go").outcome().await);
    assert_eq!(choices(&model).iter().filter(|it| **it == ToolChoice::Required).count(), 3);

    let limits = Limits { forced_tool_turns: u32::MAX, max_turns: Some(5), ..Limits::default() };
    let model = obedient_model();
    let agent = forced_agent(&model, ToolChoice::Required).with_limits(limits);
    assert_eq!(agent.run("Go").outcome().await.reason, EndReason::MaxTurns);
    assert_eq!(choices(&model), vec![ToolChoice::Required; 5]);
}

#[tokio::test]
async fn a_turn_without_a_call_and_a_failed_request_leave_the_choice_forced() {
    let overloaded = || Error::new(ErrorKind::Overloaded, "busy");
    let model = Scripted::new([
        Reply::text("Half").fail(overloaded()),
        Reply::new().call_raw("c", "look", "{"),
        Reply::text("Done."),
    ]);
    let outcome = forced_agent(&model, ToolChoice::Required).run("Go").outcome().await;
    check_completed(&outcome);
    assert_eq!(result_kinds(outcome.new_items()), [ResultKind::InvalidArguments]);
    assert_eq!(choices(&model), [ToolChoice::Required, ToolChoice::Required, ToolChoice::Auto]);
}

#[tokio::test]
async fn a_resumed_call_counts_as_answered() {
    let model = obedient_model();
    let options = Options { tool_choice: ToolChoice::Required, ..Options::default() };
    let agent =
        Agent::new(model.clone()).with_tool(look_tool().requires_approval()).with_options(options);
    let paused = agent.run("Go").outcome().await;
    assert_eq!(paused.reason, EndReason::Pending);
    let verdicts = paused.pending.into_iter().map(|call| (call, Verdict::Approve));
    check_completed(&agent.resume(paused.history, verdicts).unwrap().outcome().await);
    assert_eq!(choices(&model), [ToolChoice::Required, ToolChoice::Auto]);
}

#[tokio::test]
async fn a_run_that_continues_after_results_is_not_forced() {
    let model = obedient_model();
    let agent = forced_agent(&model, ToolChoice::Required);
    let cut = agent.clone().with_limits(limits_with_max_turns(1)).run("Go").outcome().await;
    assert_eq!(cut.reason, EndReason::MaxTurns);
    check_completed(&agent.run_from(cut.history, ()).outcome().await);
    assert_eq!(choices(&model), [ToolChoice::Required, ToolChoice::Auto]);
}

#[tokio::test]
async fn a_hook_and_a_wrap_up_turn_have_the_last_word() {
    let model = obedient_model();
    let force = hook::prepare_request(|_, mut request: Request| async move {
        request.options.tool_choice = ToolChoice::Required;
        request
    });
    let agent = Agent::new(model.clone()).with_tool(look_tool()).with_hook(force);
    let outcome = agent.with_limits(limits_with_max_turns(3)).run("Go").outcome().await;
    assert_eq!(outcome.reason, EndReason::MaxTurns);
    assert_eq!(choices(&model), vec![ToolChoice::Required; 3]);

    let model = obedient_model();
    let limits = Limits { forced_tool_turns: u32::MAX, max_turns: Some(2), ..Limits::default() };
    let agent = forced_agent(&model, ToolChoice::Required).with_limits(limits);
    agent.with_budget(Budget::new().with_wrap_up()).run("Go").outcome().await;
    assert_eq!(choices(&model), [ToolChoice::Required, ToolChoice::None]);
}
