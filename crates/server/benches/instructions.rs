//! Counts the instructions with which a server writes a token on each wire.
//!
//! ```text
//! cargo bench -p turnstream-server --bench instructions
//! ```
//!
//! A scripted agent answers a streamed request with many tokens, and the body of the response is
//! read to its end, without a connection. The instructions of the agent's run, counted separately,
//! are subtracted. Beside them are the instructions with which `serde_json` writes the same JSON
//! from a struct with borrowed texts into a vector that need not grow. A token may cost at most
//! [`MAX_RATIO`] times as many.
//!
//! The counts are those of the table in the crate's README. A count that is more than 3 % off is an
//! error; `-- --write` rewrites the table. The bench needs Valgrind: without it nothing is counted,
//! and the bench says so (with `-- --required` that is an error).

#[path = "../../../benches/measured/callgrind.rs"]
mod callgrind;
mod chunks;
#[path = "../../../benches/measured/count_tables.rs"]
mod count_tables;

use std::hint::black_box;
use std::{env, process, thread};

use axum::body::Body;
use axum::http::{Method, Request, header};
use futures::{StreamExt, TryStreamExt};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use turnstream::provider::server::Wire;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, TurnEvent};
use turnstream_server::AgentServer;

use self::callgrind::{count_instructions, find_valgrind};
use self::chunks::{AnthropicChunk, ChatChunk, GeminiChunk, OllamaChunk, ResponsesChunk};
use self::count_tables::{Cell, Tables};

/// The maximum ratio of a token's instructions to those of `serde_json`.
const MAX_RATIO: f64 = 1.0;
/// The number of tokens in the shorter of the two programs that are compared.
const TOKENS: usize = 1_000;
/// The tolerance of a count, in percent.
const TOLERANCE: f64 = 3.0;

const TOKEN: &str = "streams ";
const PROMPT: &str = "Go.";

const WIRES: [(&str, Wire); 5] = [
    ("Chat Completions", Wire::OpenAiChat),
    ("Responses", Wire::OpenAiResponses),
    ("Anthropic Messages", Wire::Anthropic),
    ("Gemini", Wire::Gemini),
    ("Ollama", Wire::Ollama),
];
const SERVER: &str = "the server";
const SERDE_JSON: &str = "`serde_json`";
const TABLES: Tables = Tables {
    page: concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"),
    bench: "-p turnstream-server --bench instructions",
    begin: "<!-- counts: written by the bench `instructions` -->",
    end: "<!-- end of the counts -->",
    columns: &[&[SERVER, SERDE_JSON]],
};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--task", task, wire, tokens] => {
            let wire = Wire::ALL.into_iter().find(|it| it.to_string() == wire).expect("a wire");
            run_task(task, wire, tokens.parse().expect("a number of tokens"));
        }
        _ => measure_all(
            args.iter().any(|arg| arg == "--write"),
            args.iter().any(|arg| arg == "--required"),
        ),
    }
}

fn measure_all(writes: bool, is_required: bool) {
    find_valgrind(is_required);
    let counted = thread::scope(|scope| {
        let count = |task, wire| scope.spawn(move || instructions_per_token(task, wire));
        let run = count("run", Wire::OpenAiChat);
        let wires = WIRES.map(|(name, wire)| (name, count("serve", wire), count("chunk", wire)));
        let run = run.join().expect("valgrind ran");
        wires.map(|(name, served, chunk)| {
            let served = served.join().expect("valgrind ran") - run;
            (name, served, chunk.join().expect("valgrind ran"))
        })
    });
    let cells = counted.iter().flat_map(|&(name, served, chunk)| {
        let cell =
            |column, count| Cell { row: name.to_owned(), column, tolerance: TOLERANCE, count };
        [cell(SERVER, served), cell(SERDE_JSON, chunk)]
    });
    let is_as_on_the_page = TABLES.check(&cells.collect::<Vec<_>>(), writes);
    let mut too_many = 0;
    for (name, served, chunk) in counted {
        let ratio = served / chunk;
        too_many += usize::from(ratio > MAX_RATIO);
        println!("{name:20} {ratio:.2} times the instructions of `serde_json`");
    }
    if too_many > 0 {
        println!("{too_many} wires need more than {MAX_RATIO} times the instructions");
    }
    if too_many > 0 || !is_as_on_the_page {
        process::exit(1);
    }
}

fn instructions_per_token(task: &str, wire: Wire) -> f64 {
    let count = |tokens: usize| {
        count_instructions(&["--task", task, &wire.to_string(), &tokens.to_string()], true)
    };
    let more = count(3 * TOKENS) - count(TOKENS);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (more, tokens) = (more as f64, (2 * TOKENS) as f64);
    more / tokens
}

