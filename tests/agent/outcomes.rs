//! The built-in agent: its endings, its events, and what the owner of a run can do between two
//! polls.

use std::sync::{Arc, OnceLock};

use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::agent::Limits;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::env::CountingIds;
use turnstream::event::{AppendReason, EndReason, InterruptedPhase, Transition};
use turnstream::item::ResultKind;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::request::{Options, System};
use turnstream::stream::TurnStream;
use turnstream::tool::Tool;
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Outcome, Request, Run, RunHandle};

use turnstream_test_support::runs::{limits_with_max_turns, limits_without_retries};
use turnstream_test_support::tools::spec;
use turnstream_test_support::tools::uncounted_tool;

fn scripted_agent(replies: impl IntoIterator<Item = Reply>) -> (Agent, Scripted) {
    let model = Scripted::new(replies);
    let agent = Agent::new(model.clone())
        .with_tools([uncounted_tool("t")])
        .with_limits(limits_without_retries());
    (agent.with_ids(CountingIds::new("id")), model)
}

fn tool_call_reply() -> Reply {
    Reply::new().call("t", json!({}))
}

async fn run_outcome(replies: impl IntoIterator<Item = Reply>) -> Outcome {
    scripted_agent(replies).0.run("go").outcome().await
}

#[track_caller]
fn assert_outcome(outcome: &Outcome, reason: EndReason, partial: bool, turns: u32) {
    let found = (outcome.reason, outcome.partial, outcome.turns);
    assert_eq!(found, (reason, partial, turns), "{outcome:?}");
}

/// The kinds of the results that a run added.
fn result_kinds(outcome: &Outcome) -> Vec<ResultKind> {
    outcome.new_items().iter().filter_map(|i| Some(i.as_tool_result()?.kind)).collect()
}

#[tokio::test]
async fn a_run_completes_when_the_model_makes_no_more_calls() {
    let outcome = run_outcome([tool_call_reply(), "done".into()]).await;
    assert_outcome(&outcome, EndReason::Completed, false, 2);
    assert_eq!(outcome.text, "done");
    assert!(outcome.into_result().is_ok());
}

#[tokio::test]
async fn a_run_yields_its_events_in_the_documented_order() {
    let (agent, _) = scripted_agent([Reply::text("so").call("t", json!({})), "done".into()]);
    let events: Vec<_> = agent.run("go").collect().await;
    let types: Vec<String> = events
        .iter()
        .map(|event| {
            let json = serde_json::to_value(event.as_ref().unwrap()).unwrap();
            json["type"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(
        types,
        [
            "appended",
            "turn_started",
            "text_delta",
            "tool_call_start",
            "tool_call_args_delta",
            "tool_call_end",
            "turn_complete",
            "tool_started",
            "tool_output",
            "continued",
            "turn_started",
            "text_delta",
            "turn_complete",
            "finished",
        ]
    );
    assert!(matches!(
        &events[10],
        Ok(Event::TurnStarted { turn: 2, transition: Some(Transition::NextTurn), .. })
    ));
}

#[tokio::test]
async fn at_max_turns_the_last_tools_run_and_the_outcome_is_partial() {
    let (agent, model) = scripted_agent([tool_call_reply(), tool_call_reply(), tool_call_reply()]);
    let outcome = agent.with_limits(limits_with_max_turns(2)).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::MaxTurns, true, 2);
    assert_eq!(result_kinds(&outcome), [ResultKind::Ok, ResultKind::Ok]);
    assert_eq!(model.requests().len(), 2);
    assert_eq!(outcome.into_result().unwrap_err().kind(), ErrorKind::Unfinished);
}

#[tokio::test]
async fn a_turn_limit_of_zero_sends_no_request() {
    let (agent, model) = scripted_agent([tool_call_reply()]);
    let outcome = agent.with_limits(limits_with_max_turns(0)).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::MaxTurns, true, 0);
    assert_eq!((model.requests().len(), outcome.new_items().len()), (0, 1));
}

#[tokio::test]
async fn the_default_turn_limit_is_twenty() {
    let model = Scripted::from_fn(|_, _| tool_call_reply());
    let outcome = Agent::new(model).with_tools([uncounted_tool("t")]).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::MaxTurns, true, 20);
}

