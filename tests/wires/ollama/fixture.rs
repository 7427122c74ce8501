//! Hand-written lines and requests of Ollama, following <https://docs.ollama.com/api/chat>.

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

use turnstream_test_support::items::as_tool_turn_end;
use turnstream_test_support::wires;

/// The model of every request.
pub(crate) const MODEL: &str = "qwen3:8b";

/// The last line of a turn.
pub(crate) const DONE_LINE: &str = r#"{"model":"qwen3:8b","created_at":"2026-01-01T00:00:01Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":9,"prompt_eval_count":10,"eval_count":3}"#;

/// A line with a message of these fields.
pub(crate) fn message_line(fields: &str) -> String {
    format!(
        r#"{{"model":"qwen3:8b","created_at":"2026-01-01T00:00:00Z","message":{{"role":"assistant",{fields}}},"done":false}}"#
    )
}

pub(crate) fn text_line(text: &str) -> String {
    message_line(&format!(r#""content":"{text}""#))
}

pub(crate) fn thinking_line(thought: &str) -> String {
    message_line(&format!(r#""content":"","thinking":"{thought}""#))
}

/// A line with these calls.
pub(crate) fn tool_calls_line(calls: &str) -> String {
    message_line(&format!(r#""content":"","tool_calls":[{calls}]"#))
}

pub(crate) fn done_line(reason: &str) -> String {
    DONE_LINE.replace("\"stop\"", &format!("\"{reason}\""))
}

/// The body of these lines.
pub(crate) fn json_lines_body(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

pub(crate) fn decode_turn(lines: &[&str]) -> Result<Turn, Error> {
    wires::decode_json_lines_turn(json_lines_body(lines), ollama::Decoder::new(MODEL))
}

/// Decodes these lines and the end of the turn.
pub(crate) fn decode_ended_turn(lines: &[&str]) -> Result<Turn, Error> {
    decode_turn(&[lines, &[DONE_LINE]].concat())
}

/// The events of a body in pieces, for the turn that follows a history.
pub(crate) fn decode_events_after(
    history: &History,
    pieces: impl IntoIterator<Item = Bytes>,
) -> Vec<Result<TurnEvent, Error>> {
    let pieces: Vec<_> = pieces.into_iter().map(Ok).collect();
    let (lines, decoder) = (NdJson::default(), ollama::Decoder::new(MODEL));
    let decoding = Decoding::from_frames(stream::iter(pieces), lines, decoder);
    block_on(seal(history, decoding).collect())
}

pub(crate) fn decode_events(
    pieces: impl IntoIterator<Item = Bytes>,
) -> Vec<Result<TurnEvent, Error>> {
    decode_events_after(&History::empty("h"), pieces)
}

/// The items in words: their kind, their text, and their provider data.
pub(crate) fn item_summaries(turn: &Turn) -> Vec<String> {
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

/// Checks the decoded items of lines, followed by the end of the turn.
#[track_caller]
pub(crate) fn check_items(lines: &[&str], expected: &[&str]) -> Turn {
    let turn = decode_ended_turn(lines).unwrap();
    assert_eq!(item_summaries(&turn), expected);
    turn
}

pub(crate) fn request_with_items(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items))
}

pub(crate) fn request_with_options(options: Options) -> Request {
    request_with_items(vec![Item::user("hi")]).with_options(options)
}

pub(crate) fn try_encode_json(request: &Request) -> Result<Value, Error> {
    let bytes = ollama::encode(request, MODEL, &ollama::Chat::default())?;
    Ok(serde_json::from_slice(&bytes).unwrap())
}

pub(crate) fn encode_json(request: &Request) -> Value {
    try_encode_json(request).unwrap()
}

pub(crate) fn encode_messages(items: Vec<Item>) -> Value {
    encode_json(&request_with_items(items))["messages"].take()
}

/// An item that ends its turn.
pub(crate) fn as_last_of_turn(item: Item) -> Item {
    as_tool_turn_end(item, Usage::default())
}

pub(crate) fn tool_result(call_id: &str, text: &str) -> Item {
    Item::tool_result(ToolResult {
        call_id: call_id.into(),
        name: "f".into(),
        content: text.into(),
        kind: ResultKind::Ok,
        report: None,
    })
}
