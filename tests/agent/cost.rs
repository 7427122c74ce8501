//! The cost of a run whose model changes between turns.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use turnstream::agent::{Budget, Pool, hook};
use turnstream::event::{BudgetKind, EndReason};
use turnstream::provider::{Fallback, Provider, Reply, Scripted};
use turnstream::replay::Recorder;
use turnstream::stream::TurnStream;
use turnstream::tool::Tool;
use turnstream::usage::{
    Billing, Cost, CostGapKind, NameMatch, Price, PriceSource, PricedRequest, Prices,
};
use turnstream::{Agent, Error, ErrorKind, Event, Outcome, Request, Usage};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::sent_at::SentAt;
use turnstream_test_support::tools::spec;

const TURN_USAGE: Usage = token_usage(1_000, 0);

fn price_per_million(input: f64) -> Price {
    Price { input, ..Price::default() }
}

fn endless_caller(model: &'static str) -> Scripted {
    Scripted::from_fn(|_, _| Reply::new().call("t", json!({})).usage(TURN_USAGE)).with_model(model)
}

/// Runs until the budget is spent, and checks the spent amount.
async fn run_until_budget_spent(agent: Agent, expected: u64) {
    let tool = Tool::raw(spec("t"), |_, _| async { "fine" }).unwrap();
    let prices = Prices::new()
        .with_price("cheap", price_per_million(1.0))
        .with_price("dear", price_per_million(100.0));
    let budget = Budget::new().with_cost_limit(0.15, prices);
    let outcome = agent.with_tools([tool]).with_budget(budget).run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Budget);
    let exceeded = outcome.budget.unwrap();
    assert_eq!((exceeded.kind, exceeded.used), (BudgetKind::Money, expected));
}

#[tokio::test]
async fn a_turn_is_priced_by_the_model_that_a_hook_selected() {
    let escalate = hook::prepare_request(|state, mut request| async move {
        request.model = (state.counts.model_calls > 1).then(|| "dear".to_owned());
        request
    });
    run_until_budget_spent(
        Agent::new(endless_caller("cheap")).with_hook(escalate),
        1_000 + 2 * 100_000,
    )
    .await;
}

#[tokio::test]
async fn a_turn_answered_by_a_fallback_is_priced_by_the_fallbacks_model() {
    let cheap = Scripted::from_fn(|_, n| match n {
        0 => Reply::new().call("t", json!({})).usage(TURN_USAGE),
        _ => Reply::text("I").usage(TURN_USAGE).fail(Error::new(ErrorKind::Overloaded, "busy")),
    });
    let agent = Agent::new(cheap.with_model("cheap")).with_fallback(endless_caller("dear"));
    run_until_budget_spent(agent, 2 * 1_000 + 2 * 100_000).await;
}

#[tokio::test]
async fn a_turn_is_priced_by_the_model_that_answered() {
    let busy = Scripted::from_fn(|_, _| Reply::error(Error::new(ErrorKind::Overloaded, "busy")));
    let model = Fallback::new(busy.with_model("cheap")).or(endless_caller("dear"));
    run_until_budget_spent(Agent::new(model), 2 * 100_000).await;
}

/// The cost of a run without a limit: one turn of `cheap`, and then one of another model.
async fn cost_with_second_model(second: &'static str) -> Option<u64> {
    let replies = Scripted::new([
        Reply::new().call("t", json!({})).usage(TURN_USAGE),
        Reply::text("done").usage(TURN_USAGE),
    ]);
    let switch = hook::prepare_request(move |state, mut request| async move {
        request.model = (state.counts.model_calls > 1).then(|| second.to_owned());
        request
    });
    let tool = Tool::raw(spec("t"), |_, _| async { "fine" }).unwrap();
    let prices = Prices::new()
        .with_price("cheap", price_per_million(1.0))
        .with_price("dear", price_per_million(100.0));
    let agent = Agent::new(replies.with_model("cheap")).with_tools([tool]).with_hook(switch);
    let outcome = agent.with_budget(Budget::new().with_prices(prices)).run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);
    outcome.cost
}

#[tokio::test]
async fn the_cost_is_reported_without_a_limit_if_every_model_has_a_price() {
    assert_eq!(cost_with_second_model("cheap").await, Some(2 * 1_000));
    assert_eq!(cost_with_second_model("dear").await, Some(1_000 + 100_000));
    assert_eq!(cost_with_second_model("unknown").await, None, "a partial sum is not a cost");
}

