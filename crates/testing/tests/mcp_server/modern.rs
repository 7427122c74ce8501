//! The modern era over lines.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use turnstream_testing::mcp::{McpAnswer, McpEra, McpRequestStatus, McpServer, McpTool};

use crate::line_client::{LineClient, soon};
use crate::tools::{
    call, echo, error_code, initialize, modern, notification, object, request, server, text,
    wait_for_ever,
};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

#[tokio::test(start_paused = true)]
async fn discover_names_the_versions_and_the_capabilities() {
    let server = server().with_instructions("Be brief.").with_resource("a://b", "b", "c/d", "e");
    let mut client = LineClient::start(server);
    let answer = client.ask(modern(request(1, "server/discover", json!({})))).await;
    let result = &answer["result"];
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(
        result["capabilities"],
        json!({ "tools": { "listChanged": true }, "resources": {} })
    );
    assert_eq!(result["instructions"], "Be brief.");
    assert_eq!(result["resultType"], "complete");
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
    assert!(client.handle.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_without_its_meta_fields_is_refused() {
    let mut client = LineClient::start(server().with_era(McpEra::Modern));
    let whole = modern(request(1, "tools/list", json!({})));
    for (field, broken) in [
        (VERSION, Value::Null),
        (VERSION, json!(3)),
        (CAPABILITIES, Value::Null),
        (CAPABILITIES, json!([])),
    ] {
        let mut message = whole.clone();
        message["params"]["_meta"][field] = broken;
        assert_eq!(error_code(&client.ask(message).await), -32602, "{field}");
    }
    let bare = client.ask(request(1, "tools/list", json!({}))).await;
    assert_eq!(error_code(&bare), -32602);
    assert_eq!(client.handle.violations().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_version_error_lists_the_supported_ones() {
    let mut client = LineClient::start(server());
    let mut message = modern(request(1, "tools/list", json!({})));
    message["params"]["_meta"][VERSION] = json!("2099-01-01");
    let answer = client.ask(message).await;
    assert_eq!(error_code(&answer), -32022);
    let data = json!({ "supported": ["2026-07-28"], "requested": "2099-01-01" });
    assert_eq!(answer["error"]["data"], data);
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_rejects_initialize_and_lists_its_versions() {
    let mut client = LineClient::start(server().with_era(McpEra::Modern));
    let answer = client.ask(initialize("2025-11-25")).await;
    assert_eq!(error_code(&answer), -32022);
    assert_eq!(answer["error"]["data"]["supported"], json!(["2026-07-28"]));
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_listed_as_defined_and_answers_a_call() {
    let tool = echo()
        .with_title("Echo")
        .with_annotations(json!({ "readOnlyHint": true }))
        .with_output_schema(object());
    let mut client = LineClient::start(McpServer::new().with_tool(tool));
    let answer = client.ask(modern(request(1, "tools/list", json!({})))).await;
    assert_eq!(
        answer["result"]["tools"],
        json!([{
            "name": "echo",
            "description": "Repeats",
            "inputSchema": object(),
            "title": "Echo",
            "annotations": { "readOnlyHint": true },
            "outputSchema": object(),
        }])
    );
    let answer = client.ask(modern(call("b", "echo", json!({ "a": 1 })))).await;
    assert_eq!((&answer["id"], text(&answer)), (&json!("b"), r#"{"a":1}"#));
    assert_eq!(answer["result"]["resultType"], "complete");
}

#[tokio::test(start_paused = true)]
async fn an_answer_contains_the_handlers_output() {
    let full = McpTool::new("full", "", object(), async |_, _| {
        McpAnswer::error("no")
            .with_image("image/png", b"abc")
            .with_audio("audio/wav", b"abc")
            .with_block(json!({ "type": "resource_link", "uri": "a://b", "name": "b" }))
            .with_resource("c://d", "text/plain", "e")
            .with_structured(json!([1]))
    });
    let rpc = McpTool::new("rpc", "", object(), async |_, _| {
        McpAnswer::rpc_error(-1, "no").with_field("data", 2)
    });
    let mut client = LineClient::start(McpServer::new().with_tool(full).with_tool(rpc));
    let answer = client.ask(modern(call(1, "full", json!({})))).await;
    assert_eq!(
        answer["result"],
        json!({
            "content": [
                { "type": "text", "text": "no" },
                { "type": "image", "data": "YWJj", "mimeType": "image/png" },
                { "type": "audio", "data": "YWJj", "mimeType": "audio/wav" },
                { "type": "resource_link", "uri": "a://b", "name": "b" },
                {
                    "type": "resource",
                    "resource": { "uri": "c://d", "mimeType": "text/plain", "text": "e" },
                },
            ],
            "isError": true,
            "structuredContent": [1],
            "resultType": "complete",
        })
    );
    let answer = client.ask(modern(call(2, "rpc", json!({})))).await;
    assert_eq!(answer["error"], json!({ "code": -1, "message": "no", "data": 2 }));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_or_method_is_an_error_and_not_a_protocol_violation() {
    let mut client = LineClient::start(server());
    assert_eq!(error_code(&client.ask(modern(call(1, "none", json!({})))).await), -32602);
    assert_eq!(error_code(&client.ask(modern(request(2, "none", json!({})))).await), -32601);
    assert!(client.handle.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_an_internal_error() {
    let tool = McpTool::new("panics", "", object(), async |arguments: Value, _| {
        assert!(arguments.is_null(), "a bug");
        "never"
    });
    let mut client = LineClient::start(McpServer::new().with_tool(tool).with_tool(echo()));
    let answer = client.ask(modern(call(1, "panics", json!({})))).await;
    assert_eq!(error_code(&answer), -32603);
    assert!(answer["error"]["message"].as_str().unwrap().contains("a bug"), "{answer}");
    client.ask(modern(call(2, "echo", json!({})))).await;
}

#[tokio::test(start_paused = true)]
async fn progress_is_sent_if_the_client_asks_for_it() {
    let mut client = LineClient::start(server());
    let mut message = modern(call(1, "two_steps", json!({})));
    message["params"]["_meta"]["progressToken"] = json!("t");
    let first = client.ask(message).await;
    let params = json!({ "progressToken": "t", "progress": 1.0, "total": 2.0, "message": "half" });
    assert_eq!(first, notification("notifications/progress", params));
    let second = client.receive().await;
    assert_eq!(second["params"], json!({ "progressToken": "t", "progress": 2.0 }));
    assert_eq!(text(&client.receive().await), "done");
    client.expect_nothing(modern(call(2, "two_steps", json!({})))).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_is_a_result_and_the_repeated_call_has_the_answer() {
    let mut client = LineClient::start(server());
    let first = client.ask(modern(call(1, "ask_twice", json!({ "a": 1 })))).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    let question = &first["result"]["inputRequests"]["name"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Your name?");

    let mut again = modern(call(2, "ask_twice", json!({ "a": 1 })));
    again["params"]["requestState"] = first["result"]["requestState"].clone();
    let ada = json!({ "name": { "action": "accept", "content": { "name": "Ada" } } });
    again["params"]["inputResponses"] = ada;
    let second = client.ask(again.clone()).await;
    assert_eq!(second["result"]["inputRequests"]["where"]["method"], "roots/list");

    // The first answer is not requested again.
    let mut last = modern(call(3, "ask_twice", json!({ "a": 1 })));
    last["params"]["requestState"] = second["result"]["requestState"].clone();
    last["params"]["inputResponses"] = json!({ "where": { "roots": [] } });
    assert_eq!(text(&client.ask(last).await), r#""Ada" {"roots":[]}"#);
    assert!(client.handle.violations().is_empty());

    let trimmed = again["params"]["requestState"].as_str().unwrap().trim().to_owned();
    for (field, value) in [
        ("requestState", json!(trimmed)),
        ("arguments", json!({ "a": 2 })),
        ("inputResponses", json!({ "other": {} })),
        ("inputResponses", json!({ "name": "Ada" })),
    ] {
        let mut broken = again.clone();
        broken["params"][field] = value;
        assert_eq!(error_code(&client.ask(broken).await), -32602, "{field}");
    }
    assert_eq!(client.handle.violations().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_question_to_a_client_that_cannot_answer_is_an_error() {
    let mut client = LineClient::start(server());
    let mut message = modern(call(1, "ask_twice", json!({})));
    message["params"]["_meta"][CAPABILITIES] = json!({});
    let answer = client.ask(message).await;
    assert_eq!(error_code(&answer), -32021);
    assert_eq!(answer["error"]["data"], json!({ "requiredCapabilities": { "elicitation": {} } }));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_dropped_and_never_answered() {
    let (tool, dropped) = wait_for_ever();
    let mut client = LineClient::start(server().with_tool(tool));
    client.send(modern(call(7, "wait_for_ever", json!({})))).await;
    let is_running = Some(McpRequestStatus::Running);
    soon(client.handle.wait_until(|log| log.first().is_some_and(|m| m.status == is_running))).await;
    assert!(!dropped.load(Ordering::SeqCst));

    client.send(notification("notifications/cancelled", json!({ "requestId": 7 }))).await;
    let is_cancelled = Some(McpRequestStatus::Cancelled);
    soon(client.handle.wait_until(|log| log[0].status == is_cancelled)).await;
    assert!(dropped.load(Ordering::SeqCst));
    client.expect_nothing(modern(request(8, "server/discover", json!({})))).await;
    assert_eq!(client.handle.received()[2].status, Some(McpRequestStatus::Answered));
    assert!(client.handle.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_drops_running_calls_and_ends_the_server() {
    let (tool, dropped) = wait_for_ever();
    let mut client = LineClient::start(server().with_tool(tool));
    client.send(modern(call(1, "echo", json!({})))).await;
    client.send(modern(call(2, "wait_for_ever", json!({})))).await;
    let handle = client.handle.clone();
    let rest = client.close().await;
    assert_eq!(rest.lines().count(), 1, "{rest}");
    assert!(dropped.load(Ordering::SeqCst));
    let statuses = handle.received().into_iter().map(|message| message.status.unwrap());
    let expected = [McpRequestStatus::Answered, McpRequestStatus::Cancelled];
    assert_eq!(statuses.collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_id_already_in_use_is_rejected() {
    let (tool, dropped) = wait_for_ever();
    let mut client = LineClient::start(server().with_tool(tool));
    client.send(modern(call(1, "wait_for_ever", json!({})))).await;
    assert_eq!(error_code(&client.ask(modern(call(1, "echo", json!({})))).await), -32600);
    assert_eq!(client.handle.violations(), ["the id 1 is in use"]);
    assert!(!dropped.load(Ordering::SeqCst), "the first call still runs");
    // An id of another JSON type is another id.
    client.ask(modern(call("1", "echo", json!({})))).await;
}

#[tokio::test(start_paused = true)]
async fn only_subscribers_are_notified_of_new_tools() {
    let mut client = LineClient::start(server());
    client.handle.set_tools([]);
    client.expect_nothing(modern(request(1, "server/discover", json!({})))).await;

    let listen = |id: &str, filter: Value| {
        modern(request(id, "subscriptions/listen", json!({ "notifications": filter })))
    };
    let ack = client.ask(listen("sub", json!({ "toolsListChanged": true }))).await;
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": "sub" });
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    let filter = json!({ "toolsListChanged": true });
    assert_eq!(ack["params"], json!({ "notifications": filter, "_meta": meta }));
    let other = client.ask(listen("other", json!({ "promptsListChanged": true }))).await;
    assert_eq!(other["params"]["notifications"], json!({}));

    client.handle.set_tools([echo()]);
    let changed = client.receive().await;
    let params = json!({ "_meta": meta });
    assert_eq!(changed, notification("notifications/tools/list_changed", params));
    let tools = client.ask(modern(request(2, "tools/list", json!({})))).await;
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 1);

    client.send(notification("notifications/cancelled", json!({ "requestId": "sub" }))).await;
    client.expect_nothing(modern(request(3, "server/discover", json!({})))).await;
    client.handle.set_tools([]);
    client.expect_nothing(modern(request(4, "server/discover", json!({})))).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_is_paged_and_accepts_only_its_own_cursors() {
    let mut client = LineClient::start(server().with_page_size(2));
    let first = client.ask(modern(request(1, "tools/list", json!({})))).await;
    assert_eq!(first["result"]["tools"].as_array().unwrap().len(), 2);
    let cursor = first["result"]["nextCursor"].clone();
    let last = client.ask(modern(request(2, "tools/list", json!({ "cursor": cursor })))).await;
    assert_eq!(last["result"]["tools"].as_array().unwrap().len(), 1);
    assert!(last["result"].get("nextCursor").is_none(), "{last}");
    let wrong = client.ask(modern(request(3, "tools/list", json!({ "cursor": "2" })))).await;
    assert_eq!(error_code(&wrong), -32602);
    assert_eq!(client.handle.violations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn resources_and_prompts_are_listed_and_read() {
    let server = McpServer::new()
        .with_resource("a://text", "text", "text/plain", "words")
        .with_binary_resource("a://bytes", "bytes", "image/png", &b"abc"[..])
        .with_prompt("greet", "Greets", &["who"], "Hello, {who}!");
    let mut client = LineClient::start(server);
    let mut ask =
        async |method: &str, params: Value| client.ask(modern(request(1, method, params))).await;
    let list = ask("resources/list", json!({})).await;
    assert_eq!(list["result"]["resources"].as_array().unwrap().len(), 2);
    let templates = ask("resources/templates/list", json!({})).await;
    assert_eq!(templates["result"]["resourceTemplates"], json!([]));
    let text = ask("resources/read", json!({ "uri": "a://text" })).await;
    assert_eq!(text["result"]["contents"][0]["text"], "words");
    let bytes = ask("resources/read", json!({ "uri": "a://bytes" })).await;
    assert_eq!(bytes["result"]["contents"][0]["blob"], "YWJj");
    assert_eq!(error_code(&ask("resources/read", json!({ "uri": "a://no" })).await), -32602);

    let list = ask("prompts/list", json!({})).await;
    let expected = json!([{ "name": "who", "required": true }]);
    assert_eq!(list["result"]["prompts"][0]["arguments"], expected);
    let prompt =
        ask("prompts/get", json!({ "name": "greet", "arguments": { "who": "Ada" } })).await;
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hello, Ada!");
    assert_eq!(error_code(&ask("prompts/get", json!({ "name": "greet" })).await), -32602);
}

#[tokio::test(start_paused = true)]
async fn invalid_lines_are_rejected_and_recorded() {
    let mut client = LineClient::start(server());
    for (line, code) in
        [("{", -32700), ("[]", -32600), (r#"{"id":1,"method":"m"}"#, -32600), ("null", -32600)]
    {
        client.send_line(line).await;
        assert_eq!(error_code(&client.receive().await), code, "{line}");
    }
    assert_eq!(client.handle.violations().len(), 4);
    client.send_line("").await;
    client.expect_nothing(modern(request(1, "server/discover", json!({})))).await;
}
