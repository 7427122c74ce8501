//! The time limits of a run and of a tool.

use std::time::Duration;

use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};
use turnstream::agent::Budget;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::context::{Summarizer, Window};
use turnstream::event::{AppendReason, BudgetKind, EndReason, ToolEvent, Transition};
use turnstream::http::Timeouts;
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::request::ToolChoice;
use turnstream::tool::{self, Tool, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Outcome, TurnEvent, Usage};

use turnstream_test_support::compaction::scripted_summarizer;
use turnstream_test_support::runs::{
    limits_with_max_turns, pull_ready, pull_until, reply_calling, result_kinds, result_summaries,
    test_agent,
};
use turnstream_test_support::tools::{
    Counter, nap_tool, ok_tool, pending_tool, reply_calling_nap, spec,
};
use turnstream_test_support::world::{FinishedRun, finish_run, finish_run_from};

const SECOND: Duration = Duration::from_secs(1);

/// A budget of this number of seconds.
fn time_budget(seconds: u64) -> Budget {
    Budget::new().with_time_limit(Duration::from_secs(seconds))
}

/// Checks that the run ended because its time was over, which it noticed after `used` milliseconds.
#[track_caller]
fn assert_time_exceeded(outcome: &Outcome, used: u64) {
    assert_eq!((outcome.reason, &outcome.error), (EndReason::Budget, &None));
    let budget = outcome.budget.as_ref().expect("it says which limit");
    assert_eq!((budget.kind, budget.used), (BudgetKind::Time, used));
}

