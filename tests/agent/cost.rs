//! The cost of a run whose model changes between turns.

use serde_json::json;
use turnstream::agent::{Budget, hook};
use turnstream::event::{BudgetKind, EndReason};
use turnstream::provider::{Fallback, Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::usage::{Price, Prices};
use turnstream::{Agent, Error, ErrorKind, Usage};

use turnstream_test_support::tools::spec;

const TURN_USAGE: Usage = Usage {
    input_tokens: 1_000,
    output_tokens: 0,
    cache_read_input_tokens: 0,
    cache_write_input_tokens: 0,
    reasoning_tokens: 0,
};

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
