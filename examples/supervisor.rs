//! Five agents under one supervisor: one hangs, one fails, and one is stopped before it deletes
//! what it must not.
//!
//! ```text
//! cargo run --example supervisor
//! ```

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::{Budget, Pool};
use turnstream::provider::{Reply, Scripted};
use turnstream::supervise::{OnSilence, Restart, Supervised, SupervisedEnd, Supervisor};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Error, ErrorKind, Event, TurnEvent};

/// The tokens that all agents may use together.
const POOL_TOKENS: u64 = 100_000;

/// A tool that deletes a folder. In this example, it must never run.
fn delete_tool() -> Result<Tool, Error> {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" } },
        "required": ["path"],
    });
    let spec = ToolSpec::new("delete", "Deletes a folder", schema);
    Tool::raw(spec, |args, _cx| async move { format!("deleted {}", args["path"]) })
}

/// Returns whether an event is a finished turn that calls a tool with a forbidden argument. The
/// tools of the turn run only once the supervisor is polled again.
fn is_forbidden(event: &Event) -> bool {
    let Event::Turn(TurnEvent::TurnComplete { turn }) = event else { return false };
    turn.tool_calls().any(|call| call.name == "delete" && call.arguments.contains("\"/\""))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The models are scripted, the supervision is real.");
    let pool = Pool::new(POOL_TOKENS);
    let agent =
        |model: Scripted| Agent::new(model).with_budget(Budget::new().with_pool(pool.clone()));

    let busy = || Reply::error(Error::new(ErrorKind::Billing, "the account is empty"));
    let delete = Reply::new().call("delete", json!({ "path": "/" }));
    let agents = [
        ("writer", agent(Scripted::new(["A poem about streams."]))),
        ("reader", agent(Scripted::new(["It is about water."]))),
        // Hangs in its first run.
        ("sleeper", agent(Scripted::new([Reply::text("Let me").hang(), "I am awake.".into()]))),
        ("debtor", agent(Scripted::new([busy(), busy(), busy()]))),
        ("cleaner", agent(Scripted::new([delete, "All clean.".into()])).with_tool(delete_tool()?)),
    ];

    let restart = Restart::OnFailure {
        min_delay: Duration::from_millis(100),
        max_delay: Duration::from_secs(1),
        max_restarts: 2,
        healthy_after: Duration::from_mins(1),
    };
    let mut supervisor = Supervisor::new()
        .with_restart(restart)
        .with_silence_limit(Duration::from_millis(500), OnSilence::Interrupt);
    for (name, agent) in agents {
        supervisor.insert(name, move |_attempt| agent.run("Do your work"))?;
    }

    while let Some((name, report)) = supervisor.next().await {
        match report {
            Supervised::Event(event) if is_forbidden(&event) => {
                supervisor.remove(&name);
                println!("{name}: removed before it could delete everything");
            }
            Supervised::Event(Event::Finished(outcome)) => {
                println!("{name}: {} with {:?}", outcome.reason, outcome.text);
            }
            Supervised::Silent { waited } => println!("{name}: silent for {waited:?}"),
            Supervised::Restarting { restarts, delay, error } => {
                println!("{name}: start {} in {delay:?}, because {error}", restarts + 1);
            }
            Supervised::Ended(SupervisedEnd::GaveUp { restarts, error }) => {
                println!("{name}: given up after {restarts} restarts, because {error}");
            }
            _ => {}
        }
    }
    Ok(())
}
