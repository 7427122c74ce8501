//! Runs as front ends see them: every kind of run, encoded for each protocol.
//!
//! The ignored tests pass the encoded streams to the real clients; `tests/front_ends/run.sh`
//! installs the clients and runs those tests.

#![cfg(feature = "http")]

mod ag_ui;
mod ai_sdk;
mod clients;
mod conversations;
mod disconnects;
mod growing_values;
mod mutations;

use futures::{StreamExt, TryStreamExt};
use turnstream::provider::{Reply, Scripted};
use turnstream::turn::TurnEvent;
use turnstream::ui::{Response, ResponseBody};
use turnstream::{Agent, Error, Event};

use turnstream_testing::conversations::Events;

/// Reads a body to its end.
async fn body_text<S>(response: Response<ResponseBody<S>>) -> String
where
    S: futures::Stream<Item = Result<Event, Error>>,
{
    let body: Vec<_> = response.body.try_collect().await.unwrap();
    String::from_utf8(body.concat()).unwrap()
}

/// Runs that end while the arguments of a call are streamed: one that is cut off, and one that is
/// interrupted.
async fn runs_that_end_inside_a_call() -> [Events; 2] {
    let begun = || Reply::new().think("Hm.").say("Let me").call_unfinished("c1", "w", "{\"p\":\"a");
    let cut = Agent::new(Scripted::new([begun().disconnect(), begun().disconnect()]))
        .run("Go")
        .collect()
        .await;
    let mut run = Agent::new(Scripted::new([begun().hang()])).run("Go");
    let mut interrupted = Vec::new();
    while let Some(event) = run.next().await {
        if let Ok(Event::Turn(TurnEvent::ToolCallArgsDelta { .. })) = &event {
            run.interrupt();
        }
        interrupted.push(event);
    }
    [cut, interrupted]
}

/// A run whose first turn breaks off after some text, and is requested again.
async fn run_with_a_retried_turn() -> Events {
    let model = Scripted::new([
        Reply::new().think("First.").say("Hello wo").disconnect(),
        Reply::new().think("Second.").say("Hello world"),
    ]);
    Agent::new(model).run("Go").collect().await
}
