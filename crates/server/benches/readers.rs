//! Measures the memory that a chat server needs for each reader that does not read, above that of
//! a bare axum server which sends the same number of bytes.
//!
//! ```text
//! cargo bench -p turnstream-server --bench readers -- 10000
//! ```
//!
//! Servers and clients are processes of their own. Each needs a descriptor for each reader:
//! `ulimit -n` has to allow them. Linux only, because the memory is read from `/proc`.

mod process;

use std::convert::Infallible;
use std::io::Read;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream_server::{ChatLimits, ChatServer, ConnectionLimits, listen, serve};

use self::process::{Process, end_of_input, print_descriptor_limit};

const PATH: &str = "/sessions/s/events";

/// The number of pieces of the answer, which are fewer than half of the hub's log.
const PIECES: usize = 400;

/// The size of a piece. All of them together are larger than the buffers of a connection.
const PIECE_BYTES: usize = 1_024;

/// The size of the client's buffer of a connection.
const RECEIVE_BUFFER_BYTES: u32 = 4 << 10;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match words[..] {
        ["chat"] => runtime.block_on(serve_chat()),
        ["bare"] => runtime.block_on(serve_bare()),
        ["client", address, count] => {
            let address = address.parse().expect("an address");
            runtime.block_on(read_slowly(address, count.parse().expect("a number")));
        }
        [count] => measure(count.parse().expect("a number")),
        [] => measure(1_000),
        _ => panic!("usage: readers [COUNT]"),
    }
}

/// Serves a session with an active run until the standard input ends.
async fn serve_chat() {
    let piece = "x".repeat(PIECE_BYTES);
    let model = Scripted::from_fn(move |_, _| {
        (0..PIECES).fold(Reply::new(), |reply, _| reply.say(&piece)).hang()
    });
    let limits = ChatLimits {
        max_readers: 1_000_000,
        max_readers_per_principal: 1_000_000,
        ..ChatLimits::default()
    };
    let server = ChatServer::new(Agent::new(model)).with_limits(limits);
    let limits = ConnectionLimits { max_connections: 1_000_000, ..ConnectionLimits::default() };
    let listener = listen(([127, 0, 0, 1], 0).into()).expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    serve(listener, server.router(), limits, end_of_input()).await;
}

/// Serves the same number of bytes with axum alone.
async fn serve_bare() {
    let piece = Bytes::from(vec![b'x'; PIECE_BYTES]);
    let events = get(async move || {
        let pieces = stream::iter(vec![piece; PIECES].into_iter().map(Ok::<_, Infallible>));
        Body::from_stream(pieces.chain(stream::pending()))
    });
    let router = Router::new().route(PATH, events);
    let listener = listen(([127, 0, 0, 1], 0).into()).expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    let served = axum::serve(listener, router).with_graceful_shutdown(end_of_input());
    drop(served.await);
}

/// Opens this number of readers, one after another, that read only the head of their response.
/// Holds them until the standard input ends.
async fn read_slowly(address: SocketAddr, count: usize) {
    let mut readers = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().expect("a descriptor");
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES).expect("a buffer size");
        let mut stream = socket.connect(address).await.expect("a connection");
        let request = format!("GET {PATH} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("there is a response");
        assert_eq!(&head, b"HTTP/1.1 200");
        readers.push(stream);
    }
    println!("connected");
    end_of_input().await;
}

/// The memory of a process that is in use, in bytes, once it no longer grows.
fn memory(process: &Process) -> usize {
    let mut last = 0;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let status = process.status_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
        let kib: usize = kib.and_then(|kib| kib.trim().parse().ok()).expect("a size");
        if kib <= last + 64 {
            return kib << 10;
        }
        last = kib;
    }
}

/// Starts a run, so that the readers have something to read.
fn start_run(address: &str) {
    use std::io::Write;

    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    let body = r#"{"text":"Hi"}"#;
    write!(
        stream,
        "POST /sessions/s/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a response");
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
}

/// The memory of a server for each reader after the first tenth of them, in bytes.
fn memory_per_reader(server: &str, count: usize) -> usize {
    let mut serving = Process::start(&[server]);
    let address = serving.line();
    if server == "chat" {
        start_run(&address);
    }
    let first = count / 10;
    let connect = |count: usize| {
        let mut client = Process::start(&["client", &address, &count.to_string()]);
        let started = Instant::now();
        assert_eq!(client.line(), "connected");
        (client, started.elapsed())
    };
    let (_first_client, _) = connect(first);
    let before = memory(&serving);
    let (_client, time) = connect(count - first);
    let after = memory(&serving);
    let per_reader = after.saturating_sub(before) / (count - first);
    println!(
        "{server}: {} MiB for {count} readers, {per_reader} bytes for each; the last {} connected in {time:.1?}",
        after >> 20,
        count - first
    );
    per_reader
}

fn measure(count: usize) {
    print_descriptor_limit();
    let (bare, chat) = (memory_per_reader("bare", count), memory_per_reader("chat", count));
    println!("a reader needs {} bytes more than with axum alone", chat.saturating_sub(bare));
}
