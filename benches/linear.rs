//! Checks that the cost of reading a stream is linear in its bytes, however it is split: in one
//! chunk, in chunks of 16 KiB, or byte by byte; and that an endless line ends at the size limit.
//!
//! ```text
//! cargo bench -p turnstream-properties --bench linear
//! ```
//!
//! Each row is a stream of 64 MiB on one wire. `pieces` is the cost of splitting the bytes and
//! polling the pieces without decoding them; it is part of `ns/byte`. `x` is the time per byte
//! relative to that cost plus reading the same stream in chunks of 16 KiB. `growth` is the time per
//! byte relative to a stream of 32 MiB that is split in the same way: 1 is linear, 2 is quadratic.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::executor::block_on;
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use turnstream::provider::{Decoding, anthropic, gemini, openai_chat, openai_responses};
use turnstream::stream::{TurnStream, seal};
use turnstream::{Error, ErrorKind, History, TurnEvent};

const LARGE_STREAM_BYTES: usize = 64 << 20;
const SMALL_STREAM_BYTES: usize = 32 << 20;
const CHUNK_SIZES: [(&str, usize); 3] =
    [("one chunk", usize::MAX), ("16 KiB", 16 << 10), ("byte by byte", 1)];

#[derive(Clone, Copy, Debug)]
enum Wire {
    Anthropic,
    OpenAiChat,
    OpenAiResponses,
    Gemini,
}

fn main() {
    println!(
        "{:<16} {:<21} {:<13} {:>8} {:>7} {:>6} {:>7}",
        "wire", "stream", "cut", "ns/byte", "pieces", "x", "growth"
    );
    for wire in [Wire::Anthropic, Wire::OpenAiChat, Wire::OpenAiResponses, Wire::Gemini] {
        for (name, make) in stream_builders(wire) {
            let (small, large) =
                (Bytes::from(make(SMALL_STREAM_BYTES)), Bytes::from(make(LARGE_STREAM_BYTES)));
            let per_byte = |bytes: &Bytes, cut: usize| {
                nanos(best_of_three(|| decode_to_end(wire, bytes, cut))) / len_as_f64(bytes)
            };
            let alone = |cut: usize| {
                nanos(best_of_three(|| drain_chunks(&large, cut))) / len_as_f64(&large)
            };
            let usual = per_byte(&large, 16 << 10) - alone(16 << 10);
            for (cut_name, cut) in CHUNK_SIZES {
                let (cost, pieces) = (per_byte(&large, cut), alone(cut));
                let (x, growth) = (cost / (usual + pieces), cost / per_byte(&small, cut));
                println!(
                    "{:<16} {name:<21} {cut_name:<13} {cost:>8.2} {pieces:>7.2} {x:>6.2} {growth:>7.2}",
                    format!("{wire:?}"),
                );
            }
        }
        measure_endless_line(wire);
    }
}

type StreamBuilder = Box<dyn Fn(usize) -> Vec<u8>>;

/// Text in small events, one call's arguments in small events, and text in events of 1 MiB.
fn stream_builders(wire: Wire) -> [(&'static str, StreamBuilder); 3] {
    let small = move |size| text_stream(wire, size, "streams of words ");
    let large = move |size| text_stream(wire, size, &"a long piece of words ".repeat(48_000));
    let call = move |size| tool_call_stream(wire, size);
    [
        ("words", Box::new(small)),
        ("words, 1 MiB an event", Box::new(large)),
        ("a call", Box::new(call)),
    ]
}

fn text_stream(wire: Wire, size: usize, piece: &str) -> Vec<u8> {
    let (head, event, tail) = match wire {
        Wire::Anthropic => {
            let text = json!({ "type": "text", "text": "" });
            let delta = json!({ "type": "text_delta", "text": piece });
            (anthropic_head(&text), anthropic_delta(&delta), anthropic_tail())
        }
        Wire::OpenAiChat => (String::new(), chat_delta(&json!({ "content": piece })), chat_tail()),
        Wire::OpenAiResponses => (
            output_item_added(
                &json!({ "type": "message", "id": "msg_1", "role": "assistant", "content": [] }),
            ),
            named_frame(&json!({ "type": "response.output_text.delta", "output_index": 0,
                "content_index": 0, "item_id": "msg_1", "delta": piece })),
            responses_tail(),
        ),
        Wire::Gemini => (String::new(), gemini_part(&json!({ "text": piece })), gemini_tail()),
    };
    repeat_event_to_size(size, head, &event, &tail)
}

fn tool_call_stream(wire: Wire, size: usize) -> Vec<u8> {
    let piece = "\"some argument\",";
    let (head, event, tail) = match wire {
        Wire::Anthropic => {
            let call = json!({ "type": "tool_use", "id": "c", "name": "add", "input": {} });
            let delta = json!({ "type": "input_json_delta", "partial_json": piece });
            (anthropic_head(&call), anthropic_delta(&delta), anthropic_tail())
        }
        Wire::OpenAiChat => {
            let delta = |function: Value, id: Value| {
                chat_delta(
                    &json!({ "tool_calls": [{ "index": 0, "id": id, "function": function }] }),
                )
            };
            let head = delta(json!({ "name": "add", "arguments": "" }), json!("c"));
            (head, delta(json!({ "arguments": piece }), Value::Null), chat_tail())
        }
        Wire::OpenAiResponses => (
            output_item_added(
                &json!({ "type": "function_call", "id": "fc_1", "call_id": "c", "name": "add",
                "arguments": "" }),
            ),
            named_frame(
                &json!({ "type": "response.function_call_arguments.delta", "output_index": 0,
                "item_id": "fc_1", "delta": piece }),
            ),
            responses_tail(),
        ),
        // Calls are sent whole; calls in pieces exist on Vertex only.
        Wire::Gemini => {
            let piece = json!({ "functionCall": { "willContinue": true, "partialArgs": [
                { "jsonPath": "$.a", "stringValue": piece, "willContinue": true }] } });
            let head = json!({ "functionCall": { "name": "add", "willContinue": true } });
            (gemini_part(&head), gemini_part(&piece), gemini_tail())
        }
    };
    repeat_event_to_size(size, head, &event, &tail)
}

fn repeat_event_to_size(size: usize, mut stream: String, event: &str, tail: &str) -> Vec<u8> {
    while stream.len() + event.len() + tail.len() <= size {
        stream.push_str(event);
    }
    stream.push_str(tail);
    stream.into_bytes()
}

fn data_frame(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named_frame(value: &Value) -> String {
    format!("event: {}\n{}", value["type"].as_str().unwrap_or_default(), data_frame(value))
}

fn anthropic_head(block: &Value) -> String {
    let start = json!({ "type": "content_block_start", "index": 0, "content_block": block });
    named_frame(&json!({ "type": "message_start", "message": { "id": "m" } }))
        + &named_frame(&start)
}

fn anthropic_delta(delta: &Value) -> String {
    named_frame(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
}

fn anthropic_tail() -> String {
    named_frame(&json!({ "type": "content_block_stop", "index": 0 }))
        + &named_frame(&json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }))
        + &named_frame(&json!({ "type": "message_stop" }))
}

fn chat_delta(delta: &Value) -> String {
    data_frame(
        &json!({ "id": "c", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }),
    )
}

fn chat_tail() -> String {
    data_frame(&json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }))
        + "data: [DONE]\n\n"
}

