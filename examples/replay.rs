//! Records a run, replays it without the model or the tool, stops the replay at a step, and
//! continues from there with one tool result changed.
//!
//! ```text
//! cargo run --example replay
//! ```

use futures::StreamExt;
use serde_json::json;
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::tool::{Tool, ToolOutput, ToolSpec};
use turnstream::{Agent, Error, Item};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The model's words are scripted.");
    let agent = timetable_agent()?;
    let path = std::env::temp_dir().join(format!("turnstream-replay-{}.jsonl", std::process::id()));

    let recorder = Recorder::to_file(&path)?;
    let watched = agent.clone().with_recorder(&recorder);
    let run = watched.run("How long is the night bus from Oslo to Bergen?");
    let outcome = run.outcome().await.into_result()?;
    println!("recorded: {}", outcome.text);

    let recording = Recording::from_file(&path)?;
    let (mut rerun, mut events) = (recording.replay(&agent), 0);
    while let Some(event) = rerun.next().await {
        event?;
        events += 1;
    }
    let requests = rerun.requests().len();
    println!("replayed: {events} events and {requests} requests, all identical");

    let mut rerun = recording.replay(&agent);
    rerun.play_until(2).await?;
    println!(
        "at step 2: {} items, {} request sent",
        rerun.journal().history().len(),
        rerun.requests().len()
    );

    let changed = rerun.replay_point().with_tool_result("c1", ToolOutput::ok("11 hours"))?;
    let outcome = changed.run(&agent).outcome().await.into_result()?;
    println!("changed: {}", outcome.text);

    // If the recording cannot be removed, it stays in the temporary folder.
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// An agent that looks up the duration of a journey and reports it.
fn timetable_agent() -> Result<Agent, Error> {
    let model = Scripted::from_fn(|request, _| {
        match request.history.last().and_then(Item::as_tool_result) {
            Some(result) => Reply::text(format!("It takes {}.", result.content.text())),
            None => Reply::text("Let me look.").call_raw("c1", "timetable", "{}"),
        }
    });
    let spec = ToolSpec::new(
        "timetable",
        "Returns how long the bus takes",
        json!({ "type": "object", "properties": {} }),
    );
    let timetable = Tool::raw(spec, |_args, _cx| async { "9 hours" })?;
    Ok(Agent::new(model).with_tools([timetable]))
}
