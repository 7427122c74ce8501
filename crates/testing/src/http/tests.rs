//! Tests of the server from the view of a client.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::{BodyPart, BodyStream, HttpRequest, HttpResponse, LoopbackServer};

const HEAD: &str = "HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n";

/// A client that handles raw bytes. Every wait has a limit, so that a broken server fails its test
/// instead of hanging it.
struct Client(TcpStream);

impl Client {
    async fn connect(server: &LoopbackServer) -> Self {
        let address = server.url().replace("http://", "");
        Self(TcpStream::connect(address).await.unwrap())
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads exactly the expected bytes, and no more.
    async fn expect(&mut self, expected: impl AsRef<str>) {
        let expected = expected.as_ref();
        let mut seen = vec![0; expected.len()];
        soon(self.0.read_exact(&mut seen)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&seen), expected);
    }

    /// Reads until the server closes the connection.
    async fn rest(&mut self) -> io::Result<String> {
        let mut rest = String::new();
        soon(self.0.read_to_string(&mut rest)).await?;
        Ok(rest)
    }
}

async fn soon<F: Future>(future: F) -> F::Output {
    let limit = Duration::from_secs(20);
    timeout(limit, future).await.expect("the server keeps us waiting")
}

fn bytes(text: &'static str) -> BodyPart {
    BodyPart::Bytes(Bytes::from_static(text.as_bytes()))
}

/// Returns more bytes than a socket buffers, so that sending waits for a client that does not read.
fn more_than_a_socket_holds() -> Bytes {
    vec![b'a'; 32 << 20].into()
}

fn answer(body: impl Into<Vec<BodyPart>>) -> HttpResponse {
    HttpResponse { status: 200, headers: vec![], body: body.into() }
}

/// Starts a server that sends the same body to every client.
async fn serving(body: impl Into<Vec<BodyPart>>) -> LoopbackServer {
    let response = answer(body);
    LoopbackServer::start(move |_| response.clone()).await.unwrap()
}

fn echo(request: HttpRequest) -> HttpResponse {
    answer([BodyPart::Bytes(request.body)])
}

#[tokio::test]
async fn keep_alive_reuses_a_connection() {
    let server = LoopbackServer::start(echo).await.unwrap();
    let mut client = Client::connect(&server).await;
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi").await;
        client.expect(format!("{HEAD}2\r\nhi\r\n0\r\n\r\n")).await;
    }
    assert_eq!(server.connection_count(), 1);
    assert_eq!(server.requests().len(), 3);
    assert_eq!(server.closed_early_count(), 0);
}

