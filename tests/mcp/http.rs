//! Servers over Streamable HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::http::{Credential, Token};
use turnstream::mcp::{Client, Era};
use turnstream::testing::mcp::{McpEra, McpRequestStatus, McpServer, McpTool};
use turnstream::{ErrorKind, Event};

use crate::support::{call_text, echo_tool, no_arguments, run_call};

const ERAS: [McpEra; 2] = [McpEra::Modern, McpEra::Legacy];

fn client_at(url: &str) -> Client {
    Client::http(url).unwrap().with_name("s").trusted()
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
        let is_cancelled = |it: &turnstream::testing::mcp::McpReceived| {
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
        let client = client_at(&server.url());
        let error = client.toolkit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        assert!(
            client.clone().with_header("authorization", "Bearer right").toolkit().await.is_ok()
        );
        assert!(client.clone().with_credential(Credential::key("right")).toolkit().await.is_ok());
        let wrong = client.with_header("authorization", "Bearer wrong-secret").toolkit().await;
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
    let client = client_at(&server.url()).with_credential(credential);
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