fn output_item_added(item: &Value) -> String {
    named_frame(&json!({ "type": "response.output_item.added", "output_index": 0, "item": item }))
}

/// The item has no end event, which makes no difference here.
fn responses_tail() -> String {
    named_frame(&json!({ "type": "response.incomplete", "response": { "id": "r", "output": [],
        "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" } } }))
}

fn gemini_part(part: &Value) -> String {
    let content = json!({ "role": "model", "parts": [part] });
    format!("data: {}\r\n\r\n", json!({ "candidates": [{ "content": content }] }))
}

fn gemini_tail() -> String {
    format!("data: {}\r\n\r\n", json!({ "candidates": [{ "finishReason": "MAX_TOKENS" }] }))
}

fn decode_turn(
    wire: Wire,
    body: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
) -> TurnStream {
    let history = History::empty("bench");
    match wire {
        Wire::Anthropic => seal(&history, Decoding::new(body, anthropic::Decoder::new("any"))),
        Wire::OpenAiChat => {
            let dialect = openai_chat::Dialect::OPENAI;
            seal(&history, Decoding::new(body, openai_chat::Decoder::new("any", &dialect)))
        }
        Wire::OpenAiResponses => {
            seal(&history, Decoding::new(body, openai_responses::Decoder::new("any")))
        }
        Wire::Gemini => seal(&history, Decoding::new(body, gemini::Decoder::new("any"))),
    }
}

fn chunk_stream(
    bytes: &Bytes,
    cut: usize,
) -> impl Stream<Item = Result<Bytes, Error>> + Send + use<> {
    let mut rest = bytes.clone();
    stream::iter(std::iter::from_fn(move || {
        let len = rest.len().min(cut);
        (len > 0).then(|| Ok(rest.split_to(len)))
    }))
}

/// Polls the pieces through dynamic dispatch, as a provider does, and decodes nothing.
fn drain_chunks(bytes: &Bytes, cut: usize) {
    let pieces = chunk_stream(bytes, cut).boxed();
    let len = block_on(pieces.fold(0, async |len, piece| len + piece.map_or(0, |p| p.len())));
    assert_eq!(std::hint::black_box(len), bytes.len());
}

fn decode_to_end(wire: Wire, bytes: &Bytes, cut: usize) {
    let last = block_on(
        decode_turn(wire, chunk_stream(bytes, cut)).fold(None, async |_, event| Some(event)),
    );
    assert!(matches!(last, Some(Ok(TurnEvent::TurnComplete { .. }))), "{wire:?}: {last:?}");
}

/// Measures reading a line without an end.
fn measure_endless_line(wire: Wire) {
    let head = Bytes::from_static(b"data: {\"x\":\"");
    let more = Bytes::from(vec![b'x'; 16 << 10]);
    let body = stream::iter(std::iter::once(head).chain(std::iter::repeat(more))).map(Ok);
    let began = Instant::now();
    let last = block_on(decode_turn(wire, body).fold(None, async |_, event| Some(event)));
    let Some(Err(error)) = last else { panic!("{wire:?}: {last:?}") };
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    println!("{:<18} an endless line: {error} ({:.0?})", format!("{wire:?}"), began.elapsed());
}

fn best_of_three(mut f: impl FnMut()) -> Duration {
    let once = || {
        let began = Instant::now();
        f();
        began.elapsed()
    };
    std::iter::repeat_with(once).take(3).min().unwrap_or_default()
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[expect(clippy::cast_precision_loss, reason = "64 MiB are exact")]
fn len_as_f64(bytes: &Bytes) -> f64 {
    bytes.len() as f64
}