#[tokio::test]
async fn refusals_filters_and_a_full_window_end_the_run_and_answer_their_calls() {
    for (stop, reason, partial, kind) in [
        (StopReason::Refusal, EndReason::Refused, false, ResultKind::Skipped),
        (StopReason::ContentFilter, EndReason::Filtered, false, ResultKind::Skipped),
        (StopReason::ContextWindow, EndReason::ContextWindow, true, ResultKind::Truncated),
    ] {
        let words = run_outcome([Reply::text("I").stop(stop.clone())]).await;
        assert_outcome(&words, reason, partial, 1);
        assert_eq!(words.text, "I");
        let calls = run_outcome([tool_call_reply().stop(stop)]).await;
        assert_outcome(&calls, reason, partial, 1);
        assert_eq!(result_kinds(&calls), [kind]);
        assert!(calls.error.is_none());
    }
}

#[tokio::test]
async fn three_consecutive_turns_without_a_startable_call_end_as_malformed() {
    let wrong = || Reply::new().call("nobody", json!({}));
    let outcome_ = run_outcome([wrong(), wrong(), wrong(), "never".into()]).await;
    assert_outcome(&outcome_, EndReason::Malformed, true, 3);
    assert_eq!(result_kinds(&outcome_), [ResultKind::UnknownTool; 3]);
    // A good turn in between resets the count.
    let outcome_ =
        run_outcome([wrong(), wrong(), tool_call_reply(), wrong(), wrong(), "done".into()]).await;
    assert_outcome(&outcome_, EndReason::Completed, false, 6);
}

#[tokio::test]
async fn an_empty_reply_is_corrected_and_the_third_in_a_row_ends_as_malformed() {
    let outcome_ = run_outcome([Reply::new(), "sorry".into()]).await;
    assert_outcome(&outcome_, EndReason::Completed, false, 2);
    let (agent, _) = scripted_agent([Reply::new(), Reply::new().think("hm"), Reply::new()]);
    let events: Vec<_> = agent.run("go").map(Result::unwrap).collect().await;
    let correctives = events
        .iter()
        .filter(|event| matches!(event, Event::Appended { why: AppendReason::Corrective, .. }));
    assert_eq!(correctives.count(), 2);
    assert_outcome(events.last().unwrap().outcome().unwrap(), EndReason::Malformed, true, 3);
}

#[tokio::test]
async fn an_empty_reply_after_tool_results_completes_the_run() {
    assert_outcome(
        &run_outcome([tool_call_reply(), Reply::new()]).await,
        EndReason::Completed,
        false,
        2,
    );
}

#[tokio::test]
async fn a_tool_calls_stop_reason_without_calls_never_sends_another_request() {
    let words = run_outcome([Reply::text("x").stop(StopReason::ToolCalls)]).await;
    assert_outcome(&words, EndReason::Completed, false, 1);
    let nothing = run_outcome([Reply::new().stop(StopReason::ToolCalls)]).await;
    assert_outcome(&nothing, EndReason::Malformed, true, 1);
}

#[tokio::test]
async fn an_unknown_stop_reason_causes_one_further_request() {
    let odd = || tool_call_reply().stop(StopReason::Other("odd".into()));
    assert_outcome(&run_outcome([odd(), "done".into()]).await, EndReason::Completed, false, 2);
    let outcome_ = run_outcome([odd(), odd(), "never".into()]).await;
    assert_outcome(&outcome_, EndReason::Malformed, true, 2);
    assert_eq!(result_kinds(&outcome_), [ResultKind::Skipped; 2]);
}

