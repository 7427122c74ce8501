//! Servers over Streamable HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::http::{Credential, Token};
use turnstream::tool::OutputStatus;
use turnstream::{ErrorKind, Event};
use turnstream_mcp::{Client, ClientBuilder, Era};
use turnstream_testing::mcp::{McpEra, McpRequestStatus, McpServer, McpTool};

use crate::raw_server::{answer, http_answers, http_empty, http_json, http_message, initialized};
use crate::support::{call_text, echo_tool, no_arguments, run_call};

const ERAS: [McpEra; 2] = [McpEra::Modern, McpEra::Legacy];

fn builder_at(url: &str) -> ClientBuilder {
    Client::http(url).unwrap().with_name("s")
}

fn client_at(url: &str) -> Client {
    builder_at(url).build().trusted()
}

#[tokio::test]
async fn tools_are_called_over_http_in_both_eras_without_a_violation() {
    for era in [McpEra::Both, McpEra::Modern, McpEra::Legacy] {
        let server =
            McpServer::new().with_era(era).with_tool(echo_tool()).start_http().await.unwrap();
        let client = client_at(&server.url());
        let kit = client.toolkit().await.unwrap();
        assert_eq!(call_text(kit, "s__echo", json!({ "text": "grüße" })).await, "grüße");
        let spoken = client.server_info().await.unwrap().era;
        assert_eq!(spoken, if era == McpEra::Legacy { Era::Legacy } else { Era::Modern });
        client.close().await;
        let violations = server.handle().violations();
        assert!(violations.is_empty(), "{era:?}: {violations:?}");
    }
}

#[tokio::test]
async fn dropping_a_run_cancels_its_call_over_http() {
    for era in ERAS {
        let tool = McpTool::new("hangs", "Hangs", no_arguments(), |_, call| async move {
            call.progress(1.0, None, None).await;
            std::future::pending::<&str>().await
        });
        let server = McpServer::new().with_era(era).with_tool(tool).start_http().await.unwrap();
        let client = client_at(&server.url());
        let mut run = run_call(client.toolkit().await.unwrap(), "s__hangs", json!({}));
        loop {
            if let Event::Tool(ToolEvent::Progress { .. }) = run.next().await.unwrap().unwrap() {
                break;
            }
        }
        drop(run);
        let is_cancelled = |it: &turnstream_testing::mcp::McpReceived| {
            it.is_call("hangs") && it.status == Some(McpRequestStatus::Cancelled)
        };
        server.handle().wait_until(|log| log.iter().any(is_cancelled)).await;
    }
}

#[tokio::test]
async fn headers_and_tokens_reach_the_server_and_a_missing_one_is_an_auth_error() {
    for era in ERAS {
        let server = McpServer::new()
            .with_era(era)
            .with_tool(echo_tool())
            .with_required_header("authorization", "Bearer right")
            .start_http()
            .await
            .unwrap();
        let client = builder_at(&server.url());
        let error = client.clone().build().toolkit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        assert!(
            client
                .clone()
                .with_header("authorization", "Bearer right")
                .build()
                .toolkit()
                .await
                .is_ok()
        );
        assert!(
            client
                .clone()
                .with_credential(Credential::key("right"))
                .build()
                .toolkit()
                .await
                .is_ok()
        );
        let wrong =
            client.with_header("authorization", "Bearer wrong-secret").build().toolkit().await;
        assert!(!format!("{:?}", wrong.unwrap_err()).contains("wrong-secret"));
    }
}

#[tokio::test]
async fn a_stale_token_is_refreshed_once() {
    let server = McpServer::new()
        .with_tool(echo_tool())
        .with_required_header("authorization", "Bearer token-1")
        .start_http()
        .await
        .unwrap();
    let fetched = Arc::new(AtomicUsize::new(0));
    let count = fetched.clone();
    let credential = Credential::token(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move { Ok(Token::new(format!("token-{number}"))) }
    });
    let client = builder_at(&server.url()).with_credential(credential).build();
    // A token that is refused when it is new is an error.
    assert_eq!(client.toolkit().await.unwrap_err().kind(), ErrorKind::Auth);
    // It is cached until a request finds it stale.
    assert!(client.toolkit().await.is_ok());
    assert_eq!(fetched.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_expired_session_is_replaced_by_a_new_one() {
    let server = McpServer::new().with_era(McpEra::Legacy).with_tool(echo_tool());
    let server = server.start_http().await.unwrap();
    let client = client_at(&server.url());
    let kit = client.toolkit().await.unwrap();
    assert_eq!(call_text(kit.clone(), "s__echo", json!({ "text": "1" })).await, "1");
    server.handle().expire_sessions();
    assert_eq!(call_text(kit, "s__echo", json!({ "text": "2" })).await, "2");
}

#[tokio::test]
async fn an_unreachable_address_fails_at_once_with_a_connect_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = client_at(&format!("http://{address}/mcp")).toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    let message = format!("the MCP server `s` at {address} could not be reached: ");
    assert!(error.message().starts_with(&message), "{error}");
    assert_eq!(Client::http("ftp://a.example").unwrap_err().kind(), ErrorKind::InvalidRequest);
}

