//! Stops a model in the middle of a sentence, as soon as a word appears, in two ways: the run is
//! dropped, or it is interrupted and polled to its end.
//!
//! Both close the connection immediately, so that no more tokens are generated, and both leave a
//! history that can be sent again.
//!
//! ```text
//! cargo run --example mid_stream_abort
//! ```

use std::error::Error;

use futures::StreamExt;
use serde_json::json;
use turnstream::provider::{Anthropic, Reply};
use turnstream::{Agent, Event, History, Run, Tool, TurnEvent};
use turnstream_testing::ModelServer;

const STOP_WORD: &str = "password";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArgs {}

/// Pulls until the word has been received, even if it arrives in pieces.
async fn pull_until_stop_word(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let mut received = String::new();
    while let Some(event) = run.next().await {
        let event = event?;
        // Earlier text belongs to another turn, or was retracted.
        if matches!(event, Event::TurnStarted { .. } | Event::Turn(TurnEvent::Retracted { .. })) {
            received.clear();
        }
        if let Some(text) = event.text_delta() {
            received.push_str(text);
        }
        if received.contains(STOP_WORD) {
            println!("received: {received}");
            return Ok(());
        }
    }
    Err("the word never came".into())
}

/// Prints what would be sent of a history: it has no calls of the incomplete turn, and a result for
/// every other call.
fn print_settled_history(history: &History) {
    let history = history.settled();
    let calls = history.iter().filter(|item| item.as_tool_call().is_some()).count();
    let results = history.iter().filter(|item| item.as_tool_result().is_some()).count();
    println!("{calls} call, {results} result, settled: {}", history.is_settled());
}

/// Starts a server that is in the middle of an answer, and a run against it.
async fn start_run() -> Result<(ModelServer, Run), Box<dyn Error>> {
    let server = ModelServer::anthropic(|_body, n| match n {
        0 => Reply::text("I look it up.").call("look_up", json!({})),
        // The call never runs, since its turn never completes; the answer never ends.
        _ => Reply::new().call("look_up", json!({})).say("The password is open sesame, and").hang(),
    })
    .await?;
    let model = Anthropic::new("any").with_base_url(server.url())?;
    let look_up = Tool::new("look_up", "Looks it up", async |_: NoArgs, _cx| {
        println!("look_up runs");
        "open sesame"
    });
    let run = Agent::new(model).with_tools([look_up]).run("Can I come in?");
    Ok((server, run))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("The model's words are scripted; the server and its connections are real.");

    println!("\nBy a drop:");
    let (server, mut run) = start_run().await?;
    let handle = run.handle();
    pull_until_stop_word(&mut run).await?;
    drop(run);
    server.http_server().wait_for_early_close().await;
    println!("the server saw {} connection close early", server.http_server().closed_early_count());
    // The run is gone; the text that it received is not.
    print_settled_history(&handle.history());

    println!("\nBy an interrupt:");
    let (server, mut run) = start_run().await?;
    pull_until_stop_word(&mut run).await?;
    run.interrupt();
    while let Some(event) = run.next().await {
        if let Some(outcome) = event?.outcome() {
            println!("the outcome: {}, {} requests", outcome.reason, outcome.turns);
        }
    }
    server.http_server().wait_for_early_close().await;
    println!("the server saw {} connection close early", server.http_server().closed_early_count());
    print_settled_history(&run.history());
    Ok(())
}
