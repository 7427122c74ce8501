//! A web server that streams a run to a browser. Closing the page stops the run, its tools and the
//! request to its model.
//!
//! ```text
//! cargo run --example axum_sse
//! ```

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{Html, Response};
use axum::routing::get;
use serde::Deserialize;
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream::ui::sse::Sse;

const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><title>turnstream</title>
<form><input name="text" placeholder="Say something" autofocus></form><pre id="answer"></pre>
<script>
document.forms[0].onsubmit = (submitted) => {
  submitted.preventDefault();
  answer.textContent = '';
  const events = new EventSource('/events?' + new URLSearchParams(new FormData(document.forms[0])));
  events.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (event.type === 'text_delta') answer.textContent += event.text;
  };
  events.addEventListener('end', () => events.close());
  events.onerror = () => events.close(); // Another connection would start another run.
};
</script>"#;

#[derive(Deserialize)]
struct Question {
    text: String,
}

async fn events(State(agent): State<Agent>, Query(question): Query<Question>) -> Response {
    let response = Sse::new().respond(agent.run(question.text));
    let mut builder = Response::builder().status(response.status);
    for (name, value) in response.headers {
        builder = builder.header(name, value);
    }
    builder.body(Body::from_stream(response.body)).expect("the headers are valid")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    // With a key: `turnstream::provider::from_model_name("claude-sonnet-4-5")`.
    let words = ["This ", "answer ", "is ", "scripted, ", "the ", "stream ", "is ", "real."];
    let word = |reply: Reply, word: &&str| reply.say(word).delay(Duration::from_millis(300));
    let model = Scripted::from_fn(move |_, _| words.iter().fold(Reply::new(), word));
    let app = Router::new().route("/", get(Html(PAGE))).route("/events", get(events));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app.with_state(Agent::new(model))).await
}
