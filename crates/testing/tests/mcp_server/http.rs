//! Both protocol eras over Streamable HTTP.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use turnstream_testing::mcp::{
    McpEra, McpHttpServer, McpRequestStatus, McpServer, McpServerHandle, McpTool,
};

use crate::http_client::{legacy_headers, modern_headers, post, post_modern, send, soon};
use crate::tools::{
    call, echo, error_code, initialize, modern, notification, object, request, server, text,
    wait_for_ever,
};

/// Starts a session of the legacy era. Returns its id.
async fn start_session(server: &McpHttpServer) -> String {
    let mut answer = post(server, Vec::new(), &initialize("2025-06-18")).await;
    assert_eq!(answer.json().await["result"]["protocolVersion"], "2025-06-18");
    let session = answer.header("mcp-session-id").expect("a session").to_owned();
    let begun = notification("notifications/initialized", json!({}));
    assert_eq!(post(server, legacy_headers(&session), &begun).await.status, 202);
    session
}

async fn wait_for_status(handle: &McpServerHandle, tool: &str, status: McpRequestStatus) {
    let reached =
        handle.wait_until(|log| log.iter().any(|m| m.is_call(tool) && m.status == Some(status)));
    soon(reached).await;
}

#[tokio::test]
async fn a_modern_request_needs_no_session() {
    let server = server().start_http().await.unwrap();
    let mut listed = post_modern(&server, &modern(request(1, "tools/list", json!({})))).await;
    assert_eq!((listed.status, listed.header("mcp-session-id")), (200, None));
    assert_eq!(listed.json().await["result"]["tools"][0]["name"], "echo");
    let mut unknown = post_modern(&server, &modern(request(2, "none", json!({})))).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(error_code(&unknown.json().await), -32601);
    assert!(server.handle().violations().is_empty());
    assert_eq!(server.handle().received()[0].header("mcp-method"), Some("tools/list"));
}

#[tokio::test]
async fn a_call_is_answered_by_a_stream_of_its_progress_and_its_result() {
    let server = server().start_http().await.unwrap();
    let mut message = modern(call(1, "two_steps", json!({})));
    message["params"]["_meta"]["progressToken"] = json!(5);
    let mut answer = post_modern(&server, &message).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    for progress in [1.0, 2.0] {
        assert_eq!(answer.event().await.unwrap()["params"]["progress"], progress);
    }
    assert_eq!(text(&answer.event().await.unwrap()), "done");
    assert_eq!(answer.event().await, None);
}

#[tokio::test]
async fn a_header_that_differs_from_the_body_is_refused() {
    let server = server().start_http().await.unwrap();
    let message = modern(call(1, "echo", json!({})));
    for name in ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"] {
        for broken in [None, Some("other")] {
            let mut headers = modern_headers(&message);
            headers.retain(|(known, _)| known != name);
            headers.extend(broken.map(|value| (name.to_owned(), value.to_owned())));
            let mut answer = post(&server, headers, &message).await;
            assert_eq!(answer.status, 400, "{name}: {broken:?}");
            assert_eq!(error_code(&answer.json().await), -32020, "{name}: {broken:?}");
        }
    }
    assert_eq!(server.handle().violations().len(), 6);

    let mut headers = modern_headers(&message);
    headers[2].1 = "=?base64?ZWNobw==?=".to_owned();
    assert_eq!(post(&server, headers, &message).await.status, 200);
}

#[tokio::test]
async fn an_argument_that_the_schema_marks_must_be_in_a_header() {
    let schema = json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
    });
    let tool = McpTool::new("here", "", schema, async |_, _| "ok");
    let server = McpServer::new().with_tool(tool).start_http().await.unwrap();
    let message = modern(call(1, "here", json!({ "region": "eu" })));
    assert_eq!(post_modern(&server, &message).await.status, 400);
    let mut headers = modern_headers(&message);
    headers.push(("Mcp-Param-Region".to_owned(), "eu".to_owned()));
    assert_eq!(post(&server, headers, &message).await.status, 200);
    let without = modern(call(2, "here", json!({})));
    assert_eq!(post_modern(&server, &without).await.status, 200);
}

