//! Tokens that are counted at the vendors' endpoints.

use serde_json::{Value, json};
use turnstream::http::HttpClient;
use turnstream::provider::{
    Anthropic, Fallback, Gemini, HttpProvider, Ollama, OpenAiChat, OpenAiResponses, Provider,
    Retry, Scripted, Wire,
};
use turnstream::request::{Options, Reasoning};
use turnstream::tool::ToolSpec;
use turnstream::{ErrorKind, History, Item, Request};
use turnstream_testing::http::{HttpRequest, HttpResponse, LoopbackServer};

/// A request with fields that the vendors' endpoints for counting reject.
fn request() -> Request {
    let tool = ToolSpec::new("f", "F", json!({ "type": "object", "properties": {} }));
    let options = Options {
        max_output_tokens: Some(2_000),
        reasoning: Some(Reasoning::Effort(turnstream::request::Effort::Low)),
        ..Options::default()
    };
    Request::new(History::from_items("h", [Item::user("hello")]))
        .with_system("be brief")
        .with_tools([tool])
        .with_options(options)
}

fn at<W: Wire>(model: HttpProvider<W>, server: &LoopbackServer) -> HttpProvider<W> {
    let model = model.with_api_key("key-12345678").with_base_url(server.url()).unwrap();
    model.with_http_client(HttpClient::without_proxy())
}

/// Counts, and returns the count and the request that the server received.
async fn count<W: Wire>(model: HttpProvider<W>, answer: Value) -> (u64, HttpRequest) {
    let answer = answer.to_string();
    let server =
        LoopbackServer::start(move |_| HttpResponse::text(200, answer.clone())).await.unwrap();
    let tokens = at(model, &server).count_tokens(&request()).expect("it counts").await.unwrap();
    (tokens, server.requests().pop().expect("a request"))
}

#[track_caller]
fn check_fields(sent: &HttpRequest, path: &str, fields: &[&str]) -> Value {
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", path));
    assert_eq!(sent.header("accept"), Some("application/json"));
    let body: Value = serde_json::from_slice(&sent.body).unwrap();
    let mut names: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, fields);
    body
}

#[tokio::test]
async fn messages_counts_the_fields_that_affect_the_input() {
    let (tokens, sent) = count(Anthropic::new("m"), json!({ "input_tokens": 41 })).await;
    assert_eq!(tokens, 41);
    let fields = ["messages", "model", "output_config", "system", "thinking", "tools"];
    check_fields(&sent, "/v1/messages/count_tokens", &fields);
    assert_eq!(sent.header("x-api-key"), Some("key-12345678"));
    assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
}

#[tokio::test]
async fn responses_counts_the_fields_that_affect_the_input() {
    let answer = json!({ "object": "response.input_tokens", "input_tokens": 42 });
    let (tokens, sent) = count(OpenAiResponses::new("m"), answer).await;
    assert_eq!(tokens, 42);
    let fields = ["input", "instructions", "model", "reasoning", "tools"];
    check_fields(&sent, "/responses/input_tokens", &fields);
}

#[tokio::test]
async fn gemini_counts_the_whole_request() {
    let answer = || json!({ "totalTokens": 43, "promptTokensDetails": [] });
    let (tokens, sent) = count(Gemini::new("gemini-3-pro"), answer()).await;
    assert_eq!(tokens, 43);
    let path = "/v1beta/models/gemini-3-pro:countTokens";
    let body = check_fields(&sent, path, &["generateContentRequest"]);
    let inner = &body["generateContentRequest"];
    assert_eq!(inner["model"], "models/gemini-3-pro");
    assert_eq!(inner["contents"][0]["parts"][0]["text"], "hello");
    assert!(inner["tools"].is_array() && inner["systemInstruction"].is_object());
    let (_, sent) = count(Gemini::new("tunedModels/mine"), answer()).await;
    let body =
        check_fields(&sent, "/v1beta/tunedModels/mine:countTokens", &["generateContentRequest"]);
    assert_eq!(body["generateContentRequest"]["model"], "tunedModels/mine");
}

#[tokio::test]
async fn a_failed_count_is_an_error_of_the_server_and_masks_the_key() {
    let refuse = |_: HttpRequest| {
        let message = "invalid x-api-key: key-12345678";
        let error = json!({ "type": "authentication_error", "message": message });
        HttpResponse::text(401, json!({ "type": "error", "error": error }).to_string())
    };
    let server = LoopbackServer::start(refuse).await.unwrap();
    let model = at(Anthropic::new("m"), &server);
    let error = model.count_tokens(&request()).unwrap().await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Auth, Some(401)));
    assert!(!format!("{error:?} {error}").contains("key-12345678"), "{error}");
    assert_eq!(server.requests().len(), 1, "a count is not retried");

    let server = LoopbackServer::start(|_| HttpResponse::text(200, "{}")).await.unwrap();
    let error = at(Anthropic::new("m"), &server).count_tokens(&request()).unwrap().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Protocol);
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_poll() {
    let server = LoopbackServer::start(|_| HttpResponse::text(200, "{}")).await.unwrap();
    drop(at(Anthropic::new("m"), &server).count_tokens(&request()));
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn providers_without_an_endpoint_for_counting_do_not_count() {
    assert!(OpenAiChat::new("m").count_tokens(&request()).is_none());
    assert!(Ollama::new("m").count_tokens(&request()).is_none());
    assert!(Scripted::new(["a"]).count_tokens(&request()).is_none());
    let vertex = Anthropic::vertex("p", "global", "claude-sonnet-4-5").unwrap();
    assert!(vertex.count_tokens(&request()).is_none());
    assert!(Gemini::vertex("p", "global", "m").unwrap().count_tokens(&request()).is_none());
    let own_path = Anthropic::new("m").with_path("/mine");
    assert!(own_path.count_tokens(&request()).is_none());
}

#[tokio::test]
async fn decorators_count_with_the_provider_that_they_wrap() {
    let answer = json!({ "input_tokens": 7 }).to_string();
    let server =
        LoopbackServer::start(move |_| HttpResponse::text(200, answer.clone())).await.unwrap();
    let model = at(Anthropic::new("m"), &server);
    let stacked = Fallback::new(Retry::new(model)).or(Scripted::new(["a"]));
    let stacked: Box<dyn Provider> = Box::new(stacked);
    assert_eq!(stacked.count_tokens(&request()).unwrap().await.unwrap(), 7);
}
