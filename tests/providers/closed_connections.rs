//! Servers that close idle connections, as servers of local models do: a request on such a
//! connection is sent again immediately, on a new connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use turnstream::event::EndReason;
use turnstream::http::HttpClient;
use turnstream::http::reqwest::ClientBuilder;
use turnstream::provider::{
    Backoff, CircuitBreaker, Fallback, OpenAiChat, Provider, Reply, Retry, Scripted,
};
use turnstream::stream::TurnStream;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Request, TurnEvent};
use turnstream_testing::{Answer, Wire};

use crate::over_http::{TransportSettings, http_provider};
use turnstream_test_support::providers::user_request;
use turnstream_test_support::seeded_random::Dice;
use turnstream_test_support::tools::{Counter, ok_tool};

/// The server's treatment of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AfterAnswer {
    /// It keeps the connection open.
    KeepOpen,
    /// It closes the connection after other tasks were polled this number of times.
    CloseAfterYields(u64),
    /// It closes the connection on the next request, before a byte of the answer.
    CloseOnRequest,
    /// The same, with a TCP reset.
    ResetOnRequest,
}

/// A server that closes connections. Dropping it closes all of them.
struct ClosingServer {
    url: String,
    accept_task: tokio::task::AbortHandle,
    connection_count: Arc<AtomicUsize>,
    /// The number of requests that were read, and of those that were answered.
    requests_read: Arc<AtomicUsize>,
    requests_answered: Arc<AtomicUsize>,
}

impl Drop for ClosingServer {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

/// The answer to a request body, and what happens to its connection; `None` closes it immediately.
type AnswerScript = dyn Fn(&str) -> Option<(Reply, AfterAnswer)> + Send + Sync;

impl ClosingServer {
    async fn start(
        script: impl Fn(&str) -> Option<(Reply, AfterAnswer)> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (connections, read, answered) = <(Arc<AtomicUsize>, Arc<_>, Arc<_>)>::default();
        let script: Arc<AnswerScript> = Arc::new(script);
        let accepting = tokio::spawn({
            let connections = Arc::clone(&connections);
            let counts = [Arc::clone(&read), Arc::clone(&answered)];
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(serve_connection(stream, Arc::clone(&script), counts.clone()));
                }
            }
        });
        Self {
            url,
            accept_task: accepting.abort_handle(),
            connection_count: connections,
            requests_read: read,
            requests_answered: answered,
        }
    }
}

async fn serve_connection(
    mut stream: TcpStream,
    script: Arc<AnswerScript>,
    [read, answered]: [Arc<AtomicUsize>; 2],
) {
    while let Some(body) = read_request(&mut stream).await {
        read.fetch_add(1, Ordering::Relaxed);
        let Some((reply, after)) = script(&body) else { return };
        let answer = Answer::from(reply).to_bytes(Wire::OpenAiChat);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        if stream.write_all(&[head.as_bytes(), &answer].concat()).await.is_err() {
            return;
        }
        answered.fetch_add(1, Ordering::Relaxed);
        match after {
            AfterAnswer::KeepOpen => {}
            AfterAnswer::CloseAfterYields(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                return;
            }
            AfterAnswer::CloseOnRequest => {
                let _ = read_request(&mut stream).await;
                return;
            }
            AfterAnswer::ResetOnRequest => {
                let _ = stream.readable().await;
                let _ = stream.set_zero_linger();
                return;
            }
        }
    }
}

/// The body of the next request; `None` once the client has disconnected.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
        });
        if body.len() >= length.unwrap() {
            return Some(body.to_owned());
        }
    }
}

fn model(server: &ClosingServer, transport: TransportSettings) -> Arc<dyn Provider> {
    http_provider(Wire::OpenAiChat, &server.url, 0, transport)
}

