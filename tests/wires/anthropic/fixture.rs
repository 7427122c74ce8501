//! Hand-written streams, frame by frame.

use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use futures::stream;
use serde_json::Value;
use turnstream::item::{Part, ResultKind, ToolResult};
use turnstream::provider::{Decoding, anthropic};
use turnstream::stream::{TurnStreamExt, seal};
use turnstream::turn::Turn;
use turnstream::{Error, History, Item, Request};

/// The model of every request.
pub(crate) const MODEL: &str = "m";

pub(crate) const MESSAGE_START: &str = r#"{"type":"message_start","message":{"id":"msg_1","model":"claude-x","content":[],"stop_reason":null,"usage":{"input_tokens":10,"output_tokens":1}}}"#;
pub(crate) const MESSAGE_STOP: &str = r#"{"type":"message_stop"}"#;

pub(crate) fn content_block_start(index: u32, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

pub(crate) fn content_block_delta(index: u32, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

pub(crate) fn text_delta(index: u32, text: &str) -> String {
    content_block_delta(index, &format!(r#"{{"type":"text_delta","text":"{text}"}}"#))
}

/// A piece of the input, escaped as in the delta.
pub(crate) fn input_json_delta(index: u32, piece: &str) -> String {
    let piece = Value::from(piece);
    content_block_delta(index, &format!(r#"{{"type":"input_json_delta","partial_json":{piece}}}"#))
}

pub(crate) fn content_block_stop(index: u32) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

pub(crate) fn message_delta(reason: &str) -> String {
    format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#)
}

/// Frames with their `event:` line, as the vendor sends them.
pub(crate) fn sse_body(events: &[String]) -> String {
    #[derive(serde::Deserialize)]
    struct TypedEvent {
        r#type: Option<String>,
    }
    let frame = |data: &String| {
        let event: TypedEvent = serde_json::from_str(data).unwrap();
        let kind = event.r#type.unwrap_or_else(|| "message".to_owned());
        format!("event: {kind}\ndata: {data}\n\n")
    };
    events.iter().map(frame).collect()
}

pub(crate) fn decode_body(body: impl Into<Bytes>) -> Result<Arc<Turn>, Error> {
    let body = stream::iter([Ok(body.into())]);
    let decoding = Decoding::new(body, anthropic::Decoder::new(MODEL));
    block_on(seal(&History::empty("h"), decoding).into_turn())
}

pub(crate) fn decode_turn(events: &[String]) -> Result<Arc<Turn>, Error> {
    decode_body(sse_body(events))
}

/// A complete message with these events between its start and its stop.
pub(crate) fn decode_message(events: &[String], reason: &str) -> Arc<Turn> {
    let events =
        [&[MESSAGE_START.to_owned()], events, &[message_delta(reason), MESSAGE_STOP.to_owned()]]
            .concat();
    decode_turn(&events).unwrap()
}

/// A message of one block.
pub(crate) fn decode_one_block(block: &str, deltas: &[String], reason: &str) -> Arc<Turn> {
    decode_message(
        &[&[content_block_start(0, block)], deltas, &[content_block_stop(0)]].concat(),
        reason,
    )
}

/// A message of blocks that are complete at their start.
pub(crate) fn decode_blocks(blocks: &[&str], reason: &str) -> Arc<Turn> {
    let events = (0..)
        .zip(blocks)
        .flat_map(|(at, block)| [content_block_start(at, block), content_block_stop(at)]);
    decode_message(&events.collect::<Vec<_>>(), reason)
}

/// The body of a request with these items.
pub(crate) fn encode_items(items: Vec<Item>) -> String {
    encode_items_for(MODEL, items)
}

pub(crate) fn encode_items_for(model: &str, items: Vec<Item>) -> String {
    encode_to_string(&Request::new(History::from_items("h", items)), model).unwrap()
}

pub(crate) fn encode_to_string(request: &Request, model: &str) -> Result<String, Error> {
    anthropic::encode(request, model).map(|body| String::from_utf8(body).unwrap())
}

pub(crate) fn parse_json(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

/// A user message, this turn, and a result for each of its calls.
pub(crate) fn items_with_results(turn: &Turn) -> Vec<Item> {
    let results = turn
        .tool_calls()
        .map(|call| Item::tool_result(ToolResult::for_call(call, ResultKind::Ok, "done")));
    let mut items = vec![Item::user("x")];
    items.extend(turn.to_history_items());
    items.extend(results);
    items
}

/// The same, and another user message.
pub(crate) fn items_with_follow_up(turn: &Turn) -> Vec<Item> {
    let mut items = items_with_results(turn);
    items.push(Item::user("go on"));
    items
}

/// The texts of the provider's own items.
pub(crate) fn provider_item_texts(turn: &Turn) -> Vec<String> {
    let others = turn.items().iter().filter(|item| item.kind == turnstream::item::ItemKind::Other);
    others.map(|item| item.provider_data.as_ref().unwrap().value.to_string()).collect()
}

/// A part with a file.
pub(crate) fn file_part(media_type: &str, source: turnstream::item::MediaSource) -> Part {
    Part::File(turnstream::item::Media::new(media_type, source))
}
