//! Values that are sent while the model writes them, in each protocol.

use std::time::Duration;

use futures::TryStreamExt;
use serde_json::{Value, json};
use turnstream::Agent;
use turnstream::agent::Run;
use turnstream::hub::Hub;
use turnstream::partial::PartialValues;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{ToolOutput, Verdict};
use turnstream::ui::ClientLimits;
use turnstream::ui::ag_ui::{AgUi, RunRequest};
use turnstream::ui::ai_sdk::{AiSdk, Version};
use turnstream::ui::sse::Sse;

use crate::clients::Clients;
use crate::{ag_ui, ai_sdk, body_text};

const VERSIONS: [Version; 3] = [Version::V5, Version::V6, Version::V7];

/// A run whose first answer breaks off and is retracted. All pieces of an answer arrive apart.
fn retracted_run() -> Run {
    let pause = Duration::from_secs(1);
    let reply = Reply::text(r#"{"title":"Old"#).delay(pause).retract("the connection was lost");
    let pieces = [r#"{"title":"Fjo"#, r#"rds","stars":"#, "4", r#",""#, r#"done":true}"#];
    let reply = pieces.iter().fold(reply, |reply, piece| reply.delay(pause).say(piece));
    Agent::new(Scripted::new([reply])).run("Go")
}

/// A run that calls a client's tool, whose arguments arrive in two pieces.
fn run_with_a_call() -> Run {
    let model = Scripted::new([Reply::new().call_raw("c/1", "ask", r#"{"question":"Why?"}"#)]);
    let ask = turnstream::Tool::external(turnstream_test_support::tools::spec("ask")).unwrap();
    Agent::new(model).with_tools([ask]).run("Go")
}

fn answers() -> PartialValues<Value> {
    PartialValues::untyped_answer(&true.into())
}

fn calls() -> PartialValues<Value> {
    PartialValues::untyped_calls("ask", &true.into())
}

fn value(state: &str, value: &Value) -> Value {
    json!({ "state": state, "value": value })
}

/// The states of the value of [`retracted_run`].
fn states() -> Vec<Value> {
    vec![
        value("growing", &json!({ "title": "Old" })),
        json!({ "state": "retracted" }),
        value("growing", &json!({ "title": "Fjo" })),
        value("growing", &json!({ "title": "Fjords" })),
        value("growing", &json!({ "title": "Fjords", "stars": 4 })),
        value("complete", &json!({ "title": "Fjords", "stars": 4, "done": true })),
    ]
}

fn first_request() -> RunRequest {
    let body = json!({
        "threadId": "c", "runId": "r1", "state": { "own": 1 },
        "messages": [{ "id": "u1", "role": "user", "content": "Go" }],
    });
    let body = body.to_string();
    RunRequest::parse(Some("application/json"), body.as_bytes(), &ClientLimits::default()).unwrap()
}

fn data(body: &str) -> Vec<Value> {
    let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_ai_sdk_gets_each_value_as_a_part_that_is_replaced() {
    for version in VERSIONS {
        let body =
            body_text(AiSdk::new(version).with_partials(answers()).respond(retracted_run())).await;
        ai_sdk::grammar::check(&body, version, &[]).unwrap();
        let parts: Vec<Value> =
            data(&body).into_iter().filter(|it| it["type"] == "data-partial").collect();
        let sent: Vec<Value> = parts.iter().map(|part| part["data"].clone()).collect();
        assert_eq!(sent, states(), "{version:?}");
        let ids: Vec<_> = parts.iter().map(|part| part["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["answer-1", "answer-1", "answer-2", "answer-2", "answer-2", "answer-2"]);

        let body =
            body_text(AiSdk::new(version).with_partials(calls()).respond(run_with_a_call())).await;
        let expected = json!({
            "type": "data-partial", "id": "call-c/1",
            "data": { "toolCallId": "c/1", "state": "complete", "value": { "question": "Why?" } },
        });
        assert!(data(&body).contains(&expected), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_continued_message_keeps_the_values_of_the_run_that_it_continues() {
    let reply = || Reply::text(r#"{"draft":1}"#).call_raw("c1", "ask", "{}");
    let model = Scripted::new([reply(), Reply::text(r#"{"draft":2}"#), reply()]);
    let ask = turnstream::Tool::external(turnstream_test_support::tools::spec("ask")).unwrap();
    let agent = Agent::new(model).with_tools([ask]);
    let ids = async |sdk: AiSdk, run: Run| -> Vec<String> {
        let body = body_text(sdk.with_partials(answers()).respond(run)).await;
        let parts = data(&body).into_iter().filter(|it| it["type"] == "data-partial");
        parts.map(|part| part["id"].as_str().unwrap().to_owned()).collect()
    };
    let outcome = agent.run("Go").outcome().await;
    let answer = [(outcome.pending[0].clone(), Verdict::Output(ToolOutput::ok("yes")))];
    let second = agent.resume(outcome.history, answer).unwrap();
    let continued = AiSdk::default().continue_message("m");
    assert_eq!(ids(continued, second).await, ["answer-c1-1"]);
    assert_eq!(ids(AiSdk::default(), agent.run("And?")).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn ag_ui_gets_the_values_in_the_shared_state_beside_the_clients_own() {
    let stream = AgUi::new(&first_request()).with_partials(answers());
    let body = body_text(stream.respond(retracted_run())).await;
    ag_ui::grammar::check(&body).unwrap();
    let sent: Vec<Value> = data(&body)
        .into_iter()
        .filter(|it| it["type"].as_str().unwrap().starts_with("STATE_"))
        .collect();
    let mut expected = states();
    let first = json!({
        "type": "STATE_SNAPSHOT",
        "snapshot": { "own": 1, "partials": { "answer-1": expected.remove(0) } },
    });
    assert_eq!(sent[0], first);
    for (at, (sent, value)) in sent[1..].iter().zip(&expected).enumerate() {
        let path = if at == 0 { "/partials/answer-1" } else { "/partials/answer-2" };
        let delta = json!([{ "op": "add", "path": path, "value": value }]);
        assert_eq!(*sent, json!({ "type": "STATE_DELTA", "delta": delta }));
    }
    assert_eq!(sent.len(), 1 + expected.len());

    let stream = AgUi::new(&first_request()).with_partials(calls());
    let body = body_text(stream.respond(run_with_a_call())).await;
    assert!(body.contains(r#""partials":{"call-c/1":{"toolCallId":"c/1","#), "{body}");
}

#[tokio::test(start_paused = true)]
async fn server_sent_events_carry_values_as_events_of_their_own_type() {
    let partials = |body: &str| -> Vec<Value> {
        let frames = body.split("\n\n").filter_map(|it| it.strip_prefix("event: partial\n"));
        frames.flat_map(data).collect()
    };
    let body = body_text(Sse::new().with_partials(answers()).respond(retracted_run())).await;
    assert_eq!(partials(&body), states());
    assert!(body.ends_with("event: end\ndata: {\"finished\":true}\n\n"));

    let hub = Hub::new();
    let owner = hub.start("chat", retracted_run()).await.unwrap();
    let response = Sse::new().with_partials(answers()).respond_to_reader(owner.read());
    let body: Vec<_> = response.body.try_collect().await.unwrap();
    assert_eq!(partials(&String::from_utf8(body.concat()).unwrap()), states());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_unless_the_setting_is_on() {
    let request = first_request();
    for body in [
        body_text(AiSdk::default().respond(retracted_run())).await,
        body_text(AgUi::new(&request).respond(retracted_run())).await,
        body_text(Sse::new().respond(retracted_run())).await,
    ] {
        for mark in ["data-partial", "event: partial", "STATE_"] {
            assert!(!body.contains(mark), "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_values_of_a_long_answer_are_at_most_nine_times_as_long_as_its_text() {
    let pause = Duration::from_secs(1);
    let words = "fjord ".repeat(2_000);
    let words: Vec<&str> = words.split_inclusive(' ').collect();
    let begun = Reply::text(r#"{"text":""#);
    let reply = words.iter().fold(begun, |reply, word| reply.delay(pause).say(word));
    let run = Agent::new(Scripted::new([reply.say("\"}")])).run("Go");
    let body = body_text(Sse::new().with_partials(answers()).respond(run)).await;
    let frames: Vec<&str> =
        body.split("\n\n").filter(|it| it.starts_with("event: partial\n")).collect();
    let sent: usize = frames.iter().map(|frame| frame.len()).sum();
    println!("{} values with {sent} bytes for a text of 12,000 bytes", frames.len());
    assert!(frames.len() > 30 && sent < 10 * 12_000, "{} values, {sent} bytes", frames.len());
}

#[tokio::test(start_paused = true)]
async fn a_value_is_ended_before_the_end_of_a_stream_that_breaks_off() {
    let broken = || {
        let delta = turnstream::TurnEvent::TextDelta { index: 0, text: "{\"a\":\"x".into() };
        let events = futures::stream::iter([Ok(delta.into())]);
        let mut waits = 3;
        let wait = futures::stream::poll_fn(move |cx| {
            waits -= 1;
            cx.waker().wake_by_ref();
            match waits {
                0 => std::task::Poll::Ready(None),
                _ => std::task::Poll::Pending,
            }
        });
        futures::StreamExt::chain(events, wait)
    };
    for body in [
        body_text(AiSdk::default().with_partials(answers()).respond(broken())).await,
        body_text(AgUi::new(&first_request()).with_partials(answers()).respond(broken())).await,
        body_text(Sse::new().with_partials(answers()).respond(broken())).await,
    ] {
        let grown = body.find(r#""state":"growing""#).unwrap();
        let failed = body.find(r#""state":"failed""#).unwrap();
        let end = ["\"type\":\"error\"", "RUN_ERROR", "event: end"];
        let end = end.iter().find_map(|end| body.find(end)).unwrap();
        assert!(grown < failed && failed < end, "{body}");
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn the_clients_show_the_last_state_of_each_value() {
    let mut clients = Clients::start();
    let complete = states().pop().unwrap();
    for version in VERSIONS {
        let body =
            body_text(AiSdk::new(version).with_partials(answers()).respond(retracted_run())).await;
        let readers: &[&str] = match version {
            Version::V5 => &["ai5_0_0", "ai5", "ai6", "ai7"],
            Version::V7 => &["ai7"],
            _ => &["ai6_0_0", "ai6", "ai7"],
        };
        for client in readers {
            let answer = clients.read(client, &body, None);
            assert_eq!(answer["ok"], true, "{client}: {answer}");
            let parts = answer["message"]["parts"].as_array().unwrap();
            let parts = parts.iter().filter(|part| part["type"] == "data-partial");
            let parts: Vec<_> = parts.map(|part| (&part["id"], &part["data"])).collect();
            let retracted = json!({ "state": "retracted" });
            // A version 7 client removes the parts of the retracted turn.
            let mut expected = vec![(json!("answer-2"), complete.clone())];
            if version < Version::V7 {
                expected.insert(0, (json!("answer-1"), retracted));
            }
            let expected: Vec<_> = expected.iter().map(|(id, data)| (id, data)).collect();
            assert_eq!(parts, expected, "{client} reads {version:?}");
        }
    }
    let stream = AgUi::new(&first_request()).with_partials(answers());
    let body = body_text(stream.respond(retracted_run())).await;
    let input = json!({ "threadId": "c", "runId": "r1", "messages": [], "state": { "own": 1 } });
    let read = json!({ "do": "read", "client": "ag_ui", "input": input, "body": body });
    let answer = clients.ask(read);
    assert_eq!(answer["ok"], true, "{answer}");
    let partials = json!({ "answer-1": { "state": "retracted" }, "answer-2": complete });
    assert_eq!(answer["state"], json!({ "own": 1, "partials": partials }));
}
