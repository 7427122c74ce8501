//! The URLs of requests, against the loopback server.

use turnstream::http::HttpClient;
use turnstream::provider::{Gemini, Provider};
use turnstream::stream::TurnStreamExt;
use turnstream::{Agent, ErrorKind, Item, event::EndReason};
use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};

use super::{as_strs, finish_chunk, parts_chunk, request_with_items, sse_body};

async fn serve_chunks(chunks: Vec<String>) -> LoopbackServer {
    serve_response(200, "text/event-stream", sse_body(&as_strs(&chunks))).await
}

async fn serve_response(status: u16, content_type: &str, body: String) -> LoopbackServer {
    let content_type = content_type.to_owned();
    LoopbackServer::start(move |_| HttpResponse {
        status,
        headers: vec![("content-type".into(), content_type.clone())],
        body: vec![BodyPart::Bytes(body.clone().into())],
    })
    .await
    .unwrap()
}

fn hello_chunks() -> Vec<String> {
    vec![parts_chunk(r#"{"text":"hello"}"#), finish_chunk("STOP")]
}

fn gemini_at(url: &str, model: &str) -> Gemini {
    let gemini = Gemini::new(model).with_api_key("AIza-secret-key").with_base_url(url).unwrap();
    gemini.with_http_client(HttpClient::without_proxy()).without_retries()
}

#[track_caller]
fn check_request_path(server: &LoopbackServer, path: &str) {
    assert_eq!(server.requests().last().unwrap().path, path);
}

#[tokio::test]
async fn the_model_is_in_the_url_and_the_key_in_a_header() {
    let server = serve_chunks(hello_chunks()).await;
    let turn = gemini_at(&server.url(), "gemini-3-flash")
        .stream_turn(request_with_items(vec![Item::user("hi")]));
    assert_eq!(turn.into_turn().await.unwrap().text(), "hello");
    check_request_path(&server, "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse");
    let request = &server.requests()[0];
    assert_eq!(request.header("x-goog-api-key"), Some("AIza-secret-key"));
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["contents"][0]["parts"][0]["text"], "hi");
}

#[tokio::test]
async fn tokens_of_a_cache_that_the_request_names_are_stored_at_the_applications_expense() {
    let usage = r#","usageMetadata":{"promptTokenCount":9,"cachedContentTokenCount":7}}"#;
    let last = finish_chunk("STOP");
    let last = format!("{}{usage}", last.strip_suffix('}').unwrap());
    let server = serve_chunks(vec![parts_chunk(r#"{"text":"hello"}"#), last]).await;
    let mut request = request_with_items(vec![Item::user("hi")]);
    let kinds = async |request: &turnstream::Request| {
        let turn = gemini_at(&server.url(), "m").stream_turn(request.clone());
        let billing = turn.into_turn().await.unwrap().billing().cloned().unwrap_or_default();
        let kinds = billing.tokens_by_kind().map(|(kind, tokens)| (kind.to_owned(), tokens));
        kinds.collect::<Vec<_>>()
    };
    // A cache that the provider manages has no fee.
    assert_eq!(kinds(&request).await, []);
    request.options.extra.insert("cachedContent".into(), "cachedContents/1".into());
    assert_eq!(kinds(&request).await, [("cache_storage".to_owned(), 7)]);
}

#[tokio::test]
async fn a_request_may_name_another_model() {
    let server = serve_chunks(hello_chunks()).await;
    let mut request = request_with_items(vec![Item::user("hi")]);
    for (model, path) in [
        ("tunedModels/mine", "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse"),
        ("models/m", "/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("a?b#c%2F", "/v1beta/models/a%3Fb%23c%252F:streamGenerateContent?alt=sse"),
    ] {
        request.model = Some(model.into());
        gemini_at(&server.url(), "x").stream_turn(request.clone()).into_turn().await.unwrap();
        check_request_path(&server, path);
    }
}

#[tokio::test]
async fn a_base_url_keeps_its_path_and_its_query() {
    let server = serve_chunks(hello_chunks()).await;
    let url = format!("{}/proxy/?tenant=a%20b", server.url());
    gemini_at(&url, "m")
        .stream_turn(request_with_items(vec![Item::user("hi")]))
        .into_turn()
        .await
        .unwrap();
    check_request_path(
        &server,
        "/proxy/v1beta/models/m:streamGenerateContent?tenant=a%20b&alt=sse",
    );
    let url = format!("{}?alt=sse", server.url());
    gemini_at(&url, "m")
        .stream_turn(request_with_items(vec![Item::user("hi")]))
        .into_turn()
        .await
        .unwrap();
    check_request_path(&server, "/v1beta/models/m:streamGenerateContent?alt=sse");
}

#[tokio::test]
async fn a_model_name_invalid_in_a_url_is_rejected_before_any_request() {
    let server = serve_chunks(hello_chunks()).await;
    for odd in ["", "../x", "a b", "a//b"] {
        let turn =
            gemini_at(&server.url(), odd).stream_turn(request_with_items(vec![Item::user("hi")]));
        let error = turn.into_turn().await.unwrap_err();
        assert_eq!((error.kind(), error.parameter()), (ErrorKind::InvalidRequest, Some("model")));
    }
    assert_eq!(server.connection_count(), 0);
}

#[tokio::test]
async fn an_error_in_an_array_has_its_kind_and_no_key() {
    let body = r#"[{"error":{"code":429,"message":"AIza-secret-key used up","status":"RESOURCE_EXHAUSTED"}}]"#;
    let server = serve_response(429, "application/json", body.to_owned()).await;
    let turn =
        gemini_at(&server.url(), "m").stream_turn(request_with_items(vec![Item::user("hi")]));
    let error = turn.into_turn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(error.message().ends_with("… used up"), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
}

#[tokio::test]
async fn an_agent_whose_prompt_is_blocked_ends_filtered() {
    let server =
        serve_chunks(vec![r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#.to_owned()]).await;
    let outcome = Agent::new(gemini_at(&server.url(), "m")).run("hi").outcome().await;
    assert_eq!(outcome.reason, EndReason::Filtered);
}
