//! Dropping cancels calls, connections and processes.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::Event;
use turnstream::event::ToolEvent;
use turnstream_testing::mcp::{McpEra, McpReceived, McpRequestStatus, McpServer, McpTool};

use crate::support::{builder_of, client_of, no_arguments, run_call};

fn hanging_server(era: McpEra) -> McpServer {
    let tool = McpTool::new("hangs", "Hangs", no_arguments(), |_, call| async move {
        call.progress(1.0, None, None).await;
        std::future::pending::<&str>().await
    });
    McpServer::new().with_era(era).with_tool(tool)
}

fn is_cancelled(log: &[McpReceived]) -> bool {
    log.iter().any(|it| it.is_call("hangs") && it.status == Some(McpRequestStatus::Cancelled))
}

/// Runs until the tool has reported progress.
async fn run_until_progress(kit: turnstream::Toolkit) -> turnstream::Run {
    let mut run = run_call(kit, "s__hangs", json!({}));
    loop {
        let event = run.next().await.expect("the run continues").unwrap();
        if let Event::Tool(ToolEvent::Progress { .. }) = event {
            return run;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_run_cancels_its_call_on_the_server() {
    for era in [McpEra::Modern, McpEra::Legacy] {
        let server = hanging_server(era);
        let client = client_of(&server).trusted();
        let run = run_until_progress(client.toolkit().await.unwrap()).await;
        drop(run);
        server.handle().wait_until(is_cancelled).await;
        let cancels = |it: &String| it == "notifications/cancelled";
        assert_eq!(server.handle().methods().into_iter().filter(cancels).count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_and_a_time_limit_cancel_the_call_on_the_server() {
    let server = hanging_server(McpEra::Both);
    let client = client_of(&server).trusted();
    let mut run = run_until_progress(client.toolkit().await.unwrap()).await;
    run.interrupt();
    while run.next().await.is_some() {}
    server.handle().wait_until(is_cancelled).await;

    let server = hanging_server(McpEra::Both);
    let kit = client_of(&server).trusted().toolkit().await.unwrap();
    let tool = kit.get("s__hangs").unwrap().clone().with_timeout(Duration::from_secs(2));
    let mut run = run_until_progress(kit.with_replaced_tool(tool)).await;
    while run.next().await.is_some() {}
    server.handle().wait_until(is_cancelled).await;
}

#[tokio::test(start_paused = true)]
async fn no_message_of_a_dropped_call_reaches_the_next_one() {
    let tool = McpTool::new("asks", "Asks", no_arguments(), |_, call| async move {
        call.progress(1.0, None, None).await;
        let schema = json!({ "type": "object", "properties": {} });
        match call.elicit("name", "Your name?", schema).await {
            Ok(_) => turnstream_testing::mcp::McpAnswer::text("answered"),
            Err(answer) => answer,
        }
    });
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    let server = McpServer::new().with_era(McpEra::Legacy).with_tool(tool);
    let client = builder_of(&server)
        .with_elicitation(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async { turnstream_mcp::ElicitationAnswer::Decline }
        })
        .build()
        .trusted();
    let kit = client.toolkit().await.unwrap();
    let mut run = run_call(kit.clone(), "s__asks", json!({}));
    loop {
        if let Event::Tool(ToolEvent::Started { .. }) = run.next().await.unwrap().unwrap() {
            break;
        }
    }
    // One poll sends the call; the question arrives while the call is not polled.
    assert!(futures::poll!(run.next()).is_pending());
    server.handle().wait_until(|log| log.iter().any(|it| it.is_call("asks"))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(run);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 0);
    // The question of the next call is asked.
    run_call(kit, "s__asks", json!({})).outcome().await;
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_clone_and_tool_closes_the_connection() {
    let server = hanging_server(McpEra::Both);
    let (ended, end) = tokio::sync::watch::channel(false);
    let serving = server.clone();
    let client = turnstream_mcp::Client::streams(move || {
        let (server, ended) = (serving.clone(), ended.clone());
        async move {
            let (here, there) = tokio::io::duplex(1 << 16);
            let (reader, writer) = tokio::io::split(there);
            tokio::spawn(async move {
                let _ = server.serve(reader, writer).await;
                ended.send_replace(true);
            });
            Ok(tokio::io::split(here))
        }
    })
    .build();
    let kit = client.toolkit().await.unwrap();
    drop(client);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!*end.borrow(), "the tools keep it");
    drop(kit);
    let mut end = end;
    end.wait_for(|ended| *ended).await.unwrap();
}
