//! Calls: names, arguments, progress, results.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::event::{Event, ToolEvent};
use turnstream::item::{Content, Part, ResultKind};
use turnstream::propagation::{TraceContext, TraceContexts};
use turnstream::provider::gemini;
use turnstream::{History, Item, Request};
use turnstream_mcp::{Limits, MediaParts};
use turnstream_testing::mcp::{McpAnswer, McpEra, McpFault, McpServer, McpTool};
use turnstream_testing::{Wire, lint};

use crate::support::{builder_of, call, call_text, client_of, echo_tool, no_arguments, run_call};

#[tokio::test(start_paused = true)]
async fn tools_are_listed_over_several_pages_and_sorted_by_name() {
    let mut server = McpServer::new().with_page_size(2);
    for name in ["zeta", "alpha", "mid.dle", "b", "a"] {
        server = server.with_tool(McpTool::new(name, name, no_arguments(), |_, _| async { "" }));
    }
    let kit = client_of(&server).toolkit().await.unwrap();
    let names: Vec<_> = kit.specs().iter().map(|spec| spec.name.clone()).collect();
    assert_eq!(names[..3], ["s__a", "s__alpha", "s__b"]);
    assert_eq!(names[4..], ["s__zeta"]);
    // The name that had to be changed ends with a hash.
    assert!(
        names[3].starts_with("s__mid_dle_") && names[3].len() == "s__mid_dle_".len() + 8,
        "{names:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn tool_filters_match_the_servers_tool_names() {
    let server = ["a", "b.c", "d"].into_iter().fold(McpServer::new(), |server, name| {
        server.with_tool(McpTool::new(name, name, no_arguments(), |_, _| async { "" }))
    });
    let client = client_of(&server);
    let count = |client: turnstream_mcp::Client| async move {
        client.toolkit().await.unwrap().specs().len()
    };
    assert_eq!(count(client.clone().only(["a", "b.c"])).await, 2);
    assert_eq!(count(client.clone().without(["b.c"])).await, 2);
    assert_eq!(count(client.clone().only(["a"]).without(["a"])).await, 0);
    assert_eq!(count(client).await, 3);
}

#[tokio::test(start_paused = true)]
async fn arguments_that_violate_the_schema_never_reach_the_server() {
    let server = McpServer::new().with_tool(echo_tool());
    let kit = client_of(&server).trusted().toolkit().await.unwrap();
    let (result, _) = call(kit, "s__echo", json!({ "text": 1 })).await;
    assert_eq!(result.kind, ResultKind::InvalidArguments);
    assert!(!server.handle().methods().contains(&"tools/call".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn progress_is_reported_as_it_arrives() {
    for era in [McpEra::Modern, McpEra::Legacy] {
        let tool = McpTool::new("slow", "Slow", no_arguments(), |_, call| async move {
            call.progress(1.0, Some(2.0), Some("half")).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            call.progress(2.0, None, None).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            "done"
        });
        let server = McpServer::new().with_era(era).with_tool(tool);
        let kit = client_of(&server).trusted().toolkit().await.unwrap();
        let (result, progress) = call(kit, "s__slow", json!({})).await;
        assert_eq!(result.content.text(), "done");
        let expected = [
            json!({ "progress": 1.0, "total": 2.0, "message": "half" }),
            json!({ "progress": 2.0 }),
        ];
        assert_eq!(progress, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn unread_progress_is_replaced_by_newer_progress() {
    let tool = McpTool::new("many", "Many", no_arguments(), |_, call| async move {
        for step in 0..1_000 {
            call.progress(f64::from(step), None, None).await;
        }
        "done"
    });
    let kit = client_of(&McpServer::new().with_tool(tool)).trusted().toolkit().await.unwrap();
    let mut run = crate::support::run_call(kit, "s__many", json!({}));
    let mut reported = Vec::new();
    while let Some(event) = futures::StreamExt::next(&mut run).await {
        if let turnstream::Event::Tool(ToolEvent::Progress { data, .. }) = event.unwrap() {
            reported.push(data.to_value()["progress"].as_f64().unwrap());
            // A consumer that is slower than the server.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert!(reported.len() < 1_000, "{} of 1,000", reported.len());
    assert!(reported.is_sorted());
}

#[tokio::test(start_paused = true)]
async fn images_are_parts_and_other_media_are_named_by_default() {
    let tool = McpTool::new("media", "Media", no_arguments(), |_, _| async {
        McpAnswer::text("look")
            .with_image("image/png", [0, 0, 0])
            .with_audio("audio/wav", [0, 0, 0])
    });
    let builder = builder_of(&McpServer::new().with_tool(tool));
    let client = builder.clone().build().trusted();
    let (named, _) = call(client.toolkit().await.unwrap(), "s__media", json!({})).await;
    let (text, image) = ("look".into(), Part::image("image/png", b"\0\0\0"));
    let audio = "[audio: audio/wav, 3 bytes, which cannot be shown]".into();
    assert_eq!(named.content, Content::Parts(vec![text, image, audio]));
    let sending = builder.with_media(MediaParts::Sent).build().trusted();
    let (sent, _) = call(sending.toolkit().await.unwrap(), "s__media", json!({})).await;
    assert!(sent.content.into_parts().contains(&Part::file("audio/wav", b"\0\0\0")));
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_tool_and_of_the_protocol_are_results_that_the_model_reads() {
    let failing = McpTool::new("fails", "Fails", no_arguments(), |_, _| async {
        McpAnswer::error("no such city")
    });
    let refusing = McpTool::new("refuses", "Refuses", no_arguments(), |_, _| async {
        McpAnswer::rpc_error(-32603, "out of order")
    });
    let server = McpServer::new().with_tool(failing).with_tool(refusing);
    let kit = client_of(&server).trusted().toolkit().await.unwrap();
    let (result, _) = call(kit.clone(), "s__fails", json!({})).await;
    assert_eq!(
        (result.kind, result.content.text()),
        (ResultKind::Error, "no such city".to_owned())
    );
    let (result, _) = call(kit, "s__refuses", json!({})).await;
    assert_eq!(result.kind, ResultKind::Error);
    assert_eq!(
        result.content.text(),
        "Error: the MCP server `s` refused: out of order (code -32603). Try another way."
    );
}

#[tokio::test(start_paused = true)]
async fn structured_content_alone_is_json_text() {
    let tool = McpTool::new("data", "Data", no_arguments(), |_, _| async {
        McpAnswer::empty().with_structured(json!({ "degrees": 4 }))
    });
    let kit = client_of(&McpServer::new().with_tool(tool)).trusted().toolkit().await.unwrap();
    assert_eq!(call_text(kit, "s__data", json!({})).await, r#"{"degrees":4}"#);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_call_times_out_and_progress_extends_the_time() {
    let server = McpServer::new()
        .with_tool(McpTool::new("hangs", "Hangs", no_arguments(), |_, _| async {
            std::future::pending::<&str>().await
        }))
        .with_tool(McpTool::new("slow", "Slow", no_arguments(), |_, call| async move {
            for step in 0..5 {
                call.progress(f64::from(step), None, None).await;
                tokio::time::sleep(Duration::from_secs(50)).await;
            }
            "done"
        }));
    let handle = server.handle();
    let client = builder_of(&server);
    let kit = client.clone().build().trusted().toolkit().await.unwrap();
    let text = call_text(kit.clone(), "s__hangs", json!({})).await;
    assert!(
        text.starts_with(
            "Error: the MCP server `s` has not answered for 60s. The call was cancelled"
        ),
        "{text}"
    );
    handle.wait_until(|log| log.iter().any(|it| it.method() == "notifications/cancelled")).await;
    assert_eq!(call_text(kit, "s__slow", json!({})).await, "done");

    let limits = Limits { call_total: Duration::from_mins(2), ..Limits::default() };
    let kit = client.with_limits(limits).build().trusted().toolkit().await.unwrap();
    let (result, _) = call(kit, "s__slow", json!({})).await;
    assert_eq!(result.kind, ResultKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn each_call_has_a_progress_token_of_its_own() {
    for era in [McpEra::Modern, McpEra::Legacy] {
        let server = McpServer::new().with_era(era).with_tool(echo_tool());
        let (handle, kit) =
            (server.handle(), client_of(&server).trusted().toolkit().await.unwrap());
        for text in ["a", "b"] {
            call_text(kit.clone(), "s__echo", json!({ "text": text })).await;
        }
        let tokens: Vec<_> = handle
            .received()
            .iter()
            .filter(|request| request.is_call("echo"))
            .map(|request| request.params()["_meta"]["progressToken"].clone())
            .collect();
        assert!(tokens.len() == 2 && tokens[0] != tokens[1], "{tokens:?}");
        assert!(tokens.iter().all(|token| !token.is_null()), "{tokens:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_name_begins_with_a_digit_has_tools_that_gemini_accepts() {
    let client = builder_of(&McpServer::new().with_tool(echo_tool())).with_name("1mcp").build();
    let kit = client.toolkit().await.unwrap();
    let request =
        Request::new(History::from_items("h", [Item::user("go")])).with_tools(kit.specs().to_vec());
    let body = serde_json::from_slice(&gemini::encode(&request, "m").unwrap()).unwrap();
    assert_eq!(lint::request(Wire::Gemini, "m", &body), [""; 0], "{body}");
    let name = body["tools"][0]["functionDeclarations"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("s_1mcp_") && name.ends_with("__echo"), "{name}");
}

#[tokio::test(start_paused = true)]
async fn hostile_names_are_sanitized_to_distinct_names_or_omitted() {
    let client = client_of(&McpServer::new().with_fault(McpFault::BadNames));
    let kit = client.toolkit().await.unwrap();
    let names: std::collections::BTreeSet<_> =
        kit.specs().iter().map(|it| it.name.clone()).collect();
    assert_eq!(names.len(), kit.specs().len());
    assert!(names.len() >= 3, "{names:?}");
    let notes = client.notes();
    assert!(notes.contains(&"a tool without a name".to_owned()), "{notes:?}");
    assert!(notes.iter().any(|note| note.ends_with("is listed twice")), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn tools_with_schemas_no_provider_accepts_are_omitted_with_the_reason() {
    let server = McpServer::new().with_tool(echo_tool()).with_fault(McpFault::BadSchemas);
    let client = client_of(&server);
    let kit = client.toolkit().await.unwrap();
    assert_eq!(kit.specs().iter().map(|it| &*it.name).collect::<Vec<_>>(), ["s__echo"]);
    let notes = client.notes().join("; ");
    assert!(notes.contains("has no schema of its arguments"), "{notes}");
    assert!(notes.contains("which is not fetched"), "{notes}");
}

#[tokio::test(start_paused = true)]
async fn the_trace_context_of_a_call_is_sent_in_its_metadata() {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for era in [McpEra::Modern, McpEra::Legacy] {
        let server = McpServer::new().with_era(era).with_tool(echo_tool());
        let (handle, kit) =
            (server.handle(), client_of(&server).trusted().toolkit().await.unwrap());
        let contexts = TraceContexts::new();
        let arguments = json!({ "text": "a" });
        let mut run = run_call(kit.clone(), "s__echo", arguments).with_data(contexts.clone());
        while let Some(event) = run.next().await {
            if let Event::Tool(ToolEvent::Started { call_id, .. }) = event.unwrap() {
                let context = TraceContext::parse(traceparent, Some("a=1"));
                contexts.of_call(&call_id).set_current(context);
            }
        }
        call_text(kit, "s__echo", json!({ "text": "b" })).await;
        let calls = handle.received().into_iter().filter(|request| request.is_call("echo"));
        let metadata: Vec<_> = calls.map(|call| call.params()["_meta"].clone()).collect();
        assert_eq!(metadata[0]["traceparent"], traceparent);
        assert_eq!(metadata[0]["tracestate"], "a=1");
        assert!(!metadata[0]["progressToken"].is_null(), "{metadata:?}");
        assert!(metadata[1]["traceparent"].is_null(), "{metadata:?}");
    }
}
