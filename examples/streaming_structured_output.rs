//! Structured output that is used while it streams: each object is available as soon as its line is
//! complete, long before the turn is.
//!
//! Lists are streamed as one object per line. A single value is parsed when the turn is complete,
//! by `Turn::parse`, since an incomplete value does not fit its type.
//!
//! ```text
//! cargo run --example streaming_structured_output
//! ```

use futures::TryStreamExt;
use turnstream::env::SystemIds;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::JsonLine;
use turnstream::{Error, History, Item, Request, TurnStreamExt};

#[derive(Debug, serde::Deserialize)]
struct City {
    name: String,
    people: u32,
}

#[derive(serde::Deserialize)]
struct Summary {
    largest: String,
}

/// Its lines arrive in pieces, one of them is not a city, and the model starts over once.
fn scripted_model() -> Scripted {
    let first = "{ \"name\": \"Atlantis\", \"people\": 0 }\n";
    let list = "Here they are:\n{ \"name\": \"Oslo\", \"people\": 717710 }\n\
                { \"name\": \"Bergen\", \"people\": 291940 }\n\
                { \"name\": \"Trondheim\", \"people\": 214565 }";
    Scripted::new([
        Reply::text(first).retract("the connection was lost").say(list),
        Reply::text(r#"{ "largest": "Oslo" }"#),
    ])
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
    history.push(Item::user("Which is the largest? Answer with JSON: `largest`."));
    let turn = model.stream_turn(Request::new(history)).into_turn().await?;
    let summary: Summary = turn.parse()?;
    let largest = cities.iter().max_by_key(|city| city.people).map(|city| &city.name);
    println!("the largest is {}: {}", summary.largest, largest == Some(&summary.largest));
    Ok(())
}
