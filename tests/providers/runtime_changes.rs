//! Turns that are started in one tokio runtime and read in another.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::executor::block_on;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::timeout;
use turnstream::http::HttpClient;
use turnstream::provider::{OpenAiChat, Provider};
use turnstream::stream::{TurnStream, TurnStreamExt};
use turnstream::turn::PartialTurn;
use turnstream::{Error, ErrorKind, History, Item, Request, TurnEvent};
use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};

const TEXT_FRAME: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
const TEXT_AND_STOP_FRAME: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"hi!\"},\"finish_reason\":\"stop\"}]}\n\n";
const STOP_AND_DONE_FRAMES: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"!\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
/// Longer than any test takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(10);

fn body_bytes(text: &'static str) -> BodyPart {
    BodyPart::Bytes(Bytes::from_static(text.as_bytes()))
}

fn current_thread_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A server in a runtime of its own, which outlives the client's runtime.
struct HoldingServer {
    /// Requests wait for their answers until it is dropped. It is dropped before the runtime, whose
    /// shutdown would block otherwise.
    response_hold: Option<mpsc::Sender<()>>,
    _loopback: LoopbackServer,
    _runtime: Runtime,
    model: OpenAiChat,
    /// Notified when a request was received.
    request_received: Arc<Notify>,
    /// Notified when the head of a response was received.
    head_received: Arc<Notify>,
}

fn start_holding_server(status: u16, body: Vec<BodyPart>) -> HoldingServer {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let [asked, answered] = [(), ()].map(|()| Arc::new(Notify::new()));
    let (hold, until) = mpsc::channel::<()>();
    let until = Mutex::new(until);
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    let response = HttpResponse { status, headers, body };
    let on_request = Arc::clone(&asked);
    let server = runtime.block_on(LoopbackServer::start(move |_| {
        on_request.notify_one();
        // Blocks until the sender is dropped.
        let _ = until.lock().unwrap().recv();
        response.clone()
    }));
    let server = server.unwrap();
    let on_head = Arc::clone(&answered);
    let http = HttpClient::without_proxy().with_response_hook(move |_| on_head.notify_one());
    let model = OpenAiChat::new("m").with_base_url(server.url()).unwrap().with_http_client(http);
    HoldingServer {
        response_hold: Some(hold),
        _loopback: server,
        _runtime: runtime,
        model,
        request_received: asked,
        head_received: answered,
    }
}

/// A server that answers immediately.
fn start_server(status: u16, body: Vec<BodyPart>) -> HoldingServer {
    HoldingServer { response_hold: None, ..start_holding_server(status, body) }
}

fn request_turn(model: &OpenAiChat) -> TurnStream {
    model.stream_turn(Request::new(History::from_items("h", [Item::user("hi")])))
}

/// Polls a turn in this runtime until the notification; the turn yields no event.
fn poll_until_notified(runtime: &Runtime, turn: &mut TurnStream, happened: &Notify) {
    runtime.block_on(async {
        tokio::select! {
            biased;
            event = turn.next() => panic!("{event:?}"),
            () = happened.notified() => {}
        }
    });
}

/// Reads the first text of a turn in this runtime.
fn read_first_text(runtime: &Runtime, turn: &mut TurnStream) {
    let event = runtime.block_on(turn.next()).unwrap().unwrap();
    assert!(matches!(event, TurnEvent::TextDelta { .. }), "{event:?}");
}

/// Reads the rest in another runtime.
fn read_rest_in_other_runtime(turn: TurnStream) -> Result<String, Error> {
    let rest =
        current_thread_runtime().block_on(async { timeout(HANG_TIMEOUT, turn.into_turn()).await });
    rest.expect("it hangs").map(|turn| turn.text())
}

#[track_caller]
fn check_moved_error(error: &Error, kind: ErrorKind) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.message().contains("another tokio runtime"), "{error}");
}

#[test]
fn a_body_driven_by_an_idle_current_thread_runtime_is_an_error_and_not_a_hang() {
    let server = start_server(200, vec![body_bytes(TEXT_FRAME), BodyPart::Hang]);
    let first = current_thread_runtime();
    let mut turn = request_turn(&server.model);
    read_first_text(&first, &mut turn);
    let error = read_rest_in_other_runtime(turn).unwrap_err();
    check_moved_error(&error, ErrorKind::IncompleteTurn);
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "hi");
}

