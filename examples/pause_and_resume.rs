//! A run is paused, stopped after a turn, written to a file and continued by another process.
//! Another run is dropped while a tool runs: the history that is left can be sent again.
//!
//! ```text
//! cargo run --example pause_and_resume
//! ```

use std::error::Error;
use std::{env, fs, path::Path, process, time::Duration};

use futures::StreamExt;
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Event, History, Item, Tool, agent::Input};

const PAGES: [&str; 2] = ["It was a dark and stormy night.", "The rain fell in torrents."];

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PageArgs {
    number: usize,
}

/// A model that reads one page after the other. Its replies are scripted and depend only on the
/// history, like those of any model.
fn scripted_model() -> Scripted {
    Scripted::from_fn(|request, _| {
        match request.history.iter().filter_map(Item::as_tool_result).count() {
            read @ (0 | 1) => Reply::text("Next page.").call("count", json!({ "number": read })),
            _ => Reply::text("That was all."),
        }
    })
}

fn count_tool() -> Tool {
    Tool::new("count", "Counts the words of a page", async |page: PageArgs, _cx| {
        PAGES.get(page.number).map_or(0, |text| text.split_whitespace().count())
    })
}

/// Not polling the run pauses it. A stop is a request: the current turn and its tools finish first.
async fn stop_and_save(file: &Path) -> Result<(), Box<dyn Error>> {
    let model = scripted_model();
    let mut run = Agent::new(model.clone()).with_tools([count_tool()]).run("Count the words");
    while let Some(event) = run.next().await {
        match event? {
            Event::Tool(ToolEvent::Started { name, .. }) => {
                println!("{name} has started; it is not polled for a while, and nothing happens");
                tokio::time::sleep(Duration::from_millis(20)).await;
                let open = run.history().unanswered_calls().len();
                println!("{} request, {open} open call", model.requests().len());
                run.stop_after_turn();
            }
            Event::Finished(it) => println!("{} after turn {}", it.reason, it.turns),
            _ => {}
        }
    }
    fs::write(file, serde_json::to_vec_pretty(&run.history())?)?;
    Ok(())
}

/// The other process has only the file.
async fn resume_from_file(file: &Path) -> Result<(), Box<dyn Error>> {
    let history: History = serde_json::from_slice(&fs::read(file)?)?;
    println!("  another process begins with {} items", history.len());
    let agent = Agent::new(scripted_model()).with_tools([count_tool()]);
    // The model continues from the tool results, so no user message is needed.
    let run = agent.run_from(history, Input::default());
    let handle = run.handle();
    let outcome = run.outcome().await.into_result()?;
    let counts = handle.history();
    let counts = counts.iter().filter_map(Item::as_tool_result).map(|it| it.content.text());
    println!("  {} The counts: {:?}", outcome.text, counts.collect::<Vec<_>>());
    Ok(())
}

/// Drops the run without stopping it first, which also drops the tool wherever it is.
async fn drop_mid_tool() -> Result<(), Box<dyn Error>> {
    let stuck = Tool::new("count", "Never ends", async |_: PageArgs, _cx| {
        std::future::pending::<u8>().await
    });
    let mut run = Agent::new(scripted_model()).with_tools([stuck]).run("Count the words");
    let handle = run.handle();
    while let Some(event) = run.next().await {
        if matches!(event?, Event::Tool(ToolEvent::Started { .. })) {
            break;
        }
    }
    drop(run);
    let left = handle.history();
    println!(
        "dropped: {} call is open, settled: {}",
        left.unanswered_calls().len(),
        left.is_settled()
    );
    let settled = left.settled();
    let result = settled.last().and_then(Item::as_tool_result).ok_or("no result")?;
    println!("answered: `{}`, settled: {}", result.content.text(), settled.is_settled());
    // `run_from` settles the history on its own.
    let agent = Agent::new(scripted_model()).with_tools([count_tool()]);
    let outcome = agent.run_from(left, "Never mind, continue").outcome().await.into_result()?;
    println!("continued: {}", outcome.text);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(file) = env::args_os().nth(1) {
        return resume_from_file(Path::new(&file)).await;
    }
    println!("The model's words are scripted; tools, file and process are real.");
    let file = env::temp_dir().join(format!("pause_and_resume-{}.json", process::id()));
    stop_and_save(&file).await?;
    let status = process::Command::new(env::current_exe()?).arg(&file).status();
    fs::remove_file(&file)?;
    match status?.success() {
        true => drop_mid_tool().await,
        false => Err("the other process failed".into()),
    }
}
