//! Tools that change while an agent runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::event::{AppendReason, EndReason};
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Event};
use turnstream_mcp::Client;
use turnstream_testing::mcp::{McpAnswer, McpEra, McpServer, McpTool};

use crate::support::{client_of, echo_tool, no_arguments};

/// The notices of hooks and sources to the model.
async fn notices(mut run: turnstream::Run) -> (Vec<String>, turnstream::Outcome) {
    let mut notices = Vec::new();
    while let Some(event) = run.next().await {
        match event.unwrap() {
            Event::Appended { why: AppendReason::Hook, items, .. } => {
                notices.extend(items.iter().filter_map(|item| Some(item.as_user()?.text())));
            }
            Event::Finished(outcome) => return (notices, *outcome),
            _ => {}
        }
    }
    panic!("the run has no end")
}

fn agent_of(client: Client, calls: &[(&str, serde_json::Value)]) -> (Agent, Scripted) {
    let mut replies: Vec<Reply> =
        calls.iter().map(|(name, arguments)| Reply::new().call(name, arguments.clone())).collect();
    replies.push(Reply::text("done"));
    let model = Scripted::new(replies);
    (Agent::new(model.clone()).with_tool_source(client), model)
}

/// A tool that adds another one to its server.
fn growing_server(era: McpEra) -> McpServer {
    let server = McpServer::new().with_era(era);
    let handle = server.handle();
    let grow = McpTool::new("grow", "Adds a tool", no_arguments(), move |_, _| {
        let (handle, grown) = (handle.clone(), echo_tool());
        async move {
            handle.set_tools([
                McpTool::new("grow", "Adds a tool", no_arguments(), |_, _| async { "no more" }),
                grown,
            ]);
            // The change notification is sent before the answer.
            tokio::time::sleep(Duration::from_millis(10)).await;
            "grown"
        }
    });
    server.with_tool(grow)
}

#[tokio::test(start_paused = true)]
async fn a_tool_added_during_a_run_is_announced_and_callable() {
    for era in [McpEra::Modern, McpEra::Legacy] {
        let server = growing_server(era);
        let client = client_of(&server).trusted();
        let (agent, model) =
            agent_of(client, &[("s__grow", json!({})), ("s__echo", json!({ "text": "hi" }))]);
        let (notices, outcome) = notices(agent.run("go")).await;
        assert_eq!(outcome.reason, EndReason::Completed);
        let results: Vec<_> =
            outcome.history.iter().filter_map(turnstream::Item::as_tool_result).collect();
        assert_eq!(results[1].content.text(), "hi", "{era:?}");
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].contains("s__echo"), "{notices:?}");
        let offered: Vec<_> = model.requests().iter().map(|request| request.tools.len()).collect();
        assert_eq!(offered, [1, 2, 2]);
    }
}

/// A client whose connections can be refused and broken.
struct Line {
    client: Client,
    is_up: Arc<AtomicBool>,
    breaks: tokio::sync::watch::Sender<u32>,
}

fn line_to(server: McpServer) -> Line {
    let is_up = Arc::new(AtomicBool::new(true));
    let (breaks, broken) = tokio::sync::watch::channel(0);
    let up = is_up.clone();
    let client = Client::streams(move || {
        let (server, mut broken, up) = (server.clone(), broken.clone(), up.clone());
        async move {
            if !up.load(Ordering::Relaxed) {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::ConnectionRefused,
                    "the line is down",
                ));
            }
            broken.mark_unchanged();
            let (here, there) = tokio::io::duplex(1 << 16);
            let (reader, writer) = tokio::io::split(there);
            tokio::spawn(async move {
                tokio::select! {
                    _ = server.serve(reader, writer) => {}
                    _ = broken.changed() => {}
                }
            });
            Ok(tokio::io::split(here))
        }
    });
    Line { client: client.with_name("s").build().trusted(), is_up, breaks }
}

