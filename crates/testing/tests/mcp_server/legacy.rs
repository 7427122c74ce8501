//! The legacy era over lines.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use turnstream_testing::mcp::{McpEra, McpRequestStatus};

use crate::line_client::{LineClient, soon};
use crate::tools::{
    call, echo, error_code, initialize, modern, notification, request, server, text, wait_for_ever,
};

#[tokio::test(start_paused = true)]
async fn initialize_agrees_on_a_version() {
    for (requested, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let mut client = LineClient::start(server().with_era(McpEra::Legacy));
        let answer = client.ask(initialize(requested)).await;
        assert_eq!(answer["result"]["protocolVersion"], agreed, "{requested}");
        assert!(answer["result"]["serverInfo"]["name"].is_string());
        assert!(answer["result"].get("resultType").is_none(), "a field of the other era");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_before_the_handshake_is_refused() {
    let mut client = LineClient::start(server().with_era(McpEra::Legacy));
    assert_eq!(client.ask(request(1, "ping", json!({}))).await["result"], json!({}));
    let early = client.ask(request(2, "tools/list", json!({}))).await;
    assert_eq!(error_code(&early), -32000);
    client.send(notification("notifications/initialized", json!({}))).await;
    assert_eq!(error_code(&client.ask(request(3, "initialize", json!({}))).await), -32602);
    client.ask(initialize("2025-06-18")).await;
    // The request is accepted, since messages may overtake each other, and the violation is
    // recorded.
    let taken = client.ask(request(4, "tools/list", json!({}))).await;
    assert!(taken["result"]["tools"].is_array(), "{taken}");
    assert_eq!(error_code(&client.ask(initialize("2025-06-18")).await), -32602);
    let expected = [
        "`tools/list` came before `initialize`",
        "`notifications/initialized` came before `initialize`",
        "`initialize` must have protocolVersion, capabilities and clientInfo",
        "`tools/list` came before `notifications/initialized`",
        "`initialize` came twice",
    ];
    assert_eq!(client.handle.violations(), expected);
}

#[tokio::test(start_paused = true)]
async fn tools_are_listed_and_called() {
    let mut client = LineClient::start_legacy(server()).await;
    let list = client.ask(request(1, "tools/list", json!({}))).await;
    assert_eq!(list["result"]["tools"][0]["name"], "echo");
    assert!(list["result"].get("ttlMs").is_none(), "a field of the other era");
    let answer = client.ask(call(2, "echo", json!({ "a": 1 }))).await;
    assert_eq!(text(&answer), r#"{"a":1}"#);
    assert!(answer["result"].get("resultType").is_none(), "a field of the other era");
    assert!(client.handle.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_of_both_eras_answers_in_the_era_of_each_request() {
    let mut client = LineClient::start(server());
    let discovered = client.ask(modern(request(1, "server/discover", json!({})))).await;
    assert!(discovered["result"].is_object(), "{discovered}");
    client.ask(initialize("2025-06-18")).await;
    client.send(notification("notifications/initialized", json!({}))).await;
    let answer = client.ask(call(2, "echo", json!({}))).await;
    assert!(answer["result"].get("resultType").is_none(), "{answer}");
    assert!(client.handle.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_question_is_a_request_and_the_call_waits_for_its_response() {
    let mut client = LineClient::start_legacy(server()).await;
    let question = client.ask(call(1, "ask_twice", json!({}))).await;
    assert_eq!(question["method"], "elicitation/create");
    // Other requests are answered meanwhile.
    client.ask(call(2, "echo", json!({}))).await;
    let response = |question: &Value, result: Value| json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    let ada = json!({ "action": "accept", "content": { "name": "Ada" } });
    let second = client.ask(response(&question, ada)).await;
    assert_eq!(second["method"], "roots/list");
    let answer = client.ask(response(&second, json!({ "roots": [] }))).await;
    assert_eq!(text(&answer), r#""Ada" {"roots":[]}"#);
    assert!(client.handle.violations().is_empty());

    client.send(response(&second, json!({}))).await;
    client.expect_nothing(request(3, "ping", json!({}))).await;
    assert_eq!(client.handle.violations().len(), 1, "nothing waits for a second response");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_client_refuses_fails_the_call() {
    let mut client = LineClient::start_legacy(server()).await;
    let question = client.ask(call(1, "ask_twice", json!({}))).await;
    let error = json!({ "code": -1, "message": "no" });
    let answer =
        client.ask(json!({ "jsonrpc": "2.0", "id": question["id"], "error": error })).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(client.handle.violations().is_empty());

    let mut client = LineClient::start(server());
    let mut message = initialize("2025-06-18");
    message["params"]["capabilities"] = json!({});
    client.ask(message).await;
    let answer = client.ask(call(1, "ask_twice", json!({}))).await;
    assert_eq!(text(&answer), "the client has no capability `elicitation`");
}

#[tokio::test(start_paused = true)]
async fn new_tools_are_announced_once_the_session_has_begun() {
    let mut client = LineClient::start(server());
    client.handle.set_tools([]);
    client.ask(initialize("2025-06-18")).await;
    client.handle.set_tools([]);
    client.send(notification("notifications/initialized", json!({}))).await;
    client.expect_nothing(request(1, "ping", json!({}))).await;
    client.handle.set_tools([echo()]);
    let changed = client.receive().await;
    assert_eq!(changed, notification("notifications/tools/list_changed", json!({})));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_dropped() {
    let (tool, dropped) = wait_for_ever();
    let mut client = LineClient::start_legacy(server().with_tool(tool)).await;
    client.send(call(1, "wait_for_ever", json!({}))).await;
    client.send(notification("notifications/cancelled", json!({ "requestId": 1 }))).await;
    let is_cancelled = Some(McpRequestStatus::Cancelled);
    let cancelled = client.handle.wait_until(|log| {
        log.iter().any(|m| m.is_call("wait_for_ever") && m.status == is_cancelled)
    });
    soon(cancelled).await;
    assert!(dropped.load(Ordering::SeqCst));
    // An unknown id is valid: the answer may have been sent already.
    client.send(notification("notifications/cancelled", json!({ "requestId": 99 }))).await;
    client.expect_nothing(request(2, "ping", json!({}))).await;
    assert!(client.handle.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn discover_is_refused_or_never_answered() {
    let discover = modern(request(1, "server/discover", json!({})));
    let mut client = LineClient::start(server().with_era(McpEra::Legacy));
    assert_eq!(error_code(&client.ask(discover.clone()).await), -32601);
    client.ask(initialize("2025-06-18")).await;

    let mut client = LineClient::start(server().with_era(McpEra::LegacySilentOnDiscover));
    client.send(discover).await;
    client.expect_nothing(initialize("2025-06-18")).await;
    assert_eq!(client.handle.received()[0].status, Some(McpRequestStatus::Running));
    assert!(client.handle.violations().is_empty(), "a probe is allowed");
}
