//! The cost of a token on each wire, and of a request as the history grows.
//!
//! ```text
//! cargo bench -p turnstream-properties --bench wire
//! ```
//!
//! The allocation columns are for the whole sample: divide by the number of events.

use bytes::Bytes;
use divan::counter::{BytesCount, ItemsCount};
use divan::{AllocProfiler, Bencher};
use futures::executor::block_on;
use futures::{StreamExt, stream};
use serde_json::json;
use turnstream::item::{ResultKind, ToolResult};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{Decoding, anthropic, openai_chat};
use turnstream::stream::seal;
use turnstream::{History, Item, Request};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// The number of text events in a turn.
const EVENT_COUNT: usize = 10_000;

fn main() {
    divan::main();
}

fn chat_chunk(delta: &serde_json::Value, finish: Option<&str>) -> String {
    let chunk = json!({
        "id": "chatcmpl-Bn7dKxq2mZ0wYt4uRs9bEHfLpAcJv",
        "object": "chat.completion.chunk",
        "created": 1_763_683_339,
        "model": "bench",
        "service_tier": "default",
        "system_fingerprint": "fp_560af6e559",
        "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }],
        "usage": null,
    });
    format!("data: {chunk}\n\n")
}

fn chat_frames() -> Vec<String> {
    let mut frames = vec![chat_chunk(&json!({ "content": " streams" }), None); EVENT_COUNT];
    frames.push(chat_chunk(&json!({}), Some("stop")));
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

fn anthropic_frames() -> Vec<String> {
    let frame = |data: serde_json::Value| {
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
    };
    let start = json!({ "type": "content_block_start", "index": 0,
        "content_block": { "type": "text", "text": "" } });
    let delta = json!({ "type": "content_block_delta", "index": 0,
        "delta": { "type": "text_delta", "text": " streams" } });
    let mut frames = vec![frame(json!({ "type": "message_start", "message": { "id": "m" } }))];
    frames.push(frame(start));
    frames.extend(vec![frame(delta); EVENT_COUNT]);
    frames.push(frame(json!({ "type": "content_block_stop", "index": 0 })));
    frames.push(frame(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } })));
    frames.push(frame(json!({ "type": "message_stop" })));
    frames
}

/// Groups frames into chunks of `per_chunk` frames, as reads from a socket return them.
fn group_into_chunks(frames: &[String], per_chunk: usize) -> Vec<Bytes> {
    frames.chunks(per_chunk).map(|frames| Bytes::from(frames.concat())).collect()
}

fn bench_decode(bencher: Bencher<'_, '_>, chunks: &[Bytes], chat: bool) {
    let bytes: usize = chunks.iter().map(Bytes::len).sum();
    bencher.counter(ItemsCount::new(EVENT_COUNT)).counter(BytesCount::new(bytes)).bench(|| {
        let history = History::empty("bench");
        let body = stream::iter(chunks.to_vec()).map(Ok);
        let events = match chat {
            true => seal(
                &history,
                Decoding::new(body, openai_chat::Decoder::new("bench", &Dialect::OPENAI)),
            ),
            false => seal(&history, Decoding::new(body, anthropic::Decoder::new("bench"))),
        };
        let events = block_on(events.count());
        assert!(events > EVENT_COUNT);
        events
    });
}

#[divan::bench(args = [1, 16])]
fn decode_chat(bencher: Bencher<'_, '_>, frames_a_chunk: usize) {
    bench_decode(bencher, &group_into_chunks(&chat_frames(), frames_a_chunk), true);
}

#[divan::bench(args = [1, 16])]
fn decode_anthropic(bencher: Bencher<'_, '_>, frames_a_chunk: usize) {
    bench_decode(bencher, &group_into_chunks(&anthropic_frames(), frames_a_chunk), false);
}

/// A request whose history has `turns` turns, each with text, a call and its result.
fn request_with_turns(turns: usize) -> Request {
    let mut history = History::empty("bench");
    history.push(Item::user("Add the numbers one after another and tell me the result."));
    for turn in 0..turns {
        let call_id = format!("call_{turn:08}");
        history
            .push(Item::text("the model streams tokens one by one, and each delta carries a few"));
        history.push(Item::tool_call(call_id.clone(), "add", "{\"a\":1,\"b\":2}"));
        history.push(Item::tool_result(ToolResult {
            call_id,
            name: "add".into(),
            content: "3".into(),
            kind: ResultKind::Ok,
            report: None,
        }));
    }
    Request::new(history)
}

#[divan::bench(args = [10, 100, 1000])]
fn encode_chat(bencher: Bencher<'_, '_>, turns: usize) {
    let request = request_with_turns(turns);
    bencher
        .counter(ItemsCount::new(turns))
        .bench(|| openai_chat::encode(&request, "bench", &Dialect::OPENAI));
}

#[divan::bench(args = [10, 100, 1000])]
fn encode_anthropic(bencher: Bencher<'_, '_>, turns: usize) {
    let request = request_with_turns(turns);
    bencher.counter(ItemsCount::new(turns)).bench(|| anthropic::encode(&request, "bench"));
}