// The measured tasks.

/// Only instructions inside this function are counted.
#[inline(never)]
fn measured_part(runtime: &Runtime, task: impl Future<Output = ()>) {
    runtime.block_on(task);
}

fn run_task(task: &str, wire: Wire, tokens: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let agent = agent(tokens);
    match task {
        "run" => measured_part(&runtime, async {
            let mut run = agent.run(PROMPT);
            while let Some(event) = run.next().await {
                black_box(event.expect("an event"));
            }
        }),
        "serve" => {
            let (server, request) = (server(agent), request(wire));
            measured_part(&runtime, async {
                let mut body = send(&server, request).await.into_data_stream();
                while let Some(bytes) = body.next().await {
                    black_box(bytes.expect("bytes"));
                }
            });
        }
        _ => {
            let frames = runtime.block_on(frames(wire));
            let data = text_data(wire, &frames);
            match wire {
                Wire::OpenAiChat => write_chunks::<ChatChunk<'_>>(&runtime, data, tokens),
                Wire::OpenAiResponses => write_chunks::<ResponsesChunk<'_>>(&runtime, data, tokens),
                Wire::Anthropic => write_chunks::<AnthropicChunk<'_>>(&runtime, data, tokens),
                Wire::Gemini => write_chunks::<GeminiChunk<'_>>(&runtime, data, tokens),
                _ => write_chunks::<OllamaChunk<'_>>(&runtime, data, tokens),
            }
        }
    }
}

/// Writes the chunk with this JSON for each token.
fn write_chunks<'a, T>(runtime: &Runtime, data: &'a str, tokens: usize)
where
    T: serde::Deserialize<'a> + Serialize,
{
    let chunk: T = serde_json::from_str(data).expect("a chunk");
    let written = serde_json::to_string(&chunk).expect("it can be written");
    assert_eq!(written, data, "the struct has other fields than the chunk");
    measured_part(runtime, async {
        for _ in 0..tokens {
            let mut out = Vec::with_capacity(data.len());
            serde_json::to_writer(&mut out, black_box(&chunk)).expect("it can be written");
            black_box(out);
        }
    });
}

fn agent(tokens: usize) -> Agent {
    let deltas = (0..tokens).map(|_| TurnEvent::TextDelta { index: 0, text: TOKEN.into() });
    Agent::new(Scripted::new([deltas.fold(Reply::new(), Reply::event)]))
}

type Server = TowerToHyperService<axum::Router>;

fn server(agent: Agent) -> Server {
    TowerToHyperService::new(AgentServer::new().with_model("assistant", agent).router())
}

/// A streamed request on this wire.
fn request(wire: Wire) -> Request<Body> {
    let messages = json!([{ "role": "user", "content": PROMPT }]);
    let mut body = json!({ "model": "assistant", "stream": true, "messages": messages });
    let path = match wire {
        Wire::OpenAiChat => "/v1/chat/completions",
        Wire::OpenAiResponses => {
            body = json!({ "model": "assistant", "stream": true, "input": PROMPT });
            "/v1/responses"
        }
        Wire::Anthropic => {
            body["max_tokens"] = 1_000_000.into();
            "/v1/messages"
        }
        Wire::Gemini => {
            body = json!({ "contents": [{ "role": "user", "parts": [{ "text": PROMPT }] }] });
            "/v1beta/models/assistant:streamGenerateContent?alt=sse"
        }
        _ => "/api/chat",
    };
    let request = Request::builder().method(Method::POST).uri(path);
    let request = request.header(header::HOST, "localhost");
    let request = request.header(header::CONTENT_TYPE, "application/json");
    request.body(body.to_string().into()).expect("a request")
}

async fn send(server: &Server, request: Request<Body>) -> Body {
    let response = server.call(request).await.expect("a response");
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// The frames of a short answer on this wire.
async fn frames(wire: Wire) -> Vec<String> {
    let body = send(&server(agent(3)), request(wire)).await;
    let bytes: Vec<_> = body.into_data_stream().try_collect().await.expect("a body");
    bytes.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

/// The JSON of the second token. The first one follows other data, which opens the stream.
fn text_data(wire: Wire, frames: &[String]) -> &str {
    let frame = frames.get(1).expect("a second token").trim();
    let data = frame.split_once("data: ").map_or(frame, |(_, data)| data);
    let value: Value = serde_json::from_str(data).expect("JSON");
    assert!(value.to_string().contains(TOKEN), "{wire}: {frames:?}");
    data
}
