//! Resources that a tree of agents shares: tokens that are reserved before they are used, and a
//! limit on concurrency.

use std::num::NonZeroUsize;
use std::time::Duration;

use futures::future::{join, join_all};
use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use turnstream::agent::hook::{self, CallDecision};
use turnstream::agent::{Budget, Pool};
use turnstream::context::{BytesDiv4, Window, estimate_request_tokens};
use turnstream::event::{BudgetKind, EndReason, ToolEvent, Transition};
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::request::Options;
use turnstream::tool::Tool;
use turnstream::usage::{Price, Prices};
use turnstream::{Agent, Event, Outcome, Request, Run, RunHandle, Usage};

use turnstream_test_support::runs::{
    pull_ready, pull_until, reply_calling, reply_calling_t, result_kinds, test_agent,
};
use turnstream_test_support::tools::{Counter, counted_tool, ok_tool, spec};
use turnstream_test_support::world::finish_run;

const SECOND: Duration = Duration::from_secs(1);

/// A usage of the request's estimated tokens, with this number of output tokens.
fn usage_of_request(request: &Request, output_tokens: u64) -> Usage {
    let input_tokens = estimate_request_tokens(request, &BytesDiv4);
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

/// A model that calls `t` four times, once per turn, and takes a second for each answer of `tokens`
/// tokens.
fn four_call_model(tokens: u64) -> Scripted {
    Scripted::from_fn(move |request, _| {
        let results = request.history.iter().filter(|item| item.as_tool_result().is_some()).count();
        let reply = match results {
            0..4 => Reply::new().call("t", json!({})),
            _ => Reply::text("fine"),
        };
        reply.usage(usage_of_request(request, tokens)).delay(SECOND)
    })
}

/// Checks that a pool is exhausted, and overdrawn by at most the largest of these requests with its
/// answer of 100 tokens.
#[track_caller]
fn assert_overdrawn_by_one_request(pool: &Pool, model: &Scripted) {
    let requests = model.requests();
    let largest =
        requests.iter().map(|request| usage_of_request(request, 100).total()).max().unwrap();
    let range = pool.token_limit()..pool.token_limit() + largest;
    assert!(range.contains(&pool.used_tokens()), "{} of {range:?}", pool.used_tokens());
}

fn count_ended(outcomes: &[Outcome], reason: EndReason) -> usize {
    outcomes.iter().filter(|outcome| outcome.reason == reason).count()
}

/// Fifty concurrent runs of an agent.
async fn run_fifty(agent: &Agent) -> Vec<Outcome> {
    join_all((0..50).map(|_| agent.run("go").outcome())).await
}

#[tokio::test(start_paused = true)]
async fn fifty_agents_overdraw_a_pool_by_at_most_one_request_and_its_answer() {
    let pool = Pool::new(3_000);
    let model = four_call_model(100);
    let agent = test_agent(model.clone())
        .with_tools([ok_tool("t", &Counter::default())])
        .with_options(Options { max_output_tokens: Some(100), ..Options::default() })
        .with_budget(Budget::new().with_pool(pool.clone()));
    let outcomes = run_fifty(&agent).await;
    println!("{} of 3,000 tokens were used", pool.used_tokens());
    assert_overdrawn_by_one_request(&pool, &model);
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.usage.total()).sum::<u64>(),
        pool.used_tokens()
    );
    assert!(count_ended(&outcomes, EndReason::Budget) > 0, "the pool was too small for all");
    assert_eq!(
        count_ended(&outcomes, EndReason::Budget) + count_ended(&outcomes, EndReason::Completed),
        50
    );
    assert_eq!(pool.reserved_tokens(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn agents_on_several_threads_respect_the_pool_without_deadlock() {
    for _ in 0..20 {
        let pool = Pool::new(3_000);
        let model = Scripted::from_fn(|request, _| {
            Reply::new().call("t", json!({})).usage(usage_of_request(request, 100))
        });
        let agent = Agent::new(model.clone())
            .with_tools([ok_tool("t", &Counter::default())])
            .with_options(Options { max_output_tokens: Some(100), ..Options::default() })
            .with_budget(Budget::new().with_pool(pool.clone()));
        let runs: Vec<_> = (0..50).map(|_| tokio::spawn(agent.run("go").outcome())).collect();
        let outcomes: Vec<_> = join_all(runs).await.into_iter().map(Result::unwrap).collect();
        assert_overdrawn_by_one_request(&pool, &model);
        assert_eq!((count_ended(&outcomes, EndReason::Budget), pool.reserved_tokens()), (50, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn sixty_four_sub_agents_overdraw_a_pool_by_at_most_one_request_and_its_answer() {
    let pool = Pool::new(1_000);
    let limited = |agent: Agent| {
        agent
            .with_options(Options { max_output_tokens: Some(100), ..Options::default() })
            .with_budget(Budget::new().with_pool(pool.clone()))
    };
    let children = four_call_model(100);
    let child =
        limited(test_agent(children.clone()).with_tools([ok_tool("t", &Counter::default())]));
    let child = child.as_tool("child", "Helps").unwrap();
    let calls =
        (0..64).fold(Reply::new(), |reply, _| reply.call("child", json!({ "prompt": "go" })));
    let model =
        Scripted::from_fn(move |request, _| calls.clone().usage(usage_of_request(request, 100)));
    let outcome = limited(test_agent(model).with_tools([child])).run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Budget);
    println!("{} of 1,000 tokens were used", pool.used_tokens());
    assert_overdrawn_by_one_request(&pool, &children);
    assert_eq!(outcome.usage.total() + outcome.nested_usage.total(), pool.used_tokens());
}

#[tokio::test(start_paused = true)]
async fn without_an_output_limit_the_pools_default_reservation_is_used() {
    // An answer is four times as long as estimated.
    let pool = Pool::new(3_000).with_tokens_per_response(100);
    let agent = test_agent(four_call_model(400))
        .with_tools([ok_tool("t", &Counter::default())])
        .with_budget(Budget::new().with_pool(pool.clone()));
    run_fifty(&agent).await;
    assert!(
        pool.used_tokens() > 3_400,
        "overdrawn by more than one answer: {}",
        pool.used_tokens()
    );
    assert_eq!(Pool::new(1).tokens_per_response(), 4_096);

    let pool = Pool::new(3_000).with_tokens_per_response(400);
    let agent = agent.with_budget(Budget::new().with_pool(pool.clone()));
    run_fifty(&agent).await;
    assert!((3_000..=3_400).contains(&pool.used_tokens()), "{}", pool.used_tokens());
}

#[tokio::test(start_paused = true)]
async fn a_request_larger_than_the_rest_of_the_pool_is_sent_alone() {
    let pool = Pool::new(50);
    let model = Scripted::from_fn(|_, _| {
        Reply::text("fine").usage(Usage { input_tokens: 10, ..Usage::default() }).delay(SECOND)
    });
    let agent = test_agent(model.clone()).with_budget(Budget::new().with_pool(pool.clone()));
    let began = Instant::now();
    let outcomes = join_all((0..7).map(|_| agent.run("go").outcome())).await;
    assert_eq!(began.elapsed(), 5 * SECOND, "one after the other");
    assert_eq!(
        (count_ended(&outcomes, EndReason::Completed), count_ended(&outcomes, EndReason::Budget)),
        (5, 2)
    );
    let refused = outcomes.iter().find(|outcome| outcome.reason == EndReason::Budget).unwrap();
    assert_eq!(refused.budget.as_ref().unwrap().kind, BudgetKind::Pool);
    assert_eq!((refused.turns, model.requests().len()), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_granted_in_fifo_order() {
    let pool = Pool::new(100);
    let first = pool.reserve(60).await.unwrap();
    let mut large = pool.reserve(80);
    let mut small = pool.reserve(10);
    assert!((&mut large).now_or_never().is_none());
    assert!((&mut small).now_or_never().is_none(), "it would fit, and came later");
    drop(first);
    // The waiter is woken, and keeps its position in the queue whatever the order of polls.
    let small = (&mut small).now_or_never().map(Result::unwrap);
    assert!(small.is_some(), "both fit now");
    assert_eq!(pool.reserved_tokens(), 10);
    let large = (&mut large).now_or_never().unwrap().unwrap();
    assert_eq!(pool.reserved_tokens(), 90);
    drop((small, large));
    assert_eq!(pool.reserved_tokens(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_at_any_poll_returns_its_reservation() {
    let pool = Pool::new(1_000);
    let make = || {
        let agent =
            test_agent(four_call_model(100)).with_tools([ok_tool("t", &Counter::default())]);
        agent
            .with_options(Options { max_output_tokens: Some(100), ..Options::default() })
            .with_budget(Budget::new().with_pool(pool.clone()))
    };
    for polls in 0..40 {
        let mut run = make().run("go");
        for _ in 0..polls {
            if run.next().now_or_never().is_none() {
                tokio::time::advance(SECOND).await;
            }
        }
        let mut beside = pool.reserve(1_000);
        let is_free = (&mut beside).now_or_never().is_some();
        drop(run);
        assert_eq!(pool.reserved_tokens(), 0, "after {polls} polls");
        assert!(is_free || (&mut beside).now_or_never().is_some(), "the next one gets it");
        // Used tokens stay used.
        if pool.used_tokens() >= pool.token_limit() {
            return;
        }
    }
    panic!("nothing was used");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_run_counts_while_it_waits_for_the_pool() {
    let pool = Pool::new(100);
    let all = pool.reserve(100).await.unwrap();
    let model = Scripted::new(["never"]);
    let budget = Budget::new().with_pool(pool.clone()).with_time_limit(5 * SECOND);
    let began = Instant::now();
    let finished = finish_run(test_agent(model.clone()).with_budget(budget).run("go")).await;
    assert_eq!((began.elapsed(), finished.outcome.reason), (5 * SECOND, EndReason::Budget));
    assert_eq!(finished.outcome.budget.unwrap().kind, BudgetKind::Time);
    assert_eq!(model.requests().len(), 0);
    drop(all);
    assert!(pool.reserve(100).now_or_never().is_some(), "its place in the order is given up");
}

/// A run that waits for its pool.
async fn run_waiting_for_pool(model: &Scripted, budget: Budget) -> Run {
    let mut run = test_agent(model.clone()).with_budget(budget).run("go");
    assert!(matches!(run.next().await, Some(Ok(Event::Appended { .. }))));
    assert!(run.next().now_or_never().is_none(), "it waits");
    run
}

#[tokio::test(start_paused = true)]
async fn input_steered_while_waiting_for_the_pool_is_in_the_request() {
    let pool = Pool::new(1_000);
    let all = pool.reserve(1_000).await.unwrap();
    let model = Scripted::new(["fine"]);
    let run = run_waiting_for_pool(&model, Budget::new().with_pool(pool.clone())).await;
    run.steer("Be brief.").unwrap();
    drop(all);
    assert_eq!(run.outcome().await.reason, EndReason::Completed);
    let history = &model.requests()[0].history;
    assert!(history.iter().any(|item| item.as_user().is_some_and(|it| it.text() == "Be brief.")));
}

#[tokio::test(start_paused = true)]
async fn a_run_steered_while_it_waits_keeps_its_queue_position() {
    let pool = Pool::new(1_000);
    let all = pool.reserve(1_000).await.unwrap();
    let model = Scripted::new(["fine"]);
    let mut run = run_waiting_for_pool(&model, Budget::new().with_pool(pool.clone())).await;
    let mut later = pool.reserve(10);
    assert!((&mut later).now_or_never().is_none(), "it came later");
    run.steer("Be brief.").unwrap();
    drop(all);
    while model.requests().is_empty() {
        run.next().now_or_never().expect("it is its turn").unwrap().unwrap();
    }
    assert!((&mut later).now_or_never().is_none());
    assert_eq!(run.outcome().await.reason, EndReason::Completed);
    assert!((&mut later).now_or_never().is_some());
}

/// Drives a run, and returns the maximum concurrency: open requests plus running calls.
async fn run_and_measure_concurrency(
    run: Run,
    models: &[&Scripted],
    tools: &Counter,
) -> (Outcome, usize) {
    let mut run = run;
    let mut most = 0;
    for _ in 0..10_000 {
        match run.next().now_or_never() {
            Some(Some(event)) => {
                if let Some(outcome) = event.unwrap().outcome() {
                    return (outcome.clone(), most);
                }
            }
            Some(None) => unreachable!("`Finished` comes first"),
            None => tokio::time::advance(SECOND / 10).await,
        }
        let requests: usize = models.iter().map(|model| model.in_flight()).sum();
        most = most.max(requests + tools.alive_count());
    }
    panic!("it does not end");
}

/// A tool that takes a second.
fn one_second_tool(counter: &Counter) -> Tool {
    counted_tool("t", counter, |_| async {
        sleep(SECOND).await;
        "done".to_owned()
    })
}

/// A model that makes three calls of a tool in its first turn, and takes a second for each turn.
fn three_call_model(name: &'static str) -> Scripted {
    Scripted::from_fn(move |request, _| {
        let reply = match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            true => Reply::text("fine"),
            false => {
                (0..3).fold(Reply::new(), |reply, _| reply.call(name, json!({ "prompt": "go" })))
            }
        };
        reply.delay(SECOND)
    })
}

#[tokio::test(start_paused = true)]
async fn a_tree_of_agents_shares_one_limit_without_parents_starving_sub_agents() {
    for limit in [1, 2, 5, 100] {
        let pool = Pool::unlimited().with_max_concurrency(NonZeroUsize::new(limit).unwrap());
        let budget = Budget::new().with_pool(pool.clone());
        let tools = Counter::default();
        let (leaf, middle, top) =
            (three_call_model("t"), three_call_model("leaf"), three_call_model("middle"));
        let nested = test_agent(leaf.clone())
            .with_tools([one_second_tool(&tools)])
            .with_budget(budget.clone());
        let nested = nested.as_tool("leaf", "Helps").unwrap();
        let nested = test_agent(middle.clone()).with_tools([nested]).with_budget(budget.clone());
        let nested = nested.as_tool("middle", "Helps").unwrap();
        let tree = test_agent(top.clone()).with_tools([nested]).with_budget(budget);
        let (outcome, most) =
            run_and_measure_concurrency(tree.run("go"), &[&leaf, &middle, &top], &tools).await;
        assert_eq!(outcome.reason, EndReason::Completed);
        assert_eq!(
            (tools.started_count(), tools.alive_count()),
            (27, 0),
            "9 leaves call 3 times each"
        );
        assert!(most <= limit, "{most} at once, where {limit} may be");
        // 9 leaves with 3 calls each would run concurrently.
        assert_eq!(most, limit.min(27));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_waiting_for_a_concurrency_slot_start_in_call_order() {
    let pool = Pool::unlimited().with_max_concurrency(NonZeroUsize::MIN);
    let tools = Counter::default();
    let model = three_call_model("t");
    let agent = test_agent(model)
        .with_tools([one_second_tool(&tools)])
        .with_budget(Budget::new().with_pool(pool.clone()));
    let finished = finish_run(agent.run("go")).await;
    let started: Vec<_> = finished.events.iter().filter_map(started_tool).collect();
    assert_eq!(started, ["call_1_1", "call_1_2", "call_1_3"]);
    let began = finished.events.iter().position(|event| is_start_of(event, "call_1_2")).unwrap();
    let done = finished.events.iter().position(|event| event.tool_output().is_some()).unwrap();
    assert!(done < began, "the second begins when the first is done");
}

fn started_tool(event: &Event) -> Option<&str> {
    match event {
        Event::Tool(ToolEvent::Started { call_id, .. }) => Some(call_id),
        _ => None,
    }
}

fn is_start_of(event: &Event, id: &str) -> bool {
    started_tool(event) == Some(id)
}

/// A pool with a single slot.
fn single_slot_pool() -> Pool {
    Pool::unlimited().with_max_concurrency(NonZeroUsize::MIN)
}

/// A run with two calls in its turn: `a` waits for approval, `b` takes a second.
fn run_with_approval_and_slow_call(pool: &Pool) -> Run {
    let model = Scripted::new([reply_calling("a", "asks").call_raw("b", "t", "{}"), "fine".into()]);
    let asks = ok_tool("asks", &Counter::default()).requires_approval();
    let agent = test_agent(model).with_tools([asks, one_second_tool(&Counter::default())]);
    agent.with_budget(Budget::new().with_pool(pool.clone())).interactive().run("go")
}

#[tokio::test(start_paused = true)]
async fn a_call_waiting_for_approval_takes_no_concurrency_slot() {
    let pool = single_slot_pool();
    let mut run = run_with_approval_and_slow_call(&pool);
    // The other call runs and ends while the first one waits.
    pull_until(&mut run, |event| event.tool_output().is_some_and(|result| result.call_id == "b"))
        .await;
    assert!(run.next().now_or_never().is_none());
    assert!(pool.acquire_slot().now_or_never().is_some(), "the slot is free");
}

#[tokio::test(start_paused = true)]
async fn a_slot_granted_to_a_dropped_waiter_goes_to_the_next_one() {
    let pool = Pool::unlimited().with_max_concurrency(NonZeroUsize::MIN);
    let held = pool.acquire_slot().await;
    let (mut first, mut second) = (pool.acquire_slot(), pool.acquire_slot());
    assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    drop(held);
    // The first waiter was dropped when it was next in the queue.
    assert!((&mut second).now_or_never().is_none(), "the first one's place is kept");
    drop(first);
    assert!((&mut second).now_or_never().is_some());
}

/// Five calls in one turn.
fn five_call_reply() -> Reply {
    ["a", "b", "c", "d", "e"].iter().fold(Reply::new(), |reply, id| reply.call_raw(id, "t", "{}"))
}

#[tokio::test]
async fn of_five_calls_with_a_limit_of_three_the_first_three_run_and_the_run_ends() {
    let ran = Counter::default();
    let model = Scripted::new([five_call_reply(), "never".into()]);
    let agent = test_agent(model.clone()).with_tools([ok_tool("t", &ran)]);
    let finished = finish_run(agent.with_budget(Budget::new().with_tool_calls(3)).run("go")).await;
    let (ok, budget) = (ResultKind::Ok, ResultKind::Budget);
    assert_eq!(result_kinds(&finished.handle.history()), [ok, ok, ok, budget, budget]);
    assert_eq!((ran.started_count(), model.requests().len()), (3, 1));
    let exceeded = finished.outcome.budget.unwrap();
    assert_eq!(
        (finished.outcome.reason, exceeded.kind),
        (EndReason::Budget, BudgetKind::ToolCalls)
    );
    assert_eq!((exceeded.used, exceeded.limit), (3, 3));
}

#[tokio::test]
async fn the_model_may_still_answer_after_the_last_allowed_call() {
    let ran = Counter::default();
    let model = Scripted::new([reply_calling_t("a"), "fine".into()]);
    let agent = test_agent(model).with_tools([ok_tool("t", &ran)]);
    let outcome = agent.with_budget(Budget::new().with_tool_calls(1)).run("go").outcome().await;
    assert_eq!(
        (outcome.reason, outcome.text.as_str(), ran.started_count()),
        (EndReason::Completed, "fine", 1)
    );
}

#[tokio::test]
async fn calls_that_cannot_run_do_not_count_toward_the_call_limit() {
    let ran = Counter::default();
    let calls = reply_calling("x", "nothing").call_raw("y", "t", "[").call_raw("a", "t", "{}");
    let model = Scripted::new([calls.call_raw("b", "t", "{}"), "never".into()]);
    let agent = test_agent(model).with_tools([ok_tool("t", &ran)]);
    let finished = finish_run(agent.with_budget(Budget::new().with_tool_calls(1)).run("go")).await;
    let history = finished.handle.history();
    let kinds = result_kinds(&history);
    assert_eq!(kinds[2..], [ResultKind::Ok, ResultKind::Budget], "{kinds:?}");
    assert_eq!((ran.started_count(), finished.outcome.reason), (1, EndReason::Budget));
}

#[tokio::test]
async fn in_the_wrap_up_turn_the_model_sees_which_calls_did_not_run() {
    let model = Scripted::new([five_call_reply(), "what I have".into()]);
    let agent = test_agent(model.clone()).with_tools([ok_tool("t", &Counter::default())]);
    let finished =
        finish_run(agent.with_budget(Budget::new().with_tool_calls(3).with_wrap_up()).run("go"))
            .await;
    assert_eq!(finished.outcome.reason, EndReason::Budget);
    assert_eq!((finished.outcome.text.as_str(), finished.outcome.turns), ("what I have", 2));
    assert_eq!(result_kinds(&model.requests()[1].history).len(), 5);
    let wraps_up = |event: &Event| matches!(event, Event::Continued { reason: Transition::WrapUp });
    assert!(finished.events.iter().any(wraps_up));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_approved_while_another_waits_for_a_slot_does_not_block_it() {
    let pool = single_slot_pool();
    let mut run = run_with_approval_and_slow_call(&pool);
    let is_request = |event: &Event| event.approval_request().is_some();
    let call = pull_until(&mut run, is_request).await.approval_request().unwrap();
    // The slot is taken before the second call acquires it.
    let held = pool.acquire_slot().now_or_never().expect("no request is open");
    assert!(run.next().now_or_never().is_none());
    run.approve(&call).unwrap();
    assert!(run.next().now_or_never().is_none());
    drop(held);
    let outcome = run.outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Ok, ResultKind::Ok]);
    assert!(pool.acquire_slot().now_or_never().is_some(), "the slot is free again");
}

#[tokio::test(start_paused = true)]
async fn another_agent_of_the_pool_can_run_between_two_polls_after_a_turn() {
    let pool = single_slot_pool();
    let budget = || Budget::new().with_pool(pool.clone());
    let judge = test_agent(Scripted::from_fn(|_, _| Reply::text("fine"))).with_budget(budget());
    let model = Scripted::new([reply_calling_t("a"), "done".into()]);
    let tools = [ok_tool("t", &Counter::default())];
    let mut run = test_agent(model).with_tools(tools).with_budget(budget()).run("go");
    let mut judged = 0;
    loop {
        let event = run.next().await.unwrap().unwrap();
        if event.outcome().is_some() {
            break;
        }
        if event.turn_complete().is_some() || event.tool_output().is_some() {
            assert_eq!(judge.run("Is it good?").outcome().await.text, "fine");
            judged += 1;
        }
    }
    assert_eq!(judged, 3);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_runs_an_agent_of_the_same_pool_does_not_deadlock() {
    let pool = single_slot_pool();
    let budget = || Budget::new().with_pool(pool.clone());
    let router = test_agent(Scripted::from_fn(|_, _| Reply::text("small"))).with_budget(budget());
    let hook = hook::prepare_request(move |_, mut request: Request| {
        let asked = router.run("Which model?").outcome();
        async move {
            request.model = Some(asked.await.text);
            request
        }
    });
    let model = Scripted::new([reply_calling_t("a"), "done".into()]);
    let asking = test_agent(model.clone()).with_tools([ok_tool("t", &Counter::default())]);
    let outcome = asking.with_hook(hook).with_budget(budget()).run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert!(model.requests().iter().all(|request| request.model.as_deref() == Some("small")));
}

#[tokio::test(start_paused = true)]
async fn the_reservation_is_computed_after_hooks_changed_the_request() {
    for (per_answer, longest, reserved) in [(10, 5_000, 5_000), (u64::MAX, 7, 7)] {
        let pool = Pool::new(100_000).with_tokens_per_response(per_answer);
        let hook = hook::prepare_request(move |_, mut request: Request| async move {
            request.options.max_output_tokens = Some(longest);
            request
        });
        let model = Scripted::new(["fine"]);
        let agent =
            test_agent(model).with_hook(hook).with_budget(Budget::new().with_pool(pool.clone()));
        let mut run = agent.run("go");
        pull_until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
        let range = reserved..reserved + 100;
        assert!(range.contains(&pool.reserved_tokens()), "{} of {range:?}", pool.reserved_tokens());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_output_bound_runs_alone() {
    let pool = Pool::new(100).with_tokens_per_response(u64::MAX);
    let agent = test_agent(four_call_model(10)).with_budget(Budget::new().with_pool(pool.clone()));
    let agent = agent.with_tools([ok_tool("t", &Counter::default())]);
    let outcomes = join_all([agent.run("go").outcome(), agent.run("go").outcome()]).await;
    assert_eq!(count_ended(&outcomes, EndReason::Budget), 2);
    assert!(pool.used_tokens() >= pool.token_limit() && pool.reserved_tokens() == 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_waiting_for_the_pool_can_be_interrupted_without_a_request() {
    let pool = Pool::new(100);
    let all = pool.reserve(100).await.unwrap();
    let model = Scripted::new(["never"]);
    let run = run_waiting_for_pool(&model, Budget::new().with_pool(pool.clone())).await;
    run.interrupt();
    let outcome = run.outcome().await;
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{:?}", outcome.reason);
    drop(all);
    assert_eq!((model.requests().len(), pool.reserved_tokens()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_waiting_for_the_pool_is_woken_by_every_command_that_ends_it() {
    let commands: [fn(&RunHandle); 3] =
        [RunHandle::interrupt, RunHandle::interrupt_turn, RunHandle::stop_after_turn];
    for command in commands {
        let pool = Pool::new(100);
        let _all = pool.reserve(100).await.unwrap();
        let model = Scripted::new(["never"]);
        let run = run_waiting_for_pool(&model, Budget::new().with_pool(pool.clone())).await;
        let handle = run.handle();
        // The run is polled first, and again if it is woken, or else by the timer.
        let (since, ended) = (Instant::now(), join(run.outcome(), async { command(&handle) }));
        let (outcome, ()) = timeout(SECOND, ended).await.unwrap();
        assert_eq!(since.elapsed(), Duration::ZERO, "the run is not woken");
        assert_eq!((outcome.turns, model.requests().len()), (0, 0), "{:?}", outcome.reason);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_waiting_when_the_pool_is_exhausted_ends_without_a_request() {
    for wraps_up in [false, true] {
        let pool = Pool::new(100);
        let _all = pool.reserve(100).await.unwrap();
        let model = Scripted::new(["never"]);
        let budget = Budget::new().with_pool(pool.clone());
        let budget = if wraps_up { budget.with_wrap_up() } else { budget };
        let run = run_waiting_for_pool(&model, budget).await;
        pool.charge(Usage { output_tokens: 100, ..Usage::default() });
        let outcome = run.outcome().await;
        assert_eq!((outcome.reason, outcome.turns), (EndReason::Budget, 0));
        assert_eq!((outcome.budget.unwrap().kind, model.requests().len()), (BudgetKind::Pool, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_pool_without_a_reserve_allows_no_wrap_up_turn() {
    let run = async |budget: Budget, pool: &Pool| {
        let usage = Usage { output_tokens: 900, ..Usage::default() };
        let model = Scripted::new([reply_calling_t("a").usage(usage), "what I have".into()]);
        let agent = test_agent(model).with_tools([ok_tool("t", &Counter::default())]);
        agent
            .with_options(Options { max_output_tokens: Some(50), ..Options::default() })
            .with_budget(budget.with_pool(pool.clone()))
            .run("go")
            .outcome()
            .await
    };
    let pool = Pool::new(900);
    let outcome = run(Budget::new().with_wrap_up(), &pool).await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Budget, 1));
    let pool = Pool::new(1_500);
    let outcome = run(Budget::new().with_wrap_up_tokens(600), &pool).await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Budget, "what I have"));
    assert!(pool.used_tokens() < pool.token_limit());
}

#[tokio::test(start_paused = true)]
async fn a_panicking_token_counter_is_replaced_by_an_estimate() {
    let pool = Pool::new(100_000);
    let window = Window::new(100_000).with_counter(|_: &str| -> u64 { panic!("the counter") });
    let model = Scripted::new(["fine"]);
    let agent =
        test_agent(model).with_window(window).with_budget(Budget::new().with_pool(pool.clone()));
    assert_eq!(agent.run("go").outcome().await.reason, EndReason::Completed);
}

#[tokio::test]
async fn denied_calls_do_not_count_toward_the_call_limit() {
    let ran = Counter::default();
    let model = Scripted::new([five_call_reply(), "never".into()]);
    let denies = hook::before_tool(|_, call| async move {
        match call.call_id.as_str() {
            "a" | "c" => CallDecision::Deny("no".into()),
            _ => CallDecision::Allow,
        }
    });
    let agent = test_agent(model).with_tools([ok_tool("t", &ran)]).with_hook(denies);
    let finished = finish_run(agent.with_budget(Budget::new().with_tool_calls(2)).run("go")).await;
    let history = finished.handle.history();
    let kinds: Vec<_> = result_kinds(&history).iter().map(|kind| *kind == ResultKind::Ok).collect();
    assert_eq!((kinds, ran.started_count()), (vec![false, true, false, true, false], 2));
    assert_eq!(finished.outcome.budget.unwrap().kind, BudgetKind::ToolCalls);
}

#[tokio::test]
async fn externally_answered_calls_do_not_count_toward_the_call_limit() {
    let ran = Counter::default();
    let outside = Tool::external(spec("outside")).unwrap();
    let calls = reply_calling("x", "outside").call_raw("a", "t", "{}").call_raw("b", "t", "{}");
    let model = Scripted::new([calls, "never".into()]);
    let agent = test_agent(model).with_tools([outside, ok_tool("t", &ran)]);
    let finished = finish_run(agent.with_budget(Budget::new().with_tool_calls(1)).run("go")).await;
    let kinds = result_kinds(&finished.handle.history());
    assert_eq!(kinds, [ResultKind::Ok, ResultKind::Budget]);
    assert_eq!((finished.outcome.reason, ran.started_count()), (EndReason::Pending, 1));
}

/// An agent whose model makes a call that needs an approval, then one that needs none, with this
/// limit on calls.
fn agent_with_call_limit(limit: u32, asked: &Counter, free: &Counter) -> Agent {
    let calls = reply_calling("a", "asks").call_raw("b", "t", "{}");
    let asks = ok_tool("asks", asked).requires_approval();
    let agent = test_agent(Scripted::new([calls, "fine".into()]));
    agent.with_tools([asks, ok_tool("t", free)]).with_budget(Budget::new().with_tool_calls(limit))
}

#[tokio::test]
async fn while_a_call_waits_for_approval_later_calls_wait_if_they_might_exceed_the_call_limit() {
    // The limit, whether the first call is approved, whether the second one starts before the
    // verdict, and the results.
    let cases = [
        (1, true, false, [ResultKind::Ok, ResultKind::Budget]),
        (1, false, false, [ResultKind::Denied, ResultKind::Ok]),
        (2, true, true, [ResultKind::Ok, ResultKind::Ok]),
    ];
    for (limit, approves, starts, kinds) in cases {
        let (asked, free) = (Counter::default(), Counter::default());
        let mut run = agent_with_call_limit(limit, &asked, &free).interactive().run("go");
        let is_request = |event: &Event| event.approval_request().is_some();
        let call = pull_until(&mut run, is_request).await.approval_request().unwrap();
        pull_ready(&mut run);
        let started = (asked.started_count(), free.started_count());
        assert_eq!(started, (0, usize::from(starts)), "{limit}, {approves}");
        match approves {
            true => run.approve(&call).unwrap(),
            false => run.deny(&call, "no").unwrap(),
        }
        let outcome = run.outcome().await;
        assert_eq!(result_kinds(outcome.new_items()), kinds, "{limit}, {approves}");
        let started = asked.started_count() + free.started_count();
        assert_eq!(started, kinds.iter().filter(|kind| **kind == ResultKind::Ok).count());
    }
}

#[tokio::test]
async fn a_call_held_back_for_the_call_limit_runs_before_the_run_ends_with_pending_calls() {
    let (asked, free) = (Counter::default(), Counter::default());
    let outcome = agent_with_call_limit(1, &asked, &free).run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.pending.len()), (EndReason::Pending, 1));
    assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Ok]);
    assert_eq!((asked.started_count(), free.started_count()), (0, 1));
}

#[tokio::test]
async fn excess_calls_of_an_earlier_run_do_not_end_the_next_run() {
    let model = Scripted::new([five_call_reply(), "fine".into()]);
    let agent = test_agent(model).with_tools([ok_tool("t", &Counter::default())]);
    let agent = agent.with_budget(Budget::new().with_tool_calls(3));
    let first = agent.run("go").outcome().await;
    assert_eq!(first.reason, EndReason::Budget);
    let second = agent.run_from(first.history, "go on").outcome().await;
    assert_eq!((second.reason, second.text.as_str()), (EndReason::Completed, "fine"));
}

/// A price table for two models: a token of `cheap` costs a millionth, one of `dear` 100 times as
/// much.
fn pool_prices() -> Prices {
    let per_token = |millionths| Price {
        input: millionths,
        output: millionths,
        cache_read: millionths,
        cache_write: millionths,
    };
    Prices::new().with_price("cheap", per_token(1.0)).with_price("dear", per_token(100.0))
}

/// A pool without a limit on tokens, and with this limit on the cost, in millionths.
fn cost_pool(millionths: u32) -> Pool {
    Pool::unlimited().with_cost_limit(f64::from(millionths) / 1_000_000.0, pool_prices())
}

#[tokio::test(start_paused = true)]
async fn fifty_agents_overdraw_a_shared_cost_limit_by_at_most_one_request_and_its_answer() {
    let pool = cost_pool(3_000);
    let model = four_call_model(100).with_model("cheap");
    let agent = test_agent(model.clone())
        .with_tools([ok_tool("t", &Counter::default())])
        .with_options(Options { max_output_tokens: Some(100), ..Options::default() })
        .with_budget(Budget::new().with_pool(pool.clone()));
    let outcomes = run_fifty(&agent).await;
    let largest = model.requests().iter().map(|it| usage_of_request(it, 100).total()).max();
    let range = 3_000..3_000 + largest.unwrap();
    assert!(range.contains(&pool.used_cost()), "{} of {range:?}", pool.used_cost());
    assert_eq!(outcomes.iter().map(|it| it.cost.unwrap()).sum::<u64>(), pool.used_cost());
    let ended = outcomes.iter().find(|it| it.reason == EndReason::Budget).unwrap();
    let exceeded = ended.budget.as_ref().unwrap();
    assert_eq!((exceeded.kind, exceeded.limit), (BudgetKind::Money, 3_000));
}

#[tokio::test(start_paused = true)]
async fn two_runs_do_not_each_get_the_whole_rest_of_a_shared_cost_limit() {
    // The rest is enough for one request with its answer of 1,000 tokens, but not for two.
    let pool = cost_pool(1_500);
    let slow = |_: &Request, _: usize| {
        let usage = Usage { output_tokens: 1_000, ..Usage::default() };
        Reply::text("fine").usage(usage).delay(SECOND)
    };
    let model = Scripted::from_fn(slow).with_model("cheap");
    let agent = test_agent(model.clone())
        .with_options(Options { max_output_tokens: Some(1_000), ..Options::default() });
    let agent = agent.with_budget(Budget::new().with_pool(pool.clone()));
    let (mut first, mut second) = (agent.run("go"), agent.run("go"));
    for run in [&mut first, &mut second] {
        while run.next().now_or_never().is_some() {}
    }
    assert_eq!(model.requests().len(), 1, "the second run waits for the rest");
    tokio::time::advance(SECOND).await;
    assert_eq!(first.outcome().await.cost, Some(1_000));
    assert_eq!(second.outcome().await.cost, Some(1_000), "500 were left");
    assert_eq!(agent.run("go").outcome().await.reason, EndReason::Budget);
    assert_eq!((model.requests().len(), pool.used_cost()), (2, 2_000));
}

#[tokio::test(start_paused = true)]
async fn runs_of_models_with_different_prices_charge_one_pool_at_their_own_price() {
    let pool = cost_pool(1_000_000);
    let usage = Usage { input_tokens: 10, ..Usage::default() };
    let budget = Budget::new().with_pool(pool.clone());
    let model = |name| Scripted::new([Reply::text("fine").usage(usage)]).with_model(name);
    let child = test_agent(model("dear")).with_budget(budget.clone());
    let parent = Scripted::new([
        Reply::new().call("child", json!({ "prompt": "go" })).usage(usage),
        Reply::text("done").usage(usage),
    ]);
    let agent = test_agent(parent.with_model("cheap"))
        .with_tools([child.as_tool("child", "Helps").unwrap()])
        .with_budget(budget.clone());
    let outcome = agent.run("go").outcome().await;
    assert_eq!((outcome.cost, outcome.nested_cost), (Some(20), Some(1_000)));
    assert_eq!(pool.used_cost(), 1_020);

    let unpriced = test_agent(model("other")).with_budget(budget);
    let outcome = unpriced.run("go").outcome().await;
    assert!(outcome.error.unwrap().to_string().contains("no price for the model `other`"));
    assert_eq!(pool.used_cost(), 1_020);

    // A program can charge what it spends outside of its agents.
    pool.charge_cost(1_000_000);
    let refused = pool.reserve(1).await.unwrap_err();
    assert_eq!((refused.kind, refused.used), (BudgetKind::Money, 1_001_020));
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_during_a_turn_returns_its_reserved_cost() {
    let pool = cost_pool(1_000);
    let reply = |_: &Request, _: usize| Reply::text("fine").delay(SECOND);
    let model = Scripted::from_fn(reply).with_model("cheap");
    let agent = test_agent(model.clone())
        .with_options(Options { max_output_tokens: Some(900), ..Options::default() });
    let agent = agent.with_budget(Budget::new().with_pool(pool.clone()));
    let (mut first, mut second) = (agent.run("go"), agent.run("go"));
    while first.next().now_or_never().is_some() {}
    while second.next().now_or_never().is_some() {}
    assert_eq!(model.requests().len(), 1);
    drop(first);
    assert!(second.next().now_or_never().is_some());
    while second.next().now_or_never().is_some() {}
    assert_eq!(model.requests().len(), 2);
}

#[test]
fn a_pool_is_drained_by_every_run_that_shares_it() {
    let pool = Pool::new(1_000);
    let members: Vec<Pool> = (0..8).map(|_| pool.clone()).collect();
    std::thread::scope(|scope| {
        for member in &members {
            scope.spawn(|| {
                for _ in 0..10 {
                    member.charge(Usage { input_tokens: 7, output_tokens: 5, ..Usage::default() });
                }
            });
        }
    });
    assert_eq!((pool.used_tokens(), pool.token_limit()), (960, 1_000));
    members[0].charge(Usage { output_tokens: u64::MAX, ..Usage::default() });
    assert_eq!(pool.used_tokens(), u64::MAX);
}
