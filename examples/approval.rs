//! A tool that needs approval, handled in two ways: the run is suspended and resumed later, or it
//! waits for the user's answer.
//!
//! ```text
//! cargo run --example approval              # asks on the terminal
//! cargo run --example approval -- --yes     # or --no
//! ```

use std::io::{IsTerminal, Write, stdin, stdout};
use std::path::Path;
use std::{env, fs};

use futures::TryStreamExt;
use serde_json::json;
use turnstream::item::ToolCall;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, History, Item, Outcome};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct DeleteArgs {
    name: String,
}

/// An agent that cleans up a folder. The model's text is scripted; the files are really deleted.
fn cleanup_agent(folder: &Path) -> Agent {
    let model = Scripted::from_fn(|request, _n| match request.history.last() {
        Some(item) if item.as_tool_result().is_some() => Reply::text("I did what was approved."),
        _ => Reply::text("Two files can be deleted.")
            .call("delete", json!({ "name": "draft.txt" }))
            .call("delete", json!({ "name": "thesis.txt" })),
    });
    let folder = folder.to_owned();
    let delete = Tool::new("delete", "Deletes a file", move |file: DeleteArgs, _cx| {
        let path = folder.join(file.name);
        async move { fs::remove_file(path) }
    });
    Agent::new(model).with_tools([delete.requires_approval()])
}

/// Asks the user; `--yes` and `--no` answer in the user's place.
fn is_allowed(call: &ToolCall) -> bool {
    print!("May `{}` run with {}? [y/N] ", call.name, call.arguments);
    let mut answer = env::args().nth(1).unwrap_or_default();
    if answer.is_empty() && stdin().is_terminal() {
        discard_typed_input();
        let _ = stdout().flush().and_then(|()| stdin().read_line(&mut answer));
    } else {
        println!("{answer}");
    }
    matches!(answer.trim(), "y" | "yes" | "--yes")
}

/// Text that was typed before the question was not meant as its answer.
fn discard_typed_input() {
    #[cfg(unix)]
    let _ = rustix::termios::tcflush(stdin(), rustix::termios::QueueSelector::IFlush);
}

/// The run ends as `pending`; another process may resume it later.
async fn run_suspended(agent: Agent, store: &Path) -> Result<Outcome> {
    let run = agent.run("Tidy up, please");
    let handle = run.handle();
    let outcome = run.outcome().await;
    if let Some(error) = outcome.error {
        return Err(error.into());
    }
    println!(
        "The run ends as {}, {} calls wait for a verdict.",
        outcome.reason,
        outcome.pending.len()
    );
    fs::write(store, serde_json::to_string(&handle.history())?)?;

    // From here on, the program uses nothing but the contents of the file.
    let history: History = serde_json::from_str(&fs::read_to_string(store)?)?;
    let verdicts =
        history.pending_calls().into_iter().map(|call| match is_allowed(&call.to_tool_call()) {
            true => (call, Verdict::Approve),
            false => (call, Verdict::Deny("the user wants to keep it".into())),
        });
    Ok(agent.resume(history, verdicts)?.outcome().await.into_result()?)
}

/// The run waits, between two polls, while its owner asks the user.
async fn run_interactive(agent: Agent) -> Result<Outcome> {
    let mut run = agent.interactive().run("Tidy up, please");
    while let Some(event) = run.try_next().await? {
        if let Some(call) = event.approval_request() {
            match is_allowed(&call.to_tool_call()) {
                true => run.approve(&call)?,
                false => run.deny(&call, "the user wants to keep it")?,
            }
        }
    }
    Ok(run.outcome().await)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    println!("The model is scripted; the files and your answers are real.");
    let temp = env::temp_dir().join(format!("turnstream-approval-{}", std::process::id()));
    let folder = temp.join("files");
    fs::create_dir_all(&folder)?;
    for form in ["suspended", "interactive"] {
        println!("\n# {form}");
        for file in ["draft.txt", "thesis.txt"] {
            fs::write(folder.join(file), "words")?;
        }
        let outcome = match form {
            "suspended" => {
                run_suspended(cleanup_agent(&folder), &temp.join("history.json")).await?
            }
            _ => run_interactive(cleanup_agent(&folder)).await?,
        };
        for result in outcome.new_items().iter().filter_map(Item::as_tool_result) {
            println!("The model reads: {}", result.content.text());
        }
        println!("The run ends as {}: {}", outcome.reason, outcome.text);
        println!("Files left: {}", fs::read_dir(&folder)?.count());
    }
    Ok(fs::remove_dir_all(temp)?)
}