/// A server of the legacy era that answers each call with `response`.
async fn server_answering_calls_with(response: String) -> String {
    http_answers(move |request| {
        let message = http_message(request);
        match message["method"].as_str() {
            Some("initialize") => http_json("200 OK", "", &answer(&message, &initialized())),
            Some("tools/list") => {
                let tools = json!({ "tools": [{ "name": "t", "inputSchema": no_arguments() }] });
                http_json("200 OK", "", &answer(&message, &tools))
            }
            Some("tools/call") => response.clone(),
            Some("server/discover") => http_empty("404 Not Found", ""),
            _ => http_empty("202 Accepted", ""),
        }
    })
    .await
}

#[tokio::test]
async fn a_failed_request_is_reported_with_status_address_and_retry_delay() {
    let html = |status: &str, headers: &str| {
        let body = "<p>no</p>";
        let len = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {len}\r\n{headers}\
             connection: close\r\n\r\n{body}"
        )
    };
    let cut_json = "HTTP/1.1 500 Oh\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\
                    retry-after: 3\r\nconnection: close\r\n\r\n{";
    let wait = "retry-after: 7\r\n";
    for (response, kind, status, delay) in [
        (http_empty("429 Too Many", wait), ErrorKind::RateLimited, 429, Some(7)),
        (http_json("429 Too Many", wait, &json!({})), ErrorKind::RateLimited, 429, Some(7)),
        (html("500 Oh", ""), ErrorKind::Server, 500, None),
        (http_json("500 Oh", wait, &json!({})), ErrorKind::Server, 500, Some(7)),
        (html("502 Bad Gateway", wait), ErrorKind::Server, 502, Some(7)),
        (html("503 Later", wait), ErrorKind::Server, 503, Some(7)),
        (cut_json.to_owned(), ErrorKind::Server, 500, Some(3)),
    ] {
        // While connecting.
        let at_start = response.clone();
        let url = http_answers(move |_| at_start.clone()).await;
        let starting = client_at(&url).toolkit().await.unwrap_err();
        // During a call.
        let calls = server_answering_calls_with(response).await;
        let client = client_at(&calls);
        client.toolkit().await.unwrap();
        let output = client.call_tool("t", json!({})).await.unwrap();
        assert_eq!(output.status, OutputStatus::Failed);
        assert_eq!(starting.kind(), kind, "{starting}");
        assert_eq!(starting.status(), Some(status), "{starting}");
        assert_eq!(starting.retry_after(), delay.map(Duration::from_secs), "{starting}");
        for (text, url) in [(starting.to_string(), url), (output.content.text(), calls)] {
            let address = url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
            let delay = delay.map_or(String::new(), |delay| format!(", retry after {delay}s"));
            let names = [format!("`s` at {address} "), format!(": status {status}{delay}")];
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_reported_with_the_address() {
    let cut = |kind: &str, body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 999\r\n\
             connection: close\r\n\r\n{body}"
        )
    };
    for response in [
        cut("application/json", r#"{"jsonrpc":"2.0","id":"#),
        cut("text/event-stream", "data: {\"jsonrpc\":"),
        cut("text/event-stream", ""),
    ] {
        let url = server_answering_calls_with(response.clone()).await;
        let client = client_at(&url);
        client.toolkit().await.unwrap();
        let output = client.call_tool("t", json!({})).await.unwrap();
        let (text, address) = (output.content.text(), url.trim_start_matches("http://"));
        let address = address.strip_suffix("/mcp").unwrap();
        let messages =
            ["closed its connection in the middle of an answer", "closed its connection"]
                .map(|what| format!("Error: the MCP server `s` at {address} {what}. "));
        assert!(messages.iter().any(|it| text.starts_with(it)), "{response}: {text}");
        assert!(text.contains("may have taken effect in part"), "{text}");
    }
}
