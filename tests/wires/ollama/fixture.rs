//! Lines and requests of Ollama, written by hand after <https://docs.ollama.com/api/chat>.

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use serde_json::Value;
use turnstream::framing::NdJson;
use turnstream::item::{ItemKind, ResultKind, ToolResult};
use turnstream::provider::{Decoding, ollama};
use turnstream::request::Options;
use turnstream::stream::seal;
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Error, History, Item, Request, Usage};

use crate::support::items::ends;
use crate::support::wires;

/// The model that is asked.
pub(crate) const MODEL: &str = "qwen3:8b";

/// The last line of a turn.
pub(crate) const END: &str = r#"{"model":"qwen3:8b","created_at":"2026-01-01T00:00:01Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":9,"prompt_eval_count":10,"eval_count":3}"#;

/// A line with a message of these fields.
pub(crate) fn message(fields: &str) -> String {
    format!(
        r#"{{"model":"qwen3:8b","created_at":"2026-01-01T00:00:00Z","message":{{"role":"assistant",{fields}}},"done":false}}"#
    )
}

pub(crate) fn text(text: &str) -> String {
    message(&format!(r#""content":"{text}""#))
}

pub(crate) fn thought(thought: &str) -> String {
    message(&format!(r#""content":"","thinking":"{thought}""#))
}

/// A line with these calls.
pub(crate) fn calls(calls: &str) -> String {
    message(&format!(r#""content":"","tool_calls":[{calls}]"#))
}

pub(crate) fn end(reason: &str) -> String {
    END.replace("\"stop\"", &format!("\"{reason}\""))
}

/// The body of these lines.
pub(crate) fn body(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

pub(crate) fn read(lines: &[&str]) -> Result<Turn, Error> {
    wires::turn_of_lines(body(lines), ollama::Decoder::new(MODEL))
}

/// Reads lines, and the end.
pub(crate) fn read_ended(lines: &[&str]) -> Result<Turn, Error> {
    read(&[lines, &[END]].concat())
}

/// The events of a body in pieces, for the turn that follows a history.
pub(crate) fn events_after(
    history: &History,
    pieces: impl IntoIterator<Item = Bytes>,
) -> Vec<Result<TurnEvent, Error>> {
    let pieces: Vec<_> = pieces.into_iter().map(Ok).collect();
    let (lines, decoder) = (NdJson::default(), ollama::Decoder::new(MODEL));
    let decoding = Decoding::from_frames(stream::iter(pieces), lines, decoder);
    block_on(seal(history, decoding).collect())
}

pub(crate) fn events_of(pieces: impl IntoIterator<Item = Bytes>) -> Vec<Result<TurnEvent, Error>> {
    events_after(&History::from_id("h"), pieces)
}

/// The items in words: their kind, what they say, and what goes back with them.
pub(crate) fn shown(turn: &Turn) -> Vec<String> {
    let words = |item: &Item| match &item.kind {
        ItemKind::Text { text } => format!("text {text}"),
        ItemKind::Reasoning { text } => format!("thought {text}"),
        ItemKind::ToolCall(call) => {
            format!("call {} {} {}", call.call_id, call.name, call.arguments)
        }
        kind => panic!("no turn holds {kind:?}"),
    };
    turn.items().iter().map(words).collect()
}

/// Checks what lines with an end are read as.
#[track_caller]
pub(crate) fn check(lines: &[&str], expected: &[&str]) -> Turn {
    let turn = read_ended(lines).unwrap();
    assert_eq!(shown(&turn), expected);
    turn
}

pub(crate) fn history(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items))
}

pub(crate) fn options(options: Options) -> Request {
    history(vec![Item::user("hi")]).with_options(options)
}

pub(crate) fn encoded(request: &Request) -> Result<Value, Error> {
    let bytes = ollama::encode(request, MODEL, &ollama::Chat::default())?;
    Ok(serde_json::from_slice(&bytes).unwrap())
}

pub(crate) fn sent(request: &Request) -> Value {
    encoded(request).unwrap()
}

pub(crate) fn messages(items: Vec<Item>) -> Value {
    sent(&history(items))["messages"].take()
}

/// An item that ends its turn.
pub(crate) fn last(item: Item) -> Item {
    ends(item, Usage::default())
}

pub(crate) fn answer(call_id: &str, text: &str) -> Item {
    Item::tool_result(ToolResult {
        call_id: call_id.into(),
        name: "f".into(),
        content: text.into(),
        kind: ResultKind::Ok,
        report: None,
    })
}
