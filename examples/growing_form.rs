//! A web page with a form of ten fields, which is filled in while the model writes its answer.
//!
//! The server sends the value so far as events of the type `partial`. The page sets the fields
//! that have arrived: a text grows, while a number or a choice appears once it is complete.
//!
//! ```text
//! cargo run --example growing_form
//! ```

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{Html, Response};
use axum::routing::get;
use serde::Deserialize;
use turnstream::Agent;
use turnstream::partial::PartialValues;
use turnstream::provider::{Reply, Scripted};
use turnstream::request::OutputSchema;
use turnstream::ui::sse::Sse;

const PAGE: &str = r#"<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<title>A form that grows</title>
<style>
body { font: 16px system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem }
label { display: grid; grid-template-columns: 8rem 1fr; align-items: center; margin: .4rem 0 }
input, textarea { font: inherit; padding: .35rem; border: 1px solid #999; border-radius: .3rem }
textarea { height: 3.5rem; resize: none }
#shown { color: #555; min-height: 1.5rem }
form[data-state=complete] input, form[data-state=complete] textarea { border-color: #2a7d46 }
form[data-state=failed], form[data-state=retracted] { opacity: .5 }
</style>
<h1>A table for tonight</h1><p>The words are scripted; the stream is real.</p>
<button id="start">Fill in</button><p id="shown" role="status"></p>
<form id="form"></form>
<script>
const names = ['title', 'occasion', 'guests', 'date', 'city', 'street', 'contact', 'vegetarian',
  'wishes', 'notes'];
for (const name of names) {
  const label = document.createElement('label');
  const field = document.createElement(name === 'notes' ? 'textarea' : 'input');
  label.append(name, Object.assign(field, { name, readOnly: true }));
  form.append(label);
}
const show = (state, value = {}) => {
  form.dataset.state = shown.textContent = state;
  for (const name of names) {
    const field = value[name] ?? '';
    form.elements[name].value = Array.isArray(field) ? field.join(', ') : field;
  }
};
start.onclick = () => {
  show('waiting');
  const events = new EventSource('/events?text=' + encodeURIComponent('A table for tonight'));
  events.addEventListener('partial', ({ data }) => {
    const { state, value } = JSON.parse(data);
    show(state, value);
  });
  events.addEventListener('end', () => events.close());
  events.onerror = () => events.close(); // Another connection would start another run.
};
</script></html>"#;

/// The complete form. The model must fill in all of it.
#[derive(Deserialize, schemars::JsonSchema)]
#[expect(dead_code, reason = "the page shows the fields")]
struct Booking {
    title: String,
    occasion: Occasion,
    guests: u8,
    date: String,
    city: String,
    street: String,
    contact: String,
    vegetarian: bool,
    wishes: Vec<String>,
    notes: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
enum Occasion {
    Birthday,
    Business,
}

#[derive(Deserialize)]
struct Question {
    text: String,
}

async fn events(State(agent): State<Agent>, Query(question): Query<Question>) -> Response {
    let answer = PartialValues::untyped_answer(&OutputSchema::for_type::<Booking>().schema);
    let response = Sse::new().with_partials(answer).respond(agent.run(question.text));
    let mut builder = Response::builder().status(response.status);
    for (name, value) in response.headers {
        builder = builder.header(name, value);
    }
    builder.body(Body::from_stream(response.body)).expect("the headers are valid")
}

/// An answer whose words arrive one at a time.
fn scripted_answer() -> Reply {
    let answer = r#"{ "title": "Dinner with the whole family", "occasion": "Birthday",
        "guests": 12, "date": "the last Friday of November", "city": "Oslo",
        "street": "Tollbugata 24, on the second floor", "contact": "Kari, who has the key",
        "vegetarian": true, "wishes": ["a quiet corner", "candles", "a cake with one candle"],
        "notes": "Please keep the cake a secret until the coffee is on the table." }"#;
    let pause = Duration::from_millis(120);
    answer
        .split_inclusive(' ')
        .filter(|word| !word.trim().is_empty())
        .fold(Reply::new(), |reply, word| reply.say(word).delay(pause))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    // With a key: `turnstream::provider::from_model_name("claude-sonnet-4-5")`.
    let model = Scripted::from_fn(|_, _| scripted_answer());
    let agent = Agent::new(model).with_output::<Booking>();
    let app = Router::new().route("/", get(Html(PAGE))).route("/events", get(events));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app.with_state(agent)).await
}
