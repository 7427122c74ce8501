//! The Chat Completions wire: responses of servers, and requests to them.

use serde_json::{Value, json};
use turnstream::item::{Content, ItemKind, Media, MediaSource, Part, ResultKind, ToolResult};
use turnstream::provider::openai_chat::{Decoder, Dialect, encode};
use turnstream::request::{ToolSpec, WebSearch};
use turnstream::sse::write_frame;
use turnstream::turn::{StopReason, Turn};
use turnstream::{Error, ErrorKind, History, Item, Request};

use turnstream_test_support::wires::decode_sse_turn;

fn decode_turn(chunks: &[&str]) -> Result<Turn, Error> {
    let mut body = Vec::new();
    for chunk in chunks {
        write_frame(&mut body, None, chunk);
    }
    decode_sse_turn(body, Decoder::new("m", &Dialect::OPENAI))
}

/// A chunk with one choice.
fn choice_chunk(delta: &Value, finish: Option<&str>) -> String {
    json!({ "id": "x", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
        .to_string()
}

#[track_caller]
fn check_calls(deltas: &[Value], expected: &[&str]) {
    let mut chunks: Vec<_> =
        deltas.iter().map(|calls| choice_chunk(&json!({ "tool_calls": calls }), None)).collect();
    chunks.push(choice_chunk(&json!({}), Some("tool_calls")));
    chunks.push("[DONE]".to_owned());
    let turn = decode_turn(&chunks.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let calls: Vec<_> = turn
        .tool_calls()
        .map(|call| format!("{} {} {}", call.call_id, call.name, call.arguments))
        .collect();
    assert_eq!(calls, expected);
}

#[test]
fn text_reasoning_usage_and_the_raw_stop_reason_are_decoded() {
    let turn = decode_turn(&[
        &choice_chunk(&json!({ "role": "assistant", "content": "" }), None),
        &choice_chunk(&json!({ "reasoning_content": "hm", "reasoning": "hm" }), None),
        &choice_chunk(&json!({ "content": "Hel" }), None),
        &choice_chunk(&json!({ "content": "lo" }), Some("stop")),
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}}"#,
        "[DONE]",
    ])
    .unwrap();
    assert_eq!((turn.text().as_str(), turn.reasoning().as_str()), ("Hello", "hm"));
    assert_eq!(turn.raw_stop_reason(), Some("stop"));
    assert_eq!((turn.model(), turn.response_id()), (Some("m"), Some("x")));
    let usage = turn.usage();
    assert_eq!((usage.input_tokens, usage.output_tokens), (9, 4));
    assert_eq!((usage.cache_read_input_tokens, usage.reasoning_tokens), (5, 2));
}

#[test]
fn a_call_in_the_documented_shape_is_decoded() {
    check_calls(
        &[
            json!([{ "index": 0, "id": "a", "type": "function", "function": { "name": "f", "arguments": "" } }]),
            json!([{ "index": 0, "function": { "arguments": "{\"x\"" } }]),
            json!([{ "index": 1, "id": "b", "function": { "name": "g", "arguments": "{}" } }]),
            json!([{ "index": 0, "function": { "arguments": ":1}" } }]),
        ],
        &["a f {\"x\":1}", "b g {}"],
    );
}

#[test]
fn repeated_or_empty_ids_and_names_are_ignored() {
    check_calls(
        &[
            json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"x\":" } }]),
            json!([{ "index": 0, "id": "", "function": { "name": "f", "arguments": "1" } }]),
            json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "}" } }]),
            json!([{ "index": 0, "id": null, "function": { "name": null, "arguments": null } }]),
        ],
        &["a f {\"x\":1}"],
    );
}

#[test]
fn a_name_may_be_split() {
    check_calls(
        &[
            json!([{ "index": 0, "id": "a", "function": { "name": "get_" } }]),
            json!([{ "index": 0, "function": { "name": "weather" } }]),
            json!([{ "index": 0, "function": { "arguments": "{}" } }]),
        ],
        &["a get_weather {}"],
    );
}

