//! Hand-written streams and requests of the Responses wire.

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::item::{ItemKind, ResultKind, ToolResult};
use turnstream::provider::Decoding;
use turnstream::provider::openai_responses::{Decoder, encode};
use turnstream::sse::write_frame;
use turnstream::stream::seal;
use turnstream::turn::{PartialTurn, Turn, TurnEvent};
use turnstream::{Error, History, Item, Request};

/// The model of every request.
pub(crate) const MODEL: &str = "gpt-5.1";

/// The body of a stream of these events, with the type of each also on its `event:` line.
pub(crate) fn sse_body(events: &[Value]) -> Vec<u8> {
    let mut body = Vec::new();
    for event in events {
        write_frame(&mut body, event["type"].as_str(), &event.to_string());
    }
    body
}

pub(crate) fn decode_events_with(
    decoder: Decoder,
    body: impl Into<Bytes>,
) -> Vec<Result<TurnEvent, Error>> {
    let body = stream::iter([Ok(body.into())]);
    block_on(seal(&History::empty("h"), Decoding::new(body, decoder)).collect())
}

pub(crate) fn decode_events(events: &[Value]) -> Vec<Result<TurnEvent, Error>> {
    decode_events_with(Decoder::new(MODEL), sse_body(events))
}

/// The turn, after checking that it is the sum of its events.
pub(crate) fn fold_turn(events: Vec<Result<TurnEvent, Error>>) -> Result<Turn, Error> {
    let mut fold = PartialTurn::default();
    for event in events {
        let event = event?;
        fold.absorb(&event);
        if let TurnEvent::TurnComplete { turn } = event {
            assert_eq!(
                streamed_item_kinds(&fold.items()),
                streamed_item_kinds(turn.items()),
                "the fold of the events"
            );
            assert_eq!(fold.usage(), turn.usage());
            return Ok((*turn).clone());
        }
    }
    panic!("a stream ends with a turn or an error")
}

pub(crate) fn decode_turn(list: &[Value]) -> Result<Turn, Error> {
    fold_turn(decode_events(list))
}

/// The items that events contain.
pub(crate) fn streamed_item_kinds(items: &[Item]) -> Vec<ItemKind> {
    let kinds = items.iter().map(|item| item.kind.clone());
    kinds
        .filter(|kind| match kind {
            ItemKind::Reasoning { text } => !text.is_empty(),
            kind => *kind != ItemKind::Other,
        })
        .collect()
}

/// The items of a turn in short form.
pub(crate) fn item_summaries(turn: &Turn) -> Vec<String> {
    let short = |item: &Item| match &item.kind {
        ItemKind::Text { text } => format!("text {text}"),
        ItemKind::Reasoning { text } => format!("reasoning {text}"),
        ItemKind::ToolCall(call) => format!("{} {} {}", call.call_id, call.name, call.arguments),
        ItemKind::Other => {
            format!("own {}", provider_data_value(item)["type"].as_str().unwrap_or_default())
        }
        kind => format!("{kind:?}"),
    };
    turn.items().iter().map(short).collect()
}

pub(crate) fn provider_data_value(item: &Item) -> Value {
    item.provider_data.as_ref().map(|data| data.value.to_value()).unwrap_or_default()
}

/// The calls that may run.
pub(crate) fn runnable_calls(turn: Result<Turn, Error>) -> Vec<String> {
    let Ok(turn) = turn else { return Vec::new() };
    let calls = turn.calls();
    match calls.veto() {
        Some(_) => Vec::new(),
        None => calls.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect(),
    }
}

pub(crate) fn response_created() -> Value {
    json!({ "type": "response.created", "response":
        { "id": "resp_1", "model": "gpt-5.1-2025", "status": "in_progress", "output": [] } })
}

pub(crate) fn response_completed(output: impl Into<Value>) -> Value {
    terminal_event("completed", output)
}

pub(crate) fn terminal_event(status: &str, output: impl Into<Value>) -> Value {
    let output = output.into();
    json!({ "type": format!("response.{status}"), "response":
        { "id": "resp_1", "model": "gpt-5.1-2025", "status": status, "output": output } })
}

pub(crate) fn output_item_added(index: u64, item: impl Into<Value>) -> Value {
    let item = item.into();
    json!({ "type": "response.output_item.added", "output_index": index, "item": item })
}

pub(crate) fn output_item_done(index: u64, item: impl Into<Value>) -> Value {
    let item = item.into();
    json!({ "type": "response.output_item.done", "output_index": index, "item": item })
}

/// A function call as an item.
pub(crate) fn function_call_item(id: &str, call_id: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "id": id, "call_id": call_id, "name": "f",
        "arguments": arguments, "status": "completed" })
}

pub(crate) fn arguments_delta(index: u64, delta: impl Into<Value>) -> Value {
    json!({ "type": "response.function_call_arguments.delta", "output_index": index,
        "item_id": "fc", "delta": delta.into() })
}

pub(crate) fn arguments_done(index: u64, arguments: impl Into<Value>) -> Value {
    json!({ "type": "response.function_call_arguments.done", "output_index": index,
        "item_id": "fc", "arguments": arguments.into() })
}

/// A message as an item.
pub(crate) fn message_item(id: &str, text: &str) -> Value {
    json!({ "type": "message", "id": id, "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
}

pub(crate) fn text_delta(index: u64, delta: impl Into<Value>) -> Value {
    json!({ "type": "response.output_text.delta", "output_index": index, "item_id": "msg",
        "content_index": 0, "delta": delta.into() })
}

pub(crate) fn reasoning_item(id: &str, encrypted: &str) -> Value {
    json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": encrypted })
}

pub(crate) fn tool_result(call_id: &str, content: impl Into<turnstream::item::Content>) -> Item {
    Item::tool_result(ToolResult {
        call_id: call_id.into(),
        name: "f".into(),
        content: content.into(),
        kind: ResultKind::Ok,
        report: None,
    })
}

/// The body that is sent for a request.
pub(crate) fn encode_json(request: &Request, model: &str) -> Result<Value, Error> {
    encode(request, model).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

/// The input that is sent for a history.
pub(crate) fn encode_input(items: impl IntoIterator<Item = Item>, model: &str) -> Vec<Value> {
    let request = Request::new(History::from_items("h", items));
    encode_json(&request, model).unwrap()["input"].as_array().unwrap().clone()
}
