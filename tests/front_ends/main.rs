//! Runs as front ends see them: every kind of run, encoded for each protocol.
//!
//! The ignored tests pass the encoded streams to the real clients; `tests/front_ends/run.sh`
//! installs the clients and runs those tests.

#![cfg(all(feature = "ui", feature = "http"))]

#[path = "../support/mod.rs"]
mod support;

mod ag_ui;
mod ai_sdk;
mod clients;
mod conversations;
mod disconnects;
mod mutations;

use futures::TryStreamExt;
use turnstream::ui::{Response, ResponseBody};
use turnstream::{Error, Event};

/// Reads a body to its end.
async fn body_text<S>(response: Response<ResponseBody<S>>) -> String
where
    S: futures::Stream<Item = Result<Event, Error>>,
{
    let body: Vec<_> = response.body.try_collect().await.unwrap();
    String::from_utf8(body.concat()).unwrap()
}
