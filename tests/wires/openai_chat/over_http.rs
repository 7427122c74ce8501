//! The Chat Completions wire over a loopback connection: connections, errors, addresses.

use serde_json::{Value, json};
use turnstream::event::EndReason;
use turnstream::http::HttpClient;
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{OpenAiChat, Provider};
use turnstream::request::WebSearch;
use turnstream::stream::TurnStreamExt;
use turnstream::{Agent, ErrorKind, History, Item, Request};
use turnstream_testing::http::BodyPart as Piece;
use turnstream_testing::http::{HttpResponse, LoopbackServer};

use super::responses::choice_chunk;
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
        (200, r#"{"error":{"message":"m","code":"rate_limit_exceeded"}}"#, ErrorKind::RateLimited),
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
        received_request(|model, url| model.with_dialect(groq).with_base_url(url).unwrap()).await;
    let behind =
        received_request(|model, url| model.with_base_url(url).unwrap().with_dialect(groq)).await;
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
        model.stream_turn(Request::new(History::from_items("h", [Item::user("hi")]))).into_turn()
    };
    ask(Dialect { base_url: url, ..Dialect::MINIMAL }).await.unwrap();
    assert_eq!(server.requests().len(), 1);
    for base_url in ["", "no address"] {
        let error = ask(Dialect { base_url, ..Dialect::MINIMAL }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert_eq!(error.parameter(), Some("base_url"));
    }
}
