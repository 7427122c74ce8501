//! Every kind of run, encoded as AG-UI events.

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::ui::ag_ui::{AgUi, RunRequest};
use turnstream::ui::{ClientLimits, ErrorTexts};

use super::grammar;
use crate::body_text;
use crate::support::conversations::{Events, conversations};

/// The first request of a conversation.
pub(super) fn first_request() -> Value {
    json!({
        "threadId": "c", "runId": "r1",
        "messages": [{ "id": "u1", "role": "user", "content": "Go" }],
    })
}

/// The response body for a request.
pub(super) async fn body_of(run: Events, request: &Value) -> String {
    let limits = ClientLimits::default();
    let request = request.to_string();
    let request = RunRequest::parse(Some("application/json"), request.as_bytes(), &limits).unwrap();
    let stream = AgUi::new(&request).with_error_texts(ErrorTexts::shown());
    body_text(stream.respond(stream::iter(run))).await
}

#[tokio::test(start_paused = true)]
async fn every_run_encodes_to_a_valid_stream() {
    let mut count = 0;
    for conversation in conversations().await {
        for (at, run) in conversation.runs.iter().enumerate() {
            for length in 0..=run.len() {
                let body = body_of(run[..length].to_vec(), &first_request()).await;
                if let Err(why) = grammar::check(&body) {
                    let name = conversation.name;
                    panic!("{name}, run {at} of {length} events: {why}\n{body}");
                }
                count += 1;
            }
        }
    }
    println!("{count} streams are valid");
    assert!(count > 300);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_stream_still_encodes_validly() {
    let all = conversations().await;
    let conversation = all.into_iter().find(|it| it.name == "one tool").unwrap();
    let request = first_request().to_string();
    let request = request.as_bytes();
    let request =
        RunRequest::parse(Some("application/json"), request, &ClientLimits::default()).unwrap();
    for length in 0..conversation.runs[0].len() {
        let events = conversation.runs[0][..length].to_vec();
        let panics = stream::once(async { panic!("the stream is broken") });
        let body = body_text(AgUi::new(&request).respond(stream::iter(events).chain(panics))).await;
        assert_eq!(grammar::check(&body), Ok(()), "{length}: {body}");
        assert!(body.contains("RUN_ERROR") && !body.contains("broken"), "{body}");
    }
}
