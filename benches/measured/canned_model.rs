//! A model without a network, and an agent that uses it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::json;
use turnstream::agent::Limits;
use turnstream::env::SystemIds;
use turnstream::framing::NdJson;
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{
    Decoding, Provider, Reply, anthropic, gemini, ollama, openai_chat, openai_responses,
};
use turnstream::stream::{TurnStream, seal};
use turnstream::{Agent, Error, History, Item, Request, Tool};
use turnstream_testing::{Answer, Wire};

const MODEL: &str = "bench";
pub(crate) const SYSTEM: &str = "You are a helpful assistant.";
pub(crate) const PROMPT: &str = "Add the numbers one after another and tell me the result.";

pub(crate) fn start() -> History {
    let mut history = History::new(&SystemIds);
    history.push(Item::user(PROMPT));
    history
}

pub(crate) fn agent(model: &CannedModel) -> Agent {
    let agent = Agent::new(model.clone()).with_system(SYSTEM).with_tools([add_tool("add")]);
    agent.with_limits(Limits { max_turns: Some(u32::MAX), ..Limits::default() })
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct AddArgs {
    a: i64,
    b: i64,
}

pub(crate) fn add_tool(name: &str) -> Tool {
    Tool::new(name, "Adds two integers", async |args: AddArgs, _cx| args.a + args.b)
}

/// A model that uses a wire without a network: its request is encoded, and its response is decoded
/// frame by frame. The cost of a connection is not measured.
#[derive(Clone)]
pub(crate) struct CannedModel {
    wire: Wire,
    /// The frames of each turn.
    turns: Arc<[Arc<[Bytes]>]>,
    /// The number of frames of each turn that have arrived.
    arrived: Arc<AtomicUsize>,
}

impl CannedModel {
    /// It calls the tool in `tool_turns` turns, and then answers with `tokens` tokens.
    pub(crate) fn new(wire: Wire, tool_turns: usize, tokens: usize) -> Self {
        let call = |turn: usize| {
            let arguments = json!({ "a": 1000 + turn, "b": 2 }).to_string();
            Reply::text("Adding. ").call_raw(&format!("call_{turn:08}"), "add", &arguments)
        };
        let calls = (0..tool_turns).map(call);
        let replies = calls.chain([Reply::text("streams ".repeat(tokens))]);
        let turns = replies.map(|reply| frames(wire, reply)).collect();
        Self { wire, turns, arrived: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    /// Returns the number of frames of each turn that have arrived, which may be changed. By
    /// default, all frames have.
    #[allow(dead_code, reason = "not every bench uses it")]
    pub(crate) fn arrived(&self) -> &AtomicUsize {
        &self.arrived
    }

    /// The body of a response, a frame at a time.
    fn body(&self, frames: Arc<[Bytes]>) -> impl Stream<Item = Result<Bytes, Error>> + use<> {
        let arrived = Arc::clone(&self.arrived);
        let mut at = 0;
        stream::poll_fn(move |_| match frames.get(at) {
            Some(frame) if at < arrived.load(Relaxed) => {
                at += 1;
                Poll::Ready(Some(Ok(frame.clone())))
            }
            Some(_) => Poll::Pending,
            None => Poll::Ready(None),
        })
    }

    fn encode(&self, request: &Request) -> Vec<u8> {
        match self.wire {
            Wire::OpenAiChat => openai_chat::encode(request, MODEL, &Dialect::OPENAI),
            Wire::OpenAiResponses => openai_responses::encode(request, MODEL),
            Wire::Anthropic => anthropic::encode(request, MODEL),
            Wire::Gemini => gemini::encode(request, MODEL),
            _ => ollama::encode(request, MODEL, &ollama::Chat::default()),
        }
        .expect("the request is valid")
    }
}

/// A response, split at its frame boundaries.
fn frames(wire: Wire, reply: Reply) -> Arc<[Bytes]> {
    let body = Answer::reply(reply).to_bytes(wire);
    let end: &[u8] = if wire == Wire::Ollama { b"\n" } else { b"\n\n" };
    let text = String::from_utf8(body).expect("the answer is text");
    let end = std::str::from_utf8(end).expect("it is text");
    text.split_inclusive(end).map(|frame| Bytes::from(frame.to_owned())).collect()
}

impl Provider for CannedModel {
    fn stream_turn(&self, request: Request) -> TurnStream {
        std::hint::black_box(self.encode(&request));
        let frames = Arc::clone(&self.turns[request.history.completed_turns()]);
        let body = self.body(frames);
        match self.wire {
            Wire::OpenAiChat => {
                let decoder = openai_chat::Decoder::new(MODEL, &Dialect::OPENAI);
                seal(&request, Decoding::new(body, decoder))
            }
            Wire::OpenAiResponses => {
                seal(&request, Decoding::new(body, openai_responses::Decoder::new(MODEL)))
            }
            Wire::Anthropic => seal(&request, Decoding::new(body, anthropic::Decoder::new(MODEL))),
            Wire::Gemini => seal(&request, Decoding::new(body, gemini::Decoder::new(MODEL))),
            _ => {
                let decoder = ollama::Decoder::new(MODEL);
                seal(&request, Decoding::from_frames(body, NdJson::default(), decoder))
            }
        }
    }

    fn model(&self) -> &str {
        MODEL
    }
}
