//! Requests of hooks: their usage is an event, and counts in the run's usage, cost and budgets.

use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::agent::hook::{self, CallDecision, Hook, HookFuture, StopDecision};
use turnstream::agent::{Budget, Pool, State};
use turnstream::event::{BudgetKind, EndReason};
use turnstream::item::ToolCall;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::trace::TraceAction;
use turnstream::turn::Turn;
use turnstream::usage::{CostGapKind, Price, Prices};
use turnstream::{
    Agent, Event, EventStreamExt, History, Item, Outcome, Request, TurnStreamExt, Usage,
};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::tools::uncounted_tool;

fn tokens(input_tokens: u64) -> Usage {
    Usage { input_tokens, ..Usage::default() }
}

fn reply(text: &str) -> Reply {
    Reply::text(text).usage(tokens(10))
}

/// A stop hook that asks a model called `small` about each answer, and reports 100 tokens for it.
/// The first answer is rejected.
fn judge() -> impl Hook + 'static {
    let verdicts = ["too short", "fine"].map(|text| Reply::text(text).usage(tokens(100)));
    let judge = Arc::new(Scripted::new(verdicts).with_model("small"));
    hook::before_stop(move |state, turn| {
        let judge = Arc::clone(&judge);
        async move {
            let question = Item::user(format!("Is this fine? {}", turn.text()));
            let request = Request::new(History::from_items("judge", [question]));
            let verdict = judge.stream_turn(request).into_turn().await?;
            state.report_helper("judge", Some("small"), verdict.usage());
            Ok(match verdict.text().as_str() {
                "fine" => StopDecision::Allow,
                objection => StopDecision::Continue(objection.to_owned()),
            })
        }
    })
}

fn judged_agent() -> Agent {
    Agent::new(Scripted::new([reply("Hm."), reply("A long answer.")]).with_model("large"))
        .with_hook(judge())
}

/// The purposes of the requests that the events report.
fn purposes<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<&'a str> {
    let purpose = |event: &'a Event| match event {
        Event::HelperUsage { purpose, .. } => Some(&**purpose),
        _ => None,
    };
    events.into_iter().filter_map(purpose).collect()
}

async fn events_of(agent: &Agent) -> Vec<Event> {
    agent.run("go").map(Result::unwrap).collect().await
}

fn outcome_of(events: &[Event]) -> &Outcome {
    events.last().and_then(Event::outcome).unwrap()
}

#[tokio::test]
async fn the_usage_of_a_judge_is_an_event_and_a_step_and_counts_in_the_runs_usage() {
    let agent = judged_agent().with_budget(Budget::new().with_total_tokens(1_000));
    let trace = agent.new_trace();
    let run = agent.run("go").trace_to(&trace);
    let events: Vec<Event> = run.map(Result::unwrap).collect().await;
    assert_eq!(purposes(&events), ["judge", "judge"]);
    assert_eq!(outcome_of(&events).usage, tokens(220));
    // The first request of the judge is reported before the next request, and the second one
    // directly before the end.
    let at = |is_it: fn(&Event) -> bool| events.iter().position(is_it).unwrap();
    let reported = at(|event| matches!(event, Event::HelperUsage { .. }));
    let asked_again = at(|event| matches!(event, Event::TurnStarted { turn: 2, .. }));
    assert_eq!(reported + 1, asked_again);
    assert!(matches!(events[events.len() - 2], Event::HelperUsage { .. }));

    let steps = trace.events();
    let helpers = steps.iter().filter_map(|step| match &step.action {
        TraceAction::Helper { purpose, usage } => {
            Some((step.step, &**purpose, &*step.model, *usage, step.budgets.tokens_remaining))
        }
        _ => None,
    });
    let expected = [
        (2, "judge", "small", tokens(100), Some(890)),
        (3, "judge", "small", tokens(100), Some(780)),
    ];
    assert_eq!(helpers.collect::<Vec<_>>(), expected);
    assert_eq!(steps.len(), 4);
    let json = serde_json::to_value(&events[reported]).unwrap();
    let expected = json!({
        "type": "helper_usage", "purpose": "judge", "model": "small", "usage": tokens(100),
    });
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<Event>(json).unwrap(), events[reported]);
}

#[tokio::test]
async fn the_usage_of_a_judge_counts_before_the_next_request_is_sent() {
    let pool = Pool::new(10_000);
    let budget = Budget::new().with_total_tokens(110).with_pool(pool.clone());
    let outcome = judged_agent().with_budget(budget).run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Budget, 1));
    let exceeded = outcome.budget.unwrap();
    assert_eq!((exceeded.kind, exceeded.used), (BudgetKind::TotalTokens, 110));
    assert_eq!((outcome.usage, pool.used_tokens()), (tokens(110), 110));
}

