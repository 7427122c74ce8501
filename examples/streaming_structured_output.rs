//! Structured output that is used while it streams, in two ways.
//!
//! A list is streamed as one object per line: each object is available as soon as its line is
//! complete, long before the turn is. A single value grows: each version contains everything that
//! has arrived, and its type must accept absent fields.
//!
//! ```text
//! cargo run --example streaming_structured_output
//! ```

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use turnstream::env::SystemIds;
use turnstream::partial::{EventOrPartial, PartialState, PartialValues};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::JsonLine;
use turnstream::{Error, Event, EventStreamExt, History, Item, Request, TurnStreamExt};

#[derive(Debug, serde::Deserialize)]
struct City {
    name: String,
    people: u32,
}

/// A form that is shown while it is filled in.
#[derive(Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
#[serde(default)]
struct Summary {
    largest: Option<String>,
    /// It appears once the number is complete.
    people: Option<u32>,
    districts: Vec<String>,
}

/// Its lines arrive in pieces, one of them is not a city, and the model starts over once.
fn scripted_model() -> Scripted {
    let first = "{ \"name\": \"Atlantis\", \"people\": 0 }\n";
    let list = "Here they are:\n{ \"name\": \"Oslo\", \"people\": 717710 }\n\
                { \"name\": \"Bergen\", \"people\": 291940 }\n\
                { \"name\": \"Trondheim\", \"people\": 214565 }";
    Scripted::new([Reply::text(first).retract("the connection was lost").say(list), form_reply()])
}

/// The form arrives in five pieces.
fn form_reply() -> Reply {
    let pieces = [r#""Oslo", "people": 71"#, "7710, ", r#""districts": ["Frog"#, r#"ner"] }"#];
    let pause = Duration::from_millis(100);
    let begin = Reply::text(r#"{ "largest": "#);
    pieces.iter().fold(begin, |reply, piece| reply.delay(pause).say(piece))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("The model's words are scripted; the parsing is real.");
    let model = scripted_model();
    let mut history = History::new(&SystemIds);
    history.push(Item::user("List cities of Norway: `name` and `people`, one JSON object a line."));

    // `lines` consumes the events; to keep the turn as well, inspect the events before it.
    let (mut complete, mut cities) = (None, Vec::<City>::new());
    {
        let turn = model.stream_turn(Request::new(history.clone()));
        let turn = turn.inspect_ok(|event| {
            complete = event.turn_complete().cloned();
        });
        let mut lines = turn.json_lines::<City>();
        while let Some(line) = lines.try_next().await? {
            match line {
                JsonLine::Object(city) => {
                    println!("{} has {} people", city.name, city.people);
                    cities.push(city);
                }
                JsonLine::Invalid(error) => println!("skipped: {error}"),
                JsonLine::Retracted => {
                    println!("discarded: {} city", cities.len());
                    cities.clear();
                }
            }
        }
    }
    let Some(turn) = complete else { return Ok(()) };
    println!("{} cities are left, in {} item of the turn", cities.len(), turn.items().len());

    history.extend(turn.to_history_items());
    let question = "Which is the largest? Answer with JSON: `largest`, `people`, `districts`.";
    history.push(Item::user(question));
    let turn = model.stream_turn(Request::new(history));
    let summary = show_form(turn.map_ok(Event::from)).await?;
    let largest = cities.iter().max_by_key(|city| city.people).map(|city| &city.name);
    let is_right = largest == summary.largest.as_ref();
    let districts = summary.districts.join(", ");
    println!("the largest is {}: {is_right}", summary.largest.unwrap_or_default());
    println!("one of its districts: {districts}");
    Ok(())
}

/// Shows a form while it grows, and returns the complete one. An agent's run has such events, too.
async fn show_form(events: impl Stream<Item = Result<Event, Error>>) -> Result<Summary, Error> {
    let mut form = Summary::default();
    let mut steps = pin!(events.with_partials(PartialValues::<Summary>::of_answer()?));
    while let Some(step) = steps.try_next().await? {
        // All other events are yielded as well, for example to show the model's reasoning.
        let EventOrPartial::Partial(partial) = step else { continue };
        match partial.state {
            PartialState::Growing(grown) => {
                println!("form: {:?} {:?} {:?}", grown.largest, grown.people, grown.districts);
            }
            PartialState::Complete(complete) => form = complete,
            PartialState::Retracted => println!("discarded: the form"),
            PartialState::Failed(error) => return Err(error.into()),
        }
    }
    Ok(form)
}