#[tokio::test]
async fn a_request_that_breaks_the_transport_is_refused() {
    let server = server().start_http().await.unwrap();
    let message = modern(request(1, "tools/list", json!({})));
    for (name, value, status) in [
        ("Accept", "application/json", 406),
        ("Accept", "text/event-stream", 406),
        ("Content-Type", "text/plain", 415),
        ("Origin", "http://evil.example", 403),
    ] {
        let mut headers = modern_headers(&message);
        headers.push((name.to_owned(), value.to_owned()));
        assert_eq!(post(&server, headers, &message).await.status, status, "{name}: {value}");
    }
    for (start, status) in [("POST /other", 404), ("PUT /mcp", 405), ("DELETE /mcp", 400)] {
        assert_eq!(send(&server, start, &[], "").await.status, status, "{start}");
    }
    assert_eq!(server.handle().violations().len(), 7);
}

#[tokio::test]
async fn every_request_must_have_the_required_header() {
    let server = server().with_required_header("Authorization", "Bearer key");
    let server = server.start_http().await.unwrap();
    let message = modern(request(1, "tools/list", json!({})));
    for (value, status) in [(None, 401), (Some("Bearer other"), 401), (Some("Bearer key"), 200)] {
        let mut headers = modern_headers(&message);
        headers.extend(value.map(|value| ("Authorization".to_owned(), value.to_owned())));
        let answer = post(&server, headers, &message).await;
        assert_eq!(answer.status, status, "{value:?}");
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401);
    }
}