fn breaking_server(
    line: &Arc<std::sync::OnceLock<(Arc<AtomicBool>, tokio::sync::watch::Sender<u32>)>>,
    stays_down: bool,
) -> McpServer {
    let line = line.clone();
    let tool = McpTool::new("break", "Breaks the line", no_arguments(), move |_, _| {
        let line = line.clone();
        async move {
            let (is_up, breaks) = line.get().expect("the line was made");
            is_up.store(!stays_down, Ordering::Relaxed);
            breaks.send_modify(|count| *count += 1);
            std::future::pending::<McpAnswer>().await
        }
    });
    McpServer::new().with_tool(tool).with_tool(echo_tool())
}

#[tokio::test(start_paused = true)]
async fn a_connection_lost_during_a_run_is_restored_with_all_tools() {
    let shared = Arc::default();
    let line = line_to(breaking_server(&shared, false));
    let _ = shared.set((line.is_up.clone(), line.breaks.clone()));
    let (agent, model) =
        agent_of(line.client, &[("s__break", json!({})), ("s__echo", json!({ "text": "hi" }))]);
    let (notices, outcome) = notices(agent.run("go")).await;
    let results: Vec<_> =
        outcome.history.iter().filter_map(turnstream::Item::as_tool_result).collect();
    assert!(results[0].content.text().contains("closed its connection"), "{results:?}");
    assert_eq!(results[1].content.text(), "hi");
    assert!(notices.is_empty(), "{notices:?}");
    assert!(model.requests().iter().all(|request| request.tools.len() == 2));
}

#[tokio::test(start_paused = true)]
async fn a_permanently_lost_connection_keeps_its_tools_and_is_reported() {
    let shared = Arc::default();
    let line = line_to(breaking_server(&shared, true));
    let _ = shared.set((line.is_up.clone(), line.breaks.clone()));
    let (agent, model) =
        agent_of(line.client, &[("s__break", json!({})), ("s__echo", json!({ "text": "hi" }))]);
    let (notices, outcome) = notices(agent.run("go")).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("`s`") && notices[0].contains("the line is down"), "{notices:?}");
    assert!(model.requests().iter().all(|request| request.tools.len() == 2));
    let last =
        outcome.history.iter().filter_map(turnstream::Item::as_tool_result).next_back().unwrap();
    assert!(last.is_error() && last.content.text().contains("the line is down"), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_at_the_start_fails_the_run_before_a_request() {
    let line = line_to(McpServer::new());
    line.is_up.store(false, Ordering::Relaxed);
    let (agent, model) = agent_of(line.client, &[]);
    let outcome = agent.run("go").outcome().await;
    let error = outcome.error.unwrap();
    assert_eq!(error.kind(), turnstream::ErrorKind::Connect);
    assert!(error.message().contains("the line is down"), "{error}");
    assert!(model.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn searchable_tools_may_change_while_requests_list_the_same_two_tools() {
    let server = growing_server(McpEra::Both);
    let call_inner = |name: &str, arguments: serde_json::Value| {
        ("call_tool", json!({ "name": name, "arguments": arguments }))
    };
    let calls = [
        ("search_tools", json!({ "query": "add a tool" })),
        call_inner("s__grow", json!({})),
        ("search_tools", json!({ "query": "repeat a text" })),
        call_inner("s__echo", json!({ "text": "hi" })),
    ];
    let (agent, model) = agent_of(client_of(&server).trusted(), &calls);
    let agent = agent.with_toolkit(turnstream::Toolkit::default().searchable());
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let texts: Vec<_> = outcome
        .history
        .iter()
        .filter_map(|item| Some(item.as_tool_result()?.content.text()))
        .collect();
    assert!(texts[0].contains("s__grow") && !texts[0].contains("s__echo"), "{texts:?}");
    assert_eq!(texts[1], "grown");
    assert!(texts[2].contains("s__echo"), "{texts:?}");
    assert_eq!(texts[3], "hi");
    let requests = model.requests();
    let offered = |at: usize| serde_json::to_string(&requests[at].tools).unwrap();
    assert!((1..requests.len()).all(|at| offered(at) == offered(0)));
    assert!((1..requests.len()).all(|at| requests[at].system == requests[0].system));
}