/// The number of failed attempts and the delay of each report, and the error.
async fn read_waits(mut turn: TurnStream) -> (Vec<(u32, u64)>, Option<Error>) {
    let mut waits = Vec::new();
    while let Some(event) = turn.next().await {
        match event {
            Ok(TurnEvent::Retrying { attempt, delay_ms, .. }) => waits.push((attempt, delay_ms)),
            Ok(_) => {}
            Err(error) => return (waits, Some(error)),
        }
    }
    (waits, None)
}

#[tokio::test]
async fn a_request_on_a_closed_connection_is_resent_immediately_on_a_new_one() {
    // Wine sends no reset, so the client sees the end of the connection before it sends a request.
    let resets = (!cfg!(windows)).then_some(AfterAnswer::ResetOnRequest);
    for after in [AfterAnswer::CloseOnRequest].into_iter().chain(resets) {
        let server = ClosingServer::start(move |_| Some(("Hello!".into(), after))).await;
        let model = model(&server, TransportSettings::default());
        assert_eq!(read_waits(model.stream_turn(user_request())).await, (vec![], None));
        // The connection is in the client's pool, and the server waits to close it.
        assert_eq!(
            read_waits(model.stream_turn(user_request())).await,
            (vec![(1, 0)], None),
            "{after:?}"
        );
        assert_eq!(server.connection_count.load(Ordering::Relaxed), 2);
        assert_eq!(server.requests_answered.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn only_the_first_closed_connection_is_retried_without_a_delay() {
    let server = ClosingServer::start(|_| None).await;
    let backoff = Backoff { base_delay: Duration::from_millis(2), ..Backoff::default() };
    let transport = TransportSettings { backoff, ..TransportSettings::default() };
    let (waits, failed) = read_waits(model(&server, transport).stream_turn(user_request())).await;
    assert_eq!(failed.unwrap().kind(), ErrorKind::Connect);
    assert_eq!(waits.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(waits[0].1, 0);
    let sent = (
        server.requests_read.load(Ordering::Relaxed),
        server.connection_count.load(Ordering::Relaxed),
    );
    assert_eq!(sent, (3, 3), "the first of the two retries is the one at once");
}

#[tokio::test]
async fn without_retries_a_closed_connection_is_the_error_of_the_turn() {
    let server = ClosingServer::start(|_| None).await;
    let mut transport = TransportSettings::default();
    transport.backoff.max_attempts = 1;
    let (waits, failed) = read_waits(model(&server, transport).stream_turn(user_request())).await;
    assert_eq!((waits, failed.unwrap().kind()), (vec![], ErrorKind::Connect));
    assert_eq!(server.requests_read.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_closed_connection_does_not_cause_a_failover() {
    let server =
        ClosingServer::start(|_| Some(("Hello!".into(), AfterAnswer::CloseOnRequest))).await;
    let other = Scripted::new(["never"]);
    let model = Fallback::new(model(&server, TransportSettings::default())).or(other.clone());
    read_waits(model.stream_turn(user_request())).await;
    assert_eq!(read_waits(model.stream_turn(user_request())).await, (vec![(1, 0)], None));
    assert_eq!(other.requests().len(), 0);
}

#[tokio::test]
async fn under_a_retry_provider_a_closed_connection_is_also_replaced_immediately() {
    // The pool's other connections are closed as well.
    let server =
        ClosingServer::start(|_| Some(("Hello!".into(), AfterAnswer::CloseOnRequest))).await;
    let below = model_with_closed_connections(&server, 2).await;
    let waiting = Backoff { base_delay: Duration::from_hours(1), ..Backoff::default() };
    let model = Retry::new(below).with_backoff(waiting);
    for _ in 0..2 {
        assert_eq!(read_waits(model.stream_turn(user_request())).await, (vec![(1, 0)], None));
    }
}

/// A model with this number of pooled connections, all of which are closed when they are used.
async fn model_with_closed_connections(
    server: &ClosingServer,
    connections: usize,
) -> Arc<dyn Provider> {
    let model = model(server, TransportSettings::default());
    let turns = (0..connections).map(|_| read_waits(model.stream_turn(user_request())));
    futures::future::join_all(turns).await;
    model
}

#[tokio::test]
async fn a_closed_connection_is_replaced_immediately_under_any_stack_of_providers() {
    type MakeRetry = fn(Arc<dyn Provider>, Scripted) -> Retry;
    let makes: [MakeRetry; 3] = [
        |model, other| Retry::new(Fallback::new(model).or(other)),
        |model, _| Retry::new(Retry::new(model)),
        |model, _| Retry::new(CircuitBreaker::new(model).with_max_failures(1)),
    ];
    for make in makes {
        let server =
            ClosingServer::start(|_| Some(("Hello!".into(), AfterAnswer::CloseOnRequest))).await;
        let below = model_with_closed_connections(&server, 3).await;
        let other = Scripted::new(["never"]);
        let waiting = Backoff { base_delay: Duration::from_hours(1), ..Backoff::default() };
        let model = make(below, other.clone()).with_backoff(waiting);
        assert_eq!(read_waits(model.stream_turn(user_request())).await, (vec![(1, 0)], None));
        assert_eq!(other.requests().len(), 0);
    }
}

#[tokio::test]
async fn under_a_retry_that_selects_no_errors_a_closed_connection_fails_the_turn() {
    let server =
        ClosingServer::start(|_| Some(("Hello!".into(), AfterAnswer::CloseOnRequest))).await;
    let below = model_with_closed_connections(&server, 1).await;
    let (waits, failed) =
        read_waits(Retry::new(below).retry_if(|_| false).stream_turn(user_request())).await;
    assert_eq!((waits, failed.unwrap().kind()), (vec![], ErrorKind::Connect));
}

#[tokio::test]
async fn two_hundred_tool_loops_complete_against_a_server_that_closes_at_random_moments() {
    let dice = Dice::new(11);
    let server = ClosingServer::start(move |body| {
        let reply = match body.contains("\"tool\"") {
            false => Reply::new().call("t", json!({})),
            true => Reply::text("It is done."),
        };
        let after = match dice.roll(4) {
            0 => AfterAnswer::CloseOnRequest,
            1 => AfterAnswer::ResetOnRequest,
            2 => AfterAnswer::CloseAfterYields(dice.roll(40)),
            _ => AfterAnswer::KeepOpen,
        };
        Some((reply, after))
    })
    .await;
    let ran = Counter::default();
    let agent = Agent::new(model(&server, TransportSettings::without_delay()))
        .with_tools([ok_tool("t", &ran)]);
    let mut sent_again = 0;
    for n in 0..200 {
        let mut run = agent.run("go");
        while let Some(event) = run.next().await {
            match event.unwrap_or_else(|error| panic!("run {n}: {error:#}")) {
                Event::Turn(TurnEvent::Retrying { .. }) => sent_again += 1,
                Event::Finished(outcome) => {
                    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 2), "{n}");
                }
                _ => {}
            }
        }
    }
    assert_eq!(ran.started_count(), 200, "each call ran once");
    assert_eq!(server.requests_answered.load(Ordering::Relaxed), 400, "no answer was thrown away");
    println!("200 of 200 runs completed, {sent_again} requests were sent again");
    assert!(sent_again >= 20, "{sent_again}");
}

/// The bodies of the requests that a server answered, each with the length in its head.
type ReceivedBodies = Arc<Mutex<Vec<(Option<usize>, Vec<u8>)>>>;

/// The way in which an HTTP/2 server tells that it has not processed a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refusal {
    /// It resets the request's stream.
    RefusedStream,
    /// It closes the connection to all streams.
    GoAway,
}

/// An HTTP/2 server that refuses the first requests and answers the others.
struct Http2Server {
    url: String,
    bodies: ReceivedBodies,
    connection_count: Arc<AtomicUsize>,
}

impl Http2Server {
    async fn start(refusal: Refusal, refused_requests: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (bodies, connection_count) = <(ReceivedBodies, Arc<AtomicUsize>)>::default();
        let server = Self {
            url,
            bodies: Arc::clone(&bodies),
            connection_count: Arc::clone(&connection_count),
        };
        let requests = Arc::new(AtomicUsize::new(0));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = connection_count.fetch_add(1, Ordering::Relaxed);
                if refusal == Refusal::GoAway && connection < refused_requests {
                    tokio::spawn(go_away_on_request(stream));
                    continue;
                }
                let (requests, bodies) = (Arc::clone(&requests), Arc::clone(&bodies));
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, mut response))) = connection.accept().await {
                        let n = requests.fetch_add(1, Ordering::Relaxed);
                        if refusal == Refusal::RefusedStream && n < refused_requests {
                            response.send_reset(h2::Reason::REFUSED_STREAM);
                            continue;
                        }
                        tokio::spawn(answer_over_http2(request, response, Arc::clone(&bodies)));
                    }
                });
            }
        });
        server
    }
}

