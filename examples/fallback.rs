//! A model whose stream breaks off in the middle of a sentence. Another model takes over,
//! immediately or after a second attempt, and the user interface discards the retracted text.
//!
//! ```text
//! cargo run --example fallback
//! ```

use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use serde_json::json;
use turnstream::provider::{Backoff, Fallback, Provider, Reply, Retry, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, ErrorKind, Event, Item, Run, TurnEvent, Usage};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArgs {}

/// A provider that can call a tool, and whose stream breaks off whenever it reports a tool result.
fn unreliable_provider() -> impl Provider {
    let model = Scripted::from_fn(|request, _n| match request.history.last() {
        Some(item) if item.as_tool_result().is_some() => Reply::text("The clock says that it ")
            .usage(Usage { input_tokens: 40, output_tokens: 6, ..Usage::default() })
            .fail(Error::new(ErrorKind::Overloaded, "overloaded")),
        _ => Reply::text("I look at the clock.").call("clock", json!({})),
    });
    let backoff =
        Backoff { max_attempts: 2, base_delay: Duration::from_millis(20), ..Backoff::default() };
    // Two attempts, if no other provider takes over immediately. Without `with_retraction`, a
    // request is not retried after text has been received.
    Retry::new(model.with_model("shaky")).with_backoff(backoff).with_retraction()
}

/// A model that calls the tool once more before it answers.
fn reliable_model() -> Scripted {
    let model = Scripted::from_fn(|request, _n| {
        let times: Vec<_> = request.history.iter().filter_map(Item::as_tool_result).collect();
        match times.as_slice() {
            [.., last] if times.len() > 1 => {
                Reply::text(format!("It is {} seconds after 1970.", last.content.text()))
            }
            _ => Reply::text("Let me look again.").call("clock", json!({})),
        }
    });
    model.with_model("steady")
}

/// Prints what a user sees. Only the turn in progress can be retracted; `lines` is final.
async fn print_run(mut run: Run) -> Result<(), Error> {
    let (mut lines, mut open) = (Vec::new(), String::new());
    while let Some(event) = run.try_next().await? {
        match event {
            Event::TurnStarted { model, transition, .. } => {
                let why = transition.map_or("the beginning".to_owned(), |why| why.to_string());
                println!("  request to {model}: {why}");
            }
            Event::Turn(TurnEvent::TextDelta { text, .. }) => open.push_str(&text),
            Event::Turn(TurnEvent::Retracted { why, usage }) => {
                println!("  retracted: {open:?}, {} tokens, {why}", usage.total());
                open.clear();
            }
            Event::Turn(TurnEvent::Retrying { delay_ms, error, .. }) => {
                println!("  {error}, trying again in {delay_ms} ms");
            }
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                println!("  {} has answered", turn.model().unwrap_or("?"));
                lines.push(std::mem::take(&mut open));
            }
            Event::Finished(outcome) => {
                println!("  {}, {} tokens", outcome.reason, outcome.usage.total());
            }
            _ => {}
        }
    }
    println!("The screen: {}", lines.join(" / "));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("Both models are scripted; the retries and the clock are real.");
    let clock = Tool::new("clock", "Seconds since 1970", async |_: NoArgs, _cx| {
        SystemTime::UNIX_EPOCH.elapsed().map(|since| since.as_secs())
    });

    println!("\n# with_fallback: the run continues with the other model immediately, and keeps it");
    let agent = Agent::new(unreliable_provider())
        .with_fallback(reliable_model())
        .with_tools([clock.clone()]);
    print_run(agent.run("What time is it?")).await?;

    println!("\n# Fallback: within a turn; each turn starts with two attempts of the first model");
    let model = Fallback::new(unreliable_provider()).or(reliable_model()).retrying_first();
    let agent = Agent::new(model).with_tools([clock]);
    print_run(agent.run("What time is it?")).await
}
