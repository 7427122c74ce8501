//! Over HTTP, against the loopback server.

use futures::StreamExt;
use std::time::Duration;

use serde_json::json;
use turnstream::event::EndReason;
use turnstream::http::HttpClient;
use turnstream::provider::anthropic::Dialect;
use turnstream::provider::{Anthropic, Provider, Reply};
use turnstream::stream::TurnStreamExt;
use turnstream::tool::{Tool, ToolSpec};
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, History, Item, Request};
use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};
use turnstream_testing::{Answer, ModelServer};

use super::fixture::{
    MESSAGE_START, MESSAGE_STOP, content_block_delta, content_block_start, content_block_stop,
    message_delta, sse_body,
};

fn model(server: &ModelServer) -> Anthropic {
    Anthropic::new("m")
        .with_api_key("sk-ant-secret-key")
        .with_base_url(server.url())
        .unwrap()
        .with_http_client(HttpClient::without_proxy())
        .without_retries()
}

fn add_tool() -> Tool {
    let spec = ToolSpec::new(
        "add",
        "Adds",
        json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
            "required": ["a", "b"],
        }),
    );
    Tool::raw(spec, |args, _cx| async move {
        args["a"].as_i64().unwrap_or(0) + args["b"].as_i64().unwrap_or(0)
    })
    .unwrap()
}

fn request() -> Request {
    Request::new(History::from_items("h", [Item::user("hi")]))
}

#[tokio::test]
async fn a_tool_loop_over_http_reuses_one_connection() {
    let server = ModelServer::anthropic(|_, n| match n {
        0 => Reply::new()
            .think("Sums.")
            .sign("c2NyaXB0ZWQ=")
            .say("Two sums.")
            .call("add", json!({ "a": 1, "b": 2 }))
            .call("add", json!({ "a": 3, "b": 4 })),
        _ => Reply::text("3 and 7."),
    })
    .await
    .unwrap();
    let outcome = Agent::new(model(&server)).with_tools([add_tool()]).run("sum up").outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "3 and 7."));
    assert_eq!(server.http_server().connection_count(), 1);
    let second = &server.requests()[1];
    assert_eq!(
        second["messages"],
        json!([
            { "role": "user", "content": [{ "type": "text", "text": "sum up" }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "Sums.", "signature": "c2NyaXB0ZWQ=" },
                { "type": "text", "text": "Two sums." },
                { "type": "tool_use", "id": "toolu_0000_2", "name": "add", "input": { "a": 1, "b": 2 } },
                { "type": "tool_use", "id": "toolu_0000_3", "name": "add", "input": { "a": 3, "b": 4 } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_0000_2",
                  "content": [{ "type": "text", "text": "3" }] },
                { "type": "tool_result", "tool_use_id": "toolu_0000_3",
                  "content": [{ "type": "text", "text": "7" }],
                  "cache_control": { "type": "ephemeral" } },
            ] },
        ])
    );
    let headers = &server.http_server().requests()[0];
    assert_eq!(headers.header("x-api-key"), Some("sk-ant-secret-key"));
    assert_eq!(headers.header("anthropic-version"), Some("2023-06-01"));
}

#[tokio::test]
async fn betas_are_joined_in_one_header() {
    let server = ModelServer::anthropic(|_, _| "hi").await.unwrap();
    let model = model(&server).with_beta("compact-2026-01-12").with_beta("files-api-2025-04-14");
    model.stream_turn(request()).into_turn().await.unwrap();
    let header = server.http_server().requests()[0].header("anthropic-beta").map(str::to_owned);
    assert_eq!(header.as_deref(), Some("compact-2026-01-12,files-api-2025-04-14"));
}