#[test]
fn calls_without_an_index_are_distinguished_by_id_then_by_order() {
    check_calls(
        &[
            json!([{ "id": "a", "function": { "name": "f", "arguments": "{" } }]),
            json!([{ "function": { "arguments": "}" } }]),
            json!([{ "id": "b", "function": { "name": "g", "arguments": "{}" } }]),
            json!([{ "function": { "name": "h", "arguments": "{}" } }]),
        ],
        &["a f {}", "b g {}", "call_1_3 h {}"],
    );
}

#[test]
fn the_same_index_under_another_id_is_another_call() {
    check_calls(
        &[
            json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{}" } }]),
            json!([{ "index": 0, "id": "b", "function": { "name": "f", "arguments": "{}" } }]),
        ],
        &["a f {}", "b f {}"],
    );
}

#[test]
fn arguments_may_be_an_object_and_empty_ones_stay_empty() {
    check_calls(
        &[
            json!([{ "index": 1, "id": "a", "function": { "name": "f", "arguments": { "x": 1 } } }]),
            json!([{ "index": 2, "id": "b", "function": { "name": "g" } }]),
        ],
        &["a f {\"x\":1}", "b g "],
    );
}

#[test]
fn a_call_without_a_name_is_a_protocol_error() {
    let calls =
        json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "arguments": "{}" } }] });
    let error =
        decode_turn(&[&choice_chunk(&calls, None), &choice_chunk(&json!({}), Some("tool_calls"))])
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn a_refusal_is_text_with_the_refusal_stop_reason() {
    let turn = decode_turn(&[
        &choice_chunk(&json!({ "content": null, "refusal": "" }), None),
        &choice_chunk(&json!({ "refusal": "I can't" }), None),
        &choice_chunk(&json!({}), Some("stop")),
        "[DONE]",
    ])
    .unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::Refusal);
    assert_eq!((turn.raw_stop_reason(), turn.text().as_str()), (Some("stop"), "I can't"));
}

