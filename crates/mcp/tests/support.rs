//! Servers, clients and agents for tests.

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::event::ToolEvent;
use turnstream::item::ToolResult;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Event, Run, Toolkit};
use turnstream_mcp::{Client, ClientBuilder};
use turnstream_testing::mcp::{McpServer, McpTool};

/// A client of the scripted server, over streams in memory.
pub(crate) fn client_of(server: &McpServer) -> Client {
    builder_of(server).build()
}

/// The settings of a client of the scripted server, over streams in memory.
pub(crate) fn builder_of(server: &McpServer) -> ClientBuilder {
    let server = server.clone();
    let client = Client::streams(move || {
        let server = server.clone();
        async move {
            let (here, there) = tokio::io::duplex(64 << 10);
            let (reader, writer) = tokio::io::split(there);
            tokio::spawn(async move {
                // The client may disconnect first.
                let _ = server.serve(reader, writer).await;
            });
            Ok(tokio::io::split(here))
        }
    });
    client.with_name("s")
}

/// A tool that returns its arguments as text.
pub(crate) fn echo_tool() -> McpTool {
    let schema = json!({
        "type": "object",
        "properties": { "text": { "type": "string" } },
        "required": ["text"],
    });
    McpTool::new("echo", "Repeats a text", schema, |args, _call| async move {
        args["text"].as_str().unwrap_or_default().to_owned()
    })
}

pub(crate) fn no_arguments() -> Value {
    json!({ "type": "object" })
}

/// Runs an agent that calls a tool once and then stops.
pub(crate) fn run_call(kit: Toolkit, tool: &str, arguments: Value) -> Run {
    let model = Scripted::new([Reply::new().call(tool, arguments), Reply::text("done")]);
    Agent::new(model).with_toolkit(kit).run("go")
}

/// The result of a call, and the progress that it reported.
pub(crate) async fn call(kit: Toolkit, tool: &str, arguments: Value) -> (ToolResult, Vec<Value>) {
    let mut run = run_call(kit, tool, arguments);
    let (mut result, mut progress) = (None, Vec::new());
    while let Some(event) = run.next().await {
        match event.expect("the run does not fail") {
            Event::Tool(ToolEvent::Output(output)) => result = Some(output),
            Event::Tool(ToolEvent::Progress { data, .. }) => progress.push(data.to_value()),
            _ => {}
        }
    }
    (result.expect("the call has a result"), progress)
}

/// The text of the result of a call.
pub(crate) async fn call_text(kit: Toolkit, tool: &str, arguments: Value) -> String {
    call(kit, tool, arguments).await.0.content.text()
}
