//! Budgets: tokens, money by a price table, a final turn to wrap up, and a pool that a parent run
//! shares with its sub-agent.
//!
//! ```text
//! cargo run --example budget
//! ```

use serde_json::json;
use turnstream::agent::{Budget, Pool};
use turnstream::event::BudgetKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::request::ToolChoice;
use turnstream::tool::Tool;
use turnstream::usage::{Price, Prices};
use turnstream::{Agent, Error, Item, Outcome, Request, Usage};

/// Dollars per million tokens. Put your provider's prices here.
const PRICE_PER_MILLION: Price =
    Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PageArgs {
    number: usize,
}

/// Reads this source file, fifteen lines a page.
fn read_tool() -> Tool {
    Tool::new("read", "Reads a page of the book", async |page: PageArgs, _cx| {
        let lines = include_str!("budget.rs").lines().skip(15 * page.number).take(15);
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// A scripted model that asks for one more page until it has to wrap up.
fn reader_model() -> Scripted {
    Scripted::from_fn(|request, n| {
        let reply = match request.options.tool_choice == ToolChoice::None {
            true => Reply::text("That is what I found in the pages that I could afford."),
            false => Reply::text("One more page.").call("read", json!({ "number": n })),
        };
        reply.usage(estimate_usage(request))
    })
}

/// Estimates a token as four bytes of the history.
fn estimate_usage(request: &Request) -> Usage {
    let bytes = serde_json::to_string(&request.history).map_or(0, |json| json.len());
    Usage { input_tokens: bytes as u64 / 4, output_tokens: 20, ..Usage::default() }
}

/// A run that a budget ended is not a failure; one with an error is.
fn print_outcome(outcome: &Outcome) -> Result<(), Error> {
    if let Some(error) = &outcome.error {
        return Err(error.clone());
    }
    println!("{} after {} turns: {}", outcome.reason, outcome.turns, outcome.text);
    for (who, usage) in [("itself", outcome.usage), ("sub-agents", *outcome.nested_usage)] {
        println!(
            "  {who}: {} tokens, {}",
            usage.total(),
            format_dollars(PRICE_PER_MILLION.cost(&usage))
        );
    }
    match &outcome.budget {
        Some(exceeded) => match exceeded.kind {
            BudgetKind::Money => {
                let (used, limit) = (format_dollars(exceeded.used), format_dollars(exceeded.limit));
                println!("  ended by Money: {used} of {limit} used");
            }
            kind => println!("  ended by {kind:?}: {exceeded}"),
        },
        None => println!("  no budget was spent"),
    }
    Ok(())
}

fn format_dollars(millionths: u64) -> String {
    format!("${}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The model is scripted, its tokens are estimated; limits and sums are real.");
    let prices = Prices::new().with_price("scripted", PRICE_PER_MILLION);
    let agent = Agent::new(reader_model()).with_tools([read_tool()]);

    println!("\n# token limit");
    let budget = Budget::new().with_total_tokens(2_000).with_cost_limit(1.0, prices.clone());
    print_outcome(&agent.clone().with_budget(budget).run("Read the book").outcome().await)?;

    println!("\n# cost limit, with one more turn to wrap up");
    let budget =
        Budget::new().with_total_tokens(50_000).with_cost_limit(0.01, prices).with_wrap_up();
    print_outcome(&agent.clone().with_budget(budget).run("Read the book").outcome().await)?;

    println!("\n# a pool of 4,000 tokens ends the sub-agent, and then its parent");
    let pool = Pool::new(4_000);
    let budget = Budget::new().with_pool(pool.clone()).with_wrap_up_tokens(1_500);
    let child = agent.with_budget(budget.clone());
    let boss = Scripted::from_fn(|request, _n| {
        let reply = match request.options.tool_choice == ToolChoice::None {
            true => Reply::text("My reader ran out of tokens, and so did I."),
            false => Reply::new().call("reader", json!({ "prompt": "Read the book" })),
        };
        reply.usage(estimate_usage(request))
    });
    let boss = Agent::new(boss).with_tools([child.as_tool("reader", "Reads")?]);
    let outcome = boss.with_budget(budget).run("What is in the book?").outcome().await;
    print_outcome(&outcome)?;
    for result in outcome.new_items().iter().filter_map(Item::as_tool_result) {
        println!("  the boss reads: {}", result.content.text().replace("\n\n", " "));
    }
    println!("  the pool: {} of {} tokens used", pool.used_tokens(), pool.token_limit());
    Ok(())
}