/// Reads the frames of an HTTP/2 connection up to its first request, and then closes the connection
/// to all streams (<https://www.rfc-editor.org/rfc/rfc9113.html#section-6.8>).
async fn go_away_on_request(mut stream: TcpStream) {
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    // A frame begins with its length, type, flags and stream. An empty `SETTINGS` frame is first.
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.unwrap();
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == HEADERS {
            break;
        }
    }
    // The last processed stream is 0, and the reason is `NO_ERROR`.
    stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

async fn answer_over_http2(
    request: hyper::Request<h2::RecvStream>,
    mut response: h2::server::SendResponse<bytes::Bytes>,
    bodies: ReceivedBodies,
) {
    let length = request.headers().get("content-length");
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let mut stream = request.into_body();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.unwrap();
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    bodies.lock().unwrap().push((length, body));
    let head = hyper::Response::builder().header("content-type", "text/event-stream");
    let mut sending = response.send_response(head.body(()).unwrap(), false).unwrap();
    let answer = Answer::from(Reply::text("Hello!")).to_bytes(Wire::OpenAiChat);
    sending.send_data(answer.into(), true).unwrap();
}

fn http2_model(server: &Http2Server) -> OpenAiChat {
    OpenAiChat::new("gpt-0")
        .with_base_url(&server.url)
        .unwrap()
        .with_http_client(HttpClient::from_builder(ClientBuilder::http2_prior_knowledge))
        .with_api_key("sk-12345678")
        .without_retries()
}

