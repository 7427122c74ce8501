//! Encoding, decoding and framing on every wire.

use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use futures::{Stream, StreamExt, stream};
use serde_json::Value;
use turnstream::framing::{FrameReader, Framing, NdJson};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{
    Decode, Decoding, Reply, anthropic, gemini, ollama, openai_chat, openai_responses,
};
use turnstream::stream::{TurnStream, TurnStreamExt, seal};
use turnstream::{Error, History, Request, Turn, TurnEvent};
use turnstream_testing::{Answer, Fault, LineEnd, Noise, Wire, lint};

/// The JSON body that a wire's encoder makes of a request.
pub fn encode(wire: Wire, model: &str, request: &Request) -> Value {
    serde_json::from_slice(&encode_bytes(wire, model, request, &Dialect::OPENAI)).unwrap()
}

/// The body as the bytes that are sent.
pub fn encode_bytes(wire: Wire, model: &str, request: &Request, dialect: &Dialect) -> Vec<u8> {
    let bytes = match wire {
        Wire::Anthropic => anthropic::encode(request, model),
        Wire::OpenAiChat => openai_chat::encode(request, model, dialect),
        Wire::OpenAiResponses => openai_responses::encode(request, model),
        Wire::Ollama => ollama::encode(request, model, &ollama::Chat::default()),
        _ => gemini::encode(request, model),
    };
    bytes.unwrap()
}

/// The body of a request that continues a history, for a strict server.
pub fn encode_strict(wire: Wire, history: &History) -> Vec<u8> {
    let mut request = Request::new(history.clone());
    request.options.max_output_tokens = Some(100);
    encode_bytes(wire, "m", &request, &Dialect::MINIMAL)
}

/// The same as JSON, after checking that a strict server accepts it.
#[track_caller]
pub fn encode_and_lint(wire: Wire, history: &History) -> Value {
    let body = serde_json::from_slice(&encode_strict(wire, history)).unwrap();
    assert_eq!(lint::request(wire, "m", &body), [""; 0], "{wire:?}: {body}");
    body
}

/// Decodes the chunks of a body.
pub fn decode_chunks(
    wire: Wire,
    model: &str,
    after: &History,
    chunks: impl IntoIterator<Item = Vec<u8>>,
) -> TurnStream {
    let chunks: Vec<_> = chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk))).collect();
    decode_stream(wire, model, after, stream::iter(chunks))
}

/// Decodes a body.
pub fn decode_stream(
    wire: Wire,
    model: &str,
    after: &History,
    body: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
) -> TurnStream {
    decode_in_dialect(&Dialect::OPENAI, wire, model, after, body)
}

/// Decodes a body in a dialect of Chat Completions; other wires ignore the dialect.
pub fn decode_in_dialect(
    dialect: &Dialect,
    wire: Wire,
    model: &str,
    after: &History,
    body: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
) -> TurnStream {
    match wire {
        Wire::Anthropic => seal(after, Decoding::new(body, anthropic::Decoder::new(model))),
        Wire::OpenAiChat => {
            seal(after, Decoding::new(body, openai_chat::Decoder::new(model, dialect)))
        }
        Wire::OpenAiResponses => {
            seal(after, Decoding::new(body, openai_responses::Decoder::new(model)))
        }
        Wire::Ollama => {
            let decoder = ollama::Decoder::new(model);
            seal(after, Decoding::from_frames(body, NdJson::default(), decoder))
        }
        _ => seal(after, Decoding::new(body, gemini::Decoder::new(model))),
    }
}

/// Decodes a whole body of server-sent events.
pub fn decode_sse_turn(
    body: impl Into<Bytes>,
    decoder: impl Decode + Send + 'static,
) -> Result<Turn, Error> {
    decode_framed_turn(body, FrameReader::new(), decoder)
}

/// Decodes a whole body of JSON lines.
pub fn decode_json_lines_turn(
    body: impl Into<Bytes>,
    decoder: impl Decode + Send + 'static,
) -> Result<Turn, Error> {
    decode_framed_turn(body, NdJson::default(), decoder)
}

fn decode_framed_turn(
    body: impl Into<Bytes>,
    framing: impl Framing + Send + 'static,
    decoder: impl Decode + Send + 'static,
) -> Result<Turn, Error> {
    let body = stream::iter([Ok(body.into())]);
    let turn =
        seal(&History::empty("h"), Decoding::from_frames(body, framing, decoder)).into_turn();
    block_on(turn).map(|turn| (*turn).clone())
}

