//! The provider type, over a loopback connection.

use super::*;
use turnstream::event::EndReason;
use turnstream::http::HttpClient;
use turnstream::provider::{OpenAiResponses, Provider};
use turnstream::stream::TurnStreamExt;
use turnstream::{Agent, ErrorKind};
use turnstream_testing::http::BodyPart as Piece;
use turnstream_testing::http::{HttpResponse, LoopbackServer};

use turnstream_test_support::tools::sum_tool;

fn http_response(status: u16, media_type: &str, body: impl Into<Bytes>) -> HttpResponse {
    HttpResponse {
        status,
        headers: vec![
            ("content-type".into(), media_type.into()),
            ("x-request-id".into(), "req_1".into()),
        ],
        body: vec![Piece::Bytes(body.into())],
    }
}

fn model(server: &LoopbackServer) -> OpenAiResponses {
    OpenAiResponses::new(MODEL)
        .with_api_key("sk-key")
        .with_base_url(format!("{}/v1/", server.url()))
        .unwrap()
        .with_http_client(HttpClient::without_proxy())
        .without_retries()
}

#[tokio::test]
async fn a_tool_loop_runs_through_the_agent_and_sends_its_reasoning_back() {
    let server = LoopbackServer::start(|request| {
        assert_eq!(request.path, "/v1/responses");
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        let input = asked["input"].as_array().unwrap();
        let list = match input.last().unwrap()["type"].as_str() {
            Some("function_call_output") => {
                assert_eq!(input[1], reasoning_item("rs_1", "e"));
                assert_eq!(input[2]["id"], "fc_1");
                let sum = input[3]["output"].as_str().unwrap();
                vec![text_delta(0, sum), response_completed(json!([]))]
            }
            _ => vec![
                response_created(),
                output_item_done(0, reasoning_item("rs_1", "e")),
                output_item_done(1, function_call_item("fc_1", "call_1", r#"{"a":2,"b":3}"#)),
                response_completed(json!([])),
            ],
        };
        http_response(200, "text/event-stream", sse_body(&list))
    })
    .await
    .unwrap();
    let outcome =
        Agent::new(model(&server)).with_tools([sum_tool("f")]).run("2 + 3?").outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "sum 5"));
    assert_eq!(server.connection_count(), 1);
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer sk-key"));
}

#[tokio::test]
async fn a_parallel_call_wrapper_is_expanded_using_the_requests_tools() {
    let server = LoopbackServer::start(|_| {
        let arguments = r#"{"tool_uses":[{"recipient_name":"functions.g","parameters":{}}]}"#;
        let mut wrapper = function_call_item("fc_1", "c", arguments);
        wrapper["name"] = "parallel".into();
        http_response(
            200,
            "text/event-stream",
            sse_body(&[output_item_done(0, wrapper), response_completed(json!([]))]),
        )
    })
    .await
    .unwrap();
    let request = Request::new(History::from_items("h", [Item::user("hi")]))
        .with_tools([turnstream::request::ToolSpec::new("g", "", json!({}))]);
    let turn = model(&server).stream_turn(request).into_turn().await.unwrap();
    assert_eq!(turn.tool_calls().next().unwrap().name, "g");
}

#[tokio::test]
async fn a_response_that_is_not_a_stream_is_a_clear_error() {
    for (status, media_type, body, kind) in [
        (
            200,
            "application/json",
            r#"{"error":{"message":"m","code":"rate_limit_exceeded"}}"#,
            ErrorKind::RateLimited,
        ),
        (200, "application/json", r#"{"object":"response","output":[]}"#, ErrorKind::Protocol),
        (200, "text/html", "<html>login</html>", ErrorKind::Protocol),
        (
            401,
            "application/json",
            r#"{"error":{"message":"Incorrect API key sk-key"}}"#,
            ErrorKind::Auth,
        ),
        (
            400,
            "application/json",
            r#"{"error":{"message":"No tool output found","type":"invalid_request_error","param":"input"}}"#,
            ErrorKind::InvalidRequest,
        ),
    ] {
        let server =
            LoopbackServer::start(move |_| http_response(status, media_type, body)).await.unwrap();
        let request = Request::new(History::from_items("h", [Item::user("hi")]));
        let error = model(&server).stream_turn(request).into_turn().await.unwrap_err();
        assert_eq!((error.kind(), error.request_id()), (kind, Some("req_1")), "{error}");
        assert!(!error.message().contains("sk-key"));
    }
}

#[tokio::test]
async fn a_stream_with_another_content_type_is_decoded() {
    let server = LoopbackServer::start(|_| {
        http_response(
            200,
            "application/json",
            sse_body(&[text_delta(0, "a"), response_completed(json!([]))]),
        )
    })
    .await
    .unwrap();
    let request = Request::new(History::from_items("h", [Item::user("hi")]));
    let turn = model(&server).stream_turn(request).into_turn().await.unwrap();
    assert_eq!(turn.text(), "a");
}

#[tokio::test]
async fn a_request_may_name_another_model() {
    let server = LoopbackServer::start(|request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(asked["model"], "gpt-5.2");
        let list =
            [output_item_done(0, reasoning_item("rs_1", "e")), response_completed(json!([]))];
        http_response(200, "text/event-stream", sse_body(&list))
    })
    .await
    .unwrap();
    let mut request = Request::new(History::from_items("h", [Item::user("hi")]));
    request.model = Some("gpt-5.2".into());
    let turn = model(&server).stream_turn(request).into_turn().await.unwrap();
    assert_eq!(turn.items()[0].provider_data.as_ref().unwrap().model, "gpt-5.2");
}