#[tokio::test]
async fn the_cost_of_a_sub_agent_is_reported_beside_the_runs_own_cost() {
    let child = |budget| {
        Agent::new(Scripted::new([Reply::text("found").usage(TURN_USAGE)]).with_model("dear"))
            .with_budget(budget)
            .as_tool("search", "Searches")
            .unwrap()
    };
    let prices = Prices::new()
        .with_price("cheap", price_per_million(1.0))
        .with_price("dear", price_per_million(100.0));
    let budget = Budget::new().with_prices(prices);
    for (nested, expected) in [(budget.clone(), Some(100_000)), (Budget::new(), None)] {
        let model = Scripted::new([
            Reply::new().call("search", json!({ "prompt": "go" })).usage(TURN_USAGE),
            Reply::text("done").usage(TURN_USAGE),
        ]);
        let agent = Agent::new(model.with_model("cheap")).with_tools([child(nested)]);
        let outcome = agent.with_budget(budget.clone()).run("go").outcome().await;
        assert_eq!((outcome.cost, outcome.nested_cost), (Some(2_000), expected));
    }
}

/// Charges a millionth for each token up to 1,000 tokens of input, and ten for each token of a longer
/// request. The cost depends on the time, to a millionth for each millisecond since 1970.
struct TieredAndTimed;

impl PriceSource for TieredAndTimed {
    fn find_name(&self, model: &str) -> Option<NameMatch> {
        (model == "tiered").then_some(NameMatch::Exact)
    }

    fn cost(&self, request: &PricedRequest<'_>) -> Option<Cost> {
        self.find_name(request.model)?;
        let each = if request.usage.input_tokens > 1_000 { 10 } else { 1 };
        let since = request.sent_at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let since_ms = u64::try_from(since.as_millis()).unwrap();
        Some(Cost::exact(request.usage.total() * each + since_ms))
    }
}

fn tiered() -> Budget {
    Budget::new().with_prices(Prices::new().with_source(TieredAndTimed))
}

fn gaps_of(outcome: &Outcome) -> Vec<(CostGapKind, &str)> {
    outcome.cost_gaps.iter().map(|gap| (gap.kind, gap.model.as_str())).collect()
}

#[tokio::test]
async fn each_turn_of_a_run_selects_its_own_tier() {
    let long = Usage { input_tokens: 1_001, ..Usage::default() };
    let model = Scripted::new([
        Reply::new().call("t", json!({})).usage(TURN_USAGE),
        Reply::new().call("t", json!({})).usage(long),
        Reply::text("done").usage(TURN_USAGE),
    ]);
    let tool = Tool::raw(spec("t"), |_, _| async { "fine" }).unwrap();
    let agent = Agent::new(model.with_model("tiered")).with_tools([tool]).with_budget(tiered());
    let outcome = agent.with_world(|_, _| SentAt(0)).run("go").outcome().await;
    assert_eq!(outcome.cost, Some(1_000 + 10_010 + 1_000));
    assert_eq!(gaps_of(&outcome), []);
}

#[tokio::test]
async fn a_retracted_attempt_selects_its_own_tier_and_may_have_cost_more() {
    let model = Scripted::from_fn(|_, n| match n {
        0 => Reply::text("I").usage(TURN_USAGE).fail(Error::new(ErrorKind::Overloaded, "busy")),
        _ => Reply::text("done").usage(TURN_USAGE),
    });
    let agent = Agent::new(model.with_model("tiered"))
        .with_fallback(Scripted::new([Reply::text("done").usage(TURN_USAGE)]).with_model("tiered"))
        .with_budget(tiered())
        .with_world(|_, _| SentAt(0));
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.usage.input_tokens, 2_000);
    assert_eq!(outcome.cost, Some(1_000 + 1_000), "not 20,000 for one long request");
    assert_eq!(gaps_of(&outcome), [(CostGapKind::CutOffTurn, "tiered")]);
}

#[tokio::test]
async fn an_interrupted_turn_may_have_cost_more() {
    let model = Scripted::new([Reply::text("I").usage(TURN_USAGE).hang()]).with_model("tiered");
    let agent = Agent::new(model).with_budget(tiered()).with_world(|_, _| SentAt(0));
    let mut run = agent.run("go");
    while run.handle().usage().input_tokens == 0 {
        run.next().await.unwrap().unwrap();
    }
    run.handle().interrupt();
    let outcome = run.outcome().await;
    assert_eq!(outcome.cost, Some(1_000));
    assert_eq!(gaps_of(&outcome), [(CostGapKind::CutOffTurn, "tiered")]);
}

#[tokio::test]
async fn a_replayed_run_arrives_at_the_recorded_cost() {
    let recordings = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&recordings);
    let recorder = Recorder::to_callback(move |run| sink.lock().unwrap().push(run.recording));
    let agent = |model: Scripted| Agent::new(model.with_model("tiered")).with_budget(tiered());
    let model = Scripted::new([Reply::text("done").usage(TURN_USAGE)]);
    let outcome = agent(model).with_recorder(&recorder).run("go").outcome().await;
    let (cost, now) = (outcome.cost.unwrap(), SystemTime::now());
    let now_ms = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    assert!(u128::from(cost) <= now_ms + 1_000, "{cost}");

    // The clock of the machine has moved on.
    while now.elapsed().unwrap().as_millis() < 2 {
        std::hint::spin_loop();
    }
    let recording = recordings.lock().unwrap().remove(0);
    let rerun = recording.replay(&agent(Scripted::new([""; 0])));
    let events: Vec<Event> = rerun.try_collect().await.unwrap();
    let Some(Event::Finished(replayed)) = events.last() else { panic!("{events:?}") };
    assert_eq!(replayed.cost, Some(cost));
}

