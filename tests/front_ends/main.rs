//! Runs as front ends see them: every kind of run, encoded for each protocol.
//!
//! The clients themselves read what is encoded in the tests that are ignored; `tests/front_ends/run.sh`
//! installs them and runs those.

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