#[test]
fn a_body_polled_outside_any_runtime_is_an_error_and_not_a_hang() {
    let server = start_server(200, vec![body_bytes(TEXT_FRAME), BodyPart::Hang]);
    let first = current_thread_runtime();
    let mut turn = request_turn(&server.model);
    read_first_text(&first, &mut turn);
    let (send, rest) = mpsc::channel();
    thread::spawn(move || send.send(block_on(turn.into_turn())).unwrap());
    let error = rest.recv_timeout(HANG_TIMEOUT).expect("it hangs").unwrap_err();
    check_moved_error(&error, ErrorKind::IncompleteTurn);
}

#[test]
fn a_body_whose_runtime_has_ended_is_an_error() {
    for first in [current_thread_runtime(), multi_thread_runtime()] {
        let server = start_server(200, vec![body_bytes(TEXT_FRAME), BodyPart::Hang]);
        let mut turn = request_turn(&server.model);
        read_first_text(&first, &mut turn);
        drop(first);
        assert_eq!(read_rest_in_other_runtime(turn).unwrap_err().kind(), ErrorKind::IncompleteTurn);
    }
}

#[test]
fn a_turn_with_its_stop_reason_is_complete_even_if_its_body_cannot_be_read() {
    let server = start_server(200, vec![body_bytes(TEXT_AND_STOP_FRAME), BodyPart::Hang]);
    let first = current_thread_runtime();
    let mut turn = request_turn(&server.model);
    read_first_text(&first, &mut turn);
    assert_eq!(read_rest_in_other_runtime(turn).unwrap(), "hi!");
}

#[test]
fn a_response_driven_by_an_idle_current_thread_runtime_is_an_error_and_not_a_hang() {
    let server =
        start_holding_server(200, vec![body_bytes(TEXT_FRAME), body_bytes(STOP_AND_DONE_FRAMES)]);
    let first = current_thread_runtime();
    let mut turn = request_turn(&server.model.clone().without_retries());
    poll_until_notified(&first, &mut turn, &server.request_received);
    check_moved_error(&read_rest_in_other_runtime(turn).unwrap_err(), ErrorKind::Connect);
}

#[test]
fn a_retry_is_sent_from_the_runtime_that_the_turn_moved_to() {
    let mut server =
        start_holding_server(200, vec![body_bytes(TEXT_FRAME), body_bytes(STOP_AND_DONE_FRAMES)]);
    let first = current_thread_runtime();
    let mut turn = request_turn(&server.model);
    poll_until_notified(&first, &mut turn, &server.request_received);
    server.response_hold = None;
    assert_eq!(read_rest_in_other_runtime(turn).unwrap(), "hi!");
}

#[test]
fn an_error_status_is_reported_even_if_its_body_cannot_be_read() {
    let server = start_server(400, vec![body_bytes("{"), BodyPart::Hang]);
    let first = current_thread_runtime();
    let mut turn = request_turn(&server.model);
    poll_until_notified(&first, &mut turn, &server.head_received);
    let error = read_rest_in_other_runtime(turn).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::InvalidRequest, Some(400)));
}

#[test]
fn a_turn_driven_by_a_multi_thread_runtime_continues_in_another_runtime() {
    let pause = BodyPart::Delay(Duration::from_millis(20));
    let mut server = start_holding_server(
        200,
        vec![body_bytes(TEXT_FRAME), pause, body_bytes(STOP_AND_DONE_FRAMES)],
    );
    let first = multi_thread_runtime();
    // While the response is awaited.
    let mut turn = request_turn(&server.model.clone().without_retries());
    poll_until_notified(&first, &mut turn, &server.request_received);
    server.response_hold = None;
    assert_eq!(read_rest_in_other_runtime(turn).unwrap(), "hi!");
    // In the middle of the response.
    let mut turn = request_turn(&server.model);
    read_first_text(&first, &mut turn);
    assert_eq!(read_rest_in_other_runtime(turn).unwrap(), "hi!");
}

#[test]
fn a_turn_moved_before_its_first_poll_works() {
    let pause = BodyPart::Delay(Duration::from_millis(20));
    let server =
        start_server(200, vec![body_bytes(TEXT_FRAME), pause, body_bytes(STOP_AND_DONE_FRAMES)]);
    let first = current_thread_runtime();
    let turn = first.block_on(async { request_turn(&server.model) });
    assert_eq!(read_rest_in_other_runtime(turn).unwrap(), "hi!");
}
