//! Faults of a network and its servers between a request and a turn.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::executor::block_on;
use turnstream::http::{HttpClient, Timeouts, reqwest};
use turnstream::propagation::TraceContext;
use turnstream::provider::{OpenAiChat, Provider};
use turnstream::stream::{TurnStream, TurnStreamExt};
use turnstream::turn::PartialTurn;
use turnstream::{Error, ErrorKind, History, Item, Request, TurnEvent};
use turnstream_testing::Wire;
use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};

use crate::over_http::{TransportSettings, http_provider};

const API_KEY: &str = "sk-12345678";
const TEXT_FRAME: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
const FINISH_FRAME: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE_FRAME: &str = "data: [DONE]\n\n";

fn body_bytes(text: &'static str) -> BodyPart {
    BodyPart::Bytes(Bytes::from_static(text.as_bytes()))
}

fn http_response(status: u16, headers: &[(&str, &str)], body: Vec<BodyPart>) -> HttpResponse {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    HttpResponse { status, headers: headers.iter().map(own).collect(), body }
}

fn sse_response(body: Vec<BodyPart>) -> HttpResponse {
    http_response(200, &[("content-type", "text/event-stream")], body)
}

async fn start_server(response: HttpResponse) -> LoopbackServer {
    LoopbackServer::start(move |_| response.clone()).await.unwrap()
}

fn model(server: &LoopbackServer) -> OpenAiChat {
    let model = OpenAiChat::new("m").with_base_url(server.url()).unwrap().without_retries();
    model.with_http_client(HttpClient::without_proxy()).with_api_key(API_KEY)
}

fn request_turn(model: &OpenAiChat) -> TurnStream {
    model.stream_turn(Request::new(History::from_items("h", [Item::user("hi")])))
}

async fn response_text(response: HttpResponse) -> Result<String, Error> {
    let server = start_server(response).await;
    request_turn(&model(&server)).into_turn().await.map(|turn| turn.text())
}

/// Pauses the clock as soon as the server has the request, so that only waits are skipped.
async fn pause_clock_on_request(server: &LoopbackServer) {
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
}

/// Sends a request, and waits for the error with a paused clock.
async fn timeout_error_and_elapsed(
    response: HttpResponse,
    timeouts: Timeouts,
) -> (Error, Duration) {
    let server = start_server(response).await;
    let turn = request_turn(&model(&server).with_timeouts(timeouts)).into_turn();
    let began = tokio::time::Instant::now();
    let (turn, ()) = futures::join!(turn, pause_clock_on_request(&server));
    let waited = began.elapsed();
    tokio::time::resume();
    (turn.unwrap_err(), waited)
}

#[track_caller]
fn check_timeout(error: &Error, words: &str, said: Option<&str>) {
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(error.message().contains(words), "{error}");
    assert_eq!(error.find_source::<PartialTurn>().map(PartialTurn::text).as_deref(), said);
}

