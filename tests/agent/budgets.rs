//! Budgets: when a limit takes effect, what it counts, and the turn that remains for an answer.

use std::time::Duration;

use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::agent::{Budget, Pool, Target};
use turnstream::event::{BudgetKind, EndReason, Transition};
use turnstream::provider::{Reply, Scripted};
use turnstream::request::ToolChoice;
use turnstream::tool::Tool;
use turnstream::turn::StopReason;
use turnstream::usage::{Price, Prices};
use turnstream::{Agent, Event};

use turnstream_test_support::runs::{output_usage, run_with_action};
use turnstream_test_support::tools::constant_tool;

pub(super) fn uncounted_tool() -> Tool {
    constant_tool("t", "done")
}

pub(super) fn tool_call_reply() -> Reply {
    Reply::new().call("t", json!({}))
}

#[test]
fn truncated_calls_do_not_count_toward_the_call_limit() {
    let two = tool_call_reply().call("t", json!({})).stop(StopReason::MaxTokens);
    let agent = Agent::new(Scripted::new([two, tool_call_reply(), Reply::text("fine")]))
        .with_tools([uncounted_tool()])
        .with_budget(Budget::new().with_tool_calls(1));
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 3));
}

#[test]
fn a_run_that_is_asked_to_stop_announces_no_wrap_up_turn() {
    let agent = Agent::new(Scripted::new([tool_call_reply()]))
        .with_tools([uncounted_tool()])
        .with_budget(Budget::new().with_tool_calls(0).with_wrap_up());
    let (events, outcome) = run_with_action(agent.run("go"), |run, event| {
        if event.turn_complete().is_some() {
            run.stop_after_turn();
        }
    });
    assert_eq!(outcome.reason, EndReason::Budget);
    assert!(!events.iter().any(|event| matches!(event, Event::Continued { .. })));
    assert!(outcome.new_items().last().unwrap().as_tool_result().is_some());
}

#[test]
fn a_run_dropped_while_it_ends_has_still_charged_the_pool() {
    let pool = Pool::new(1_000);
    let agent = Agent::new(Scripted::new([tool_call_reply().usage(output_usage(7))]))
        .with_tools([uncounted_tool()])
        .with_budget(Budget::new().with_pool(pool.clone()));
    let mut run = agent.run("go");
    while let Some(event) = block_on(run.next()) {
        if event.unwrap().turn_complete().is_some() {
            break;
        }
    }
    run.interrupt();
    // The synthetic result for the call; `Finished` is still to come.
    assert!(block_on(run.next()).is_some());
    drop(run);
    assert_eq!(pool.used_tokens(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_limit_reached_between_turns_still_allows_the_reserved_wrap_up_turn() {
    let seconds = Duration::from_secs;
    for (pause, last_turn) in [(seconds(7), true), (seconds(20), false)] {
        let model = Scripted::new([tool_call_reply(), Reply::text("what I have")]);
        let budget = Budget::new().with_time_limit(seconds(10)).with_wrap_up_time(seconds(4));
        let agent = Agent::new(model.clone()).with_tools([uncounted_tool()]).with_budget(budget);
        let mut run = agent.run("go");
        let mut continued = Vec::new();
        let mut outcome = None;
        while let Some(event) = run.next().await {
            match event.unwrap() {
                Event::Continued { reason } => {
                    continued.push(reason);
                    if reason == Transition::NextTurn {
                        tokio::time::advance(pause).await;
                    }
                }
                Event::Finished(it) => outcome = Some(it),
                _ => {}
            }
        }
        let outcome = outcome.unwrap();
        assert_eq!(outcome.reason, EndReason::Budget);
        if last_turn {
            assert_eq!(continued, [Transition::NextTurn, Transition::WrapUp]);
            assert_eq!(outcome.text, "what I have");
            assert_eq!(model.requests()[1].options.tool_choice, ToolChoice::None);
        } else {
            assert_eq!(continued, [Transition::NextTurn]);
            assert_eq!(model.requests().len(), 1, "no request is sent when the time is over");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_reached_before_the_first_request_ends_the_run_without_a_request() {
    let model = Scripted::new(["x"]);
    let budget = Budget::new().with_time_limit(Duration::ZERO).with_wrap_up();
    let outcome = Agent::new(model.clone()).with_budget(budget).run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Budget, 0));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_of_a_run_starts_at_its_first_poll() {
    let budget = Budget::new().with_time_limit(Duration::from_secs(10));
    let mut run = Agent::new(Scripted::new(["x"])).with_budget(budget).run("go");
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(run.next().await.is_some());
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(run.outcome().await.reason, EndReason::Budget);
}

#[test]
fn a_token_target_reached_at_the_end_is_not_reported_as_given_up() {
    let target = Target { min_nudges: 0, ..Target::new(1_000) };
    let model = Scripted::new([
        Reply::text("little").usage(output_usage(10)),
        Reply::text("much").usage(output_usage(990)),
    ]);
    let run = Agent::new(model).with_budget(Budget::new().with_target(target)).run("go");
    run.follow_up("more").unwrap();
    let (_, outcome) = run_with_action(run, |_, _| {});
    assert_eq!((outcome.reason, outcome.budget), (EndReason::Completed, None));
}

#[test]
fn the_reported_budget_is_the_one_that_ended_the_run() {
    let model = Scripted::new([
        tool_call_reply().usage(output_usage(10)),
        Reply::text("words").usage(output_usage(200)),
    ]);
    let agent = Agent::new(model)
        .with_tools([uncounted_tool()])
        .with_budget(Budget::new().with_tool_calls(0).with_output_tokens(100).with_wrap_up());
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Budget, "words"));
    assert_eq!(outcome.budget.unwrap().kind, BudgetKind::ToolCalls);
}

#[test]
fn the_usage_of_an_interrupted_request_is_counted() {
    let price = Price { input: 1.0, output: 2.0, cache_read: 0.5, cache_write: 1.5 };
    let prices = Prices::new().with_price("scripted", price);
    let model = Scripted::new([Reply::text("a").usage(output_usage(1_000)).hang()]);
    let pool = Pool::new(100_000).with_cost_limit(5.0, prices);
    let agent = Agent::new(model).with_budget(Budget::new().with_pool(pool.clone()));
    let mut run = agent.run("go");
    while let Some(Some(event)) = run.next().now_or_never() {
        event.unwrap();
    }
    run.interrupt();
    assert!(matches!(block_on(run.outcome()).reason, EndReason::Interrupted(_)));
    assert_eq!(pool.used_cost(), 2_000);
}