#[tokio::test]
async fn requests_are_remembered_in_order_with_their_connection() {
    let server = serving([]).await;
    let mut clients = [Client::connect(&server).await, Client::connect(&server).await];
    for (path, client) in [("/a", 0), ("/b?c", 1), ("/d", 0)] {
        clients[client].send(format!("GET {path} HTTP/1.1\r\nX-Name: v\r\n\r\n")).await;
        clients[client].expect(format!("{HEAD}0\r\n\r\n")).await;
    }
    let requests = server.requests();
    let seen: Vec<_> = requests.iter().map(|r| (&*r.path, r.connection)).collect();
    assert_eq!(seen, [("/a", 0), ("/b?c", 1), ("/d", 0)]);
    assert_eq!(requests[0].headers, [("x-name".to_owned(), "v".to_owned())]);
    assert_eq!(server.connection_count(), 2);
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_turn() {
    let server = LoopbackServer::start(|request| answer([BodyPart::Bytes(request.path.into())]))
        .await
        .unwrap();
    let mut client = Client::connect(&server).await;
    client.send("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n").await;
    client.expect(format!("{HEAD}2\r\n/1\r\n0\r\n\r\n{HEAD}2\r\n/2\r\n0\r\n\r\n")).await;
}

#[tokio::test]
async fn a_request_sent_during_an_answer_is_kept_for_later() {
    let server = serving([BodyPart::Bytes(more_than_a_socket_holds())]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET /1 HTTP/1.1\r\n\r\n").await;
    client.expect(HEAD).await;
    client.send("GET /2 HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    client.rest().await.unwrap();
    let requests = server.requests();
    let paths: Vec<_> = requests.iter().map(|r| &*r.path).collect();
    assert_eq!(paths, ["/1", "/2"]);
}

#[tokio::test]
async fn a_chunked_request_body_arrives_whole() {
    let server = LoopbackServer::start(echo).await.unwrap();
    let mut client = Client::connect(&server).await;
    client.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.send("2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n").await;
    client.expect(format!("{HEAD}5\r\nabcde\r\n0\r\n\r\n")).await;
    assert_eq!(server.requests()[0].body, "abcde");
}

#[tokio::test]
async fn a_request_sent_byte_by_byte_is_one_request() {
    let server = LoopbackServer::start(echo).await.unwrap();
    let mut client = Client::connect(&server).await;
    client.0.set_nodelay(true).unwrap();
    for byte in b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" {
        client.send([*byte]).await;
        tokio::task::yield_now().await;
    }
    client.expect(format!("{HEAD}3\r\nabc\r\n0\r\n\r\n")).await;
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn expect_continue_is_answered_before_the_body_is_sent() {
    let server = LoopbackServer::start(echo).await.unwrap();
    let mut client = Client::connect(&server).await;
    client.send("PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n").await;
    client.expect("HTTP/1.1 100 Continue\r\n\r\n").await;
    client.send("hi").await;
    client.expect(format!("{HEAD}2\r\nhi\r\n0\r\n\r\n")).await;
}

#[tokio::test]
async fn each_bytes_part_is_a_chunk_and_empty_ones_do_not_end_the_body() {
    let server = serving([bytes("a"), bytes(""), bytes("bc")]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(format!("{HEAD}1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")).await;
}

#[tokio::test]
async fn head_is_answered_without_a_body() {
    let server = serving([bytes("a")]).await;
    let mut client = Client::connect(&server).await;
    client.send("HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    assert_eq!(client.rest().await.unwrap(), "HTTP/1.1 200 \r\nconnection: close\r\n\r\n");
}

#[tokio::test]
async fn cut_closes_the_connection_without_the_final_chunk() {
    let server = serving([bytes("a"), BodyPart::Cut, bytes("b")]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.rest().await.unwrap(), format!("{HEAD}1\r\na\r\n"));
    assert_eq!(server.closed_early_count(), 0);
}

#[cfg_attr(windows, ignore = "Wine does not reset connections")]
#[tokio::test]
async fn reset_reaches_the_client_as_a_reset() {
    let server = serving([bytes("a"), BodyPart::Reset]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    let error = client.rest().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_delay_follows_the_tokio_clock() {
    let server = serving([BodyPart::Delay(Duration::from_hours(1)), bytes("a")]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    // Read without `soon`: its clock is paused as well, and its limit would expire immediately.
    let mut rest = String::new();
    client.0.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("\r\n\r\n1\r\na\r\n0\r\n\r\n"), "{rest}");
}

fn stream(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> BodyPart {
    BodyPart::Stream(BodyStream::new(pieces))
}

#[tokio::test]
async fn a_stream_is_sent_as_it_arrives_and_only_once() {
    let (sender, pieces) = futures::channel::mpsc::unbounded();
    let server = serving([stream(pieces), bytes("end")]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(HEAD).await;
    sender.unbounded_send(Ok(Bytes::from_static(b"one"))).unwrap();
    client.expect("3\r\none\r\n").await;
    sender.unbounded_send(Ok(Bytes::new())).unwrap();
    sender.unbounded_send(Ok(Bytes::from_static(b"two"))).unwrap();
    client.expect("3\r\ntwo\r\n").await;
    drop(sender);
    client.expect("3\r\nend\r\n0\r\n\r\n").await;
    // A second response with the same stream.
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(format!("{HEAD}3\r\nend\r\n0\r\n\r\n")).await;
}

#[tokio::test]
async fn a_stream_that_fails_cuts_the_connection() {
    let pieces = [Ok(Bytes::from_static(b"a")), Err(io::Error::other("no more"))];
    let server = serving([stream(futures::stream::iter(pieces)), bytes("end")]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.rest().await.unwrap(), format!("{HEAD}1\r\na\r\n"));
}

#[tokio::test]
async fn a_client_that_leaves_drops_the_stream() {
    let (sender, pieces) = futures::channel::mpsc::unbounded();
    let server = serving([stream(pieces)]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(HEAD).await;
    assert!(!sender.is_closed());
    drop(client);
    soon(server.wait_for_early_close()).await;
    assert!(sender.is_closed());
}

#[tokio::test]
async fn leading_silence_withholds_the_response_head() {
    let server = serving([BodyPart::Silence]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.0.shutdown().await.unwrap();
    assert_eq!(client.rest().await.unwrap(), "");
    let server = serving([bytes("a"), BodyPart::Silence]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(format!("{HEAD}1\r\na\r\n")).await;
}

#[tokio::test]
async fn a_client_that_leaves_during_a_hang_is_noticed() {
    let server = serving([bytes("a"), BodyPart::Hang]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(format!("{HEAD}1\r\na\r\n")).await;
    assert_eq!(server.closed_early_count(), 0);
    drop(client);
    soon(server.wait_for_early_close()).await;
    assert_eq!(server.closed_early_count(), 1);
    // The client has left already, so this returns immediately.
    soon(server.wait_for_early_close()).await;
}

#[tokio::test]
async fn a_client_that_leaves_during_a_delay_is_noticed() {
    let server = serving([BodyPart::Delay(Duration::from_hours(1))]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(HEAD).await;
    drop(client);
    soon(server.wait_for_early_close()).await;
}

#[tokio::test]
async fn a_client_that_leaves_with_unread_bytes_is_noticed() {
    let server = serving([BodyPart::Bytes(more_than_a_socket_holds())]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(HEAD).await;
    drop(client);
    soon(server.wait_for_early_close()).await;
}

#[tokio::test]
async fn a_client_that_leaves_between_requests_did_not_close_early() {
    let server = serving([]).await;
    let mut client = Client::connect(&server).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(format!("{HEAD}0\r\n\r\n")).await;
    client.0.shutdown().await.unwrap();
    assert_eq!(client.rest().await.unwrap(), "");
    assert_eq!(server.closed_early_count(), 0);
}

#[tokio::test]
async fn dropping_the_server_closes_its_connections_and_its_port() {
    let server = serving([BodyPart::Hang]).await;
    let address = server.url().replace("http://", "");
    let mut busy = Client::connect(&server).await;
    busy.send("GET / HTTP/1.1\r\n\r\n").await;
    busy.expect(HEAD).await;
    let mut idle = Client::connect(&server).await;
    drop(server);
    assert_eq!(busy.rest().await.unwrap(), "");
    // An idle connection may not have been accepted yet; then it is reset.
    assert_eq!(idle.rest().await.unwrap_or_default(), "");
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn garbage_is_answered_with_400_and_a_close() {
    let server = serving([]).await;
    for garbage in ["hello\r\n\r\n", "GET / HTTP/1.1\r\nno header\r\n\r\n", "\x16\x03\x01"] {
        let mut client = Client::connect(&server).await;
        client.send(garbage).await;
        let refusal = client.rest().await.unwrap();
        assert!(refusal.starts_with("HTTP/1.1 400 "), "{refusal}");
        assert!(refusal.ends_with("\r\n0\r\n\r\n"), "{refusal}");
    }
    assert_eq!(server.requests(), []);
}

#[tokio::test]
async fn a_request_that_ends_too_early_is_answered_with_400() {
    let server = serving([]).await;
    let mut client = Client::connect(&server).await;
    client.send("PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf").await;
    client.0.shutdown().await.unwrap();
    let refusal = client.rest().await.unwrap();
    assert!(refusal.contains("the request ends too early"), "{refusal}");
}

#[tokio::test]
async fn a_panicking_handler_answers_500_and_the_connection_stays_open() {
    let server = LoopbackServer::start(|request| match &*request.path {
        "/panic" => panic!("no such path"),
        _ => answer([]),
    })
    .await
    .unwrap();
    let mut client = Client::connect(&server).await;
    client.send("GET /panic HTTP/1.1\r\n\r\n").await;
    client
        .expect(
            "HTTP/1.1 500 \r\ncontent-type: text/plain; charset=utf-8\r\n\
             transfer-encoding: chunked\r\n\r\n\
             22\r\nthe handler panicked: no such path\r\n0\r\n\r\n",
        )
        .await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.expect(format!("{HEAD}0\r\n\r\n")).await;
}
