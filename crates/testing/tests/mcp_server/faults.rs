//! The faults that the server can simulate.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};
use turnstream_testing::mcp::{McpFault, McpRequestStatus};

use crate::http_client::{self, modern_headers, post_modern, send_only};
use crate::line_client::{LineClient, soon};
use crate::tools::{call, initialize, modern, request, server, text};

fn start(fault: McpFault) -> LineClient {
    LineClient::start(server().with_fault(fault))
}

async fn list(client: &mut LineClient, params: Value) -> Value {
    client.ask(modern(request(1, "tools/list", params))).await
}

/// The names of the tools on the only page of the list.
async fn names(client: &mut LineClient) -> Vec<String> {
    let answer = list(client, json!({})).await;
    assert!(answer["result"].get("nextCursor").is_none(), "{answer}");
    let tools = answer["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn echo() -> Value {
    modern(call(9, "echo", json!({})))
}

/// Waits, with the paused clock, until all tasks are idle.
async fn expect_silence(client: &mut LineClient) {
    let mut byte = [0];
    let read = timeout(Duration::from_hours(1), client.reader.read(&mut byte)).await;
    assert!(read.is_err(), "{byte:?}");
}

#[tokio::test(start_paused = true)]
async fn an_endless_list_always_has_another_page() {
    let mut client = start(McpFault::EndlessList);
    let mut params = json!({});
    let mut seen = HashSet::new();
    for _ in 0..100 {
        let page = list(&mut client, params).await;
        let tools = page["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().all(|tool| seen.insert(tool["name"].clone())), "{page}");
        params = json!({ "cursor": page["result"]["nextCursor"] });
    }
    assert!(client.handle.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_tools_are_listed_and_can_be_called() {
    let mut client = start(McpFault::ManyTools(5_000));
    assert_eq!(names(&mut client).await.len(), 5_003);
    let answer = client.ask(modern(call(2, "tool_4999", json!({})))).await;
    assert_eq!(text(&answer), "called \"tool_4999\"");
}

#[tokio::test(start_paused = true)]
async fn a_large_schema_has_the_configured_size() {
    let mut client = start(McpFault::LargeSchema(1 << 20));
    client.send(modern(request(1, "tools/list", json!({})))).await;
    assert!(client.line().await.len() > 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn invalid_schemas_and_names_are_listed_next_to_valid_ones() {
    let mut client = start(McpFault::BadSchemas);
    let answer = list(&mut client, json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let schema = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).expect(name);
        tool.get("inputSchema").cloned()
    };
    assert_eq!(schema("echo"), Some(json!({ "type": "object" })));
    assert!(schema("schema_is_text").unwrap().is_string());
    assert_eq!(schema("schema_is_missing"), None);
    assert_eq!(schema("schema_is_null"), Some(Value::Null));
    assert_eq!(schema("schema_of_an_array").unwrap()["type"], "array");
    let remote = schema("schema_is_elsewhere").unwrap();
    assert!(remote["properties"]["a"]["$ref"].as_str().unwrap().starts_with("http://"));

    let names = names(&mut start(McpFault::BadNames)).await;
    assert_eq!(names.iter().filter(|name| *name == "twice").count(), 2);
    for bad in ["", "a.b/c", "größe", "same.name", "same_name", "line\nbreak"] {
        assert!(names.iter().any(|name| name == bad), "{bad:?}");
    }
    assert!(names.iter().any(|name| name.len() == 300));
}

#[tokio::test(start_paused = true)]
async fn a_changing_list_differs_each_time() {
    let mut client = start(McpFault::ChangingList);
    let mut seen = HashSet::new();
    for _ in 0..4 {
        assert!(seen.insert(names(&mut client).await));
    }
}

#[tokio::test(start_paused = true)]
async fn endless_progress_ends_when_the_call_is_cancelled() {
    let mut client = start(McpFault::EndlessProgress);
    client.send(echo()).await;
    for progress in 1..100 {
        assert_eq!(client.receive().await["params"]["progress"], progress);
    }
    let cancel = json!({ "requestId": 9 });
    client.send(crate::tools::notification("notifications/cancelled", cancel)).await;
    soon(client.handle.wait_until(|log| log[0].status == Some(McpRequestStatus::Cancelled))).await;
    // Messages that were sent before may still arrive.
    client.send(modern(request(2, "server/discover", json!({})))).await;
    while client.receive().await["id"] != 2 {}
    expect_silence(&mut client).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_line_never_ends() {
    const LENGTH: usize = (3 << 20) + 1;
    let mut client = start(McpFault::LongLine(LENGTH as u64));
    client.send(echo()).await;
    let mut seen = vec![0; LENGTH];
    soon(client.reader.read_exact(&mut seen)).await.unwrap();
    assert!(!seen.contains(&b'\n'));
    assert!(seen.starts_with(br#"{"jsonrpc":"2.0","id":9,"result":"#));
    let mut rest = Vec::new();
    let read = timeout(Duration::from_hours(1), client.reader.read_to_end(&mut rest)).await;
    assert!(read.is_err() && !rest.contains(&b'\n'));
}

#[tokio::test(start_paused = true)]
async fn a_large_result_is_sent_completely() {
    const LENGTH: usize = (3 << 20) + 1;
    let mut client = start(McpFault::LargeResult(LENGTH as u64));
    assert_eq!(text(&client.ask(echo()).await).len(), LENGTH);
    assert_eq!(client.handle.received()[0].status, Some(McpRequestStatus::Answered));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_reads_and_never_answers() {
    let mut client = start(McpFault::Silent);
    client.send(modern(request(1, "server/discover", json!({})))).await;
    client.send(initialize("2025-06-18")).await;
    expect_silence(&mut client).await;
    assert_eq!(client.handle.methods(), ["server/discover", "initialize"]);

    let mut client = start(McpFault::SilentAfterDiscover);
    client.ask(modern(request(1, "server/discover", json!({})))).await;
    client.ask(initialize("2025-06-18")).await;
    client.send(modern(request(2, "tools/list", json!({})))).await;
    expect_silence(&mut client).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_reads_blocks_the_client() {
    let mut client = start(McpFault::NeverReads);
    client.send(echo()).await;
    expect_silence(&mut client).await;
    assert!(client.handle.received().is_empty());
    client.serving.abort();
}

#[tokio::test(start_paused = true)]
async fn answers_have_wrong_ids_or_are_sent_twice() {
    let answer = start(McpFault::WrongIds).ask(echo()).await;
    assert_eq!((&answer["id"], text(&answer)), (&json!("not 9"), "{}"));
    let mut client = start(McpFault::AnswersTwice);
    let first = client.ask(echo()).await;
    assert_eq!(client.receive().await, first);
}

#[tokio::test(start_paused = true)]
async fn noise_is_sent_before_each_answer() {
    let mut client = start(McpFault::Noise);
    client.send(echo()).await;
    let mut noise = 0;
    while serde_json::from_slice::<Value>(&client.line().await).map_or(true, |v| v.is_null()) {
        noise += 1;
    }
    assert_eq!(noise, 5);

    let mut client = start(McpFault::BinaryNoise);
    client.send(echo()).await;
    assert!(String::from_utf8(client.line().await).is_err());
    assert_eq!(text(&client.receive().await), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_server_dies_at_the_configured_message() {
    for number in 1..=3 {
        let mut client = start(McpFault::DiesAt(number));
        for _ in 1..number {
            assert_eq!(text(&client.ask(echo()).await), "{}");
        }
        client.send(echo()).await;
        assert!(client.line().await.is_empty(), "the stream ends");
        soon(client.serving).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_sends_byte_by_byte() {
    let mut client = start(McpFault::SlowDrip(Duration::from_millis(10)));
    let start = Instant::now();
    client.send(echo()).await;
    let line = client.line().await;
    let expected = Duration::from_millis(10) * u32::try_from(line.len()).unwrap();
    // The paused clock advances in steps of a millisecond.
    assert!(start.elapsed() >= expected, "{:?} < {expected:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn unsolicited_requests_are_sent_before_each_answer() {
    let mut client = start(McpFault::UnsolicitedRequests);
    client.send(echo()).await;
    let mut methods = Vec::new();
    loop {
        let message = client.receive().await;
        match message["method"].as_str() {
            Some(method) => methods.push(method.to_owned()),
            None => break,
        }
        let error = json!({ "code": -32601, "message": "no" });
        client.send(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error })).await;
    }
    let expected =
        ["sampling/createMessage", "elicitation/create", "roots/list", "ping", "no/such/method"];
    assert_eq!(methods, expected);
    soon(client.handle.wait_until(|log| log.len() == 6)).await;
    assert!(client.handle.violations().is_empty(), "refusing them is allowed");
}

#[tokio::test]
async fn over_http_a_silent_server_sends_no_response_head() {
    for fault in [McpFault::Silent, McpFault::NeverReads] {
        let server = server().with_fault(fault).start_http().await.unwrap();
        let message = echo();
        let mut headers = modern_headers(&message);
        for (name, value) in [("Content-Type", "application/json"), ("Accept", "*/*")] {
            headers.push((name.to_owned(), value.to_owned()));
        }
        let stream = send_only(&server, "POST /mcp", &headers, &message.to_string()).await;
        http_client::soon(server.handle().wait_until(|log| log.len() == 1)).await;
        let mut byte = [0];
        let read = stream.try_read(&mut byte);
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        drop(stream);
        http_client::soon(server.http_server().wait_for_early_close()).await;
    }
}

#[tokio::test]
async fn over_http_a_server_that_dies_cuts_the_response() {
    let server = server().with_fault(McpFault::DiesAt(2)).start_http().await.unwrap();
    let discover = modern(request(1, "server/discover", json!({})));
    assert!(post_modern(&server, &discover).await.json().await["result"].is_object());
    for _ in 0..2 {
        assert!(post_modern(&server, &discover).await.chunk().await.is_err());
    }
}

#[tokio::test]
async fn over_http_a_fault_turns_an_answer_into_an_event_stream() {
    let server = server().with_fault(McpFault::AnswersTwice).start_http().await.unwrap();
    let mut answer = post_modern(&server, &modern(request(1, "tools/list", json!({})))).await;
    let first = answer.event().await.unwrap();
    assert_eq!(answer.event().await.unwrap(), first);
    assert_eq!(answer.event().await, None);
}

#[tokio::test]
async fn over_http_large_and_slow_results_are_complete() {
    const LENGTH: usize = (3 << 20) + 1;
    let fault = McpFault::LargeResult(LENGTH as u64);
    let large = server().with_fault(fault).start_http().await.unwrap();
    let mut answer = post_modern(&large, &echo()).await;
    assert_eq!(text(&answer.event().await.unwrap()).len(), LENGTH);

    let slow = server().with_fault(McpFault::SlowDrip(Duration::ZERO)).start_http().await.unwrap();
    let mut answer = post_modern(&slow, &modern(request(1, "server/discover", json!({})))).await;
    assert_eq!(answer.chunk().await.unwrap().unwrap(), b"{");
    assert!(answer.body().await.ends_with("}}"));
    let mut answer = post_modern(&slow, &echo()).await;
    assert_eq!(text(&answer.event().await.unwrap()), "{}");
}
