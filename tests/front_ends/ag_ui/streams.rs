//! Every kind of run, encoded as AG-UI events.

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::provider::{Reply, Scripted};
use turnstream::ui::ag_ui::{AgUi, RunRequest};
use turnstream::ui::{ClientLimits, ErrorTexts};
use turnstream::{Agent, Error, ErrorKind};

use super::grammar;
use crate::{body_text, run_with_a_retried_turn, runs_that_end_inside_a_call};
use turnstream_testing::conversations::{Events, conversations};

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

/// The events of a run, and their types.
async fn events_and_types(run: Events) -> (Vec<Value>, Vec<String>) {
    let body = body_of(run, &first_request()).await;
    assert_eq!(grammar::check(&body), Ok(()), "{body}");
    let events = grammar::events(&body).unwrap().into_iter().map(Value::Object);
    let events: Vec<Value> = events.collect();
    let types = events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    (events, types)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_inside_a_call_closes_everything_that_it_opened() {
    for run in runs_that_end_inside_a_call().await {
        let (_, types) = events_and_types(run).await;
        for kind in ["TEXT_MESSAGE", "REASONING_MESSAGE", "REASONING", "TOOL_CALL"] {
            let count =
                |end: &str| types.iter().filter(|it| **it == format!("{kind}_{end}")).count();
            assert!(count("START") > 0, "{types:?}");
            assert_eq!(count("START"), count("END"), "{kind}: {types:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_ends_with_one_error_and_nothing_after_it() {
    let error = |kind| Error::new(kind, "no");
    for reply in [
        Reply::error(error(ErrorKind::Auth)),
        Reply::text("Some words").fail(error(ErrorKind::InvalidRequest)),
    ] {
        let run = Agent::new(Scripted::new([reply])).run("Go").collect().await;
        let (events, types) = events_and_types(run).await;
        assert_eq!(types.iter().filter(|it| *it == "RUN_ERROR").count(), 1, "{types:?}");
        assert_eq!(types.last().unwrap(), "RUN_ERROR");
        assert!(!types.iter().any(|it| it == "RUN_FINISHED"), "{types:?}");
        assert!(events.last().unwrap()["message"].is_string());
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_retried_turn_is_replaced() {
    let (events, types) = events_and_types(run_with_a_retried_turn().await).await;
    let snapshot = types.iter().rposition(|it| it == "MESSAGES_SNAPSHOT").unwrap();
    assert!(!events[snapshot]["messages"].to_string().contains("Hello wo"));
    let later = events[snapshot..].iter().filter(|it| it["type"] == "TEXT_MESSAGE_CONTENT");
    let text: String = later.map(|it| it["delta"].as_str().unwrap()).collect();
    assert_eq!(text, "Hello world");
}
