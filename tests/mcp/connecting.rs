//! The protocol version of a server is detected, within a time limit.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::Instant;
use turnstream::ErrorKind;
use turnstream::mcp::{Client, Era, Limits};
use turnstream::testing::mcp::{McpEra, McpFault, McpServer};

use crate::support::{call_text, client_of, echo_tool};

async fn era_of(era: McpEra) -> (Era, Vec<String>) {
    let server = McpServer::new().with_era(era).with_tool(echo_tool());
    let client = client_of(&server).trusted();
    let info = client.server_info().await.unwrap();
    let kit = client.toolkit().await.unwrap();
    let text = call_text(kit, "s__echo", serde_json::json!({ "text": "hi" })).await;
    assert_eq!(text, "hi");
    let violations = server.handle().violations();
    assert!(violations.is_empty(), "{violations:?}");
    (info.era, server.handle().methods())
}

#[tokio::test(start_paused = true)]
async fn the_newer_protocol_version_is_preferred() {
    let (era, methods) = era_of(McpEra::Both).await;
    assert_eq!(era, Era::Modern);
    assert_eq!(methods.first().map(String::as_str), Some("server/discover"));
    assert!(!methods.contains(&"initialize".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_needs_no_handshake() {
    assert_eq!(era_of(McpEra::Modern).await.0, Era::Modern);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_rejects_discovery_is_initialized() {
    let (era, methods) = era_of(McpEra::Legacy).await;
    assert_eq!(era, Era::Legacy);
    assert_eq!(methods[..2], ["server/discover", "initialize"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_discovery_is_initialized_on_a_new_connection() {
    let before = Instant::now();
    let (era, methods) = era_of(McpEra::LegacySilentOnDiscover).await;
    assert_eq!(era, Era::Legacy);
    assert_eq!(methods[..2], ["server/discover", "initialize"]);
    assert!(before.elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_a_timeout() {
    let client = client_of(&McpServer::new().with_fault(McpFault::Silent));
    let before = Instant::now();
    let error = client.toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.message(), "the MCP server `s` was not ready after 30s");
    assert_eq!(before.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_after_discovery_is_a_timeout() {
    let client = client_of(&McpServer::new().with_fault(McpFault::SilentAfterDiscover));
    let limits = Limits { request: Duration::from_secs(7), ..Limits::default() };
    let error = client.with_limits(limits).toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.message(), "the MCP server `s` did not answer `tools/list` within 7s");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_restored_and_its_tools_listed_again() {
    // The messages are: discover, list, subscribe, call, discover, …
    let server = McpServer::new().with_tool(echo_tool()).with_fault(McpFault::DiesAt(4));
    let client = client_of(&server).trusted();
    let kit = client.toolkit().await.unwrap();
    let hi = serde_json::json!({ "text": "hi" });
    let text = call_text(kit.clone(), "s__echo", hi.clone()).await;
    assert!(text.starts_with("Error: the MCP server `s` closed its connection."), "{text}");
    assert!(text.contains("may have been done in part"), "{text}");
    let listed = |methods: &[String]| methods.iter().filter(|it| *it == "tools/list").count();
    assert_eq!(listed(&server.handle().methods()), 1);
    assert_eq!(client.toolkit().await.unwrap().specs().len(), 1);
    assert_eq!(listed(&server.handle().methods()), 2);
}

#[tokio::test(start_paused = true)]
async fn callers_that_connect_at_the_same_time_share_one_connection() {
    let server = McpServer::new().with_tool(echo_tool());
    let client = client_of(&server);
    let (first, second) = tokio::join!(client.toolkit(), client.server_info());
    assert!(first.is_ok() && second.is_ok());
    let methods = server.handle().methods();
    assert_eq!(methods.iter().filter(|method| *method == "server/discover").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_not_an_mcp_server_is_detected_by_its_output() {
    let client = Client::streams(|| async {
        let (here, there) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            let mut there = BufReader::new(there);
            there.write_all(b"Listening on port 80\n").await.unwrap();
            there.read_line(&mut String::new()).await.unwrap();
        });
        Ok(tokio::io::split(here))
    });
    let error = client.with_name("s").toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let expected = "the MCP server `s` closed its connection; it wrote to its standard output: Listening on port 80";
    assert_eq!(error.message(), expected);
}

#[test]
fn outside_of_a_runtime_connecting_is_an_error() {
    let client = client_of(&McpServer::new());
    let error = futures::executor::block_on(client.toolkit()).unwrap_err();
    assert_eq!(
        error.message(),
        "an MCP server needs a tokio runtime, and it was polled outside of any"
    );
}
