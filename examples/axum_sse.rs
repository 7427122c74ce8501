//! A web server with a page that streams runs: `cargo run --example axum_sse`.

use std::time::Duration;

use axum::{Router, http::header::CONTENT_SECURITY_POLICY, response::Html, routing::get};
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream_server::{ChatServer, listen};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    // With a key: `turnstream::provider::from_model_name("claude-sonnet-4-5")`.
    let words = ["This ", "answer ", "is ", "scripted, ", "the ", "stream ", "is ", "real."];
    let word = |reply: Reply, word: &&str| reply.say(word).delay(Duration::from_millis(300));
    let model = Scripted::from_fn(move |_, _| words.iter().fold(Reply::new(), word));
    let policy = [(CONTENT_SECURITY_POLICY, "default-src 'self' 'unsafe-inline'")];
    let page = Router::new().route("/", get((policy, Html(include_str!("axum_sse.html")))));
    let listener = listen(([127, 0, 0, 1], 0).into())?;
    println!("http://{}", listener.local_addr()?);
    let server = ChatServer::new(Agent::new(model)).with_routes(page);
    server.serve(listener, Duration::ZERO).await;
    Ok(())
}