#[tokio::test]
async fn every_model_without_a_price_is_named_once() {
    assert_eq!(cost_with_second_model("unknown").await, None);
    let replies = || {
        Scripted::from_fn(|_, n| match n {
            0 | 1 => Reply::new().call("t", json!({})).usage(TURN_USAGE),
            _ => Reply::text("done").usage(TURN_USAGE),
        })
    };
    let tool = Tool::raw(spec("t"), |_, _| async { "fine" }).unwrap();
    let agent =
        Agent::new(replies().with_model("unknown")).with_tools([tool]).with_budget(tiered());
    let outcome = agent.run("go").outcome().await;
    assert_eq!((outcome.turns, outcome.cost), (3, None));
    assert_eq!(gaps_of(&outcome), [(CostGapKind::UnknownModel, "unknown")]);
    // Without prices, nothing was asked.
    let outcome = Agent::new(Scripted::new(["done"])).run("go").outcome().await;
    assert_eq!((outcome.cost, gaps_of(&outcome)), (None, vec![]));
}

/// A provider whose model `cheap` is served by another model.
struct Redirected(&'static str);

impl Provider for Redirected {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let other = Scripted::new([Reply::text("done").usage(TURN_USAGE)]);
        other.with_model(self.0).stream_turn(request)
    }

    fn model(&self) -> &'static str {
        "cheap"
    }
}

#[tokio::test]
async fn an_answer_of_a_model_without_a_price_is_charged_as_requested_and_named() {
    let prices = Prices::new().with_price("cheap", price_per_million(1.0));
    let agent = Agent::new(Redirected("other")).with_budget(Budget::new().with_prices(prices));
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.cost, Some(1_000));
    assert_eq!(gaps_of(&outcome), [(CostGapKind::PricedAsRequested, "other")]);
}

#[tokio::test]
async fn an_answer_of_a_model_with_a_price_is_charged_at_the_time_of_its_request() {
    let agent = Agent::new(Redirected("tiered")).with_budget(tiered());
    let outcome = agent.with_world(|_, _| SentAt(7)).run("go").outcome().await;
    assert_eq!(outcome.cost, Some(1_000 + 7));
    assert_eq!(gaps_of(&outcome), []);
}

#[tokio::test]
async fn what_the_cost_of_sub_agents_does_not_include_is_reported_beside_their_cost() {
    let mut billing = Billing::default();
    billing.set_server_tool_calls(Billing::WEB_SEARCH, 1);
    let reply = Reply::text("found").usage(TURN_USAGE).billing(billing);
    let prices = Prices::new().with_price("dear", price_per_million(100.0));
    let budget = Budget::new().with_prices(prices.clone());
    let child = Agent::new(Scripted::new([reply]).with_model("dear")).with_budget(budget);
    let model = Scripted::new([
        Reply::new().call("search", json!({ "prompt": "go" })).usage(TURN_USAGE),
        Reply::text("done").usage(TURN_USAGE),
    ]);
    let prices = prices.with_price("cheap", price_per_million(1.0));
    let agent = Agent::new(model.with_model("cheap"))
        .with_tools([child.as_tool("search", "Searches").unwrap()])
        .with_budget(Budget::new().with_prices(prices));
    let outcome = agent.run("go").outcome().await;
    assert_eq!((outcome.cost, outcome.nested_cost), (Some(2_000), Some(100_000)));
    assert_eq!(gaps_of(&outcome), []);
    let nested = outcome.nested_cost_gaps.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(nested, ["the fees of the server tool `web_search` of `dear` are unknown"]);
}

#[tokio::test]
async fn a_pool_with_a_price_source_charges_what_the_outcome_reports() {
    let pool = Pool::unlimited().with_cost_limit(1e9, Prices::new().with_source(TieredAndTimed));
    let long = Usage { input_tokens: 600, output_tokens: 600, ..Usage::default() };
    let model = Scripted::new([
        Reply::new().call("t", json!({})).usage(long),
        Reply::text("done").usage(long),
    ]);
    let tool = Tool::raw(spec("t"), |_, _| async { "fine" }).unwrap();
    let agent = Agent::new(model.with_model("tiered"))
        .with_tools([tool])
        .with_budget(Budget::new().with_pool(pool.clone()))
        .with_world(|_, _| SentAt(0));
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.cost, Some(2 * 1_200), "no request has more than 1,000 tokens of input");
    assert_eq!(pool.used_cost(), 2 * 1_200);
}
