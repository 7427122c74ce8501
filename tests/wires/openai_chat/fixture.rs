//! Hand-written streams and requests of Chat Completions.

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::item::{ProviderData, RawJson, ResultKind, ToolResult};
use turnstream::provider::Decoding;
use turnstream::provider::openai_chat::{Decoder, Dialect, encode};
use turnstream::request::{Options, ToolSpec};
use turnstream::stream::seal;
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Error, History, Item, Request};

use turnstream_test_support::wires::{decode_sse_turn, sse_body};

pub(crate) const MODEL: &str = "m";

pub(crate) fn decode_events(
    body: impl Into<Bytes>,
    dialect: &Dialect,
) -> Vec<Result<TurnEvent, Error>> {
    let body = stream::iter([Ok(body.into())]);
    let decoder = Decoder::new(MODEL, dialect);
    block_on(seal(&History::empty("h"), Decoding::new(body, decoder)).collect())
}

pub(crate) fn decode_in_dialect(dialect: &Dialect, chunks: &[String]) -> Result<Turn, Error> {
    decode_sse_turn(sse_body(chunks), Decoder::new(MODEL, dialect))
}

pub(crate) fn decode_turn(chunks: &[String]) -> Result<Turn, Error> {
    decode_in_dialect(&Dialect::OPENAI, chunks)
}

/// A chunk with a delta.
pub(crate) fn delta_chunk(delta: &Value) -> String {
    json!({ "id": "x", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
        .to_string()
}

/// A chunk with a finish reason.
pub(crate) fn finish_chunk(reason: &str) -> String {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }).to_string()
}

pub(crate) fn done_marker() -> String {
    "[DONE]".to_owned()
}

/// A complete answer with these deltas.
pub(crate) fn answer_chunks(deltas: &[Value], reason: &str) -> Vec<String> {
    let mut chunks: Vec<String> = deltas.iter().map(delta_chunk).collect();
    chunks.extend([finish_chunk(reason), done_marker()]);
    chunks
}

/// The value of the provider data of each item, as JSON text.
pub(crate) fn provider_data_texts(turn: &Turn) -> Vec<Option<String>> {
    let data = |item: &Item| item.provider_data.as_ref().map(|data| data.value.to_string());
    turn.items().iter().map(data).collect()
}

pub(crate) fn tool_spec() -> ToolSpec {
    let parameters = json!({ "type": "object" });
    ToolSpec::new("f", "F", parameters)
}

pub(crate) fn request_with_items(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items)).with_tools([tool_spec()])
}

pub(crate) fn encode_json(request: &Request, dialect: &Dialect) -> Result<Value, Error> {
    let bytes = encode(request, MODEL, dialect)?;
    Ok(serde_json::from_slice(&bytes).unwrap())
}

/// The messages that encode the items.
#[track_caller]
pub(crate) fn encode_messages(items: Vec<Item>, dialect: &Dialect) -> Vec<Value> {
    let body = encode_json(&request_with_items(items), dialect).unwrap();
    body["messages"].as_array().unwrap().clone()
}

pub(crate) fn encode_with_options(options: Options, dialect: &Dialect) -> Result<Value, Error> {
    encode_json(&request_with_items(vec![Item::user("x")]).with_options(options), dialect)
}

pub(crate) fn tool_result(id: &str, text: &str) -> Item {
    let (call_id, content) = (id.into(), text.into());
    Item::tool_result(ToolResult {
        call_id,
        name: "f".into(),
        content,
        kind: ResultKind::Ok,
        report: None,
    })
}

/// An item with data of a provider and model.
pub(crate) fn with_provider_data(item: Item, provider: &str, model: &str, value: &str) -> Item {
    let value = RawJson::parse(value).unwrap();
    let data = ProviderData { provider: provider.into(), model: model.into(), value };
    Item { provider_data: Some(data.into()), ..item }
}