/// A body of these frames.
pub fn sse_body<T: AsRef<str>>(data: &[T]) -> String {
    data.iter().map(|data| sse_frame(data.as_ref())).collect()
}

/// A frame in a wire's format.
pub fn wire_frame(wire: Wire, data: &str) -> String {
    match wire {
        Wire::Ollama => format!("{data}\n"),
        _ => sse_frame(data),
    }
}

/// The same body with a space in every other frame, so that no frame repeats the bytes of the
/// previous one. Frames with several lines are unchanged, since a space could be part of the
/// arguments there.
pub fn parse_each_frame(body: &[u8]) -> Vec<u8> {
    let (mut is_spaced, mut is_inside_frame) = (false, false);
    let mut spaced = Vec::with_capacity(body.len());
    for line in body.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
        let data = line.strip_prefix(b"data:").unwrap_or(line);
        let data = data.strip_prefix(b" ").unwrap_or(data);
        let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok();
        is_inside_frame &= !line.trim_ascii().is_empty();
        match data.strip_prefix(b"{") {
            Some(rest) if is_whole && !is_inside_frame => {
                let space: &[u8] = if is_spaced { b" " } else { b"" };
                spaced.extend([&line[..line.len() - rest.len()], space, rest].concat());
                is_spaced = !is_spaced;
            }
            begun => {
                is_inside_frame |= begun.is_some();
                spaced.extend(line);
            }
        }
    }
    spaced
}

/// A frame of server-sent events.
pub fn sse_frame(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// Encodes an answer on a wire, and decodes it.
pub fn read_answer(wire: Wire, answer: impl Into<Answer>) -> Result<Arc<Turn>, Error> {
    read_body(wire, answer.into().to_bytes(wire))
}

/// Decodes these frames of a wire.
pub fn read_frames(wire: Wire, frames: &[&str]) -> Result<Arc<Turn>, Error> {
    read_body(wire, frames.iter().map(|data| wire_frame(wire, data)).collect::<String>().into())
}

fn read_body(wire: Wire, body: Vec<u8>) -> Result<Arc<Turn>, Error> {
    block_on(decode_chunks(wire, "m", &History::empty("h"), [body]).into_turn())
}

/// Decodes a valid body, and returns the events.
pub fn decode_events(wire: Wire, chunks: impl IntoIterator<Item = Vec<u8>>) -> Vec<TurnEvent> {
    let events = decode_chunks(wire, "m", &History::empty("h"), chunks);
    block_on(events.map(|event| event.expect("a valid body")).collect())
}

/// All valid framings of the same answer.
pub fn framing_variants(wire: Wire, reply: &Reply) -> Vec<Vec<u8>> {
    let plain = || Answer::reply(reply.clone());
    let mut bodies = vec![plain(), plain().with_fault(Fault::NoDoneMarker)];
    for end in [LineEnd::Lf, LineEnd::CrLf, LineEnd::Cr] {
        let ended = plain().with_fault(Fault::LineEnds(end));
        bodies.push(ended.clone());
        bodies.push(ended.clone().with_fault(Fault::InsertNoise(Noise::Comments)));
        bodies.push(ended.with_fault(Fault::NoFinalBlankLine));
    }
    let bytes = bodies.iter().map(|body| body.to_bytes(wire));
    // A byte order mark is valid before server-sent events, and not before JSON.
    let mark = if wire == Wire::Ollama { b"".as_slice() } else { b"\xef\xbb\xbf" };
    let marked = |body: Vec<u8>| [body.clone(), [mark, &body].concat()];
    bytes.flat_map(marked).collect()
}

/// An array in arrays, as JSON.
pub fn nested_arrays(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

/// The text of a turn, or the message of its error.
pub fn text_or_error(turn: Result<Turn, Error>) -> Result<String, String> {
    turn.map(|turn| turn.text()).map_err(|error| error.to_string())
}

/// The arguments of the calls that may run.
pub fn runnable_arguments(turn: Result<Turn, Error>) -> Vec<String> {
    let Ok(turn) = turn else { return Vec::new() };
    let calls = turn.calls();
    match calls.veto() {
        Some(_) => Vec::new(),
        None => calls.iter().map(|call| call.arguments.clone()).collect(),
    }
}
