//! The program that `.ci/release` builds from the archives alone.

use serde_json::json;
use turnstream::provider::{Anthropic, Reply};
use turnstream::session::Session;
use turnstream::{Agent, tool};
use turnstream_sqlite::SqliteStore;
use turnstream_testing::{Answer, ModelServer};

/// Adds two numbers.
#[tool]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = ModelServer::start(|request| match request.index {
        0 => Answer::reply(Reply::new().call("add", json!({ "a": 2, "b": 3 }))),
        _ => Answer::reply("It is 5."),
    })
    .await?;
    let model = Anthropic::new("any").with_base_url(server.url())?;
    let session = Session::open(SqliteStore::open("sessions.db")?, "sum").await?;
    let agent = Agent::new(model).with_tool(add_tool());
    let outcome = session.run(&agent, "What is 2 + 3?").await?.outcome().await?;
    assert_eq!((outcome.text.as_str(), outcome.turns), ("It is 5.", 2));
    println!("the agent answers: {}", outcome.text);
    Ok(())
}
