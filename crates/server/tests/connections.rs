//! The server's connections, on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use turnstream_server::{ConnectionLimits, listen, serve};

/// How long a test waits for something that happens immediately.
const LIMIT: Duration = Duration::from_secs(20);

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A server on a free port.
struct Serving {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Serving {
    fn start(limits: ConnectionLimits, router: Router) -> Self {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or(()) };
        Self { address, stop, task: tokio::spawn(serve(listener, router, limits, stopped)) }
    }

    /// Opens a connection and sends these bytes.
    async fn send(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }
}

/// A page with the text "ok", and one at `/slow` that sends some bytes and then nothing.
fn router() -> Router {
    let slow = async || {
        let first =
            futures::stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from("begun"))]);
        Body::from_stream(first.chain(futures::stream::pending()))
    };
    Router::new().route("/", get("ok")).route("/slow", get(slow))
}

fn quick() -> ConnectionLimits {
    ConnectionLimits { head_timeout: Duration::from_millis(200), ..ConnectionLimits::default() }
}

/// Reads until the server closes the connection.
async fn read_to_end(mut stream: TcpStream) -> String {
    let mut read = Vec::new();
    let ended = tokio::time::timeout(LIMIT, stream.read_to_end(&mut read)).await;
    // A connection can also be reset.
    drop(ended.expect("the server does not close the connection"));
    String::from_utf8(read).unwrap()
}

/// Reads the response "ok" from a connection that stays open.
async fn read_ok(stream: &mut TcpStream) {
    let mut read = Vec::new();
    let whole = async {
        while !read.ends_with(b"ok") {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "the connection is closed");
        }
    };
    tokio::time::timeout(LIMIT, whole).await.expect("there is no response");
}

#[tokio::test]
async fn a_half_sent_head_is_closed_after_its_time_limit() {
    let serving = Serving::start(quick(), router());
    for bytes in ["", "GET", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: localhost\r\nx: "] {
        let read = read_to_end(serving.send(bytes).await).await;
        assert!(read.is_empty() || read.starts_with("HTTP/1.1 408"), "{bytes:?}: {read}");
    }
}

#[tokio::test]
async fn a_head_that_arrives_byte_by_byte_is_closed_after_its_time_limit() {
    let serving = Serving::start(quick(), router());
    let stream = serving.send("GET / HTTP/1.1\r\nx: ").await;
    let (mut reading, mut writing) = stream.into_split();
    let drip = tokio::spawn(async move {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let mut read = Vec::new();
    let ended = tokio::time::timeout(LIMIT, reading.read_to_end(&mut read)).await;
    drop(ended.expect("the server does not close the connection"));
    drip.await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_response_that_takes_longer_is_not() {
    let serving = Serving::start(quick(), router());
    let mut slow = serving.send("GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let idle = serving.send(REQUEST).await;
    let read = read_to_end(idle).await;
    assert!(read.starts_with("HTTP/1.1 200") && read.ends_with("ok"), "{read}");
    // The other connection is older.
    let mut read = Vec::new();
    while !read.ends_with(b"begun\r\n") {
        assert_ne!(slow.read_buf(&mut read).await.unwrap(), 0);
    }
    assert!(slow.try_read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock));
}

#[tokio::test]
async fn connections_beyond_the_maximum_wait_for_one_that_ends() {
    let limits = ConnectionLimits { max_connections: 2, ..ConnectionLimits::default() };
    let serving = Serving::start(limits, router());
    let mut first = serving.send(REQUEST).await;
    let mut second = serving.send(REQUEST).await;
    read_ok(&mut first).await;
    read_ok(&mut second).await;
    let mut third = serving.send(REQUEST).await;
    let early = tokio::time::timeout(Duration::from_millis(200), third.read_u8()).await;
    assert!(early.is_err(), "{early:?}");
    drop(first);
    read_ok(&mut third).await;
}

#[tokio::test]
async fn a_server_that_is_stopped_ends_although_a_client_does_not() {
    let limits = ConnectionLimits {
        close_timeout: Duration::from_millis(200),
        ..ConnectionLimits::default()
    };
    let serving = Serving::start(limits, router());
    let mut idle = serving.send(REQUEST).await;
    read_ok(&mut idle).await;
    let mut slow = serving.send("GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut read = Vec::new();
    while !read.ends_with(b"begun\r\n") {
        assert_ne!(slow.read_buf(&mut read).await.unwrap(), 0);
    }
    serving.stop.send(()).unwrap();
    tokio::time::timeout(LIMIT, serving.task).await.expect("it does not end").unwrap();
    // The idle connection was closed, and the other one cut off.
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    drop(read_to_end(slow).await);
    assert!(TcpStream::connect(serving.address).await.is_err());
}

#[tokio::test]
async fn a_server_that_is_stopped_completes_its_responses() {
    let go = Arc::new(Notify::new());
    let gone = Arc::clone(&go);
    let waiting = get(async move || {
        gone.notified().await;
        "complete"
    });
    let serving = Serving::start(ConnectionLimits::default(), Router::new().route("/", waiting));
    let stream = serving.send(REQUEST).await;
    // The request has arrived when a later connection is answered.
    let later = serving.send("GET /none HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(read_to_end(later).await.starts_with("HTTP/1.1 404"));
    serving.stop.send(()).unwrap();
    tokio::task::yield_now().await;
    go.notify_one();
    assert!(read_to_end(stream).await.ends_with("complete"));
    tokio::time::timeout(LIMIT, serving.task).await.expect("it does not end").unwrap();
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_closed_after_its_time_limit() {
    let endless = async || {
        let chunk = || Ok::<_, std::convert::Infallible>(Bytes::from(vec![b'x'; 64 << 10]));
        Body::from_stream(futures::stream::repeat_with(chunk))
    };
    let router = Router::new().route("/", get("ok")).route("/endless", get(endless));
    let limits = ConnectionLimits {
        max_connections: 1,
        write_timeout: Duration::from_millis(200),
        ..ConnectionLimits::default()
    };
    let serving = Serving::start(limits, router);
    let silent = serving.send("GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    // It is answered when the first connection is closed.
    let mut next = serving.send(REQUEST).await;
    read_ok(&mut next).await;
    drop(silent);
}

#[tokio::test]
async fn a_client_that_reads_slowly_stays_connected() {
    let large = async || Bytes::from(vec![b'x'; 8 << 20]);
    let limits =
        ConnectionLimits { write_timeout: Duration::from_secs(2), ..ConnectionLimits::default() };
    let serving = Serving::start(limits, Router::new().route("/", get(large)));
    let head = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut slow = serving.send(head).await;
    // In all, the client reads for about twice the time limit.
    let (mut read, mut buffer) = (0, vec![0; 200 << 10]);
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        match slow.read(&mut buffer).await.unwrap() {
            0 => break,
            count => read += count,
        }
    }
    assert!(read > 8 << 20, "{read}");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_before_it_is_complete() {
    let serving = Serving::start(ConnectionLimits::default(), router());
    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}", "x".repeat(64 << 10));
    let read = read_to_end(serving.send(&head).await).await;
    assert!(read.is_empty() || read.starts_with("HTTP/1.1 431"), "{read}");
    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(16 << 10));
    let mut whole = serving.send(&head).await;
    read_ok(&mut whole).await;
}
