//! An agent without `Agent`: the loop, a provider and a toolkit, put together by hand.
//!
//! ```text
//! cargo run --example loop_by_hand
//! ```

use futures::{Stream, TryStreamExt};
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::{Steps, TurnStreamExt, loop_stream};
use turnstream::tool::{Tool, Toolkit};
use turnstream::{Error, Event, EventStreamExt, History, Item, Journal, Request, env::SystemIds};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct CountArgs {
    /// The word whose letters are counted.
    word: String,
}

/// The whole loop: request a turn, run its calls, continue with the history that has the results.
fn loop_events(
    model: Scripted,
    toolkit: Toolkit,
    start: History,
) -> impl Stream<Item = Result<Event, Error>> {
    loop_stream(start, move |history| {
        let toolkit = toolkit.clone();
        let request = Request::new(history.clone()).with_tools(toolkit.specs());
        model.stream_turn(request).on_turn_complete(async move |turn| {
            Ok(match turn.calls().is_empty() {
                true => Steps::stop(),
                false => toolkit.run(&history, &turn).then_next(|history| history),
            })
        })
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let call = Reply::text("My words are scripted.").call("count", json!({ "word": "stream" }));
    let model = Scripted::new([call, Reply::text("The tool really counted.")]);
    let count = Tool::new("count", "Counts letters", async |it: CountArgs, _cx| it.word.len());
    let mut history = History::new(&SystemIds);
    history.push(Item::user("How many letters does `stream` have?"));
    let journal = Journal::new(history.clone());

    let events = loop_events(model, Toolkit::new([count]), history).journal_to(&journal);
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        match &event {
            Event::Tool(ToolEvent::Started { name, .. }) => println!("\n[{name} runs]"),
            Event::Tool(ToolEvent::Output(it)) => println!("[{}: {}]", it.name, it.content.text()),
            _ => print!("{}", event.text_delta().map_or("", |text| text)),
        }
    }
    println!("\n{} entries are in the history.", journal.history().len());
    Ok(())
}