#[tokio::test]
async fn a_paused_turn_is_resumed() {
    let paused = Reply::text("half").stop(StopReason::Pause);
    let (agent, model) = scripted_agent([paused, "done".into()]);
    assert_outcome(&agent.run("go").outcome().await, EndReason::Completed, false, 2);
    let resumed = &model.requests()[1];
    assert_eq!(resumed.history.last().unwrap().as_text(), Some("half"));
}

#[tokio::test]
async fn a_stop_hook_can_end_a_run_as_prevented_blocked_or_unproven_with_a_reason() {
    for (answer, reason) in [
        (StopDecision::EndRun("enough".into()), EndReason::StopHookPrevented),
        (StopDecision::Blocked("enough".into()), EndReason::Blocked),
        (StopDecision::Unproven("enough".into()), EndReason::Unproven),
    ] {
        let (agent, _) = scripted_agent(["done".into()]);
        let agent =
            agent.with_hook(hook::before_stop(move |_, _| std::future::ready(answer.clone())));
        let outcome = agent.run("go").outcome().await;
        // The model had stopped on its own.
        assert_outcome(&outcome, reason, false, 1);
        assert_eq!((outcome.why.as_deref(), outcome.text.as_str()), (Some("enough"), "done"));
    }
}

#[tokio::test]
async fn a_stop_hook_overridden_by_steering_does_not_set_the_reason() {
    let steering = Arc::new(OnceLock::<RunHandle>::new());
    let given = Arc::clone(&steering);
    let stop = hook::before_stop(move |state, _| {
        let answer = match state.counts.model_calls {
            1 => {
                given.get().unwrap().steer("and?").unwrap();
                StopDecision::EndRun("enough".into())
            }
            _ => StopDecision::Allow,
        };
        std::future::ready(answer)
    });
    let (agent, _) = scripted_agent(["first".into(), "second".into()]);
    let run = agent.with_hook(stop).run("go");
    assert!(steering.set(run.handle()).is_ok());
    let outcome = run.outcome().await;
    assert_outcome(&outcome, EndReason::Completed, false, 2);
    assert_eq!(outcome.why, None);
}

#[tokio::test]
async fn a_truncated_text_and_its_continuation_are_one_text() {
    let cut = |text: &str| Reply::text(text).stop(StopReason::MaxTokens);
    let outcome_ = run_outcome([cut("one "), cut("two "), "three".into()]).await;
    assert_outcome(&outcome_, EndReason::Completed, false, 3);
    assert_eq!(outcome_.text, "one two three");
    let paused = Reply::text("half ").stop(StopReason::Pause);
    assert_eq!(run_outcome([paused, "whole".into()]).await.text, "half whole");
    let broken = run_outcome([cut("one "), Reply::text("tw").disconnect()]).await;
    assert_eq!(broken.text, "one tw");
    // Text before a call is not the answer.
    assert_eq!(
        run_outcome([Reply::text("so").call("t", json!({})), "done".into()]).await.text,
        "done"
    );
}

#[tokio::test]
async fn the_fourth_consecutive_truncated_text_ends_the_run() {
    let cut = || Reply::text("x").stop(StopReason::MaxTokens);
    assert_outcome(&run_outcome([cut(), cut(), cut(), cut()]).await, EndReason::Truncated, true, 4);
    // A turn with tools in between resets the count.
    let replies = [cut(), cut(), cut(), tool_call_reply(), cut(), "done".into()];
    assert_outcome(&run_outcome(replies).await, EndReason::Completed, false, 6);
}

#[tokio::test]
async fn truncated_calls_are_requested_once_more() {
    let cut = || tool_call_reply().stop(StopReason::MaxTokens);
    let outcome_ = run_outcome([cut(), tool_call_reply(), "done".into()]).await;
    assert_outcome(&outcome_, EndReason::Completed, false, 3);
    assert_eq!(result_kinds(&outcome_), [ResultKind::Truncated, ResultKind::Ok]);
    assert_outcome(&run_outcome([cut(), cut()]).await, EndReason::Truncated, true, 2);
}