/// A server that answers the requests in turn with these output items, and then with a text.
async fn server_of(outputs: Vec<Vec<Value>>) -> LoopbackServer {
    let server = LoopbackServer::start(move |request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let violations = turnstream_testing::lint::request(
            turnstream_testing::Wire::OpenAiResponses,
            MODEL,
            &body,
        );
        assert_eq!(violations, Vec::<String>::new(), "{body:#}");
        let answered = |item: &&Value| {
            item["type"].as_str().unwrap_or_default().ends_with("_output")
                || item["type"] == "mcp_approval_response"
        };
        let turn = body["input"].as_array().unwrap().iter().filter(answered).count();
        let list = match outputs.get(turn) {
            Some(output) => vec![response_created(), response_completed(output.clone())],
            None => vec![text_delta(0, "Done."), response_completed(json!([]))],
        };
        http_response(200, "text/event-stream", sse_body(&list))
    });
    server.await.unwrap()
}

fn last_input(server: &LoopbackServer) -> Vec<Value> {
    let requests = server.requests();
    let body: Value = serde_json::from_slice(&requests.last().unwrap().body).unwrap();
    body["input"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_agent_runs_a_shell_and_answers_a_pending_call_of_a_computer() {
    use turnstream::Tool;
    use turnstream::item::Part;
    use turnstream::request::ClientTool;
    use turnstream::tool::{ToolOutput, Verdict};

    let shell = json!({ "type": "shell_call", "id": "sh_1", "call_id": "call_1",
        "action": { "commands": ["pwd"] }, "status": "completed" });
    let computer = json!({ "type": "computer_call", "id": "cu_1", "call_id": "call_2",
        "actions": [{ "type": "screenshot" }], "pending_safety_checks": [],
        "status": "completed" });
    let server = server_of(vec![vec![shell.clone()], vec![computer.clone()]]).await;
    let run_shell = Tool::raw(ClientTool::Shell.spec(), |args, _| async move {
        assert_eq!(args, json!({ "commands": ["pwd"] }));
        "/home"
    });
    let tools = [run_shell.unwrap(), Tool::external(ClientTool::Computer.spec()).unwrap()];
    let agent = Agent::new(model(&server)).with_tools(tools);
    let outcome = agent.run("Where am I?").outcome().await;
    assert_eq!((outcome.reason, &outcome.error), (EndReason::Pending, &None));
    assert_eq!(outcome.pending[0].name, "computer");
    assert_eq!(outcome.pending[0].arguments, r#"{"actions":[{"type":"screenshot"}]}"#);

    let screen = ToolOutput::ok(vec![Part::image("image/png", b"\x89PNG")]);
    let answers = [(outcome.pending[0].clone(), Verdict::Output(screen))];
    let outcome = agent.resume(outcome.history, answers).unwrap().outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "Done."));
    let exit = json!({ "type": "exit", "exit_code": 0 });
    let screenshot = json!({ "type": "computer_screenshot",
        "image_url": "data:image/png;base64,iVBORw==" });
    assert_eq!(
        last_input(&server)[1..],
        [
            shell,
            json!({ "type": "shell_call_output", "call_id": "call_1",
                "output": [{ "stdout": "/home", "stderr": "", "outcome": exit }] }),
            computer,
            json!({ "type": "computer_call_output", "call_id": "call_2", "output": screenshot }),
        ]
    );
}

#[tokio::test]
async fn a_call_to_an_mcp_server_runs_only_after_its_approval() {
    use turnstream::Tool;
    use turnstream::request::{McpServer, Options};
    use turnstream::tool::Verdict;

    let request = |id: &str| {
        json!({ "type": "mcp_approval_request", "id": id, "server_label": "wiki",
            "name": "find", "arguments": "{}" })
    };
    let called = json!({ "type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1",
        "server_label": "wiki", "name": "find", "arguments": "{}", "output": "found" });
    let server =
        server_of(vec![vec![request("mcpr_1")], vec![called.clone(), request("mcpr_2")]]).await;
    let (name, url) = ("wiki".to_owned(), "https://mcp.example".to_owned());
    let wiki = McpServer { name, url, require_approval: true, ..McpServer::default() };
    let options = Options { server_tools: vec![wiki.into()], ..Options::default() };
    let agent = Agent::new(model(&server))
        .with_options(options.clone())
        .with_tools([Tool::mcp_approval("wiki").unwrap()]);
    let outcome = agent.run("Look it up").outcome().await;
    assert_eq!((outcome.reason, &outcome.error), (EndReason::Pending, &None));
    assert_eq!(outcome.pending[0].arguments, r#"{"name":"find","arguments":{}}"#);

    let approved = [(outcome.pending[0].clone(), Verdict::Approve)];
    let outcome = agent.resume(outcome.history, approved).unwrap().outcome().await;
    assert_eq!(outcome.pending[0].call_id, "mcpr_2");
    let denied = [(outcome.pending[0].clone(), Verdict::Deny("enough".into()))];
    let outcome = agent.resume(outcome.history, denied).unwrap().outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "Done."));
    let answer = |id: &str, approve: bool| json!({ "type": "mcp_approval_response", "approval_request_id": id, "approve": approve });
    let mut denial = answer("mcpr_2", false);
    denial["reason"] = json!("Denied: enough");
    assert_eq!(
        last_input(&server)[1..],
        [request("mcpr_1"), answer("mcpr_1", true), called, request("mcpr_2"), denial]
    );
    // Without the tool, nothing is sent.
    let requests = server.requests().len();
    let agent = Agent::new(model(&server)).with_options(options);
    let outcome = agent.run("Look it up").outcome().await;
    assert_eq!(outcome.error.unwrap().kind(), ErrorKind::Unsupported);
    assert_eq!(server.requests().len(), requests);
}

