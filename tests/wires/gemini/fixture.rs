//! Streams and requests of Gemini, written by hand.

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

use crate::support::items::ends;
use crate::support::wires;

/// The model that is asked.
pub(crate) const MODEL: &str = "gemini-3-flash";

/// The body of a stream, framed as the vendor does.
pub(crate) fn framed(chunks: &[&str]) -> String {
    chunks.iter().flat_map(|chunk| ["data: ", chunk, "\r\n\r\n"]).collect()
}

pub(crate) fn turn_of(body: impl Into<Bytes>) -> Result<Turn, Error> {
    wires::turn_of(body, gemini::Decoder::new(MODEL))
}

pub(crate) fn events_of(chunks: &[&str]) -> Vec<Result<TurnEvent, Error>> {
    let body = stream::iter([Ok(Bytes::from(framed(chunks)))]);
    let decoding = Decoding::new(body, gemini::Decoder::new(MODEL));
    block_on(seal(&History::from_id("h"), decoding).collect())
}

pub(crate) fn read(chunks: &[&str]) -> Result<Turn, Error> {
    turn_of(framed(chunks))
}

/// A chunk with parts.
pub(crate) fn parts(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0}}]}}"#)
}

/// A chunk that ends the turn.
pub(crate) fn end(reason: &str) -> String {
    format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#)
}

/// Reads parts, one chunk each, and an end by `STOP`.
pub(crate) fn read_parts(all: &[&str]) -> Result<Turn, Error> {
    let chunks: Vec<String> = all.iter().map(|part| parts(part)).chain([end("STOP")]).collect();
    read(&slices(&chunks))
}

pub(crate) fn slices(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

/// The items in words: their kind, what they say, and what goes back with them.
pub(crate) fn shown(turn: &Turn) -> Vec<String> {
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

/// Checks what parts, one chunk each, are read as.
#[track_caller]
pub(crate) fn check_parts(all: &[&str], expected: &[&str]) -> Turn {
    let turn = read_parts(all).unwrap();
    assert_eq!(shown(&turn), expected);
    turn
}

pub(crate) fn history(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items))
}

pub(crate) fn options(options: Options) -> Request {
    history(vec![Item::user("hi")]).with_options(options)
}

pub(crate) fn sent_to(model: &str, request: &Request) -> Value {
    serde_json::from_slice(&gemini::encode(request, model).unwrap()).unwrap()
}

pub(crate) fn contents(items: Vec<Item>) -> Value {
    sent_to(MODEL, &history(items))["contents"].take()
}

/// An item that ends its turn.
pub(crate) fn last(item: Item) -> Item {
    ends(item, Usage::default())
}

pub(crate) fn answer(call_id: &str, kind: turnstream::item::ResultKind, text: &str) -> Item {
    Item::tool_result(ToolResult {
        call_id: call_id.into(),
        name: "f".into(),
        content: text.into(),
        kind,
        report: None,
    })
}