#[tokio::test]
async fn a_beta_invalid_in_a_header_is_an_error_of_the_turn() {
    let server = ModelServer::anthropic(|_, _| "hi").await.unwrap();
    let turn = model(&server).with_beta("a\nb").stream_turn(request()).into_turn().await;
    assert_eq!(turn.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

async fn reply_error(reply: fn() -> Reply) -> Error {
    let server = ModelServer::anthropic(move |_, _| reply()).await.unwrap();
    let error = model(&server).stream_turn(request()).into_turn().await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("secret"), "{shown}");
    error
}

#[tokio::test]
async fn an_error_status_has_its_kind_and_details() {
    let error = reply_error(|| {
        let wait = std::time::Duration::from_secs(7);
        let error = Error::new(ErrorKind::RateLimited, "slow down").with_status(429);
        Reply::error(error.with_retry_after(wait))
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.status(), Some(429));
    assert_eq!(error.retry_after().unwrap().as_secs(), 7);
    assert_eq!(error.request_id(), Some("req_refused"));
}

#[tokio::test]
async fn an_html_error_page_is_classified_by_its_status() {
    async fn check(
        status: u16,
        kind: &str,
        body: &'static str,
        expected: &str,
        wait: Option<Duration>,
    ) {
        let kind = kind.to_owned();
        let server = LoopbackServer::start(move |_| HttpResponse {
            status,
            headers: vec![
                ("content-type".into(), kind.clone()),
                ("retry-after".into(), "3".into()),
            ],
            body: vec![BodyPart::Bytes(body.into())],
        });
        let server = server.await.unwrap();
        let model = Anthropic::new("m").with_base_url(server.url()).unwrap().without_retries();
        let model = model.with_http_client(HttpClient::without_proxy());
        let error = model.stream_turn(request()).into_turn().await.unwrap_err();
        assert_eq!(error.status(), Some(status));
        assert_eq!(error.retry_after(), wait);
        assert!(error.message().contains(expected) && !error.message().contains('<'), "{error}");
    }
    check(502, "text/html", "<html>Bad gateway</html>", "502", Some(Duration::from_secs(3))).await;
    let too_large = r#"{"type":"error","error":{"type":"request_too_large","message":"32 MB"}}"#;
    // Waiting does not make the request smaller.
    check(413, "application/json", too_large, "32 MB", None).await;
}

#[tokio::test]
async fn an_echoed_key_is_masked() {
    let error = reply_error(|| {
        let message = "bad key sk-ant-secret-key";
        Reply::error(Error::new(ErrorKind::Auth, message).with_status(401))
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.message().ends_with("bad key …"), "{error}");
}

#[tokio::test]
async fn an_error_in_the_stream_has_its_kind() {
    let error =
        reply_error(|| Reply::text("Hel").fail(Error::new(ErrorKind::Overloaded, "busy"))).await;
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(error.request_id(), Some("req_0000"));
}

#[tokio::test]
async fn a_truncated_stream_is_an_incomplete_turn_with_partial_output() {
    let error = reply_error(|| Reply::text("Half a sentence").disconnect()).await;
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(
        error.find_source::<turnstream::turn::PartialTurn>().unwrap().text(),
        "Half a sentence"
    );
}

#[tokio::test]
async fn a_refused_connection_is_reported_on_one_line() {
    let model = Anthropic::new("m").with_base_url("http://127.0.0.1:1").unwrap().without_retries();
    let model = model.with_http_client(HttpClient::without_proxy());
    let error = model.stream_turn(request()).into_turn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.message().starts_with("could not connect to 127.0.0.1:1: "), "{error}");
    assert!(!error.message().contains('\n'));
}

#[tokio::test]
async fn dropping_the_turn_closes_the_connection() {
    let server = ModelServer::anthropic(|_, _| Reply::text("on and on").hang()).await.unwrap();
    let mut turn = model(&server).stream_turn(request());
    turn.next().await.unwrap().unwrap();
    drop(turn);
    server.http_server().wait_for_early_close().await;
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_poll() {
    let server = ModelServer::anthropic(|_, _| "hi").await.unwrap();
    drop(model(&server).stream_turn(request()));
    tokio::task::yield_now().await;
    assert_eq!(server.http_server().connection_count(), 0);
}

#[tokio::test]
async fn every_stop_reason_is_decoded() {
    for reason in [
        StopReason::Stop,
        StopReason::MaxTokens,
        StopReason::Refusal,
        StopReason::Pause,
        StopReason::ContextWindow,
        StopReason::ContentFilter,
        StopReason::Other("novel".into()),
    ] {
        let said = reason.clone();
        let server =
            ModelServer::anthropic(move |_, _| Reply::text("x").stop(said.clone())).await.unwrap();
        let turn = model(&server).stream_turn(request()).into_turn().await.unwrap();
        assert_eq!(turn.stop_reason(), &reason);
    }
}

/// A server that does not sign its thinking, and the second request of a tool loop with it.
async fn second_request_after_thinking(
    frames: &[String],
    configure: fn(Anthropic) -> Anthropic,
) -> serde_json::Value {
    let call = [
        content_block_start(1, r#"{"type":"tool_use","id":"t1","name":"add","input":{}}"#),
        content_block_stop(1),
    ];
    let end = [message_delta("tool_use"), MESSAGE_STOP.to_owned()];
    let first = [&[MESSAGE_START.to_owned()], frames, &call, &end].concat();
    let first = Answer::raw("text/event-stream", sse_body(&first));
    let server = ModelServer::anthropic(move |_, n| match n {
        0 => first.clone(),
        _ => Answer::reply("Done."),
    });
    let server = server.await.unwrap().lenient();
    let agent = Agent::new(configure(model(&server))).with_tools([add_tool()]);
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.text, "Done.", "{:?}", outcome.error);
    server.requests()[1]["messages"][1]["content"].clone()
}

#[tokio::test]
async fn thinking_of_a_server_that_does_not_sign_it_is_sent_back_with_an_empty_signature() {
    let start = content_block_start(0, r#"{"type":"thinking","thinking":"","signature":""}"#);
    let delta = content_block_delta(0, r#"{"type":"thinking_delta","thinking":"plan"}"#);
    let whole = [start.clone(), delta.clone(), content_block_stop(0)];
    let unsigned: fn(Anthropic) -> Anthropic = |model| model.with_dialect(Dialect::Unsigned);
    let sent_back = json!({ "type": "thinking", "thinking": "plan", "signature": "" });
    // At an address other than the vendor's, this is the default.
    for configure in [unsigned, |model| model] {
        let content = second_request_after_thinking(&whole, configure).await;
        assert_eq!(content[0], sent_back, "{content}");
        assert_eq!(content[1]["type"], "tool_use", "{content}");
        // Thinking without its end may be incomplete.
        let cut = second_request_after_thinking(&whole[..2], configure).await;
        assert_eq!(cut[0]["type"], "tool_use", "{cut}");
        let signature = r#"{"type":"signature_delta","signature":"c2ln"}"#;
        let signature = content_block_delta(0, signature);
        let signed = [start.clone(), delta.clone(), signature, content_block_stop(0)];
        let content = second_request_after_thinking(&signed, configure).await;
        assert_eq!(content[0]["signature"], "c2ln", "{content}");
    }
    let signed = |model: Anthropic| model.with_dialect(Dialect::Signed);
    let content = second_request_after_thinking(&whole, signed).await;
    assert_eq!(content[0]["type"], "tool_use", "{content}");
}
