//! Requests over HTTP: secrets in errors, and time limits.

use std::fmt::Write;
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use turnstream::http::{HttpClient, Timeouts};
use turnstream::provider::{OpenAiChat, Provider};
use turnstream::stream::TurnStreamExt;
use turnstream::{Error, ErrorKind, History, Item, Request};
use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};

const API_KEY: &str = "sk-ab/cd+ef=12345";
const PROMPT: &str = "PROMPTWORD";
const HEY_FRAMES: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hey\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const LONG_TIMEOUT: Duration = Duration::from_hours(1);
const SHORT_TIMEOUT: Duration = Duration::from_millis(50);

fn request() -> Request {
    Request::new(History::from_items("h", [Item::user(format!("hi {PROMPT}"))]))
}

fn http_response(status: u16, kind: &str, body: Vec<BodyPart>) -> HttpResponse {
    HttpResponse { status, headers: vec![("content-type".into(), kind.into())], body }
}

fn whole_response(status: u16, kind: &str, body: impl Into<bytes::Bytes>) -> HttpResponse {
    http_response(status, kind, vec![BodyPart::Bytes(body.into())])
}

async fn start_server(response: HttpResponse) -> LoopbackServer {
    LoopbackServer::start(move |_| response.clone()).await.unwrap()
}

fn provider(url: impl AsRef<str>, first_byte: Duration, idle: Duration) -> OpenAiChat {
    let provider = OpenAiChat::new("m").with_base_url(url.as_ref()).unwrap().without_retries();
    provider.with_http_client(HttpClient::without_proxy()).with_timeouts(Timeouts {
        first_byte,
        idle,
        ..Timeouts::default()
    })
}

/// Sends a request with a time limit.
async fn request_text(provider: OpenAiChat) -> Result<String, Error> {
    let turn = provider.stream_turn(request()).into_turn();
    let turn = tokio::time::timeout(Duration::from_mins(1), turn).await.expect("it hangs");
    turn.map(|turn| turn.text())
}

async fn request_text_with_key(url: impl AsRef<str>) -> Result<String, Error> {
    request_text(provider(url, LONG_TIMEOUT, LONG_TIMEOUT).with_api_key(API_KEY)).await
}

/// All texts that an error can show.
fn all_error_text(error: &Error) -> String {
    let mut all = format!("{error}|{error:?}|{error:#?}|{:?}", error.parameter());
    all += &serde_json::to_string(error).unwrap();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        write!(all, "|{error}|{error:?}").unwrap();
        source = error.source();
    }
    all
}

#[track_caller]
fn check_hidden(shown: &str, secrets: &[&str]) {
    for secret in secrets {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[tokio::test]
async fn a_key_that_the_server_echoes_is_never_shown_however_it_is_escaped() {
    async fn check(response: HttpResponse) {
        let server = start_server(response).await;
        let error = request_text_with_key(server.url()).await.unwrap_err();
        check_hidden(&all_error_text(&error), &[API_KEY, "sk-ab%2F", PROMPT]);
    }
    for key in [
        API_KEY.to_owned(),
        API_KEY.replace('/', "\\/"),
        API_KEY.replace('+', "\\u002b"),
        API_KEY.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D"),
    ] {
        let error = format!(r#"{{"error":{{"message":"bad key {key}","param":"{key}"}}}}"#);
        check(whole_response(401, "application/json", error.clone())).await;
        check(whole_response(200, "text/event-stream", format!("data: {error}\n\n"))).await;
    }
    let mut response = whole_response(401, "application/json", "{}");
    response.headers.push(("x-request-id".into(), format!("id-{API_KEY}")));
    check(response).await;
    // Nor by the server that received the request.
    let server = start_server(whole_response(200, "text/event-stream", HEY_FRAMES)).await;
    request_text_with_key(server.url()).await.unwrap();
    check_hidden(&format!("{server:?}"), &[API_KEY, PROMPT]);
}

#[tokio::test]
async fn secrets_in_the_base_url_are_never_shown() {
    const SECRETS: &[&str] = &["hunter2pw", "QUERYSECRET"];
    let secret =
        |url: &str| url.replace("http://", "http://me:hunter2pw@") + "/v1?api-key=QUERYSECRET";
    let server = LoopbackServer::start(|request| {
        let error = format!(r#"{{"error":{{"message":"no route {}"}}}}"#, request.path);
        whole_response(400, "application/json", error)
    })
    .await
    .unwrap();
    let error = request_text(provider(secret(&server.url()), LONG_TIMEOUT, LONG_TIMEOUT))
        .await
        .unwrap_err();
    check_hidden(&all_error_text(&error), SECRETS);

    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = secret(&format!("http://{closed}"));
    let error = request_text(provider(url, LONG_TIMEOUT, LONG_TIMEOUT)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    check_hidden(&all_error_text(&error), SECRETS);
}

#[tokio::test]
async fn after_the_first_byte_the_idle_timeout_applies() {
    // The delay makes the client wait for the first byte.
    let delay = BodyPart::Delay(Duration::from_millis(5));
    let body = vec![delay, BodyPart::Bytes(": hi\n\n".into()), BodyPart::Hang];
    let server = start_server(http_response(200, "text/event-stream", body)).await;
    let error =
        request_text(provider(server.url(), LONG_TIMEOUT, SHORT_TIMEOUT)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn infinite_timeouts_are_disabled() {
    let server = start_server(whole_response(200, "text/event-stream", HEY_FRAMES)).await;
    let text = request_text(provider(server.url(), Duration::MAX, Duration::MAX)).await.unwrap();
    assert_eq!(text, "hey");
}

#[tokio::test]
async fn an_error_status_with_a_hanging_body_is_still_reported() {
    let words = BodyPart::Bytes(r#"{"error":{"message":"slow down"}}"#.into());
    let server =
        start_server(http_response(429, "application/json", vec![words, BodyPart::Hang])).await;
    let error =
        request_text(provider(server.url(), LONG_TIMEOUT, SHORT_TIMEOUT)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(error.message().contains("slow down"), "{error}");
}

fn current_thread_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_client_serves_a_second_runtime_while_the_first_is_idle_but_alive() {
    let (url, started) = mpsc::channel();
    std::thread::spawn(move || {
        current_thread_runtime().block_on(async move {
            let server = start_server(whole_response(200, "text/event-stream", HEY_FRAMES)).await;
            url.send(server.url()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let provider = provider(started.recv().unwrap(), LONG_TIMEOUT, LONG_TIMEOUT);
    let (first, second) = (current_thread_runtime(), current_thread_runtime());
    assert_eq!(first.block_on(request_text(provider.clone())).unwrap(), "hey");
    assert_eq!(second.block_on(request_text(provider)).unwrap(), "hey");
    drop(first);
}