#[tokio::test]
async fn closing_the_response_cancels_a_modern_call() {
    let (tool, dropped) = wait_for_ever();
    let server = server().with_tool(tool).start_http().await.unwrap();
    let mut message = modern(call(1, "wait_for_ever", json!({})));
    message["params"]["_meta"]["progressToken"] = json!(1);
    let mut answer = post_modern(&server, &message).await;
    assert_eq!(answer.event().await.unwrap()["method"], "notifications/progress");
    assert!(!dropped.load(Ordering::SeqCst));
    drop(answer);
    wait_for_status(&server.handle(), "wait_for_ever", McpRequestStatus::Cancelled).await;
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn closing_the_response_leaves_a_legacy_call_running_until_it_is_cancelled() {
    let (tool, dropped) = wait_for_ever();
    let server = server().with_tool(tool).start_http().await.unwrap();
    let session = start_session(&server).await;
    let headers = || legacy_headers(&session);
    let mut message = call(1, "wait_for_ever", json!({}));
    message["params"]["_meta"] = json!({ "progressToken": 1 });
    let mut answer = post(&server, headers(), &message).await;
    answer.event().await.unwrap();
    drop(answer);
    soon(server.http_server().wait_for_early_close()).await;
    assert!(!dropped.load(Ordering::SeqCst));

    let cancel = notification("notifications/cancelled", json!({ "requestId": 1 }));
    assert_eq!(post(&server, headers(), &cancel).await.status, 202);
    wait_for_status(&server.handle(), "wait_for_ever", McpRequestStatus::Cancelled).await;
    assert!(dropped.load(Ordering::SeqCst));
    assert!(server.handle().violations().is_empty());
}

#[tokio::test]
async fn a_subscription_is_a_stream_of_notices() {
    let server = server().start_http().await.unwrap();
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream =
        post_modern(&server, &modern(request(1, "subscriptions/listen", filter))).await;
    let ack = stream.event().await.unwrap();
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    server.handle().set_tools([echo()]);
    let changed = stream.event().await.unwrap();
    assert_eq!(changed["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_legacy_session_lasts_until_it_is_deleted_or_expires() {
    let server = server().start_http().await.unwrap();
    let ping = request(1, "ping", json!({}));
    let session = start_session(&server).await;
    let other = start_session(&server).await;
    assert_ne!(session, other);
    let delete = send(&server, "DELETE /mcp", &legacy_headers(&session), "").await;
    assert_eq!(delete.status, 204);
    assert_eq!(post(&server, legacy_headers(&session), &ping).await.status, 404);
    assert_eq!(post(&server, legacy_headers(&other), &ping).await.status, 200);
    server.handle().expire_sessions();
    assert_eq!(post(&server, legacy_headers(&other), &ping).await.status, 404);
    assert!(server.handle().violations().is_empty());
    start_session(&server).await;
}

#[tokio::test]
async fn a_legacy_request_without_its_session_or_version_is_refused() {
    let server = server().start_http().await.unwrap();
    let session = start_session(&server).await;
    let list = request(1, "tools/list", json!({}));
    assert_eq!(post(&server, Vec::new(), &list).await.status, 400);
    let mut headers = legacy_headers(&session);
    headers.remove(0);
    assert_eq!(post(&server, headers.clone(), &list).await.status, 400);
    headers.push(("MCP-Protocol-Version".to_owned(), "2025-11-25".to_owned()));
    assert_eq!(post(&server, headers, &list).await.status, 400);
    assert_eq!(server.handle().violations().len(), 3);
}

#[tokio::test]
async fn a_legacy_server_refuses_a_modern_request_like_one_without_a_session() {
    let server = server().with_era(McpEra::Legacy).start_http().await.unwrap();
    let mut answer = post_modern(&server, &modern(request(1, "server/discover", json!({})))).await;
    assert_eq!(answer.status, 400);
    assert_eq!(error_code(&answer.json().await), -32000);
    assert!(server.handle().violations().is_empty(), "a probe is allowed");
}

#[tokio::test]
async fn a_legacy_client_receives_notices_on_its_stream_until_the_session_ends() {
    let server = server().start_http().await.unwrap();
    let session = start_session(&server).await;
    let mut headers = legacy_headers(&session);
    headers.push(("Accept".to_owned(), "text/event-stream".to_owned()));
    let mut stream = send(&server, "GET /mcp", &headers, "").await;
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")));
    server.handle().set_tools([]);
    let changed = stream.event().await.unwrap();
    assert_eq!(changed, notification("notifications/tools/list_changed", json!({})));
    send(&server, "DELETE /mcp", &headers, "").await;
    assert_eq!(stream.event().await, None);
}

#[tokio::test]
async fn a_legacy_question_is_answered_in_a_separate_request() {
    let server = server().start_http().await.unwrap();
    let session = start_session(&server).await;
    let headers = || legacy_headers(&session);
    let mut answer = post(&server, headers(), &call(1, "ask_twice", json!({}))).await;
    for result in
        [json!({ "action": "accept", "content": { "name": "Ada" } }), json!({ "roots": [] })]
    {
        let question = answer.event().await.unwrap();
        let response = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        assert_eq!(post(&server, headers(), &response).await.status, 202);
    }
    assert_eq!(text(&answer.event().await.unwrap()), r#""Ada" {"roots":[]}"#);
    assert!(server.handle().violations().is_empty());
}

#[tokio::test]
async fn the_end_of_a_session_drops_its_calls() {
    let (tool, dropped) = wait_for_ever();
    let server = server().with_tool(tool).start_http().await.unwrap();
    let session = start_session(&server).await;
    let mut answer =
        post(&server, legacy_headers(&session), &call(1, "wait_for_ever", json!({}))).await;
    server.handle().expire_sessions();
    assert_eq!(answer.event().await, None);
    wait_for_status(&server.handle(), "wait_for_ever", McpRequestStatus::Cancelled).await;
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn dropping_the_server_drops_its_calls_and_closes_its_connections() {
    for legacy in [false, true] {
        let (tool, dropped) = wait_for_ever();
        let server = server().with_tool(tool).start_http().await.unwrap();
        let handle = server.handle();
        let message = call(1, "wait_for_ever", json!({}));
        let mut answer = match legacy {
            true => {
                let session = start_session(&server).await;
                post(&server, legacy_headers(&session), &message).await
            }
            false => post_modern(&server, &modern(message)).await,
        };
        drop(server);
        assert!(answer.chunk().await.is_err(), "the body is cut off");
        wait_for_status(&handle, "wait_for_ever", McpRequestStatus::Cancelled).await;
        assert!(dropped.load(Ordering::SeqCst));
    }
}

#[tokio::test]
async fn a_body_that_is_not_a_message_is_refused() {
    let server = server().start_http().await.unwrap();
    let answer = async |message: Value| {
        let mut answer = post(&server, Vec::new(), &message).await;
        (answer.status, error_code(&answer.json().await))
    };
    assert_eq!(answer(json!([])).await, (400, -32600));
    assert_eq!(answer(object()).await, (400, -32600));
    let response = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    assert_eq!(answer(response).await, (400, -32000));
    let plain = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Accept".to_owned(), "*/*".to_owned()),
    ];
    let mut broken = send(&server, "POST /mcp", &plain, "{").await;
    assert_eq!((broken.status, error_code(&broken.json().await)), (400, -32700));
    assert_eq!(server.handle().violations().len(), 4);
}