#[tokio::test]
async fn the_request_of_a_hook_is_priced_by_its_own_model() {
    let price = |input| Price { input, ..Price::default() };
    let prices = Prices::new().with_price("large", price(10.0));
    let both = prices.clone().with_price("small", price(1.0));
    for (prices, cost, gaps) in [
        (both, 2 * 100 + 2 * 10 * 10, vec![]),
        (prices, 2 * 100 * 10 + 2 * 10 * 10, vec![(CostGapKind::PricedAsRequested, "small")]),
    ] {
        let budget = Budget::new().with_prices(prices.clone());
        let outcome = judged_agent().with_budget(budget).run("go").outcome().await;
        assert_eq!(outcome.cost, Some(cost));
        let named = outcome.cost_gaps.iter().map(|gap| (gap.kind, &*gap.model));
        assert_eq!(named.collect::<Vec<_>>(), gaps);
        // The first turn costs 100, and the first request of the judge the rest of the limit.
        let limit = if gaps.is_empty() { 0.000_2 } else { 0.001_1 };
        let budget = Budget::new().with_cost_limit(limit, prices);
        let outcome = judged_agent().with_budget(budget).run("go").outcome().await;
        assert_eq!((outcome.reason, outcome.turns), (EndReason::Budget, 1));
    }
}

/// Reports one token at each method that decides or observes.
struct ReportsEverywhere;

impl Hook for ReportsEverywhere {
    fn transform_context<'a>(
        &'a self,
        state: &'a State,
        context: History,
    ) -> HookFuture<'a, History> {
        state.report_helper("context", None, tokens(1));
        async move { Ok(context) }.boxed()
    }

    fn turn_started(&self, state: &State) -> HookFuture<'static, ()> {
        let state = state.clone();
        async move {
            state.report_helper("start", None, tokens(1));
            Ok(())
        }
        .boxed()
    }

    fn before_tool<'a>(
        &'a self,
        state: &'a State,
        _: &'a ToolCall,
    ) -> HookFuture<'a, CallDecision> {
        state.report_helper("call", None, tokens(1));
        async { Ok(CallDecision::Allow) }.boxed()
    }

    fn should_stop<'a>(&'a self, state: &'a State) -> HookFuture<'a, bool> {
        state.report_helper("turn", None, tokens(1));
        async { Ok(false) }.boxed()
    }

    fn give_up_reason(&self, state: &State, _: &Turn) -> Option<String> {
        state.report_helper("blocked", None, tokens(1));
        None
    }

    fn on_finished(&self, state: &State, _: &Outcome) {
        // Too late: the outcome is complete.
        state.report_helper("late", None, tokens(1));
    }
}

fn tool_agent(replies: [Reply; 2]) -> Agent {
    Agent::new(Scripted::new(replies)).with_tool(uncounted_tool("look"))
}

#[tokio::test]
async fn every_hook_can_report_usage_and_a_replay_reports_the_same() {
    let call = Reply::new().call("look", json!({})).usage(tokens(10));
    let agent = tool_agent([call, reply("Done.")]).with_hook(ReportsEverywhere);
    let page = SharedBuffer::new();
    let events = events_of(&agent.clone().with_recorder(&Recorder::to_writer(page.clone()))).await;
    let expected = ["context", "start", "call", "turn", "context", "start", "blocked"];
    assert_eq!(purposes(&events), expected);
    assert_eq!(outcome_of(&events).usage, tokens(27));

    let recording = Recording::from_text(&page.text()).unwrap();
    let replayed: Vec<Event> = recording.replay(&agent).map(Result::unwrap).collect().await;
    assert_eq!(replayed, events);
}

#[tokio::test]
async fn usage_that_is_reported_before_an_interrupt_or_a_drop_is_counted() {
    let waits = || {
        hook::before_stop(|state, _| async move {
            state.report_helper("judge", None, tokens(100));
            // Nothing was used.
            state.report_helper("judge", None, Usage::default());
            futures::future::pending::<StopDecision>().await
        })
    };
    let pool = Pool::new(10_000);
    let agent = Agent::new(Scripted::new([reply("One."), reply("Two.")]))
        .with_budget(Budget::new().with_pool(pool.clone()))
        .with_hook(waits());
    let mut run = agent.run("go");
    while run.next().now_or_never().is_some() {}
    run.interrupt();
    let events: Vec<Event> = run.map(Result::unwrap).collect().await;
    assert_eq!(purposes(&events), ["judge"]);
    assert_eq!((outcome_of(&events).usage, pool.used_tokens()), (tokens(110), 110));

    let mut run = agent.run("go");
    let handle = run.handle();
    while run.next().now_or_never().is_some() {}
    drop(run);
    assert_eq!((handle.usage(), pool.used_tokens()), (tokens(110), 220));
}

#[tokio::test]
async fn a_sub_agents_judge_counts_in_the_nested_usage() {
    let call = Reply::new().call("child", json!({ "prompt": "go" })).usage(tokens(10));
    let agent = Agent::new(Scripted::new([call, reply("Done.")]))
        .with_tool(judged_agent().as_tool("child", "Helps").unwrap());
    let events = events_of(&agent).await;
    let outcome = outcome_of(&events);
    assert_eq!((outcome.usage, *outcome.nested_usage), (tokens(20), tokens(220)));
    assert_eq!(purposes(events.iter().map(Event::without_nesting)), ["judge", "judge"]);
}
