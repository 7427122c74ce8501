//! The URLs of requests, against the loopback server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use turnstream::event::EndReason;
use turnstream::http::HttpClient;
use turnstream::provider::ollama::Chat;
use turnstream::provider::{HttpProvider, Ollama, Provider, Reply};
use turnstream::stream::TurnStreamExt;
use turnstream::{Agent, Error, ErrorKind, Item, Turn};
use turnstream_testing::ModelServer;
use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};

use super::{
    DONE_LINE, json_lines_body, request_with_items, text_line, thinking_line, tool_calls_line,
};
use turnstream_test_support::tools::{Counter, ok_tool};

/// A server with these answers, one for each request.
async fn serve_in_order(answers: Vec<(u16, String)>) -> LoopbackServer {
    let asked = AtomicUsize::new(0);
    LoopbackServer::start(move |_| {
        let (status, body) = answers[asked.fetch_add(1, Ordering::Relaxed) % answers.len()].clone();
        HttpResponse {
            status,
            headers: vec![("content-type".into(), "application/x-ndjson".into())],
            body: vec![BodyPart::Bytes(body.into())],
        }
    })
    .await
    .unwrap()
}

fn ollama_at(url: &str) -> Ollama {
    let ollama = Ollama::new("qwen3:8b").with_base_url(url).unwrap();
    ollama.with_http_client(HttpClient::without_proxy()).without_retries()
}

async fn request_turn(model: &Ollama) -> Result<Arc<Turn>, Error> {
    model.stream_turn(request_with_items(vec![Item::user("hi")])).into_turn().await
}

fn request_body(server: &LoopbackServer, at: usize) -> Value {
    serde_json::from_slice(&server.requests()[at].body).unwrap()
}

#[tokio::test]
async fn a_request_goes_to_api_chat_with_its_settings_and_without_a_key() {
    let server =
        serve_in_order(vec![(200, json_lines_body(&[&text_line("hello"), DONE_LINE]))]).await;
    let model =
        ollama_at(&server.url()).with_num_ctx(32_768).with_keep_alive(Duration::from_mins(1));
    assert_eq!(request_turn(&model).await.unwrap().text(), "hello");
    let request = &server.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/api/chat"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(request.header("accept"), Some("application/x-ndjson"));
    let sent = request_body(&server, 0);
    assert_eq!((&sent["options"]["num_ctx"], &sent["keep_alive"]), (&json!(32_768), &json!("60s")));
    let same = HttpProvider::from_wire(*model.wire(), "qwen3:8b");
    let keep_alive = Some(Duration::from_mins(1).into());
    assert_eq!(same.wire(), &Chat { num_ctx: Some(32_768), keep_alive, ..Chat::default() });
}

#[tokio::test]
async fn a_key_is_a_bearer_token_and_a_base_url_keeps_its_path() {
    let server =
        serve_in_order(vec![(200, json_lines_body(&[&text_line("hello"), DONE_LINE]))]).await;
    let model = ollama_at(&format!("{}/ollama/", server.url())).with_api_key("secret-key");
    request_turn(&model).await.unwrap();
    let request = &server.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer secret-key"));
    assert_eq!(request.path, "/ollama/api/chat");
}

#[tokio::test]
async fn an_agent_runs_a_tool_and_sends_back_reasoning_and_result() {
    let call = tool_calls_line(r#"{"function":{"name":"look","arguments":{"x":1}}}"#);
    let first = json_lines_body(&[&thinking_line("I have to look."), &call, DONE_LINE]);
    let second = json_lines_body(&[&text_line("It is fine."), DONE_LINE]);
    let server = serve_in_order(vec![(200, first), (200, second)]).await;
    let ran = Counter::default();
    let agent = Agent::new(ollama_at(&server.url())).with_tools([ok_tool("look", &ran)]);
    let outcome = agent.run("Look.").outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "It is fine."));
    assert_eq!((ran.started_count(), outcome.turns, outcome.usage.input_tokens), (1, 2, 20));
    let (first, second) = (request_body(&server, 0), request_body(&server, 1));
    assert_eq!(first["tools"][0]["function"]["name"], "look");
    let (before, after) =
        (first["messages"].as_array().unwrap(), second["messages"].as_array().unwrap());
    assert!(after.starts_with(before), "{after:?}");
    assert_eq!(
        after[before.len()..],
        [
            json!({ "role": "assistant", "content": "", "thinking": "I have to look.", "tool_calls":
            [{ "id": "call_1_1", "function": { "name": "look", "arguments": { "x": 1 } } }] }),
            json!({ "role": "tool", "content": "fine", "tool_name": "look", "tool_call_id": "call_1_1" }),
        ]
    );
}

#[tokio::test]
async fn an_agent_runs_a_tool_against_a_strict_server_that_gives_calls_no_ids() {
    let server = ModelServer::ollama(|_, n| match n {
        0 => Reply::new().think("I have to look.").call("look", json!({ "x": 1 })),
        _ => Reply::text("It is fine."),
    });
    let server = server.await.unwrap();
    let ran = Counter::default();
    let model = ollama_at(&server.url()).with_num_ctx(32_768);
    let outcome =
        Agent::new(model).with_tools([ok_tool("look", &ran)]).run("Look.").outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "It is fine."));
    assert_eq!((ran.started_count(), outcome.turns), (1, 2));
    let [first, second] = &server.requests()[..] else { panic!("two requests") };
    assert_eq!(
        (first["options"]["num_ctx"].as_u64(), &first["tools"]),
        (Some(32_768), &second["tools"])
    );
    let messages = second["messages"].as_array().unwrap();
    let (called, answered) = (&messages[messages.len() - 2], &messages[messages.len() - 1]);
    assert_eq!(called["thinking"], "I have to look.");
    assert_eq!(called["tool_calls"][0]["function"]["arguments"], json!({ "x": 1 }));
    assert_eq!((&answered["role"], &answered["tool_name"]), (&json!("tool"), &json!("look")));
    assert_eq!(answered["tool_call_id"], called["tool_calls"][0]["id"]);
    assert_eq!(server.violations(), [""; 0]);
}

#[tokio::test]
async fn an_error_in_the_stream_and_a_truncated_body_are_distinguished() {
    let error = r#"{"error":"an error was encountered while running the model"}"#;
    let server = serve_in_order(vec![
        (200, json_lines_body(&[&text_line("Hel"), error])),
        (200, json_lines_body(&[&text_line("Hel")])),
        (404, r#"{"error":"model 'qwen3:8b' not found"}"#.to_owned()),
    ])
    .await;
    let model = ollama_at(&server.url());
    assert_eq!(request_turn(&model).await.unwrap_err().kind(), ErrorKind::Server);
    assert_eq!(request_turn(&model).await.unwrap_err().kind(), ErrorKind::IncompleteTurn);
    let missing = request_turn(&model).await.unwrap_err();
    assert_eq!((missing.kind(), missing.parameter()), (ErrorKind::InvalidRequest, Some("model")));
}

#[tokio::test]
async fn requests_the_wire_cannot_express_are_not_sent() {
    let server = serve_in_order(vec![(200, json_lines_body(&[DONE_LINE]))]).await;
    let mut request = request_with_items(vec![Item::user("hi")]);
    request.options.user = Some("u".into());
    let error = ollama_at(&server.url()).stream_turn(request).into_turn().await.unwrap_err();
    assert_eq!((error.kind(), server.connection_count()), (ErrorKind::Unsupported, 0));
}
