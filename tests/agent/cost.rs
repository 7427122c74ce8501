//! The cost of a run whose model changes between turns.

use serde_json::json;
use turnstream::agent::{Budget, hook};
use turnstream::event::{BudgetKind, EndReason};
use turnstream::provider::{Fallback, Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::usage::{Price, Prices};
use turnstream::{Agent, Error, ErrorKind, Usage};

use crate::support::tools::spec;

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
