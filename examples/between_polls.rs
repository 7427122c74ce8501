//! Code between two polls of a run: a token budget that ends the run, and a message sent to the
//! model on the way.
//!
//! ```text
//! cargo run --example between_polls
//! ```

use futures::TryStreamExt;
use serde_json::json;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, Event, Item, Usage};

const BUDGET_TOKENS: u64 = 1_000;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PageArgs {
    number: u32,
}

/// A scripted model that always asks for one more page, at 300 tokens each time.
fn insatiable_model() -> Scripted {
    Scripted::from_fn(|_request, n| {
        let usage = Usage { input_tokens: 250, output_tokens: 50, ..Usage::default() };
        Reply::text("One more page.").call("read", json!({ "number": n + 1 })).usage(usage)
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!(
        "The model is scripted, the supervision is real. The budget is {BUDGET_TOKENS} tokens."
    );
    let read = Tool::new("read", "Reads a page", async |page: PageArgs, _cx| {
        format!("the text of page {}", page.number)
    });
    let mut run = Agent::new(insatiable_model()).with_tools([read]).run("Read the book");
    let mut noted = false;
    while let Some(event) = run.try_next().await? {
        let spent = run.usage().total();
        if spent > BUDGET_TOKENS {
            run.interrupt();
        }
        match event {
            Event::Appended { why, .. } => println!("appended: {why:?}"),
            Event::TurnStarted { turn, .. } => println!("turn {turn}, {spent} tokens spent"),
            Event::Continued { .. } if !noted => {
                noted = run.steer(Item::user("Be brief, please.")).is_ok();
            }
            Event::Finished(outcome) => {
                println!("{} after {} turns, {spent} tokens", outcome.reason, outcome.turns);
                let history = run.history().settled();
                println!("the history can be sent again: {}", history.is_settled());
            }
            _ => {}
        }
    }
    Ok(())
}
