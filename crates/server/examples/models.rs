//! Serves an agent with a tool as the model `assistant`, on the wires of OpenAI, Anthropic, Gemini
//! and Ollama. Its own model is scripted, so that it needs no key.
//!
//! ```text
//! cargo run -p turnstream-server --example models
//! ```

use serde_json::json;
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec};
use turnstream_server::{AgentServer, ConnectionLimits, listen, serve, stop_signal};

/// An agent that calls its tool once, and then tells the result.
fn agent() -> Result<Agent, turnstream::Error> {
    // With a key: `turnstream::provider::from_model_name("claude-sonnet-4-5")`.
    let model = Scripted::from_fn(|request, _| {
        match request.history.last().and_then(|item| item.as_tool_result()) {
            Some(result) => {
                let time = result.content.text();
                Reply::new().say("It is ").say(time).say(". (These words are scripted.)")
            }
            None => Reply::new().say("I look at the clock.").call("clock", json!({})),
        }
    });
    let spec =
        ToolSpec::new("clock", "Tells the time", json!({ "type": "object", "properties": {} }));
    let clock = Tool::raw(spec, |_, _| async { "five past twelve" })?;
    Ok(Agent::new(model).with_tools([clock]))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = AgentServer::new().with_model("assistant", agent()?);
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = listen(address.parse()?)?;
    let address = listener.local_addr()?;
    println!("The model `assistant` answers at http://{address}/v1, for example:");
    println!("  curl http://{address}/v1/chat/completions -H 'content-type: application/json' \\");
    println!(
        "    -d '{{\"model\":\"assistant\",\"messages\":[{{\"role\":\"user\",\"content\":\"How late is it?\"}}]}}'"
    );
    serve(listener, server.router(), ConnectionLimits::default(), stop_signal()).await;
    Ok(())
}
