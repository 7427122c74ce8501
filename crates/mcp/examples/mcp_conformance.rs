//! The client that the protocol's official conformance suite runs: it makes the tool calls that a
//! scenario expects. Calls without special arguments are made by an agent with a scripted model.
//! `crates/mcp/tests/run.sh` runs the suite.
//!
//! The suite appends the address of its server as an argument, and names the scenario in
//! `MCP_CONFORMANCE_SCENARIO`.

use std::error::Error;

use serde_json::{Map, Value, json};
use turnstream::Agent;
use turnstream::agent::Limits;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::ToolSpec;
use turnstream_mcp::{Client, ElicitationAnswer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().next_back().ok_or("the last argument is the server's address")?;
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "{}".to_owned());
    let context: Value = serde_json::from_str(&context)?;
    // Fields that an answer leaves out get the defaults of the elicitation form.
    let answer = |_| async { ElicitationAnswer::Accept(json!({})) };
    let client = Client::http(&url)?.with_name("mcp").with_elicitation(answer).build().trusted();
    let toolkit = client.toolkit().await?;
    for note in client.notes() {
        eprintln!("left out: {note}");
    }
    if let Some(calls) = context["toolCalls"].as_array() {
        // Sent as they are, even if they do not match the tool's schema.
        for call in calls {
            let name = call["name"].as_str().unwrap_or_default();
            let output = client.call_tool(name, call["arguments"].clone()).await?;
            eprintln!("{name}: {}", output.content.text());
        }
        client.close().await;
        return Ok(());
    }
    let calls = calls_of(&scenario, &toolkit.specs());
    let mut replies: Vec<Reply> =
        calls.into_iter().map(|(name, arguments)| Reply::new().call(&name, arguments)).collect();
    replies.push(Reply::text("done"));
    let agent = Agent::new(Scripted::new(replies))
        .with_toolkit(toolkit)
        .with_limits(Limits { max_turns: Some(100), ..Limits::default() });
    let outcome = agent.run("Call the tools").outcome().await;
    for result in outcome.history.iter().filter_map(turnstream::Item::as_tool_result) {
        eprintln!("{}: {}", result.name, result.content.text());
    }
    client.close().await;
    Ok(())
}

/// The calls that a scenario expects, with the names that the model sees.
fn calls_of(scenario: &str, tools: &[ToolSpec]) -> Vec<(String, Value)> {
    if scenario == "json-schema-ref-no-deref" {
        return Vec::new();
    }
    if let Some(echo) = tools.iter().find(|tool| tool.name.ends_with("json_schema_echo")) {
        let other = tools.iter().find(|tool| tool.name != echo.name);
        let schema = other.map(|tool| tool.parameters.to_value()).unwrap_or_default();
        return vec![(echo.name.clone(), json!({ "schema": schema }))];
    }
    tools.iter().map(|tool| (tool.name.clone(), required_arguments(tool))).collect()
}

/// An arbitrary value for each required argument.
fn required_arguments(tool: &ToolSpec) -> Value {
    let schema = tool.parameters.to_value();
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let argument = |name: &Value| {
        let name = name.as_str()?.to_owned();
        let value = match schema["properties"][&name]["type"].as_str() {
            Some("number" | "integer") => json!(1),
            Some("boolean") => json!(true),
            _ => json!("x"),
        };
        Some((name, value))
    };
    Value::Object(required.iter().filter_map(argument).collect::<Map<_, _>>())
}