#[test]
fn a_stream_without_done_is_complete_if_it_had_a_finish_reason() {
    let said = choice_chunk(&json!({ "content": "hi" }), Some("stop"));
    assert_eq!(decode_turn(&[&said]).unwrap().text(), "hi");
    let error = decode_turn(&[&choice_chunk(&json!({ "content": "hi" }), None)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    let error =
        decode_turn(&[&choice_chunk(&json!({ "content": "hi" }), None), "[DONE]"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn content_after_the_finish_reason_is_ignored() {
    let turn = decode_turn(&[
        &choice_chunk(&json!({ "content": "hi" }), Some("stop")),
        &choice_chunk(&json!({ "content": " there" }), Some("length")),
        "[DONE]",
    ])
    .unwrap();
    assert_eq!((turn.text().as_str(), turn.raw_stop_reason()), ("hi", Some("stop")));
}

#[test]
fn an_error_in_the_stream_has_its_kind() {
    let kind = |json: &str| decode_turn(&[json]).unwrap_err().kind();
    assert_eq!(kind(r#"{"error":{"message":"m","code":429}}"#), ErrorKind::RateLimited);
    assert_eq!(kind(r#"{"error":"broken"}"#), ErrorKind::Server);
    assert_eq!(kind(r#"{"error":{"code":"context_length_exceeded"}}"#), ErrorKind::ContextWindow);
    assert_eq!(kind("not json"), ErrorKind::Protocol);
    let ended = choice_chunk(&json!({}), Some("error"));
    assert_eq!(decode_turn(&[&ended]).unwrap_err().kind(), ErrorKind::Server);
}

#[test]
fn unusual_envelopes_do_not_fail_the_turn() {
    let turn = decode_turn(&[
        r#"{"choices":null}"#,
        r#"{"prompt_filter_results":[{}]}"#,
        r#"{"id":7,"model":null,"choices":[{"index":1,"delta":{"content":"other"}}]}"#,
        r#"{"choices":[{"delta":null,"finish_reason":null}],"usage":"none","x_groq":{}}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"t"}]},{"type":"text","text":"a"}],"tool_calls":null,"reasoning":{}}}]}"#,
        r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"end"}],"usage":{"prompt_tokens":1}}"#,
    ])
    .unwrap();
    assert_eq!((turn.text().as_str(), turn.reasoning().as_str()), ("ab", "t"));
    assert_eq!(turn.stop_reason(), &StopReason::Stop);
    assert_eq!(turn.usage().input_tokens, 1);
}

fn encode_json(items: Vec<Item>) -> Result<Value, Error> {
    let mut request = Request::new(History::from_items("h", items)).with_system("be brief");
    request.system.volatile = "today".into();
    request.options.max_output_tokens = Some(9);
    request.tools = vec![ToolSpec::new("f", "F", json!({ "type": "object" }))].into();
    encode(&request, "m", &Dialect::OPENAI).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

fn tool_result(id: &str, content: impl Into<Content>) -> Item {
    Item::tool_result(ToolResult {
        call_id: id.into(),
        name: "f".into(),
        content: content.into(),
        kind: ResultKind::Ok,
        report: None,
    })
}

#[test]
fn a_request_has_the_documented_shape() {
    let body = encode_json(vec![
        Item::user("one"),
        Item::user("two"),
        Item::reasoning("not sent"),
        Item::text("I'll look."),
        Item::tool_call("a", "f", ""),
        Item::tool_call("b", "f", "{\"x\": 1"),
        tool_result("a", "fine"),
        tool_result("b", vec!["see".into(), Part::image("image/png", b"\0\0\0")]),
        Item::text("done"),
    ])
    .unwrap();
    assert_eq!(
        body,
        json!({
            "model": "m",
            "stream": true,
            "stream_options": { "include_usage": true },
            "max_completion_tokens": 9,
            "tools": [{ "type": "function", "function":
                { "name": "f", "description": "F", "parameters": { "type": "object", "properties": {} } } }],
            "messages": [
                { "role": "system", "content": "be brief" },
                { "role": "user", "content": "one" },
                { "role": "user", "content": "two" },
                { "role": "assistant", "content": "I'll look.", "tool_calls": [
                    { "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } },
                    { "id": "b", "type": "function", "function":
                        { "name": "f", "arguments": "{\"INVALID_JSON\":\"{\\\"x\\\": 1\"}" } },
                ] },
                { "role": "tool", "tool_call_id": "a", "content": "fine" },
                { "role": "tool", "tool_call_id": "b", "content": "see" },
                { "role": "user", "content": [
                    { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
                ] },
                { "role": "assistant", "content": "done" },
                { "role": "system", "content": "today" },
            ],
        })
    );
}

#[test]
fn a_file_is_sent_with_its_name() {
    let pdf = || Part::file("application/pdf", b"\0\0\0");
    let parts = vec![pdf().with_name("report.pdf"), pdf()];
    let body = encode_json(vec![Item::user(parts)]).unwrap();
    let names: Vec<&Value> = body["messages"][1]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["file"]["filename"])
        .collect();
    assert_eq!(names, ["report.pdf", "file"]);
}

#[test]
fn a_file_url_is_an_unsupported_error() {
    let source = MediaSource::Url("https://a.example/b.pdf".into());
    let file = Part::File(Media::new("application/pdf", source));
    let error = encode_json(vec![Item::user(vec![file])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[cfg(feature = "http")]
mod over_http {
    use super::*;
    use turnstream::event::EndReason;
    use turnstream::http::HttpClient;
    use turnstream::provider::OpenAiChat;
    use turnstream::stream::TurnStreamExt;
    use turnstream::{Agent, provider::Provider};
    use turnstream_testing::http::BodyPart as Piece;
    use turnstream_testing::http::{HttpResponse, LoopbackServer};

    use turnstream_test_support::tools::sum_tool;

    fn sse_response(chunks: &[String]) -> HttpResponse {
        let frames = chunks.iter().map(|chunk| Piece::Bytes(format!("data: {chunk}\n\n").into()));
        HttpResponse {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            body: frames.collect(),
        }
    }

    fn model(server: &LoopbackServer) -> OpenAiChat {
        OpenAiChat::new("m")
            .with_api_key("sk-key")
            .with_base_url(format!("{}/v1/", server.url()))
            .unwrap()
            .with_http_client(HttpClient::without_proxy())
    }

    #[tokio::test]
    async fn a_tool_loop_of_an_agent_reuses_one_connection() {
        let server = LoopbackServer::start(|request| {
            assert_eq!(request.path, "/v1/chat/completions");
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let answered = body["messages"].as_array().unwrap().len() > 1;
            if answered {
                let text = body["messages"][2]["content"].as_str().unwrap().to_owned();
                return sse_response(&[
                    choice_chunk(&json!({ "content": text }), Some("stop")),
                    "[DONE]".into(),
                ]);
            }
            let call = json!([{ "index": 0, "id": "call_1", "type": "function",
                "function": { "name": "add", "arguments": "{\"a\":2,\"b\":3}" } }]);
            sse_response(&[
                choice_chunk(&json!({ "tool_calls": call }), None),
                choice_chunk(&json!({}), Some("tool_calls")),
                "[DONE]".into(),
            ])
        })
        .await
        .unwrap();
        let outcome =
            Agent::new(model(&server)).with_tools([sum_tool("add")]).run("2 + 3?").outcome().await;
        assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "sum 5"));
        assert_eq!(server.connection_count(), 1);
        assert_eq!(server.requests()[0].header("authorization"), Some("Bearer sk-key"));
    }

    #[tokio::test]
    async fn a_json_response_to_a_streaming_request_is_a_clear_error() {
        for (status, body, kind) in [
            (
                200,
                r#"{"error":{"message":"m","code":"rate_limit_exceeded"}}"#,
                ErrorKind::RateLimited,
            ),
            (200, r#"{"choices":[{"message":{"content":"hi"}}]}"#, ErrorKind::Protocol),
            (401, r#"{"error":{"message":"Incorrect API key sk-key"}}"#, ErrorKind::Auth),
        ] {
            let server = LoopbackServer::start(move |_| HttpResponse {
                status,
                headers: vec![("content-type".into(), "application/json; charset=utf-8".into())],
                body: vec![Piece::Bytes(body.into())],
            })
            .await
            .unwrap();
            let request = Request::new(History::from_items("h", [Item::user("hi")]));
            let error = model(&server).stream_turn(request).into_turn().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(!error.message().contains("sk-key"));
        }
    }

    /// The request that a server receives for a plain question: the path, the headers, the body.
    async fn received_request(
        make: impl FnOnce(OpenAiChat, String) -> OpenAiChat,
    ) -> (turnstream_testing::http::HttpRequest, Value) {
        let answer = [choice_chunk(&json!({ "content": "hi" }), Some("stop")), "[DONE]".to_owned()];
        let server = LoopbackServer::start(move |_| sse_response(&answer)).await.unwrap();
        let model = OpenAiChat::new("m").with_api_key("sk-key");
        let model = make(model, server.url()).with_http_client(HttpClient::without_proxy());
        let mut request = Request::new(History::from_items("h", [Item::user("hi")]));
        request.options.max_output_tokens = Some(9);
        model.stream_turn(request).into_turn().await.unwrap();
        let request = server.requests().remove(0);
        let body = serde_json::from_slice(&request.body).unwrap();
        (request, body)
    }

    #[tokio::test]
    async fn a_model_that_searches_the_web_is_charged_for_a_search_that_it_does_not_report() {
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": 8 });
        let end = json!({ "choices": [], "usage": usage }).to_string();
        let answer = choice_chunk(&json!({ "content": "hi" }), Some("stop"));
        let answer = [answer, end, "[DONE]".to_owned()];
        let server = LoopbackServer::start(move |_| sse_response(&answer)).await.unwrap();
        let mut request = Request::new(History::from_items("h", [Item::user("hi")]));
        for (dialect, expected) in [
            (Dialect::OPENAI, &[("web_search", 1)][..]),
            // OpenRouter reports the searches.
            (Dialect::OPENROUTER, &[]),
        ] {
            request.options.extra.insert("web_search_options".into(), json!({}));
            let model = model(&server).with_dialect(dialect);
            let turn = model.stream_turn(request.clone()).into_turn().await.unwrap();
            let billing = turn.billing().cloned().unwrap_or_default();
            assert_eq!(billing.server_tool_calls().collect::<Vec<_>>(), expected);
        }
        request.options.extra.clear();
        request.options.server_tools = vec![WebSearch::default().into()];
        request.model = Some("gpt-5-search-api".into());
        let model = model(&server).with_dialect(Dialect::OPENAI);
        let turn = model.stream_turn(request).into_turn().await.unwrap();
        let billing = turn.billing().cloned().unwrap_or_default();
        assert_eq!(billing.server_tool_calls().collect::<Vec<_>>(), [("web_search", 1)]);
    }

    #[tokio::test]
    async fn azure_uses_its_own_key_header_and_keeps_the_url_query() {
        let (request, _) = received_request(|model, url| {
            let url = format!("{url}/openai/deployments/d?api-version=2025-01-01");
            model.with_dialect(Dialect::AZURE).with_base_url(url).unwrap()
        })
        .await;
        assert_eq!(request.path, "/openai/deployments/d/chat/completions?api-version=2025-01-01");
        assert_eq!(request.header("api-key"), Some("sk-key"));
        assert_eq!(request.header("authorization"), None);
    }

    #[tokio::test]
    async fn dialect_and_base_url_can_be_set_in_any_order() {
        let unknown = received_request(|model, url| model.with_base_url(url).unwrap()).await.1;
        assert_eq!(
            (&unknown["max_tokens"], &unknown["max_completion_tokens"]),
            (&json!(9), &Value::Null)
        );
        let groq = Dialect::GROQ;
        let before =
            received_request(|model, url| model.with_dialect(groq).with_base_url(url).unwrap())
                .await;
        let behind =
            received_request(|model, url| model.with_base_url(url).unwrap().with_dialect(groq))
                .await;
        assert_eq!(before.1["max_completion_tokens"], 9);
        assert_eq!(before.1, behind.1);
    }

    #[tokio::test]
    async fn a_dialect_sets_its_base_url_and_without_one_nothing_is_sent() {
        let server = LoopbackServer::start(|_| {
            sse_response(&[choice_chunk(&json!({}), Some("stop")), "[DONE]".into()])
        })
        .await
        .unwrap();
        let url: &'static str = server.url().leak();
        let ask = |dialect: Dialect| {
            let model = OpenAiChat::new("m").with_dialect(dialect);
            let model = model.with_http_client(HttpClient::without_proxy());
            model
                .stream_turn(Request::new(History::from_items("h", [Item::user("hi")])))
                .into_turn()
        };
        ask(Dialect { base_url: url, ..Dialect::MINIMAL }).await.unwrap();
        assert_eq!(server.requests().len(), 1);
        for base_url in ["", "no address"] {
            let error = ask(Dialect { base_url, ..Dialect::MINIMAL }).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
            assert_eq!(error.parameter(), Some("base_url"));
        }
    }
}

#[test]
fn an_empty_error_result_is_sent_with_a_message() {
    let mut failed = tool_result("a", "");
    if let ItemKind::ToolResult(result) = &mut failed.kind {
        result.kind = ResultKind::Error;
    }
    let history =
        History::from_items("h", [Item::user("hi"), Item::tool_call("a", "f", "{}"), failed]);
    let body = encode(&Request::new(history), "m", &Dialect::OPENAI).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["messages"][2]["content"], "It failed without a message.");
}