#[tokio::test]
async fn every_outcome_has_the_history_of_the_run() {
    let (agent, _) = scripted_agent([tool_call_reply(), Reply::text("half").disconnect()]);
    let mut run = agent.run("go");
    pull_until(&mut run, |event| event.outcome().is_some()).await;
    let history = run.history();
    let outcome = run.outcome().await;
    assert_outcome(&outcome, EndReason::Incomplete, true, 2);
    assert_eq!(outcome.history, history);
    assert_eq!(outcome.history.iter().cloned().collect::<Vec<_>>(), outcome.new_items());
}

#[tokio::test]
async fn a_turn_that_breaks_off_is_incomplete_and_keeps_its_text() {
    let outcome = run_outcome([tool_call_reply(), Reply::text("half a").disconnect()]).await;
    assert_outcome(&outcome, EndReason::Incomplete, true, 2);
    assert_eq!(outcome.text, "half a");
    let last = outcome.new_items().last().unwrap();
    assert!(last.interrupted && last.as_text() == Some("half a"));
    assert_eq!(outcome.error.as_ref().unwrap().kind(), ErrorKind::IncompleteTurn);
}

#[tokio::test]
async fn a_provider_that_fails_ends_the_run_with_its_error() {
    let error = Error::new(ErrorKind::RateLimited, "slow").with_status(429);
    let outcome = run_outcome([tool_call_reply(), Reply::text("x").fail(error.clone())]).await;
    assert_outcome(&outcome, EndReason::ProviderError, true, 2);
    assert_eq!(outcome.error, Some(error.clone()));
    assert_eq!(outcome.into_result().unwrap_err(), error);
}

#[tokio::test]
async fn a_provider_that_panics_ends_the_run_with_an_error() {
    struct PanickingProvider;
    impl Provider for PanickingProvider {
        fn stream_turn(&self, _: Request) -> TurnStream {
            std::panic::resume_unwind(Box::new("boom"))
        }
        fn model(&self) -> &'static str {
            "wild"
        }
    }
    let outcome = Agent::new(PanickingProvider).run("go").outcome().await;
    assert_outcome(&outcome, EndReason::ProviderError, true, 1);
    assert_eq!(outcome.error.unwrap().kind(), ErrorKind::Panic);
}