/// Runs an agent whose call to an MCP server is approved, and whose next requests all receive
/// `answer`. Returns the number of these requests, and the run's error.
async fn requests_after_an_approval(
    answer: HttpResponse,
    retries_outside: bool,
) -> (usize, turnstream::Error) {
    use std::time::Duration;
    use turnstream::Tool;
    use turnstream::provider::{Backoff, Retry};
    use turnstream::request::{McpServer, Options};
    use turnstream::tool::Verdict;

    let request = json!({ "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "wiki",
        "name": "find", "arguments": "{}" });
    let server = LoopbackServer::start(move |received| {
        let body: Value = serde_json::from_slice(&received.body).unwrap();
        match body["input"].as_array().unwrap().len() {
            1 => {
                let list = [response_created(), response_completed(json!([request]))];
                http_response(200, "text/event-stream", sse_body(&list))
            }
            _ => answer.clone(),
        }
    })
    .await
    .unwrap();
    let (name, url) = ("wiki".to_owned(), "https://mcp.example".to_owned());
    let wiki = McpServer { name, url, require_approval: true, ..McpServer::default() };
    let options = Options { server_tools: vec![wiki.into()], ..Options::default() };
    let no_delay = Backoff { base_delay: Duration::ZERO, ..Backoff::default() };
    let over_http = model(&server).with_backoff(no_delay);
    let agent = match retries_outside {
        true => Agent::new(Retry::new(over_http).with_backoff(no_delay).with_retraction()),
        false => Agent::new(over_http),
    };
    let agent = agent.with_options(options).with_tools([Tool::mcp_approval("wiki").unwrap()]);
    let outcome = agent.run("Look it up").outcome().await;
    let approved = [(outcome.pending[0].clone(), Verdict::Approve)];
    let outcome = agent.resume(outcome.history, approved).unwrap().outcome().await;
    assert!(matches!(outcome.reason, EndReason::ProviderError | EndReason::Incomplete));
    // The approval was not sent over a connection that the server may have closed.
    assert_ne!(server.connection_count(), 1);
    (server.requests().len() - 1, outcome.error.unwrap())
}

#[tokio::test]
async fn a_request_that_approves_a_call_is_repeated_only_if_the_server_has_refused_it() {
    let begun = |list: &[Value], end: Piece| {
        let mut response = http_response(200, "text/event-stream", sse_body(list));
        response.body.push(end);
        response
    };
    let called = json!({ "type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1",
        "server_label": "wiki", "name": "find", "arguments": "{}", "output": "found" });
    let failed = json!({ "type": "response.failed", "response": { "id": "resp_1",
        "status": "failed", "error": { "code": "server_error", "message": "no" } } });
    for retries_outside in [false, true] {
        for answer in [
            begun(&[response_created()], Piece::Cut),
            begun(&[response_created(), output_item_done(0, called.clone())], Piece::Cut),
            begun(&[response_created(), text_delta(0, "So")], Piece::Cut),
            http_response(
                200,
                "text/event-stream",
                sse_body(&[response_created(), failed.clone()]),
            ),
            HttpResponse {
                body: vec![Piece::Reset],
                ..http_response(200, "text/event-stream", "")
            },
            http_response(500, "application/json", r#"{"error":{"message":"no"}}"#),
            http_response(503, "application/json", r#"{"error":{"message":"no"}}"#),
        ] {
            let (count, error) = requests_after_an_approval(answer, retries_outside).await;
            assert_eq!(count, 1, "{error}");
        }
        let limited = http_response(429, "application/json", r#"{"error":{"message":"wait"}}"#);
        assert_eq!(requests_after_an_approval(limited, retries_outside).await.0, 3);
    }
}
