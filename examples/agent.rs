//! An agent on the command line: it looks at the files in the working directory, and streams its
//! answer.
//!
//! ```text
//! cargo run --example agent
//! ANTHROPIC_API_KEY=… cargo run --example agent -- "Which of the dependencies are optional?"
//! ```
//!
//! Without a key, the model is scripted. Ctrl-C interrupts the run. The program `turnstream` in
//! `crates/cli` is the same agent with a chat, sessions, approvals and MCP servers.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io};

use futures::{FutureExt, TryStreamExt};
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::provider::{self, Provider, Reply, Scripted};
use turnstream::{Agent, ErrorKind, Event, Item, Tool, TurnEvent, Usage};

const SYSTEM: &str =
    "Answer briefly. Use your tools rather than guess, and name the files that you have read.";

/// The part of a file that a model can read.
const MAX_FILE_BYTES: u64 = 64 * 1024;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model: Arc<dyn Provider> = match provider::from_env() {
        Ok(model) => model,
        Err(error) if error.kind() == ErrorKind::Auth => {
            println!("No API key is set: the model's words are scripted, the files are real.");
            Arc::new(scripted_model())
        }
        Err(error) => return Err(error.into()),
    };
    let prompt = match env::args().skip(1).collect::<Vec<_>>().join(" ") {
        prompt if prompt.is_empty() => "What is in this directory?".to_owned(),
        prompt => prompt,
    };
    let agent = Agent::new(model).with_system(SYSTEM).with_tools(file_tools(&env::current_dir()?)?);

    let mut run = agent.run(prompt);
    let mut line = None;
    let mut ctrl_c = pin!(tokio::signal::ctrl_c().fuse());
    loop {
        tokio::select! {
            // The run then ends with an outcome, as it does in every other case.
            _ = &mut ctrl_c => run.interrupt(),
            event = run.try_next() => match event? {
                Some(event) => print_event(&event, &mut line)?,
                None => return Ok(()),
            },
        }
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PathArgs {
    /// A path inside of the working directory; `.` is the directory itself.
    path: String,
}

/// Tools that read files below `root`. An error is a result for the model, which can try again.
fn file_tools(root: &Path) -> io::Result<[Tool; 2]> {
    let root = Arc::new(root.canonicalize()?);
    let here = Arc::clone(&root);
    let about = "Lists the names in a directory; those of directories end with a slash";
    let list = Tool::new("list_directory", about, move |args: PathArgs, _cx| {
        let names = find_inside(&here, &args.path).and_then(|path| list_names(&path));
        async { names }
    });
    let read = Tool::new("read_file", "Reads a text file", move |args: PathArgs, _cx| {
        let text = find_inside(&root, &args.path).and_then(|path| read_start(&path));
        async { text }
    });
    // They change nothing, so a session may run them again after a crash.
    Ok([list.idempotent(), read.idempotent()])
}

/// Resolves a path of the model, which must not lead out of the directory, links included.
fn find_inside(root: &Path, path: &str) -> io::Result<PathBuf> {
    let found = root.join(path).canonicalize()?;
    match found.starts_with(root) {
        true => Ok(found),
        false => Err(io::Error::other("the path is outside of the working directory")),
    }
}

fn list_names(directory: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().display()));
    }
    names.sort();
    Ok(names.join("\n"))
}

fn read_start(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The kind of text on a line that is not complete.
#[derive(Clone, Copy, PartialEq)]
enum Line {
    Reasoning,
    Text,
}

/// Prints a run as it happens: text as it arrives, reasoning dimmed, and a line for each call.
fn print_event(event: &Event, open: &mut Option<Line>) -> io::Result<()> {
    let (line, text) = match event {
        Event::Turn(TurnEvent::ReasoningDelta { text, .. }) => {
            (Some(Line::Reasoning), text.to_string())
        }
        Event::Turn(TurnEvent::TextDelta { text, .. }) => (Some(Line::Text), text.to_string()),
        // The text of this turn does not count: the provider tries again.
        Event::Turn(TurnEvent::Retracted { why, .. }) => (None, format!("[retracted: {why}]")),
        Event::Tool(ToolEvent::Started { name, arguments, .. }) => {
            (None, format!("[{name} {arguments}]"))
        }
        Event::Tool(ToolEvent::Output(result)) if result.is_error() => {
            (None, format!("[failed: {}]", result.content.text()))
        }
        Event::Tool(ToolEvent::Output(result)) => {
            (None, format!("[{} lines]", result.content.text().lines().count()))
        }
        Event::Finished(outcome) => {
            let Usage { input_tokens, output_tokens, .. } = outcome.usage;
            let (reason, requests) = (&outcome.reason, outcome.turns);
            let summary = format!("{reason}: {requests} requests, {input_tokens} tokens sent");
            (None, format!("{summary}, {output_tokens} received"))
        }
        _ => return Ok(()),
    };
    let mut out = io::stdout();
    if open.is_some() && *open != line {
        writeln!(out)?;
    }
    *open = line;
    // A model that repeats foreign text must not control the terminal.
    let text: String = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    match line {
        Some(Line::Reasoning) if out.is_terminal() => write!(out, "\x1b[2m{text}\x1b[0m")?,
        Some(_) => write!(out, "{text}")?,
        None => writeln!(out, "{text}")?,
    }
    out.flush()
}

fn is_page(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "md")
}

/// A model without a key: it lists the directory, reads one of the files, and tells how that file
/// begins, whatever the question is.
fn scripted_model() -> Scripted {
    Scripted::from_fn(|request, _n| {
        let results = request.history.iter().filter_map(Item::as_tool_result);
        let results: Vec<String> = results.map(|result| result.content.text()).collect();
        let reply = match results.as_slice() {
            [] => Reply::new()
                .think("I have not seen this directory yet, so I list it.")
                .call("list_directory", json!({ "path": "." })),
            [names] => match names.lines().find(|name| is_page(name)) {
                Some(page) => Reply::new()
                    .think(format!("The page {page} may describe it."))
                    .call("read_file", json!({ "path": page })),
                None => Reply::text("I see no page that describes this directory."),
            },
            [.., page] => {
                let first = page.lines().next().unwrap_or_default();
                Reply::text(format!("The page begins with the line: {first}"))
            }
        };
        let usage = Usage { input_tokens: 200, output_tokens: 20, ..Usage::default() };
        reply.delay(Duration::from_millis(300)).usage(usage)
    })
}
