//! A server that violates the protocol in every known way: each violation is an error with a kind,
//! or a result that the model receives, and nothing hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::Instant;
use turnstream::ErrorKind;
use turnstream_mcp::{Client, Limits};
use turnstream_testing::mcp::{McpEra, McpFault, McpServer};

use crate::raw_server::{
    answer, discovered, http_answers, http_json, http_message, listed, listed_tool, raw_client,
};
use crate::support::{builder_of, call, call_text, client_of, echo_tool};

const HI: &str = r#"{"text":"hi"}"#;

fn hi() -> serde_json::Value {
    serde_json::from_str(HI).unwrap()
}

/// The error of listing tools on a server with a fault.
async fn list_error(fault: McpFault) -> turnstream::Error {
    let client = client_of(&McpServer::new().with_tool(echo_tool()).with_fault(fault));
    let error = client.toolkit().await.unwrap_err();
    // The error is the same the second time.
    assert_eq!(client.toolkit().await.unwrap_err().kind(), error.kind());
    error
}

#[tokio::test(start_paused = true)]
async fn an_endless_or_oversized_list_is_too_large() {
    for (fault, what) in [
        (McpFault::EndlessList, "with more than 100 pages"),
        (McpFault::ManyTools(10_000), "with more than 1000 tools"),
        (McpFault::ManyTools(100_000), "with more than 200000 JSON values"),
        (McpFault::LargeSchema(2 << 20), "with more than 1048576 bytes of schemas"),
    ] {
        let error = list_error(fault).await;
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.message().ends_with(what), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_message_closes_the_connection_before_it_fills_memory() {
    for era in [McpEra::Modern, McpEra::Legacy] {
        let server = McpServer::new().with_era(era).with_tool(echo_tool());
        let server = server.with_fault(McpFault::LongLine(100 << 20));
        let client = client_of(&server).trusted();
        let kit = client.toolkit().await.unwrap();
        let text = call_text(kit, "s__echo", hi()).await;
        let expected = "Error: the MCP server `s` sent a message of more than 16777216 bytes.";
        assert!(text.starts_with(expected), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_within_the_message_limit_is_truncated_like_any_other() {
    let server = McpServer::new().with_tool(echo_tool()).with_fault(McpFault::LargeResult(8 << 20));
    let kit = client_of(&server).trusted().toolkit().await.unwrap();
    let (result, _) = call(kit, "s__echo", hi()).await;
    assert!(!result.is_error());
    assert!(result.content.text().len() <= 64 * 1024 + 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_requests_without_end_and_reads_no_answer_is_not_read_further() {
    const FLOOD: usize = 20_000;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let client = Client::streams(move || {
        let count = Arc::clone(&count);
        async move {
            let (here, there) = tokio::io::duplex(1 << 10);
            let (reader, mut writer) = tokio::io::split(there);
            tokio::spawn(async move {
                let mut lines = BufReader::new(reader).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let message: Value = serde_json::from_str(&line).unwrap();
                    let result = match message["method"].as_str() {
                        Some("server/discover") => discovered(),
                        Some("tools/list") => listed(&json!([listed_tool("t")])),
                        Some("tools/call") => break,
                        _ => continue,
                    };
                    let line = format!("{}\n", answer(&message, &result));
                    writer.write_all(line.as_bytes()).await.unwrap();
                }
                for id in 0..FLOOD {
                    let ping = json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
                    if writer.write_all(format!("{ping}\n").as_bytes()).await.is_err() {
                        return;
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
            Ok(tokio::io::split(here))
        }
    });
    let client = client.with_name("s").build().trusted();
    let text = call_text(client.toolkit().await.unwrap(), "s__t", json!({})).await;
    assert!(text.starts_with("Error:"), "{text}");
    client.close().await;
    let sent = sent.load(Ordering::SeqCst);
    // The pipes hold the rest.
    assert!((64..500).contains(&sent), "{sent} requests were read");
}

#[tokio::test(start_paused = true)]
async fn a_result_with_too_many_values_fails_only_its_call() {
    let result = |values: usize| json!({ "resultType": "complete", "content": [], "structuredContent": { "v": vec![0; values] } });
    let calls = AtomicUsize::new(0);
    let client = raw_client(move |connection, message, out| match message["method"].as_str() {
        Some("server/discover") => out.result(&message, discovered()),
        Some("tools/list") => out.result(&message, listed(&json!([listed_tool("t")]))),
        Some("tools/call") => match calls.fetch_add(1, Ordering::SeqCst) {
            0 => out.result(&message, result(300_000)),
            _ => out.result(&message, result(connection)),
        },
        _ => {}
    });
    let client = client.trusted();
    let kit = client.toolkit().await.unwrap();
    let text = call_text(kit.clone(), "s__t", json!({})).await;
    let expected = "Error: the MCP server `s` sent a message with more than 200000 JSON values";
    assert_eq!(text.get(..expected.len()), Some(expected));
    assert_eq!(call_text(kit, "s__t", json!({})).await, r#"{"v":[]}"#, "on the first connection");
}

#[tokio::test]
async fn a_result_with_too_many_values_fails_its_call_over_http() {
    let url = http_answers(|request| {
        let message = http_message(request);
        let result = match message["method"].as_str() {
            Some("server/discover") => {
                let mut result = discovered();
                result["capabilities"] = json!({ "tools": {} });
                result
            }
            Some("tools/list") => listed(&json!([listed_tool("t")])),
            _ => {
                let many = vec![0; 300_000];
                let result = json!({ "resultType": "complete", "content": [], "structuredContent": { "v": many } });
                let event = format!("data: {}\n\n", answer(&message, &result));
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close";
                return format!("{head}\r\n\r\n{event}");
            }
        };
        http_json("200 OK", "", &answer(&message, &result))
    })
    .await;
    let client = Client::http(&url).unwrap().with_name("s").build().trusted();
    let text = call_text(client.toolkit().await.unwrap(), "s__t", json!({})).await;
    let expected = "Error: the MCP server `s` sent a message with more than 200000 JSON values";
    assert_eq!(text.get(..expected.len()), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn endless_progress_ends_at_the_total_call_timeout() {
    let server = McpServer::new().with_tool(echo_tool()).with_fault(McpFault::EndlessProgress);
    let limits = Limits { call_total: Duration::from_secs(5), ..Limits::default() };
    let kit = builder_of(&server).with_limits(limits).build().trusted().toolkit().await.unwrap();
    let before = Instant::now();
    let (result, _) = call(kit, "s__echo", hi()).await;
    assert_eq!(result.kind, turnstream::item::ResultKind::Timeout);
    assert!(before.elapsed() <= Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn answers_with_wrong_ids_are_ignored() {
    let error = list_error(McpFault::WrongIds).await;
    assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Timeout), "{error}");
}

#[tokio::test(start_paused = true)]
async fn duplicate_answers_and_noise_are_ignored() {
    for fault in [
        McpFault::AnswersTwice,
        McpFault::Noise,
        McpFault::BinaryNoise,
        McpFault::UnsolicitedRequests,
        McpFault::SlowDrip(Duration::from_millis(1)),
    ] {
        for era in [McpEra::Modern, McpEra::Legacy] {
            let server = McpServer::new().with_era(era).with_tool(echo_tool()).with_fault(fault);
            let kit = client_of(&server).trusted().toolkit().await.unwrap();
            assert_eq!(call_text(kit, "s__echo", hi()).await, "hi", "{fault:?}, {era:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_at_any_message_is_an_error_or_a_result() {
    for era in [McpEra::Modern, McpEra::Legacy] {
        for at in 1..=6 {
            let server = McpServer::new().with_era(era).with_tool(echo_tool());
            let client = client_of(&server.with_fault(McpFault::DiesAt(at))).trusted();
            let before = Instant::now();
            match client.toolkit().await {
                Ok(kit) => {
                    let text = call_text(kit, "s__echo", hi()).await;
                    assert!(
                        text == "hi" || text.starts_with("Error: the MCP server `s`"),
                        "{at}: {text}"
                    );
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Connect, "{at}: {error}"),
            }
            assert!(before.elapsed() < Duration::from_secs(31), "{at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_reads_is_a_timeout() {
    let error = list_error(McpFault::NeverReads).await;
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_differs_each_time_is_listed_once_and_its_calls_run() {
    let server = McpServer::new().with_tool(echo_tool()).with_fault(McpFault::ChangingList);
    let client = client_of(&server).trusted();
    let kit = client.toolkit().await.unwrap();
    assert_eq!(call_text(kit, "s__echo", hi()).await, "hi");
}

/// The result of a fault over HTTP.
async fn outcome_over_http(name: &str, era: McpEra) -> String {
    let limits = Limits {
        start: Duration::from_secs(3),
        request: Duration::from_secs(1),
        call: Duration::from_secs(1),
        call_total: Duration::from_secs(1),
        ..Limits::default()
    };
    let fault = name.parse().unwrap();
    let server = McpServer::new().with_era(era).with_tool(echo_tool()).with_fault(fault);
    let server = server.start_http().await.unwrap();
    let client = Client::http(&server.url()).unwrap().with_name("s");
    match client.with_limits(limits).build().trusted().only(["echo"]).toolkit().await {
        Ok(kit) => call(kit, "s__echo", json!({ "text": "hi" })).await.0.content.text(),
        Err(error) => format!("Error: {error}"),
    }
}

#[tokio::test]
async fn every_fault_over_http_ends_in_an_error_or_a_result() {
    let eras = [McpEra::Modern, McpEra::Legacy];
    let runs = McpFault::NAMES.iter().flat_map(|name| eras.map(|era| (*name, era)));
    let outcomes =
        runs.map(|(name, era)| async move { (name, era, outcome_over_http(name, era).await) });
    for (name, era, outcome) in futures::future::join_all(outcomes).await {
        let is_lawful = outcome == "hi"
            || outcome.starts_with("Error: the MCP server `s`")
            || outcome.starts_with("Timed out after")
            // A large result, truncated.
            || outcome.len() > 60_000;
        assert!(is_lawful, "{name}, {era:?}: {outcome}");
    }
}
