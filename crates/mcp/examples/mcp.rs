//! The tools of an MCP server: a call that needs approval, its progress and its result. The model
//! is scripted, so the program needs no key.
//!
//! ```text
//! cargo run -p turnstream-mcp --example mcp     # a server in this process
//! cargo run -p turnstream-mcp --example mcp -- npx -y @modelcontextprotocol/server-everything
//! ```

use std::error::Error;
use std::io::{Write, stdin, stdout};
use std::time::Duration;

use futures::TryStreamExt;
use serde_json::json;
use turnstream::event::{Event, ToolEvent};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::ToolSource;
use turnstream::{Agent, Item};
use turnstream_mcp::{Client, ServerCommand};
use turnstream_testing::mcp::{McpServer, McpTool};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let client = match args.next() {
        Some(program) => Client::stdio(ServerCommand::new(program).args(args)).build(),
        None => scripted_server(),
    };
    let ended = run_agent(&client).await;
    // Also after an error: until this returns, the server's process may still be running.
    client.close().await;
    ended
}

async fn run_agent(client: &Client) -> Result<(), Box<dyn Error>> {
    let info = client.server_info().await?;
    println!(
        "The model is scripted. The server speaks {} ({:?}):",
        info.protocol_version, info.era
    );
    for tool in client.list_tools().await?.tools {
        println!("  {}: {}", tool.name(), tool.spec().description);
    }
    let agent = Agent::new(scripted_model()).with_tool_source(client.clone()).interactive();
    let mut run = agent.run("Call a tool, please");
    while let Some(event) = run.try_next().await? {
        match &event {
            // Calls need no approval if the server is `trusted` or the tool is `allow`ed.
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                print!("May `{}` run with {}? [y/N] ", call.name, call.arguments);
                stdout().flush()?;
                let mut answer = String::new();
                stdin().read_line(&mut answer)?;
                match answer.trim() {
                    "y" => run.approve(&**call)?,
                    _ => run.deny(&**call, "the user does not want it")?,
                }
            }
            Event::Tool(ToolEvent::Progress { data, .. }) => println!("  {}", data.as_str()),
            Event::Tool(ToolEvent::Output(result)) => {
                println!("The model reads: {}", result.content.text());
            }
            _ => {}
        }
    }
    let outcome = run.outcome().await;
    println!("The run ends as {}: {}", outcome.reason, outcome.text);
    Ok(())
}

/// A server without a process: a task serves it at the other end of a pipe.
fn scripted_server() -> Client {
    let schema = json!({ "type": "object", "properties": {} });
    let brew = McpTool::new("brew", "Brews tea", schema, |_args, call| async move {
        for (step, message) in (1_u8..).zip(["water boils", "tea steeps", "tea is poured"]) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            call.progress(step.into(), Some(3.0), Some(message)).await;
        }
        "One cup of tea, made up."
    });
    let server = McpServer::new().with_tool(brew);
    let open = move || {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(there);
        tokio::spawn(server.clone().serve(reader, writer));
        async { Ok(tokio::io::split(here)) }
    };
    Client::streams(open).with_name("tea").build()
}

/// Calls the first tool that requires no arguments. A real model would read the descriptions.
fn scripted_model() -> Scripted {
    Scripted::from_fn(|request, _n| {
        if let Some(result) = request.history.last().and_then(Item::as_tool_result) {
            return Reply::text(format!("`{}` is done.", result.name));
        }
        let mut names = request.tools.iter().filter_map(|tool| {
            let required = tool.parameters.to_value()["required"].as_array().map_or(0, Vec::len);
            (required == 0).then_some(&tool.name)
        });
        match names.next() {
            Some(name) => Reply::text("I'll call it.").call(name, json!({})),
            None => Reply::text("Each of these tools needs arguments, and I have none."),
        }
    })
}
