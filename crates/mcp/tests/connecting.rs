//! The protocol version of a server is detected, within a time limit.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::Instant;
use turnstream::ErrorKind;
use turnstream_mcp::{Client, Era, Limits};
use turnstream_testing::mcp::{McpEra, McpFault, McpServer};

use crate::support::{builder_of, call_text, client_of, echo_tool};

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
    let client = builder_of(&McpServer::new().with_fault(McpFault::SilentAfterDiscover));
    let limits = Limits { request: Duration::from_secs(7), ..Limits::default() };
    let error = client.with_limits(limits).build().toolkit().await.unwrap_err();
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
    assert!(text.contains("may have taken effect in part"), "{text}");
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
    let error = client.with_name("s").build().toolkit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let expected = "the MCP server `s` closed its connection; it wrote to its standard output: Listening on port 80";
    assert_eq!(error.message(), expected);
}

/// A client of a program that is a function of its streams.
fn client_of_program<F, Fut>(program: F) -> Client
where
    F: Fn(tokio::io::DuplexStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let client = Client::streams(move || {
        let (here, there) = tokio::io::duplex(1 << 16);
        tokio::spawn(program(there));
        async { Ok(tokio::io::split(here)) }
    });
    client.with_name("s").build()
}

#[tokio::test(start_paused = true)]
async fn a_program_whose_output_cannot_be_that_of_a_server_fails_at_once() {
    let repeats_input = client_of_program(|there| async move {
        let (mut reader, mut writer) = tokio::io::split(there);
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    let floods =
        client_of_program(
            |mut there| async move { while there.write_all(b"y\n").await.is_ok() {} },
        );
    let speaks_http = client_of_program(|there| async move {
        let mut there = BufReader::new(there);
        there.read_line(&mut String::new()).await.unwrap();
        there.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    for (client, why) in [
        (repeats_input, "it sends back what it receives; it wrote to its standard output: {"),
        (floods, "its output contains no messages; it wrote to its standard output: y"),
        (speaks_http, "it uses another protocol; it wrote to its standard output: HTTP/1.1 400"),
    ] {
        let before = Instant::now();
        let error = client.toolkit().await.unwrap_err();
        assert_eq!(before.elapsed(), Duration::ZERO, "{error}");
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(!error.is_retryable());
        let expected = format!("the program of the MCP server `s` is not an MCP server: {why}");
        assert!(error.message().starts_with(&expected), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_writes_a_byte_order_mark_or_a_banner_first_connects() {
    for prefix in ["\u{feff}", "Starting…\n[info] ready\n\n", "{\"level\":\"info\"}\n"] {
        for era in [McpEra::Modern, McpEra::Legacy] {
            let server = McpServer::new().with_era(era).with_tool(echo_tool());
            let client = client_of_program(move |mut there| {
                let server = server.clone();
                async move {
                    there.write_all(prefix.as_bytes()).await.unwrap();
                    let (reader, writer) = tokio::io::split(there);
                    let _ = server.serve(reader, writer).await;
                }
            });
            assert_eq!(client.toolkit().await.unwrap().specs().len(), 1, "{prefix:?}, {era:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_while_connecting_reports_the_programs_output() {
    let client = client_of_program(|mut there| async move {
        there.write_all(b"Waiting for the database\n").await.unwrap();
        let _ = tokio::io::copy(&mut there, &mut tokio::io::sink()).await;
    });
    let error = client.toolkit().await.unwrap_err();
    let expected = "the MCP server `s` was not ready after 30s; it wrote to its standard output: \
                    Waiting for the database";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Timeout, expected));
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
