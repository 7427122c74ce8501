//! Measures the CPU time of a server whose clients read streamed answers, beside a bare axum server
//! that sends the same bytes in as many pieces.
//!
//! ```text
//! cargo bench -p turnstream-server --bench streams -- 1000 400 50
//! ```
//!
//! The numbers are those of the clients, of the tokens of each, and the milliseconds between two
//! tokens. With 0 milliseconds, the model of the agent has all tokens at once, and servers send
//! many in one piece. Both servers send each token immediately (`TCP_NODELAY`).
//!
//! Servers and clients are processes of their own. Each needs a descriptor for each client: `ulimit
//! -n` has to allow them. Linux only, because the CPU time is read from `/proc`.

mod process;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use turnstream::Agent;
use turnstream::TurnEvent;
use turnstream::provider::{Reply, Scripted};
use turnstream_server::{AgentServer, ConnectionLimits, listen, serve};

use self::process::{Process, end_of_input, print_descriptor_limit};

const PATH: &str = "/v1/chat/completions";
const TOKEN: &str = "streams ";
/// How often each server is measured.
const ROUNDS: usize = 3;
/// The maximum ratio of the CPU times. It is not checked without a time between two tokens,
/// because servers then send many in one piece.
const MAX_RATIO: f64 = 1.5;
/// The unit of CPU times in `/proc`, on all architectures of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The clients, and the answer that each of them reads.
#[derive(Clone, Copy)]
struct Load {
    clients: usize,
    tokens: usize,
    gap: Duration,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match words[..] {
        ["agent", clients, tokens, gap] => {
            runtime.block_on(serve_agent(Load::parse([clients, tokens, gap])));
        }
        ["bare", clients, tokens, gap] => {
            runtime.block_on(serve_bare(Load::parse([clients, tokens, gap])));
        }
        ["client", address, clients, tokens, gap] => {
            let address = address.parse().expect("an address");
            let load = Load::parse([clients, tokens, gap]);
            println!("{}", runtime.block_on(read_all(address, load.clients)));
        }
        [clients, tokens, gap] => measure(Load::parse([clients, tokens, gap])),
        [] => measure(Load::parse(["1000", "400", "50"])),
        _ => panic!("usage: streams [CLIENTS TOKENS MILLISECONDS]"),
    }
}

impl Load {
    fn parse([clients, tokens, gap]: [&str; 3]) -> Self {
        let [clients, tokens, gap] =
            [clients, tokens, gap].map(|number| number.parse().expect("a number"));
        Self { clients, tokens, gap: Duration::from_millis(gap as u64) }
    }

    fn words(self) -> [String; 3] {
        [self.clients.to_string(), self.tokens.to_string(), self.gap.as_millis().to_string()]
    }
}

/// A server whose agent answers with these tokens.
fn agents(load: Load) -> Router {
    let model = Scripted::from_fn(move |_, _| {
        (0..load.tokens).fold(Reply::new(), |reply, _| {
            let reply = if load.gap.is_zero() { reply } else { reply.delay(load.gap) };
            reply.event(TurnEvent::TextDelta { index: 0, text: TOKEN.into() })
        })
    });
    AgentServer::new().with_model("assistant", Agent::new(model)).router()
}

/// Serves the agent until the standard input ends.
async fn serve_agent(load: Load) {
    let limits = ConnectionLimits { max_connections: 1_000_000, ..ConnectionLimits::default() };
    let listener = listen(([127, 0, 0, 1], 0).into()).expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    serve(listener, agents(load), limits, end_of_input()).await;
}

/// Sends the pieces of the agent's answer with axum alone.
async fn serve_bare(load: Load) {
    let request = Request::post(PATH).header("host", "localhost");
    let request = request.header("content-type", "application/json").body(Body::from(body()));
    let service = TowerToHyperService::new(agents(Load { gap: Duration::ZERO, ..load }));
    let response = service.call(request.expect("a request")).await.expect("a response");
    let pieces: Vec<Bytes> =
        response.into_body().into_data_stream().try_collect().await.expect("a body");
    let answer = post(async move || {
        let pieces = stream::iter(pieces).then(move |piece| async move {
            if !load.gap.is_zero() {
                tokio::time::sleep(load.gap).await;
            }
            Ok::<_, Infallible>(piece)
        });
        ([("content-type", "text/event-stream")], Body::from_stream(pieces))
    });
    let router = Router::new().route(PATH, answer);
    let listener = listen(([127, 0, 0, 1], 0).into()).expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let served = axum::serve(listener, router).with_graceful_shutdown(end_of_input());
    drop(served.await);
}

fn body() -> String {
    let messages = json!([{ "role": "user", "content": "Go." }]);
    json!({ "model": "assistant", "stream": true, "messages": messages }).to_string()
}

/// Reads this number of answers at the same time, and returns the number of bytes in their bodies.
async fn read_all(address: SocketAddr, clients: usize) -> usize {
    let mut readers: JoinSet<usize> = (0..clients).map(|_| read(address)).collect();
    let mut sum = 0;
    while let Some(len) = readers.join_next().await {
        sum += len.expect("an answer is read");
    }
    sum
}

/// Reads an answer to its end, and returns the length of its body.
async fn read(address: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let body = body();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("the request is sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("there is an answer");
    assert!(bytes.starts_with(b"HTTP/1.1 200"));
    assert!(bytes.ends_with(b"data: [DONE]\n\n\r\n0\r\n\r\n"), "the answer has an end");
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("there is a head");
    bytes.len() - head
}

/// The CPU time of a server while all clients read their answers, in seconds, and the number of
/// bytes that they have read.
fn cpu_time(server: &str, load: Load) -> (f64, String) {
    let words = load.words();
    let [clients, tokens, gap] = words.each_ref().map(String::as_str);
    let mut serving = Process::start(&[server, clients, tokens, gap]);
    let address = serving.line();
    let before = used_cpu(&serving);
    let mut client = Process::start(&["client", &address, clients, tokens, gap]);
    let bytes = client.line();
    let used = used_cpu(&serving) - before;
    println!("{server:5} {used:6.2} s of CPU time");
    (used, bytes)
}

/// The CPU time of a process so far, in user mode and in the kernel, in seconds.
fn used_cpu(process: &Process) -> f64 {
    let stat = process.status_file("stat");
    // The name of the program is in parentheses and may contain spaces.
    let (_, fields) = stat.rsplit_once(')').expect("the fields of the process");
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|ticks| ticks.parse::<f64>().expect("a time")).sum::<f64>() / TICKS_PER_SECOND
}

fn measure(load: Load) {
    print_descriptor_limit();
    let Load { clients, tokens, gap } = load;
    println!("{clients} clients read {tokens} tokens each, {gap:?} apart");
    let (mut agent_time, mut bare_time) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        let (agent, agent_bytes) = cpu_time("agent", load);
        let (bare, bare_bytes) = cpu_time("bare", load);
        assert_eq!(agent_bytes, bare_bytes, "both servers send the same bytes");
        (agent_time, bare_time) = (agent_time + agent, bare_time + bare);
    }
    let ratio = agent_time / bare_time;
    println!("the agents' server uses {ratio:.2} times the CPU time of axum alone");
    if ratio > MAX_RATIO && !gap.is_zero() {
        println!("that is more than {MAX_RATIO} times");
        std::process::exit(1);
    }
}
