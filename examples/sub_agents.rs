//! A coordinator with three concurrent sub-agents: labels that tell their events apart, one hook
//! for all of them, a result of a sub-agent that stopped early, and the transcripts.
//!
//! ```text
//! cargo run --example sub_agents
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use futures::TryStreamExt;
use serde_json::json;
use turnstream::agent::Limits;
use turnstream::agent::hook::{self, Hook};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, Event, Item};

const FOLDERS: [&str; 3] = ["benches", "examples", "tests"];

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct CountArgs {
    name: String,
}

/// Counts the lines of a folder of this crate; the tool is not scripted.
fn count_tool() -> Tool {
    Tool::new("count", "Counts the lines of a folder's files", async |folder: CountArgs, _cx| {
        let mut lines = 0;
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder.name))? {
            let path = entry?.path();
            lines += if path.is_file() { fs::read_to_string(path)?.lines().count() } else { 0 };
        }
        io::Result::Ok(lines)
    })
}

/// Prints the tools' results. The label names the agent whose tool it was.
fn result_log_hook() -> impl Hook {
    hook::after_tool(|state, call, result| {
        let who = if state.label.is_empty() { "coordinator" } else { &*state.label };
        println!("  ({who}: `{}` returned {} bytes)", call.name, result.content.text().len());
    })
}

/// A sub-agent for one folder. The delays make them stream concurrently; the agent that counts
/// `tests` never stops on its own.
fn counting_agent(folder: &'static str) -> Agent {
    let pause = Duration::from_millis(5);
    let model = Scripted::from_fn(move |request, _n| {
        match request.history.last().and_then(Item::as_tool_result) {
            Some(lines) if folder != "tests" => Reply::text(lines.content.text())
                .delay(pause)
                .say(format!(" lines are in `{folder}`.")),
            _ => Reply::text("I count ")
                .delay(pause)
                .say(format!("`{folder}`."))
                .call("count", json!({ "name": folder })),
        }
    });
    let agent = Agent::new(model)
        .with_tools([count_tool()])
        .with_limits(Limits { max_turns: Some(2), ..Limits::default() });
    agent.with_hook(result_log_hook())
}

/// Calls all sub-agents in one turn, and reports their answers.
fn coordinator_model() -> Scripted {
    Scripted::from_fn(|request, _n| {
        let results = request.history.iter().filter_map(Item::as_tool_result);
        let told: Vec<_> = results.map(|it| it.content.text().replace("\n\n", " ")).collect();
        let ask = |reply: Reply, name| reply.call(name, json!({ "prompt": "How many lines?" }));
        match told.is_empty() {
            true => FOLDERS.into_iter().fold(Reply::text("I ask all three."), ask),
            false => Reply::text(format!("The answers: {}", told.join(" | "))),
        }
    })
}

/// Returns the name of the agent that an event belongs to, and the event itself: sub-agents may
/// have sub-agents.
fn unwrap_nested(who: String, event: Event) -> (String, Event) {
    match event {
        Event::Nested { name, event, .. } => unwrap_nested(format!("{who}/{name}"), *event),
        event => (who, event),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("All models are scripted; the files are counted for real.\n");
    let tools =
        FOLDERS.into_iter().map(|name| counting_agent(name).as_tool(name, "Counts its lines"));
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    let mut run = Agent::new(coordinator_model())
        .with_hook(result_log_hook())
        .with_tools(tools)
        .run("How many lines are in benches, examples and tests?");
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    while let Some(event) = run.try_next().await? {
        let (who, event) = unwrap_nested("coordinator".to_owned(), event);
        if let Some(text) = event.text_delta() {
            // The tokens of several agents interleave, so each agent has a line of its own.
            lines.entry(who.clone()).or_default().push_str(text);
        }
        if event.turn_complete().is_some() {
            println!("{who}: {}", lines.remove(&who).unwrap_or_default());
        }
        if let Event::Finished(outcome) = event {
            println!("{who} is done: {}, {} turns", outcome.reason, outcome.turns);
        }
    }

    println!("\nThe transcripts:");
    for id in run.journal().nested_call_ids() {
        let Some(journal) = run.journal().nested_journal(&id) else { continue };
        let history = journal.history();
        let last = history.newest_first().find_map(Item::as_text).unwrap_or("nothing");
        println!("{id}: {} items, the last text: {last}", history.len());
    }
    Ok(())
}