/// Returns a short request, and a long one whose body shares bytes with an earlier body.
async fn short_and_long_requests() -> [Request; 2] {
    let server = Http2Server::start(Refusal::RefusedStream, 0).await;
    let mut history = History::empty("h");
    history.push(Item::user("long ".repeat(50_000)));
    let turn = http2_model(&server).stream_turn(Request::new(history.clone()));
    assert_eq!(read_waits(turn).await, (vec![], None));
    history.push(Item::user("more"));
    [user_request(), Request::new(history)]
}

#[tokio::test]
async fn a_request_that_an_http2_server_did_not_process_is_resent_twice_without_retries() {
    for request in short_and_long_requests().await {
        for (refusal, connections) in [(Refusal::RefusedStream, 1), (Refusal::GoAway, 3)] {
            let server = Http2Server::start(refusal, 2).await;
            let turn = http2_model(&server).stream_turn(request.clone());
            assert_eq!(read_waits(turn).await, (vec![], None), "{refusal:?}");
            assert_eq!(server.connection_count.load(Ordering::Relaxed), connections);
            let bodies = std::mem::take(&mut *server.bodies.lock().unwrap());
            assert_eq!(bodies.len(), 1);
            let (length, body) = &bodies[0];
            assert_eq!(*length, Some(body.len()));
            assert!(serde_json::from_slice::<serde_json::Value>(body).is_ok());

            let server = Http2Server::start(refusal, 3).await;
            let turn = http2_model(&server).stream_turn(request.clone());
            let (waits, failed) = read_waits(turn).await;
            assert_eq!((waits, failed.unwrap().kind()), (vec![], ErrorKind::Connect));
            assert_eq!(server.bodies.lock().unwrap().len(), 0, "{refusal:?}");
        }
    }
}