#[tokio::test]
async fn a_json_error_body_with_status_200_is_reported_as_that_error() {
    let body = body_bytes(r#" {"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#);
    let headers = [("retry-after", "3"), ("x-request-id", "req_1")];
    let error = response_text(http_response(200, &headers, vec![body])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(error.request_id(), Some("req_1"));
}

#[tokio::test]
async fn the_content_type_header_is_ignored() {
    for kind in ["application/json", "text/html", "text/plain", "application/octet-stream"] {
        let body = vec![body_bytes(TEXT_FRAME), body_bytes(FINISH_FRAME), body_bytes(DONE_FRAME)];
        let turn = response_text(http_response(200, &[("content-type", kind)], body)).await;
        assert_eq!(turn.unwrap(), "hi", "{kind}");
    }
    assert_eq!(
        response_text(http_response(
            200,
            &[],
            vec![body_bytes(TEXT_FRAME), body_bytes(FINISH_FRAME)]
        ))
        .await
        .unwrap(),
        "hi"
    );
}

#[tokio::test]
async fn an_html_or_json_document_instead_of_a_stream_is_a_protocol_error() {
    for body in ["<!DOCTYPE html><html>", " \n<html>", r#"{"choices":[]}"#, "[]", "{"] {
        let error = response_text(sse_response(vec![body_bytes(body)])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{body}: {error}");
        assert!(error.message().contains("instead of a stream"), "{error}");
    }
}

#[tokio::test]
async fn a_connection_lost_inside_a_frame_keeps_the_partial_turn() {
    for end in [BodyPart::Cut, BodyPart::Reset] {
        // The delay lets the client read the bytes before a reset would discard them.
        let wait = BodyPart::Delay(Duration::from_millis(20));
        let body = vec![body_bytes(TEXT_FRAME), body_bytes("data: {\"choi"), wait, end];
        let server = start_server(http_response(200, &[("x-request-id", "req_1")], body)).await;
        let mut turn = request_turn(&model(&server));
        assert!(matches!(turn.next().await, Some(Ok(TurnEvent::TextDelta { .. }))));
        let error = turn.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
        assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "hi");
        assert_eq!(error.find_source::<Error>().unwrap().kind(), ErrorKind::Connect);
        assert_eq!(error.request_id(), Some("req_1"));
        assert!(turn.next().await.is_none());
    }
}

#[tokio::test]
async fn a_connection_lost_after_the_stop_reason_does_not_fail_the_turn() {
    for end in [BodyPart::Cut, BodyPart::Reset] {
        let wait = BodyPart::Delay(Duration::from_millis(20));
        let body = vec![body_bytes(TEXT_FRAME), body_bytes(FINISH_FRAME), wait, end];
        assert_eq!(response_text(sse_response(body)).await.unwrap(), "hi");
    }
}

#[tokio::test]
async fn a_body_that_ends_inside_a_frame_is_an_incomplete_turn() {
    let server =
        start_server(sse_response(vec![body_bytes(TEXT_FRAME), body_bytes("data: {\"choi")])).await;
    let error = request_turn(&model(&server)).into_turn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "hi");
    assert_eq!(error.find_source::<Error>().unwrap().kind(), ErrorKind::Protocol);
    // After the stop reason, an incomplete frame has no effect.
    for half in ["data: {\"choi", "data: [DO"] {
        assert_eq!(
            response_text(sse_response(vec![
                body_bytes(TEXT_FRAME),
                body_bytes(FINISH_FRAME),
                body_bytes(half)
            ]))
            .await
            .unwrap(),
            "hi"
        );
    }
    // A complete frame that is not JSON violates the protocol.
    let whole = sse_response(vec![
        body_bytes(TEXT_FRAME),
        body_bytes("data: {\"choi\n\n"),
        body_bytes(TEXT_FRAME),
    ]);
    assert_eq!(response_text(whole).await.unwrap_err().kind(), ErrorKind::Protocol);
}

#[tokio::test]
async fn an_error_in_the_stream_carries_the_partial_turn() {
    let broke = "data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n";
    let error = response_text(sse_response(vec![body_bytes(TEXT_FRAME), body_bytes(broke)]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "hi");
}

#[tokio::test]
async fn an_unrequested_compressed_body_is_a_protocol_error() {
    for packing in ["gzip", "br", "deflate, gzip"] {
        let packed = BodyPart::Bytes(Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0, 0]));
        let response = http_response(200, &[("content-encoding", packing)], vec![packed.clone()]);
        let error = response_text(response).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.message().contains(packing), "{error}");
        // The status of a refusal is sufficient.
        let headers = [("content-encoding", packing), ("retry-after", "1")];
        let error = response_text(http_response(429, &headers, vec![packed])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert!(error.retry_after().is_some());
        assert!(error.message().is_ascii(), "{error}");
    }
    let plain = http_response(
        200,
        &[("content-encoding", "identity")],
        vec![body_bytes(TEXT_FRAME), body_bytes(FINISH_FRAME)],
    );
    let server = start_server(plain).await;
    assert_eq!(request_turn(&model(&server)).into_turn().await.unwrap().text(), "hi");
    assert_eq!(server.requests()[0].header("accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn a_response_that_never_starts_hits_the_first_byte_timeout() {
    let timeouts = Timeouts { first_byte: Duration::from_mins(2), ..Timeouts::default() };
    let (error, waited) =
        timeout_error_and_elapsed(sse_response(vec![BodyPart::Hang]), timeouts).await;
    check_timeout(&error, "did not start", None);
    assert!((115..125).contains(&waited.as_secs()), "{waited:?}");
}

#[tokio::test]
async fn a_model_without_output_hits_the_first_output_timeout() {
    let timeouts = Timeouts { first_output: Duration::from_secs(100), ..Timeouts::default() };
    let response = sse_response(vec![body_bytes(": ping\n\n"), BodyPart::Hang]);
    let (error, waited) = timeout_error_and_elapsed(response, timeouts).await;
    check_timeout(&error, "sent no output", None);
    assert!((95..105).contains(&waited.as_secs()), "{waited:?}");
    // Also before the response starts.
    let (error, _) = timeout_error_and_elapsed(sse_response(vec![BodyPart::Hang]), timeouts).await;
    check_timeout(&error, "sent no output", None);
}

/// Reads the first event, and then waits for the error with a paused clock.
async fn error_after_first_event(timeouts: Timeouts) -> Error {
    let server = start_server(sse_response(vec![body_bytes(TEXT_FRAME), BodyPart::Hang])).await;
    let mut turn = request_turn(&model(&server).with_timeouts(timeouts));
    assert!(turn.next().await.unwrap().is_ok());
    tokio::time::pause();
    turn.next().await.unwrap().unwrap_err()
}

#[tokio::test]
async fn an_idle_connection_times_out_and_partial_output_is_kept() {
    let error = error_after_first_event(Timeouts::default()).await;
    check_timeout(&error, "in the middle of its response", Some("hi"));
}

#[tokio::test]
async fn an_idle_model_times_out_and_partial_output_is_kept() {
    let timeouts = Timeouts { idle_output: Duration::from_secs(9), ..Timeouts::default() };
    let error = error_after_first_event(timeouts).await;
    check_timeout(&error, "the model sent no further output", Some("hi"));
}

#[tokio::test]
async fn an_overlong_turn_times_out_and_partial_output_is_kept() {
    let timeouts = Timeouts { turn: Duration::from_secs(99), ..Timeouts::default() };
    let error = error_after_first_event(timeouts).await;
    check_timeout(&error, "not complete within 99s", Some("hi"));
}

#[tokio::test]
async fn a_slow_error_body_is_still_read() {
    let late = BodyPart::Delay(Duration::from_secs(3));
    let body = vec![late, body_bytes(r#"{"error":{"message":"slow "#), body_bytes(r#"down"}}"#)];
    let (error, _) =
        timeout_error_and_elapsed(http_response(429, &[], body), Timeouts::default()).await;
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(error.message().ends_with("slow down"), "{error}");
}

#[tokio::test]
async fn an_endless_error_body_is_read_for_a_bounded_time() {
    let whole = r#"{"error":{"message":"slow down"}}"#;
    for (body, said, most) in [(whole, ": slow down", 1), ("slow", ": slow", 6), ("", "429", 6)] {
        let response = http_response(429, &[], vec![body_bytes(body), BodyPart::Hang]);
        let (error, waited) = timeout_error_and_elapsed(response, Timeouts::default()).await;
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert!(error.message().ends_with(said), "{error}");
        assert!(waited < Duration::from_secs(most), "{waited:?}");
    }
    let timeouts = Timeouts { first_byte: Duration::from_secs(2), ..Timeouts::default() };
    let (error, waited) =
        timeout_error_and_elapsed(http_response(500, &[], vec![BodyPart::Hang]), timeouts).await;
    assert_eq!(error.kind(), ErrorKind::Server);
    assert!(waited < Duration::from_secs(3), "{waited:?}");
}

#[tokio::test]
async fn an_error_body_is_read_up_to_64_kib() {
    for (padding, is_read) in [(60 << 10, true), (70 << 10, false)] {
        let padding = "x".repeat(padding);
        let body = format!(r#"{{"padding":"{padding}","error":{{"message":"slow down"}}}}"#);
        let response = http_response(400, &[], vec![BodyPart::Bytes(body.into())]);
        let error = response_text(response).await.unwrap_err();
        assert_eq!(error.message().contains("slow down"), is_read, "{error}");
    }
}

#[tokio::test]
async fn a_connection_is_reused_after_an_error_status() {
    let server =
        start_server(http_response(429, &[], vec![body_bytes(r#"{"error":{"message":"m"}}"#)]))
            .await;
    let model = model(&server);
    for _ in 0..3 {
        request_turn(&model).into_turn().await.unwrap_err();
    }
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn nothing_is_sent_for_a_stream_that_is_never_polled() {
    let server = start_server(sse_response(vec![body_bytes(TEXT_FRAME)])).await;
    drop(request_turn(&model(&server)));
    // The next request is the first one that is received.
    let _ = request_turn(&model(&server)).into_turn().await;
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection_and_leaves_no_task() {
    let server = start_server(sse_response(vec![body_bytes(TEXT_FRAME), BodyPart::Hang])).await;
    let mut turn = request_turn(&model(&server));
    assert!(turn.next().await.unwrap().is_ok());
    drop(turn);
    server.wait_for_early_close().await;
    assert_eq!((server.requests().len(), server.closed_early_count()), (1, 1));
    // While waiting for the head of the response, and for the text of a refusal.
    for response in [
        sse_response(vec![BodyPart::Hang]),
        http_response(429, &[], vec![body_bytes("slow"), BodyPart::Hang]),
    ] {
        let server = start_server(response).await;
        let mut turn = request_turn(&model(&server));
        while server.requests().is_empty() {
            let polled = futures::poll!(turn.next());
            assert!(polled.is_pending());
            tokio::task::yield_now().await;
        }
        drop(turn);
        server.wait_for_early_close().await;
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_line_without_an_end_hits_the_length_limit() {
    let piece = BodyPart::Bytes(Bytes::from(vec![b'x'; 1 << 20]));
    let mut body = vec![body_bytes(TEXT_FRAME), body_bytes("data: ")];
    body.extend(vec![piece; 17]);
    body.push(BodyPart::Hang);
    let error = response_text(sse_response(body)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "hi");
    assert!(error.find_source::<turnstream::sse::FrameTooLarge>().is_some());
}

/// All texts that an error can show.
fn all_error_text(error: &Error) -> String {
    let mut all = format!("{error}|{error:?}|{error:#?}|{}", serde_json::to_string(error).unwrap());
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        write!(all, "|{error}|{error:?}").unwrap();
        source = error.source();
    }
    all
}

#[tokio::test]
async fn an_echoed_key_is_never_shown() {
    let echo = |request: turnstream_testing::http::HttpRequest| {
        let all = request.headers.iter().flat_map(|(name, value)| [name.as_str(), " ", value, " "]);
        let all: String = all.collect();
        let message = format!("{all} {}", request.path);
        let body = serde_json::json!({ "error": { "message": message, "param": message } });
        let id = format!("id-{}", request.header("authorization").unwrap_or_default());
        let broken = format!("data: {{\"error\":{body}}}\n\n");
        match request.path.contains("fine") {
            true => http_response(
                200,
                &[("x-request-id", &id)],
                vec![body_bytes(TEXT_FRAME), BodyPart::Bytes(broken.into())],
            ),
            false => http_response(
                400,
                &[("x-request-id", &id)],
                vec![BodyPart::Bytes(body.to_string().into())],
            ),
        }
    };
    let server = LoopbackServer::start(echo).await.unwrap();
    let heads = Arc::new(Mutex::new(String::new()));
    let seen = heads.clone();
    let http = HttpClient::without_proxy().with_response_hook(move |head| {
        write!(seen.lock().unwrap(), "{head:?} {:?}", head.request_id()).unwrap();
    });
    let inside = server.url().replace("http://", "http://me:hunter22@");
    for (base, key) in [
        (server.url(), Some(API_KEY)),
        (format!("{}/fine", server.url()), Some(API_KEY)),
        (format!("{inside}/v1"), None),
        (format!("{inside}/fine"), None),
        (format!("{}/v1?key={API_KEY}", server.url()), None),
    ] {
        let model = OpenAiChat::new("m")
            .with_base_url(base)
            .unwrap()
            .without_retries()
            .with_http_client(http.clone());
        let model = match key {
            Some(key) => model.with_api_key(key),
            None => model,
        };
        let error = request_turn(&model).into_turn().await.unwrap_err();
        let all = all_error_text(&error) + &heads.lock().unwrap();
        // "me:hunter22" in base64 is "bWU6aHVudGVyMjI".
        for secret in [API_KEY, "hunter22", "bWU6aHVudGVyMjI"] {
            assert!(!all.contains(secret), "{secret} in {all}");
        }
    }
    assert!(heads.lock().unwrap().contains("x-request-id"));
}

#[tokio::test]
async fn a_key_split_by_message_truncation_is_not_shown() {
    for before in 485..505 {
        let said = format!("{}{API_KEY}{}", "x".repeat(before), "y".repeat(100));
        let refusal = http_response(400, &[], vec![BodyPart::Bytes(said.into())]);
        let shown = all_error_text(&response_text(refusal).await.unwrap_err());
        assert!(!shown.contains(&API_KEY[..4]), "{before}: {shown}");
    }
}

#[tokio::test]
async fn a_hook_sees_the_head_of_every_response() {
    let headers = [("x-request-id", "req_1"), ("X-RateLimit-Remaining-Requests", "7")];
    let server = start_server(http_response(
        200,
        &headers,
        vec![body_bytes(TEXT_FRAME), body_bytes(FINISH_FRAME)],
    ))
    .await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heads = seen.clone();
    let http = HttpClient::without_proxy().with_response_hook(move |head| {
        let left = head.header("X-RateLimit-Remaining-Requests").map(str::to_owned);
        let id = head.request_id().map(str::to_owned);
        heads.lock().unwrap().push((head.status, head.host.to_owned(), id, left));
    });
    request_turn(&model(&server).with_http_client(http)).into_turn().await.unwrap();
    let host = server.url().replace("http://", "");
    let expected = (200, host, Some("req_1".to_owned()), Some("7".to_owned()));
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn a_panic_in_a_hook_is_an_error_of_the_turn() {
    let server =
        start_server(sse_response(vec![body_bytes(TEXT_FRAME), body_bytes(FINISH_FRAME)])).await;
    let http = HttpClient::without_proxy().with_response_hook(|_| panic!("no good"));
    let error = request_turn(&model(&server).with_http_client(http)).into_turn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panic);
    assert!(error.message().contains("no good"), "{error}");
}

/// A resolver that finds no address, and so delays the connection without end.
struct PendingResolver;

impl reqwest::dns::Resolve for PendingResolver {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_not_opened_within_its_time_is_a_connect_error() {
    let http = HttpClient::from_builder(|client| {
        client.no_proxy().dns_resolver(Arc::new(PendingResolver))
    });
    let model = OpenAiChat::new("m").with_base_url("https://model.example").unwrap();
    let model = model.without_retries().with_http_client(http).with_api_key(API_KEY);
    for (connect, seconds) in [(None, 10), (Some(Duration::from_secs(3)), 3)] {
        let model = model.clone().with_timeouts(Timeouts { connect, ..Timeouts::default() });
        let began = tokio::time::Instant::now();
        let error = request_turn(&model).into_turn().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
        assert_eq!(began.elapsed().as_secs(), seconds, "{error}");
    }
}

#[tokio::test]
async fn a_providers_connect_timeout_is_its_own_and_its_connections_are_reused() {
    let server = start_server(sse_response(vec![
        body_bytes(TEXT_FRAME),
        body_bytes(FINISH_FRAME),
        body_bytes(DONE_FRAME),
    ]))
    .await;
    let connect = Some(Duration::from_secs(7));
    let usual = model(&server);
    let quick = usual.clone().with_timeouts(Timeouts { connect, ..Timeouts::default() });
    for model in [&usual, &usual, &quick, &quick] {
        request_turn(model).into_turn().await.unwrap();
    }
    assert_eq!(server.connection_count(), 2);
}

#[test]
fn a_turn_polled_outside_a_runtime_is_an_error() {
    let model = OpenAiChat::new("m").with_base_url("http://127.0.0.1:1").unwrap();
    let mut events: Vec<_> = block_on(request_turn(&model.with_api_key(API_KEY)).collect());
    let error = events.pop().unwrap().unwrap_err();
    assert!(events.is_empty(), "{events:?}");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Connect, false));
    assert!(error.message().contains("needs a tokio runtime"), "{error}");
}

#[tokio::test]
async fn a_requests_trace_context_is_sent_in_its_headers_on_every_wire() {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    for wire in Wire::ALL {
        let provider = http_provider(wire, &server.url(), 0, TransportSettings::default());
        for context in [TraceContext::parse(traceparent, Some("a=1")), None] {
            let history = History::from_items("h", [Item::user("hi")]);
            let request = Request { trace_context: context.clone(), ..Request::new(history) };
            provider.stream_turn(request).into_turn().await.unwrap_err();
            let sent = server.requests().pop().unwrap();
            let expected = context.as_ref().map(|_| traceparent);
            assert_eq!(sent.header("traceparent"), expected, "{wire:?}");
            assert_eq!(sent.header("tracestate"), context.as_ref().map(|_| "a=1"), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_long_request_whose_start_was_already_sent_has_the_same_head_and_the_same_bytes() {
    let answer = [TEXT_FRAME, FINISH_FRAME, DONE_FRAME].map(body_bytes);
    let server = start_server(sse_response(answer.into())).await;
    // reqwest applies a retry policy only to a body in one piece.
    let in_one_piece = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&in_one_piece);
    let http = HttpClient::from_builder(move |client| {
        let counter = Arc::clone(&counter);
        client.retry(reqwest::retry::for_host("127.0.0.1").classify_fn(move |response| {
            counter.fetch_add(1, Ordering::Relaxed);
            response.success()
        }))
    });
    let model = model(&server).with_http_client(http);
    let items = [Item::user("long ".repeat(50_000)), Item::user("more")];
    let mut history = History::empty("h");
    for item in items.clone() {
        history.push(item);
        let turn = model.stream_turn(Request::new(history.clone()));
        assert_eq!(turn.into_turn().await.unwrap().text(), "hi");
        assert_eq!(in_one_piece.load(Ordering::Relaxed), 1, "only the first body");
    }
    // Nothing of this history has been encoded before.
    let request = Request::new(History::from_items("h", items));
    assert_eq!(model.stream_turn(request).into_turn().await.unwrap().text(), "hi");
    assert_eq!(in_one_piece.load(Ordering::Relaxed), 2);
    let requests = server.requests();
    let (shared, plain) = (&requests[1], &requests[2]);
    assert_eq!(shared.headers, plain.headers);
    assert_eq!(shared.header("content-length"), Some(&*shared.body.len().to_string()));
    assert!(shared.body == plain.body);
}