/// Runs an agent, and measures the time.
async fn run_timed(agent: &Agent) -> (FinishedRun, Duration) {
    let began = Instant::now();
    (finish_run(agent.run("go")).await, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn at_the_time_limit_the_open_turn_is_dropped_counted_and_kept_as_interrupted() {
    let usage = Usage { input_tokens: 10, output_tokens: 3, ..Usage::default() };
    let words = Reply::text("It is ").usage(usage).hang();
    let model = Scripted::new([words, "never".into()]);
    let (finished, took) = run_timed(&test_agent(model.clone()).with_budget(time_budget(5))).await;
    assert_time_exceeded(&finished.outcome, 5_000);
    assert_eq!((took, model.in_flight(), model.requests().len()), (5 * SECOND, 0, 1));
    assert_eq!((finished.outcome.usage, finished.outcome.text.as_str()), (usage, "It is "));
    let history = finished.handle.history();
    let last = history.last().unwrap();
    assert!(last.interrupted && last.as_text().is_some(), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn at_the_time_limit_running_tools_are_dropped_and_answered_and_others_never_start() {
    let (slow, late) = (Counter::default(), Counter::default());
    let calls =
        reply_calling("done", "fine").call_raw("slow", "slow", "{}").call_raw("late", "late", "{}");
    let model = Scripted::new([calls, "never".into()]);
    let tools = [
        ok_tool("fine", &Counter::default()),
        pending_tool("slow", &slow),
        ok_tool("late", &late).exclusive(),
    ];
    let (finished, took) =
        run_timed(&test_agent(model.clone()).with_tools(tools).with_budget(time_budget(5))).await;
    assert_time_exceeded(&finished.outcome, 5_000);
    assert_eq!((took, model.requests().len()), (5 * SECOND, 1));
    assert_eq!((slow.started_count(), slow.alive_count(), late.started_count()), (1, 0, 0));
    let history = finished.handle.history();
    let answers = result_summaries(&history);
    let kinds: Vec<_> = answers.iter().map(|(id, kind, _)| (*id, *kind)).collect();
    let kind = |id, kind| (id, kind);
    assert_eq!(
        kinds,
        [
            kind("done", ResultKind::Ok),
            kind("slow", ResultKind::Timeout),
            kind("late", ResultKind::Budget),
        ]
    );
    assert!(answers[1].2.contains("may have taken effect in part"), "{}", answers[1].2);
}

#[tokio::test(start_paused = true)]
async fn running_tools_are_dropped_in_the_poll_in_which_a_time_limit_is_reached() {
    let budgets = [time_budget(5), time_budget(9).with_wrap_up_time(4 * SECOND)];
    for (budget, reply) in budgets.into_iter().zip([None, Some("what I have")]) {
        let slow = Counter::default();
        let calls = reply_calling("a", "slow").call_raw("b", "slow", "{}");
        let model = Scripted::new(std::iter::once(calls).chain(reply.map(Reply::text)));
        let agent = test_agent(model).with_tools([pending_tool("slow", &slow)]);
        let mut run = agent.with_budget(budget).run("go");
        pull_ready(&mut run);
        assert_eq!(slow.alive_count(), 2);
        advance(5 * SECOND).await;
        let event = run.next().now_or_never().flatten().unwrap().unwrap();
        assert_eq!(event.tool_output().unwrap().kind, ResultKind::Timeout);
        assert_eq!(slow.alive_count(), 0, "no tool outlives this poll");
        assert_eq!(run.outcome().await.text, reply.unwrap_or_default());
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_approval_counts_toward_the_time_limit() {
    let ran = Counter::default();
    let model = Scripted::new([reply_calling("a", "t"), "never".into()]);
    let agent = test_agent(model.clone())
        .with_tools([ok_tool("t", &ran).requires_approval()])
        .interactive();
    let (finished, took) = run_timed(&agent.with_budget(time_budget(60))).await;
    assert_time_exceeded(&finished.outcome, 60_000);
    assert_eq!((took, ran.started_count(), model.requests().len()), (60 * SECOND, 0, 1));
    assert_eq!(result_kinds(&finished.handle.history()), [ResultKind::Budget]);
}

#[tokio::test(start_paused = true)]
async fn at_the_time_limit_a_pending_hook_is_dropped() {
    let slow = hook::before_tool(|_, _| async {
        sleep(20 * SECOND).await;
        CallDecision::Allow
    });
    let model = Scripted::new([reply_calling("a", "t"), "never".into()]);
    let ran = Counter::default();
    let calling = test_agent(model.clone()).with_tools([ok_tool("t", &ran)]).with_hook(slow);
    let (finished, took) = run_timed(&calling.with_budget(time_budget(5))).await;
    assert_time_exceeded(&finished.outcome, 5_000);
    assert_eq!((took, ran.started_count(), model.requests().len()), (5 * SECOND, 0, 1));
    assert_eq!(result_kinds(&finished.handle.history()), [ResultKind::Budget]);

    let slow = hook::prepare_request(|_, request| async {
        sleep(20 * SECOND).await;
        request
    });
    let model = Scripted::new(["never"]);
    let (finished, took) =
        run_timed(&test_agent(model.clone()).with_hook(slow).with_budget(time_budget(5))).await;
    assert_time_exceeded(&finished.outcome, 5_000);
    assert_eq!((took, model.requests().len()), (5 * SECOND, 0));
}

#[tokio::test(start_paused = true)]
async fn at_the_time_limit_sub_agents_are_dropped_and_their_usage_is_counted() {
    let usage = Usage { input_tokens: 7, output_tokens: 1, ..Usage::default() };
    let inner = Scripted::new([reply_calling("x", "t").usage(usage), Reply::text("I ").hang()]);
    let child = test_agent(inner.clone()).with_tools([ok_tool("t", &Counter::default())]);
    let child = child.as_tool("child", "Helps").unwrap();
    let model = Scripted::new([Reply::new().call("child", json!({ "prompt": "go" }))]);
    let (finished, took) =
        run_timed(&test_agent(model).with_tools([child]).with_budget(time_budget(5))).await;
    assert_time_exceeded(&finished.outcome, 5_000);
    assert_eq!((took, inner.in_flight()), (5 * SECOND, 0));
    assert_eq!(result_kinds(&finished.handle.history()), [ResultKind::Timeout]);
    assert_eq!(*finished.outcome.nested_usage, usage);
}

#[tokio::test(start_paused = true)]
async fn pauses_of_the_consumer_count_toward_the_time_limit_in_every_phase() {
    let ran = Counter::default();
    let script = || {
        let calls =
            Reply::text("Look.").call("nap", json!({ "ms": 1 })).call("nap", json!({ "ms": 1 }));
        Scripted::new([calls, "never".into()])
    };
    let whole = count_events(&test_agent(script()).with_tools([nap_tool("nap")])).await;
    for stop_at in 0..whole {
        let model = script();
        let agent = test_agent(model.clone()).with_tools([nap_tool("nap"), ok_tool("t", &ran)]);
        let mut run = agent.with_budget(time_budget(5)).run("go");
        let mut events = Vec::new();
        for _ in 0..stop_at {
            events.push(run.next().await.unwrap().unwrap());
        }
        advance(9 * SECOND).await;
        let sent = model.requests().len();
        let finished = finish_run_from(events, run).await;
        // The first poll is at the start of the clock.
        if stop_at == 0 {
            assert_eq!(finished.outcome.reason, EndReason::Completed);
            continue;
        }
        let naps = finished.outcome.budget.as_ref().unwrap().used - 9_000;
        assert!(naps <= 1, "{naps}");
        assert_time_exceeded(&finished.outcome, 9_000 + naps);
        assert_eq!(model.requests().len(), sent, "nothing is sent when the time is over");
    }
}

async fn count_events(agent: &Agent) -> usize {
    let mut run = agent.run("go");
    let mut events = 0;
    while run.next().await.unwrap().unwrap().outcome().is_none() {
        events += 1;
    }
    // All events but the ending.
    events - 1
}

#[tokio::test(start_paused = true)]
async fn a_pause_before_the_first_output_counts_even_during_a_retry_delay() {
    let busy = || Reply::error(Error::new(ErrorKind::Overloaded, "busy"));
    let is_wait = |event: &Event| matches!(event, Event::Turn(TurnEvent::Retrying { .. }));
    for kept in [None, Some(2 * SECOND)] {
        let budget = || match kept {
            Some(kept) => time_budget(5).with_wrap_up_time(kept),
            None => time_budget(5),
        };
        // The delay of the retry passed during the pause.
        let model = Scripted::new([busy(), "never".into()]);
        let mut run = test_agent(Retry::new(model.clone())).with_budget(budget()).run("go");
        pull_until(&mut run, is_wait).await;
        advance(9 * SECOND).await;
        assert_time_exceeded(&run.outcome().await, 9_000);
        assert_eq!(model.requests().len(), 1, "{kept:?}");

        // The request was announced, and never sent.
        let model = Scripted::new(["never"]);
        let mut run = test_agent(model.clone()).with_budget(budget()).run("go");
        pull_until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
        advance(9 * SECOND).await;
        assert_time_exceeded(&run.outcome().await, 9_000);
        assert_eq!(model.requests().len(), 0, "{kept:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_into_the_reserved_time_leaves_only_the_wrap_up_turn() {
    let model = Scripted::new(["what I have"]);
    let budget = time_budget(10).with_wrap_up_time(4 * SECOND);
    let mut run = test_agent(model.clone()).with_budget(budget).run("go");
    pull_until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
    advance(7 * SECOND).await;
    let outcome = run.outcome().await;
    assert_time_exceeded(&outcome, 7_000);
    assert_eq!(outcome.text, "what I have");
    let requests = model.requests();
    assert_eq!((requests.len(), outcome.turns), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_pause_between_turns_into_the_reserved_time_leaves_the_wrap_up_turn() {
    let model = Scripted::new([reply_calling("a", "t"), "what I have".into()]);
    let agent = test_agent(model.clone()).with_tools([ok_tool("t", &Counter::default())]);
    let budget = time_budget(30).with_wrap_up_time(20 * SECOND);
    let mut run = agent.with_budget(budget).run("go");
    pull_until(&mut run, |event| matches!(event, Event::Continued { .. })).await;
    advance(15 * SECOND).await;
    let finished = finish_run(run).await;
    assert_time_exceeded(&finished.outcome, 15_000);
    assert_eq!(
        (finished.transitions(), finished.outcome.text.as_str()),
        (vec![Transition::WrapUp], "what I have")
    );
    assert_eq!(model.requests()[1].options.tool_choice, ToolChoice::None);
}

#[tokio::test(start_paused = true)]
async fn no_compaction_starts_after_the_time_limit() {
    let long = "a long text ".repeat(200);
    let turn = || [Item::user(long.as_str()), Item::text(&long)];
    let history = History::from_items("h", (0..4).flat_map(|_| turn()));
    for pause in [SECOND, 9 * SECOND] {
        let (compactor, summaries) = scripted_summarizer(1);
        let model = Scripted::new(["fine"]);
        let agent =
            test_agent(model.clone()).with_window(Window::new(100)).with_compactor(compactor);
        let mut run = agent.with_budget(time_budget(5)).run_from(history.clone(), "go");
        run.steer("and this").unwrap();
        let is_steered =
            |event: &Event| matches!(event, Event::Appended { why: AppendReason::Steer, .. });
        pull_until(&mut run, is_steered).await;
        advance(pause).await;
        let outcome = run.outcome().await;
        let in_time = pause == SECOND;
        assert_eq!(outcome.reason == EndReason::Completed, in_time);
        assert_eq!(summaries.requests().len(), usize::from(in_time));
        assert_eq!(model.requests().len(), usize::from(in_time));
    }
}

#[tokio::test(start_paused = true)]
async fn a_compaction_at_the_time_limit_sends_no_further_request() {
    let busy = Reply::error(Error::new(ErrorKind::Overloaded, "busy"));
    let summaries = Scripted::new([busy, "never".into()]);
    let compactor = Summarizer::new(Retry::new(summaries.clone())).with_keep_turns(1);
    let long = "a long text ".repeat(200);
    let turn = || [Item::user(long.as_str()), Item::text(&long)];
    let history = History::from_items("h", (0..4).flat_map(|_| turn()));
    let model = Scripted::new(["never"]);
    let agent = test_agent(model.clone()).with_window(Window::new(100)).with_compactor(compactor);
    let mut run = agent.with_budget(time_budget(5)).run_from(history, "go");
    while summaries.requests().is_empty() {
        _ = run.next().now_or_never();
    }
    advance(9 * SECOND).await;
    assert_time_exceeded(&run.outcome().await, 9_000);
    assert_eq!((summaries.requests().len(), model.requests().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wrap_up_turn_delivers_no_follow_ups() {
    let model = Scripted::new(["one".into(), Reply::text("tw").hang(), "what I have".into()]);
    let budget = time_budget(10).with_wrap_up_time(4 * SECOND);
    let run = test_agent(model).with_budget(budget).run("go");
    for words in ["first", "second"] {
        run.follow_up(words).unwrap();
    }
    let outcome = run.outcome().await;
    assert_time_exceeded(&outcome, 6_000);
    let undelivered: Vec<_> = outcome.undelivered.iter().flat_map(|it| &it.items).collect();
    assert_eq!(undelivered.len(), 1, "{undelivered:?}");
    assert_eq!(undelivered[0].as_user().unwrap().text(), "second");
}

#[tokio::test(start_paused = true)]
async fn observer_notes_are_sent_in_the_wrap_up_turn() {
    let notes = || hook::after_sampling(|_, _| std::future::ready(vec![Item::user("a note")]));
    let model = Scripted::new([reply_calling_nap(&[20_000]), "what I have".into()]);
    let budget = time_budget(10).with_wrap_up_time(4 * SECOND);
    let agent = test_agent(model.clone()).with_tools([nap_tool("nap")]).with_hook(notes());
    let (finished, _) = run_timed(&agent.with_budget(budget)).await;
    assert_time_exceeded(&finished.outcome, 6_000);
    let history = &model.requests()[1].history;
    let said = history.iter().filter_map(Item::as_user).filter(|it| it.text() == "a note");
    assert_eq!(said.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn tools_use_the_reserved_time_if_no_wrap_up_turn_is_possible() {
    let script = || Scripted::new([reply_calling("a", "t").delay(8 * SECOND), "never".into()]);
    let budget = || time_budget(10).with_wrap_up_time(4 * SECOND);
    let ran = Counter::default();
    let agent = |model| test_agent(model).with_tools([ok_tool("t", &ran)]).with_budget(budget());
    let mut run = agent(script()).run("go");
    pull_until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
    run.stop_after_turn();
    let outcome = run.outcome().await;
    assert_eq!((outcome.reason, ran.started_count()), (EndReason::Stopped, 1));
    let outcome = agent(script()).with_limits(limits_with_max_turns(1)).run("go").outcome().await;
    assert_eq!((outcome.reason, ran.started_count()), (EndReason::MaxTurns, 2));
}

#[tokio::test(start_paused = true)]
async fn running_work_uses_the_reserved_time_if_no_wrap_up_turn_is_possible() {
    let slow = || Scripted::new([Reply::text("fine").delay(8 * SECOND), "never".into()]);
    let budget = || time_budget(10).with_wrap_up_time(4 * SECOND);
    // It was the only request.
    let model = slow();
    let (finished, took) = run_timed(
        &test_agent(model.clone()).with_limits(limits_with_max_turns(1)).with_budget(budget()),
    )
    .await;
    let ended = (finished.outcome.reason, took, model.requests().len());
    assert_eq!(ended, (EndReason::Completed, 8 * SECOND, 1));

    // The owner requests a stop after this turn.
    let model = slow();
    let mut run = test_agent(model.clone()).with_budget(budget()).run("go");
    pull_until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
    run.stop_after_turn();
    let outcome = run.outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "fine"));

    // Before the first request there is nothing to wrap up.
    let model = Scripted::new(["fine"]);
    let thinks = hook::prepare_request(|_, request| async {
        sleep(8 * SECOND).await;
        request
    });
    let (finished, _) = run_timed(&test_agent(model).with_hook(thinks).with_budget(budget())).await;
    assert_eq!(finished.outcome.text, "fine");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_gets_a_wrap_up_turn() {
    let model = Scripted::new([reply_calling_nap(&[1]), "what I have".into()]);
    let asking = test_agent(model.clone()).with_tools([nap_tool("nap").requires_approval()]);
    let outcome = asking.run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Pending);
    let slow = Tool::raw(spec("nap"), |_: Value, _| async {
        sleep(60 * SECOND).await;
        "never"
    });
    let budget = time_budget(10).with_wrap_up_time(4 * SECOND);
    let resumed = test_agent(model.clone()).with_tools([slow.unwrap().requires_approval()]);
    let resumed = resumed.with_budget(budget);
    let approved = outcome.pending.into_iter().map(|call| (call, Verdict::Approve));
    let outcome = resumed.resume(outcome.history, approved).unwrap().outcome().await;
    assert_time_exceeded(&outcome, 6_000);
    assert_eq!(outcome.text, "what I have");
    assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Timeout]);
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_starts_at_the_first_poll_of_each_run() {
    let model = Scripted::from_fn(|_, _| Reply::text("fine").delay(3 * SECOND));
    let agent = test_agent(model).with_budget(time_budget(5));
    let run = agent.run("go");
    advance(20 * SECOND).await;
    let finished = finish_run(run).await;
    assert_eq!(finished.outcome.reason, EndReason::Completed);
    let again = agent.run_from(finished.handle.history(), "more").outcome().await;
    assert_eq!(again.reason, EndReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_of_zero_sends_nothing_and_one_beyond_the_clock_is_ignored() {
    let model = Scripted::from_fn(|_, _| Reply::text("fine").delay(SECOND));
    let (finished, took) = run_timed(&test_agent(model.clone()).with_budget(time_budget(0))).await;
    assert_time_exceeded(&finished.outcome, 0);
    assert_eq!((took, model.requests().len()), (Duration::ZERO, 0));
    for limit in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
        let (finished, _) =
            run_timed(&test_agent(model.clone()).with_budget(Budget::new().with_time_limit(limit)))
                .await;
        assert_eq!(finished.outcome.reason, EndReason::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn without_reserved_time_no_wrap_up_turn_follows() {
    for budget in [time_budget(5).with_wrap_up(), time_budget(5).with_wrap_up_tokens(100)] {
        let model = Scripted::new([reply_calling_nap(&[9_000]), "what I have".into()]);
        let agent = test_agent(model.clone()).with_tools([nap_tool("nap")]).with_budget(budget);
        let (finished, took) = run_timed(&agent).await;
        assert_time_exceeded(&finished.outcome, 5_000);
        assert_eq!((took, model.requests().len()), (5 * SECOND, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn with_reserved_time_running_tools_are_dropped_and_the_wrap_up_turn_sees_their_results() {
    let ran = Counter::default();
    let calls = reply_calling("done", "t").call_raw("slow", "nap", r#"{"ms":60000}"#);
    let model = Scripted::new([calls, Reply::text("what I have").delay(SECOND)]);
    let budget = time_budget(10).with_wrap_up_time(4 * SECOND);
    let agent = test_agent(model.clone())
        .with_tools([ok_tool("t", &ran), nap_tool("nap")])
        .with_budget(budget);
    let (finished, took) = run_timed(&agent).await;
    assert_time_exceeded(&finished.outcome, 6_000);
    assert_eq!((took, finished.outcome.text.as_str()), (7 * SECOND, "what I have"));
    assert_eq!(finished.transitions(), [Transition::WrapUp]);
    let last = &model.requests()[1];
    assert_eq!(last.options.tool_choice, ToolChoice::None);
    assert_eq!(result_kinds(&last.history), [ResultKind::Ok, ResultKind::Timeout]);
    assert_eq!((finished.outcome.turns, ran.started_count()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn with_reserved_time_an_open_turn_is_dropped_and_its_text_is_kept() {
    let model = Scripted::new([Reply::text("It is ").hang(), "what I have".into()]);
    let budget = time_budget(10).with_wrap_up_time(4 * SECOND);
    let (finished, took) = run_timed(&test_agent(model.clone()).with_budget(budget)).await;
    assert_time_exceeded(&finished.outcome, 6_000);
    assert_eq!((took, finished.outcome.text.as_str()), (6 * SECOND, "what I have"));
    assert_eq!((finished.transitions(), model.in_flight()), (vec![Transition::WrapUp], 0));
}

#[tokio::test(start_paused = true)]
async fn a_wrap_up_turn_that_exceeds_the_time_limit_is_dropped() {
    let model = Scripted::new([reply_calling_nap(&[60_000]), Reply::text("what ").hang()]);
    let budget = time_budget(10).with_wrap_up_time(4 * SECOND);
    let agent = test_agent(model.clone()).with_tools([nap_tool("nap")]).with_budget(budget);
    let (finished, took) = run_timed(&agent).await;
    assert_time_exceeded(&finished.outcome, 10_000);
    assert_eq!((took, finished.outcome.text.as_str()), (10 * SECOND, "what "));
    assert_eq!((model.requests().len(), model.in_flight()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_before_its_time_limit_leaves_no_timer() {
    let model = Scripted::new(["fine"]);
    let mut run = test_agent(model).with_budget(time_budget(5)).run("go");
    assert_eq!(
        pull_ready(&mut run).last().unwrap().outcome().unwrap().reason,
        EndReason::Completed
    );
    advance(60 * SECOND).await;
    assert!(run.next().now_or_never().unwrap().is_none());
}

#[test]
fn without_a_timer_only_runs_that_must_wait_fail() {
    let quick = Agent::new(Scripted::new([reply_calling("a", "t"), "fine".into()]));
    let quick = quick.with_tools([ok_tool("t", &Counter::default())]).with_budget(time_budget(5));
    assert_eq!(block_on(quick.run("go").outcome()).reason, EndReason::Completed);

    let slow =
        Agent::new(Scripted::new([Reply::text("It is ").hang()])).with_budget(time_budget(5));
    let error = block_on(slow.run("go").outcome()).error.unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("needs a tokio runtime"), "{error}");
}

/// A tool that is ready on the third poll, without any timer.
fn ready_after_two_polls_tool(name: &str) -> Tool {
    let run = |_: Value, _| async {
        let mut polled = false;
        futures::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            match std::mem::replace(&mut polled, true) {
                true => std::task::Poll::Ready("fine"),
                false => std::task::Poll::Pending,
            }
        })
        .await
    };
    Tool::raw(spec(name), run).unwrap()
}

#[test]
fn without_a_timer_an_explicit_tool_timeout_fails_and_the_default_is_ignored() {
    let run = |tool: Tool| {
        let model = Scripted::new([reply_calling("a", "t"), "fine".into()]);
        block_on(Agent::new(model).with_tools([tool]).run("go").outcome())
    };
    let outcome = run(ready_after_two_polls_tool("t"));
    assert_eq!(
        (outcome.reason, result_kinds(outcome.new_items())),
        (EndReason::Completed, vec![ResultKind::Ok])
    );

    let outcome = run(ready_after_two_polls_tool("t").with_timeout(SECOND));
    let answers = result_summaries(outcome.new_items());
    assert_eq!((outcome.reason, answers[0].1), (EndReason::Completed, ResultKind::Error));
    assert!(answers[0].2.contains("the tool has a time limit"), "{}", answers[0].2);
    assert!(answers[0].2.contains("needs a tokio runtime"), "{}", answers[0].2);
    assert!(!answers[0].2.contains("provider"), "{}", answers[0].2);
}

#[tokio::test(start_paused = true)]
async fn the_default_tool_timeout_is_ten_minutes() {
    assert_eq!(tool::DEFAULT_TIMEOUT, Duration::from_mins(10));
    let minutes = |minutes: u64| reply_calling_nap(&[minutes * 60_000]);
    let run = async |tool: Tool, kit: Option<Duration>, reply: Reply| {
        let model = Scripted::new([reply, "fine".into()]);
        let kit = match kit {
            Some(limit) => turnstream::Toolkit::new([tool]).with_timeout(limit),
            None => turnstream::Toolkit::new([tool]),
        };
        let (finished, took) = run_timed(&test_agent(model).with_toolkit(kit)).await;
        (result_kinds(&finished.handle.history())[0], took.as_secs() / 60)
    };
    let never = Timeouts::NEVER;
    assert_eq!(run(nap_tool("nap"), None, minutes(9)).await, (ResultKind::Ok, 9));
    assert_eq!(run(nap_tool("nap"), None, minutes(11)).await, (ResultKind::Timeout, 10));
    assert_eq!(
        run(nap_tool("nap").with_timeout(never), None, minutes(99)).await,
        (ResultKind::Ok, 99)
    );
    assert_eq!(run(nap_tool("nap"), Some(never), minutes(99)).await, (ResultKind::Ok, 99));
    assert_eq!(run(nap_tool("nap"), Some(60 * SECOND), minutes(2)).await, (ResultKind::Timeout, 1));
    // The tool's own timeout takes precedence over its toolkit's.
    let own = nap_tool("nap").with_timeout(180 * SECOND);
    assert_eq!(run(own, Some(never), minutes(4)).await, (ResultKind::Timeout, 3));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_runs_agents_has_no_timeout_unless_its_toolkit_sets_one() {
    let run = async |kit: turnstream::Toolkit| {
        let model = Scripted::new([reply_calling_nap(&[99 * 60_000]), "fine".into()]);
        let (finished, took) = run_timed(&test_agent(model).with_toolkit(kit)).await;
        (result_kinds(&finished.handle.history())[0], took.as_secs() / 60)
    };
    let kit = || turnstream::Toolkit::new([nap_tool("nap").running_sub_agents()]);
    assert_eq!(run(kit()).await, (ResultKind::Ok, 99));
    assert_eq!(run(kit().with_timeout(60 * SECOND)).await, (ResultKind::Timeout, 1));
}

#[tokio::test(start_paused = true)]
async fn sub_agents_and_approvals_have_no_timeout_of_their_own() {
    let inner = Scripted::new([Reply::text("fine").delay(Duration::from_hours(3))]);
    let child = test_agent(inner).as_tool("child", "Helps").unwrap();
    let model =
        Scripted::new([Reply::new().call("child", json!({ "prompt": "go" })), "fine".into()]);
    let (finished, took) = run_timed(&test_agent(model).with_tools([child])).await;
    assert_eq!(
        (result_kinds(&finished.handle.history()), took.as_secs()),
        (vec![ResultKind::Ok], 3 * 3600)
    );

    let model = Scripted::new([reply_calling("a", "t"), "fine".into()]);
    let asks = ok_tool("t", &Counter::default()).requires_approval();
    let mut run = test_agent(model).with_tools([asks]).interactive().run("go");
    let is_request = |event: &Event| matches!(event, Event::Tool(ToolEvent::ApprovalRequested(_)));
    let request = pull_until(&mut run, is_request).await;
    let Event::Tool(ToolEvent::ApprovalRequested(call)) = request else { unreachable!() };
    assert!(run.next().now_or_never().is_none());
    advance(Duration::from_hours(24)).await;
    run.approve(*call).unwrap();
    let outcome = run.outcome().await;
    assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Ok]);
}

#[tokio::test(start_paused = true)]
async fn a_finished_tool_result_is_kept_even_if_the_time_limit_passes_before_it_is_yielded() {
    // Both are done at the same moment, and the consumer pauses after the first.
    let model = Scripted::new([reply_calling_nap(&[1_000, 1_000]), "never".into()]);
    let agent = test_agent(model).with_tools([nap_tool("nap")]).with_budget(time_budget(5));
    let mut run = agent.run("go");
    let mut events = Vec::new();
    loop {
        events.push(run.next().await.unwrap().unwrap());
        if events.last().unwrap().tool_output().is_some() {
            break;
        }
    }
    advance(9 * SECOND).await;
    let finished = finish_run_from(events, run).await;
    assert_time_exceeded(&finished.outcome, 10_000);
    let history = finished.handle.history();
    assert_eq!(result_kinds(&history)[0], ResultKind::Ok);
}
