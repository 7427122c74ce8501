//! The tools of an MCP server: what it offers, a call that needs approval, its progress and its
//! result.
//!
//! ```text
//! cargo run -p turnstream-mcp --example mcp                             # a server in this process
//! cargo run -p turnstream-mcp --example mcp -- http://localhost:3000/mcp
//! cargo run -p turnstream-mcp --example mcp -- -- npx -y @modelcontextprotocol/server-everything
//! ```
//!
//! `--yes` before the server answers in place of the user.

use std::env;
use std::io::{self, IsTerminal, Write, stdin, stdout};
use std::time::Duration;

use futures::TryStreamExt;
use serde_json::json;
use turnstream::event::{Event, ToolEvent};
use turnstream::item::ToolCall;
use turnstream::provider::{Reply, Scripted};
use turnstream::testing::mcp::{McpServer, McpTool};
use turnstream::tool::ToolSource;
use turnstream::{Agent, Item};
use turnstream_mcp::{Client, ServerCommand};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A server without a process: a task serves it at the other end of a pipe.
fn scripted_server() -> Client {
    let brew = McpTool::new(
        "brew",
        "Brews tea",
        json!({ "type": "object", "properties": {} }),
        |_args, call| async move {
            for (step, message) in (1_u8..).zip(["water boils", "tea steeps", "tea is poured"]) {
                tokio::time::sleep(Duration::from_millis(100)).await;
                call.progress(step.into(), Some(3.0), Some(message)).await;
            }
            "One cup of tea, made up."
        },
    );
    let server = McpServer::new()
        .with_tool(brew)
        .with_resource("tea://list", "teas", "text/plain", "Green, black.")
        .with_prompt("recommend", "Asks for a tea", &["mood"], "Which tea is for {mood}?");
    let open = move || {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(there);
        tokio::spawn(server.clone().serve(reader, writer));
        async { Ok(tokio::io::split(here)) }
    };
    Client::streams(open).with_name("tea").build()
}

/// The server that the command line names.
fn server_from_args(mut args: impl Iterator<Item = String>) -> Result<Client> {
    match (args.next(), args.next()) {
        (None, _) => Ok(scripted_server()),
        (Some(dashes), Some(program)) if dashes == "--" => {
            Ok(Client::stdio(ServerCommand::new(program).args(args)).build())
        }
        (Some(url), None) if url.starts_with("http") => Ok(Client::http(&url)?.build()),
        _ => Err("usage: mcp [--yes] [URL | -- COMMAND ...]".into()),
    }
}

/// Calls the first tool that needs no arguments; a real model would read the descriptions.
fn scripted_model() -> Scripted {
    Scripted::from_fn(|request, _n| {
        if let Some(result) = request.history.last().and_then(Item::as_tool_result) {
            return Reply::text(format!("`{}` is done.", result.name));
        }
        let required =
            |schema: serde_json::Value| schema["required"].as_array().map_or(0, Vec::len);
        let mut tools = request.tools.iter();
        match tools.find(|tool| required(tool.parameters.to_value()) == 0) {
            Some(tool) => Reply::text("I'll call it.").call(&tool.name, json!({})),
            None => Reply::text("Each of these tools needs arguments, and I have none."),
        }
    })
}

/// Prints the server's name, its tools, its resources and its prompts.
async fn show_server(client: &Client) -> Result<()> {
    let mut out = stdout();
    let info = client.server_info().await?;
    let name = info.name.as_deref().unwrap_or("without a name");
    writeln!(out, "The server: {name}, {} ({:?})", info.protocol_version, info.era)?;
    let list = client.list_tools().await?;
    for tool in &list.tools {
        let first_line = tool.spec().description.lines().next().unwrap_or_default();
        writeln!(out, "  tool {}: {first_line}", tool.name())?;
    }
    for note in list.notes {
        writeln!(out, "  note: {note}")?;
    }
    for resource in client.resources().await? {
        writeln!(out, "  resource {}: {}", resource.uri, resource.name)?;
    }
    for prompt in client.prompts().await? {
        writeln!(out, "  prompt {}: {}", prompt.name, prompt.description.unwrap_or_default())?;
    }
    Ok(())
}

/// Asks the user. A server's calls need approval unless it is `trusted` or the tool is `allow`ed.
fn is_allowed(call: &ToolCall, says_yes: bool) -> io::Result<bool> {
    let mut answer = if says_yes { "--yes\n" } else { "" }.to_owned();
    write!(stdout(), "May `{}` run with {}? [y/N] {answer}", call.name, call.arguments)?;
    if answer.is_empty() && stdin().is_terminal() {
        stdout().flush()?;
        stdin().read_line(&mut answer)?;
    }
    Ok(matches!(answer.trim(), "y" | "yes" | "--yes"))
}

async fn run_agent(client: &Client, says_yes: bool) -> Result<()> {
    let agent = Agent::new(scripted_model()).with_tool_source(client.clone()).interactive();
    let mut run = agent.run("Call a tool, please");
    let mut out = stdout();
    while let Some(event) = run.try_next().await? {
        match &event {
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                match is_allowed(&call.to_tool_call(), says_yes)? {
                    true => run.approve(&**call)?,
                    false => run.deny(&**call, "the user does not want it")?,
                }
            }
            Event::Tool(ToolEvent::Progress { name, data, .. }) => {
                writeln!(out, "  {name}: {}", data.as_str())?;
            }
            Event::Tool(ToolEvent::Output(result)) => {
                writeln!(out, "The model reads: {}", result.content.text())?;
            }
            _ => {}
        }
    }
    let outcome = run.outcome().await;
    Ok(writeln!(out, "The run ends as {}: {}", outcome.reason, outcome.text)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = env::args().skip(1).peekable();
    let says_yes = args.next_if_eq("--yes").is_some();
    let client = server_from_args(args)?;
    let shown = async {
        let whose = if client.name() == "tea" { ", and so is the server" } else { "" };
        writeln!(stdout(), "The model is scripted{whose}.")?;
        show_server(&client).await?;
        run_agent(&client, says_yes).await
    }
    .await;
    // Also after an error: until this returns, the server's process may still be running.
    client.close().await;
    shown
}
