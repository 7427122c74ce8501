//! Hand-written streams and requests of Gemini.

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use serde_json::Value;
use turnstream::item::{ItemKind, ToolResult};
use turnstream::provider::{Decoding, gemini};
use turnstream::request::Options;
use turnstream::stream::seal;
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Error, History, Item, Request, Usage};

use turnstream_test_support::items::as_tool_turn_end;
use turnstream_test_support::wires;

/// The model of every request.
pub(crate) const MODEL: &str = "gemini-3-flash";

/// The body of a stream, framed as the vendor does.
pub(crate) fn sse_body(chunks: &[&str]) -> String {
    chunks.iter().flat_map(|chunk| ["data: ", chunk, "\r\n\r\n"]).collect()
}

pub(crate) fn decode_body(body: impl Into<Bytes>) -> Result<Turn, Error> {
    wires::decode_sse_turn(body, gemini::Decoder::new(MODEL))
}

pub(crate) fn decode_events(chunks: &[&str]) -> Vec<Result<TurnEvent, Error>> {
    let body = stream::iter([Ok(Bytes::from(sse_body(chunks)))]);
    let decoding = Decoding::new(body, gemini::Decoder::new(MODEL));
    block_on(seal(&History::empty("h"), decoding).collect())
}

pub(crate) fn decode_turn(chunks: &[&str]) -> Result<Turn, Error> {
    decode_body(sse_body(chunks))
}

/// A chunk with parts.
pub(crate) fn parts_chunk(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0}}]}}"#)
}

/// A chunk that ends the turn.
pub(crate) fn finish_chunk(reason: &str) -> String {
    format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#)
}

/// Decodes parts, one chunk each, and a `STOP` at the end.
pub(crate) fn decode_parts(all: &[&str]) -> Result<Turn, Error> {
    let chunks: Vec<String> =
        all.iter().map(|part| parts_chunk(part)).chain([finish_chunk("STOP")]).collect();
    decode_turn(&as_strs(&chunks))
}

pub(crate) fn as_strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

/// The items in words: their kind, their text, and their provider data.
pub(crate) fn item_summaries(turn: &Turn) -> Vec<String> {
    let data = |item: &Item| match &item.provider_data {
        Some(data) => format!(" | {}", data.value),
        None => String::new(),
    };
    let words = |item: &Item| match &item.kind {
        ItemKind::Text { text } => format!("text {text}"),
        ItemKind::Reasoning { text } => format!("thought {text}"),
        ItemKind::ToolCall(call) => {
            format!("call {} {} {}", call.call_id, call.name, call.arguments)
        }
        ItemKind::Other => "own".to_owned(),
        kind => panic!("no turn holds {kind:?}"),
    };
    turn.items().iter().map(|item| words(item) + &data(item)).collect()
}

/// Checks the decoded items of parts, one chunk each.
#[track_caller]
pub(crate) fn check_parts(all: &[&str], expected: &[&str]) -> Turn {
    let turn = decode_parts(all).unwrap();
    assert_eq!(item_summaries(&turn), expected);
    turn
}

pub(crate) fn request_with_items(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items))
}

pub(crate) fn request_with_options(options: Options) -> Request {
    request_with_items(vec![Item::user("hi")]).with_options(options)
}

pub(crate) fn encode_for_model(model: &str, request: &Request) -> Value {
    serde_json::from_slice(&gemini::encode(request, model).unwrap()).unwrap()
}

pub(crate) fn encode_contents(items: Vec<Item>) -> Value {
    encode_for_model(MODEL, &request_with_items(items))["contents"].take()
}

/// An item that ends its turn.
pub(crate) fn as_last_of_turn(item: Item) -> Item {
    as_tool_turn_end(item, Usage::default())
}

pub(crate) fn tool_result(call_id: &str, kind: turnstream::item::ResultKind, text: &str) -> Item {
    Item::tool_result(ToolResult {
        call_id: call_id.into(),
        name: "f".into(),
        content: text.into(),
        kind,
        report: None,
    })
}