#[tokio::test]
async fn an_interrupt_before_the_first_poll_sends_no_request() {
    let (agent, model) = scripted_agent([tool_call_reply()]);
    let run = agent.run("go");
    run.interrupt();
    let events: Vec<_> = run.map(Result::unwrap).collect().await;
    assert!(matches!(events[0], Event::Appended { why: AppendReason::Input, .. }));
    assert_eq!(events.len(), 2);
    assert_outcome(
        events[1].outcome().unwrap(),
        EndReason::Interrupted(InterruptedPhase::Streaming),
        true,
        0,
    );
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn an_interrupt_during_tools_keeps_results_and_marks_started_calls() {
    let slow = { Tool::raw(spec("slow"), |_, _| std::future::pending::<()>()).unwrap() };
    let reply = Reply::new().call("t", json!({})).call("slow", json!({})).call("t", json!({}));
    let one_at_once = std::num::NonZeroUsize::MIN;
    let kit =
        turnstream::Toolkit::new([uncounted_tool("t"), slow]).with_max_concurrency(one_at_once);
    let (agent, _) = scripted_agent([reply]);
    let mut run = agent.with_toolkit(kit).run("go");
    while let Some(Some(event)) = run.next().now_or_never() {
        event.unwrap();
    }
    run.interrupt();
    let outcome = run.outcome().await;
    assert_outcome(&outcome, EndReason::Interrupted(InterruptedPhase::Tools), true, 1);
    let results = outcome.new_items().iter().filter_map(Item::as_tool_result);
    let texts: Vec<_> = results.map(|result| result.content.text()).collect();
    assert_eq!(texts, ["fine", "Interrupted mid-execution", "Interrupted by user"]);
}

#[tokio::test]
async fn an_interrupt_from_another_task_wakes_a_waiting_run() {
    let (agent, _) = scripted_agent([Reply::text("x").hang()]);
    let run = agent.run("go");
    let handle = run.handle();
    let waiting = tokio::spawn(run.outcome());
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    handle.interrupt();
    assert_outcome(
        &waiting.await.unwrap(),
        EndReason::Interrupted(InterruptedPhase::Streaming),
        true,
        1,
    );
    assert_eq!(handle.history().len(), 2);
}

/// Pulls events until one matches.
async fn pull_until(run: &mut Run, fits: impl Fn(&Event) -> bool) {
    while let Some(event) = run.next().await {
        if fits(&event.unwrap()) {
            return;
        }
    }
    panic!("no such event");
}

#[tokio::test]
async fn steered_input_is_added_after_all_results_and_before_the_next_request() {
    let (agent, model) = scripted_agent([tool_call_reply().call("t", json!({})), "done".into()]);
    let mut run = agent.run("go");
    pull_until(&mut run, |event| event.tool_output().is_some()).await;
    let receipt = run.steer("be brief").unwrap();
    let events: Vec<_> = run.by_ref().map(Result::unwrap).collect().await;
    let appended = events.iter().find_map(|event| match event {
        Event::Appended { why: AppendReason::Steer, id, .. } => Some(id.clone()),
        _ => None,
    });
    assert_eq!(appended, Some(receipt.id));
    let request = &model.requests()[1].history;
    assert_eq!(request.last(), Some(&Item::user("be brief")));
    assert_eq!(request.iter().filter(|item| item.as_tool_result().is_some()).count(), 2);
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn input_steered_while_the_model_stops_gets_another_turn() {
    let (agent, model) = scripted_agent(["first".into(), "second".into()]);
    let mut run = agent.run("go");
    pull_until(&mut run, |event| event.turn_complete().is_some()).await;
    run.steer("and?").unwrap();
    pull_until(&mut run, |event| {
        matches!(event, Event::Continued { reason: Transition::Steering })
    })
    .await;
    let outcome = run.outcome().await;
    assert_outcome(&outcome, EndReason::Completed, false, 2);
    assert_eq!((outcome.text.as_str(), outcome.undelivered.len()), ("second", 0));
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn input_beyond_the_limits_of_a_runs_queue_is_returned() {
    let (agent, _) = scripted_agent(["first".into(), "second".into()]);
    let run = agent.run("go");
    for n in 0..1_000 {
        assert!(run.follow_up(format!("{n}")).is_ok());
    }
    let refused = run.steer("one too many").unwrap_err();
    assert_eq!(refused.items, [Item::user("one too many")]);
    drop(run);

    let megabytes = |n: usize| "x".repeat(n << 20);
    let mut run = agent.run("go");
    run.steer(megabytes(12)).unwrap();
    assert!(run.follow_up(megabytes(5)).is_err());
    run.steer(megabytes(3)).unwrap();
    pull_until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
    // The queue is empty, and a single input may be larger than the limit.
    run.steer(megabytes(17)).unwrap();
    assert!(run.steer("more").is_err());
}

#[tokio::test]
async fn undelivered_input_is_returned_in_the_outcome() {
    let (agent, _) = scripted_agent(["first".into()]);
    let mut run = agent.with_limits(limits_with_max_turns(1)).run("go");
    pull_until(&mut run, |event| event.turn_complete().is_some()).await;
    let receipt = run.steer("too late").unwrap();
    pull_until(&mut run, |event| event.outcome().is_some()).await;
    let late = run.steer("much too late").unwrap_err();
    assert_eq!(late.items, [Item::user("much too late")]);
    let outcome = run.outcome().await;
    assert_outcome(&outcome, EndReason::Completed, false, 1);
    assert_eq!(outcome.undelivered[0].id, receipt.id);
    assert_eq!(outcome.undelivered[0].items, [Item::user("too late")]);
}

#[tokio::test]
async fn a_run_can_continue_a_previous_history() {
    let (agent, model) = scripted_agent([tool_call_reply(), "one".into(), "two".into()]);
    let mut run = agent.run("first");
    pull_until(&mut run, |event| event.outcome().is_some()).await;
    let history = run.history();
    let outcome = agent.run_from(history.clone(), "second").outcome().await;
    assert_eq!(outcome.new_items().len(), 2);
    let sent = &model.requests()[2].history;
    assert_eq!(sent.id(), history.id());
    assert_eq!(sent.len(), history.len() + 1);
}

#[tokio::test]
async fn a_history_with_open_calls_is_settled_before_the_run_continues() {
    let (agent, model) = scripted_agent([tool_call_reply(), "again".into()]);
    let mut run = agent.run("first");
    pull_until(&mut run, |event| event.turn_complete().is_some()).await;
    let handle = run.handle();
    drop(run);
    let outcome = agent.run_from(handle.history(), "second").outcome().await;
    assert_eq!(outcome.new_items().len(), 2);
    let sent = &model.requests()[1].history;
    assert!(sent.is_settled());
    let result = sent.iter().find_map(Item::as_tool_result).unwrap();
    assert_eq!(result.kind, ResultKind::Interrupted);
}

#[tokio::test]
async fn the_system_prompt_and_the_settings_reach_the_request() {
    let (agent, model) = scripted_agent(["x".into()]);
    let agent = agent
        .with_system(System { stable: "stable".into(), volatile: "volatile".into() })
        .with_options(Options { max_output_tokens: Some(7), ..Options::default() })
        .with_options(Options { temperature: Some(0.5), ..Options::default() });
    agent.run(vec![Item::system("more"), Item::user("go")]).outcome().await;
    let request = &model.requests()[0];
    assert_eq!(request.system.stable, "stable");
    assert_eq!(request.system.volatile, "volatile");
    assert_eq!(
        (request.options.max_output_tokens, request.options.temperature),
        (Some(7), Some(0.5))
    );
    assert_eq!(request.tools[0].name, "t");
}

#[tokio::test]
async fn after_a_thousand_turns_run_state_and_journal_are_equal() {
    let model = Scripted::from_fn(|_, n| if n < 1000 { tool_call_reply() } else { "done".into() });
    let limits = Limits { max_turns: Some(2000), end_after_repeats: 0, ..Limits::default() };
    let agent = Agent::new(model.clone()).with_tools([uncounted_tool("t")]).with_limits(limits);
    let mut run = agent.run("go");
    let mut requests = 0;
    while let Some(event) = run.next().await {
        if let Event::TurnStarted { .. } = event.unwrap() {
            let before = run.history();
            run.next().await.unwrap().unwrap();
            let sent = &model.requests()[requests].history;
            assert_eq!(sent, &before, "turn {requests}");
            requests += 1;
            if requests > 40 {
                break;
            }
        }
    }
    let outcome = run.outcome().await;
    assert_outcome(&outcome, EndReason::Completed, false, 1001);
}

#[test]
fn a_run_is_send_static_and_small() {
    fn assert_send<T: Send + 'static>() {}
    fn assert_sync<T: Send + Sync + 'static>() {}
    assert_send::<Run>();
    assert_send::<TurnStream>();
    assert_sync::<Agent>();
    assert_sync::<History>();
    assert_sync::<Event>();
    assert_sync::<Error>();
    assert_sync::<turnstream::RunHandle>();
    assert!(size_of::<Item>() <= 160, "{}", size_of::<Item>());
    assert_eq!(size_of::<Error>(), size_of::<usize>());
}
