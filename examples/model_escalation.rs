//! Model escalation by a control tool: a cheap model that cannot solve a task calls `escalate`, and
//! a stronger model takes over for the rest of the run.
//!
//! The history itself holds the switch: it records the call of `escalate`, so the choice survives
//! turns, stores and resumes, and two runs of one agent do not affect each other.
//!
//! ```text
//! cargo run --example model_escalation
//! ```

use futures::TryStreamExt;
use serde_json::json;
use turnstream::agent::hook;
use turnstream::event::ToolEvent;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, Event, History, Item};

const CHEAP_MODEL: &str = "cheap";
const STRONG_MODEL: &str = "strong";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct EscalateArgs {
    /// The reason why the task is too hard, for the model that takes over.
    reason: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NthPrimeArgs {
    n: usize,
}

fn nth_prime(n: usize) -> Option<u64> {
    let is_prime = |n: &u64| (2..=n.isqrt()).all(|d| !n.is_multiple_of(d));
    (2..).filter(is_prime).nth(n.checked_sub(1)?)
}

fn has_escalated(history: &History) -> bool {
    let mut results = history.iter().filter_map(Item::as_tool_result);
    results.any(|result| result.name == "escalate" && !result.is_error())
}

/// A hook that uses the stronger model once the history has a call of `escalate`.
fn escalation_hook() -> impl hook::Hook {
    hook::prepare_request(|state, mut request| async move {
        if has_escalated(&state.history) {
            request.model = Some(STRONG_MODEL.to_owned());
            // The strongest model cannot escalate any further.
            let tools = request.tools.iter().filter(|tool| tool.name != "escalate");
            request.tools = tools.cloned().collect();
        }
        request
    })
}

/// Both models of one vendor, scripted.
fn scripted_model() -> Scripted {
    let model = Scripted::from_fn(|request, _n| {
        let last = request.history.last().and_then(Item::as_tool_result);
        match (request.model.as_deref(), last) {
            (Some(STRONG_MODEL), Some(result)) if result.name == "nth_prime" => {
                Reply::text(format!("The 10,001st prime is {}.", result.content.text()))
            }
            (Some(STRONG_MODEL), _) => {
                Reply::text("I take over.").call("nth_prime", json!({ "n": 10_001 }))
            }
            _ => Reply::text("That is too hard for me.")
                .call("escalate", json!({ "reason": "I cannot count primes" })),
        }
    });
    model.with_model(CHEAP_MODEL)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("Both models are scripted; the prime is computed.");
    let escalate =
        Tool::new("escalate", "Hands over to a stronger model", async |why: EscalateArgs, _cx| {
            format!("A stronger model continues. The reason: {}", why.reason)
        });
    let prime = Tool::new("nth_prime", "The nth prime", async |args: NthPrimeArgs, _cx| {
        nth_prime(args.n).ok_or("n counts from 1")
    });
    let agent =
        Agent::new(scripted_model()).with_tools([escalate, prime]).with_hook(escalation_hook());

    let mut run = agent.run("What is the 10,001st prime?");
    while let Some(event) = run.try_next().await? {
        match event {
            Event::TurnStarted { turn, model, .. } => print!("\nturn {turn}, {model}: "),
            Event::Tool(ToolEvent::Started { name, .. }) => print!(" [{name}]"),
            event => print!("{}", event.text_delta().map_or("", |text| text)),
        }
    }
    let next = if has_escalated(&run.history()) { STRONG_MODEL } else { CHEAP_MODEL };
    println!("\n\nThe next run on this history uses {next}.");
    Ok(())
}
