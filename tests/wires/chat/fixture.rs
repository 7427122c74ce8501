//! Streams and requests of Chat Completions, written by hand.

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

use crate::support::wires::{frames, turn_of};

pub(crate) const MODEL: &str = "m";

pub(crate) fn events(body: impl Into<Bytes>, dialect: &Dialect) -> Vec<Result<TurnEvent, Error>> {
    let body = stream::iter([Ok(body.into())]);
    let decoder = Decoder::new(MODEL, dialect);
    block_on(seal(&History::from_id("h"), Decoding::new(body, decoder)).collect())
}

pub(crate) fn read_in(dialect: &Dialect, chunks: &[String]) -> Result<Turn, Error> {
    turn_of(frames(chunks), Decoder::new(MODEL, dialect))
}

pub(crate) fn read(chunks: &[String]) -> Result<Turn, Error> {
    read_in(&Dialect::OPENAI, chunks)
}

/// A chunk with a delta.
pub(crate) fn delta(delta: &Value) -> String {
    json!({ "id": "x", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
        .to_string()
}

/// A chunk with a finish reason.
pub(crate) fn finish(reason: &str) -> String {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }).to_string()
}

pub(crate) fn done() -> String {
    "[DONE]".to_owned()
}

/// A whole answer of these deltas.
pub(crate) fn answer(deltas: &[Value], reason: &str) -> Vec<String> {
    let mut chunks: Vec<String> = deltas.iter().map(delta).collect();
    chunks.extend([finish(reason), done()]);
    chunks
}

/// The value of the provider data of each item, as JSON text.
pub(crate) fn data_of(turn: &Turn) -> Vec<Option<String>> {
    let data = |item: &Item| item.provider_data.as_ref().map(|data| data.value.to_string());
    turn.items().iter().map(data).collect()
}

pub(crate) fn spec() -> ToolSpec {
    let parameters = json!({ "type": "object" });
    ToolSpec { name: "f".into(), description: "F".into(), parameters }
}

pub(crate) fn request(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items)).with_tools([spec()])
}

pub(crate) fn body(request: &Request, dialect: &Dialect) -> Result<Value, Error> {
    let bytes = encode(request, MODEL, dialect)?;
    Ok(serde_json::from_slice(&bytes).unwrap())
}

/// The messages that the items become.
#[track_caller]
pub(crate) fn sent(items: Vec<Item>, dialect: &Dialect) -> Vec<Value> {
    let body = body(&request(items), dialect).unwrap();
    body["messages"].as_array().unwrap().clone()
}

pub(crate) fn with_options(options: Options, dialect: &Dialect) -> Result<Value, Error> {
    body(&request(vec![Item::user("x")]).with_options(options), dialect)
}

pub(crate) fn result(id: &str, text: &str) -> Item {
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
pub(crate) fn with_data(item: Item, provider: &str, model: &str, value: &str) -> Item {
    let value = RawJson::parse(value).unwrap();
    let data = ProviderData { provider: provider.into(), model: model.into(), value };
    Item { provider_data: Some(data.into()), ..item }
}
