//! Unusual responses on the Messages and Chat Completions wires.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use turnstream::provider::{Decoding, anthropic, openai_chat};
use turnstream::stream::{TurnStreamExt, seal};
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Error, ErrorKind, Event, History};

use turnstream_test_support::wires::{decode_sse_turn, sse_body};

const FINISH_STOP_CHUNK: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

const FINISH_TOOL_CALLS_CHUNK: &str =
    r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
const MESSAGE_START: &str =
    r#"{"type":"message_start","message":{"id":"m1","model":"m","usage":{"input_tokens":1}}}"#;
const BLOCK_STOP: &str = r#"{"type":"content_block_stop","index":0}"#;

const MESSAGE_DELTA_END_TURN: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
const MESSAGE_DELTA_TOOL_USE: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
const MESSAGE_STOP: &str = r#"{"type":"message_stop"}"#;

/// Decodes a Chat Completions stream.
fn decode_chat(data: &[&str]) -> Result<Turn, Error> {
    decode_sse_turn(sse_body(data), openai_chat::Decoder::new("m", &openai_chat::Dialect::OPENAI))
}

/// Decodes a Messages stream.
fn decode_messages(data: &[&str]) -> Result<Turn, Error> {
    decode_sse_turn(sse_body(data), anthropic::Decoder::new("m"))
}

/// Decodes a Messages stream with one block, given its start and deltas.
fn decode_one_block(start: &str, deltas: &[&str], reason: &str) -> Result<Turn, Error> {
    let start = format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#);
    decode_messages(
        &[&[MESSAGE_START, &start], deltas, &[BLOCK_STOP, reason, MESSAGE_STOP]].concat(),
    )
}

/// A chunk with a piece of a call.
fn call_chunk(call: &str) -> String {
    format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,{call}}}]}}}}]}}"#)
}

fn as_strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

fn nested_arrays(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

fn text_or_error(turn: Result<Turn, Error>) -> Result<String, String> {
    turn.map(|turn| turn.text()).map_err(|error| error.to_string())
}

/// The arguments of the calls that may run.
fn runnable_arguments(turn: Result<Turn, Error>) -> Vec<String> {
    let Ok(turn) = turn else { return Vec::new() };
    let calls = turn.calls();
    match calls.veto() {
        Some(_) => Vec::new(),
        None => calls.iter().map(|call| call.arguments.clone()).collect(),
    }
}

#[test]
fn a_chat_chunk_with_unexpected_fields_loses_no_text() {
    #[track_caller]
    fn check(chunk: &str, text: &str) {
        assert_eq!(
            text_or_error(decode_chat(&[chunk, FINISH_STOP_CHUNK, "[DONE]"])),
            Ok(text.to_owned()),
            "{chunk:.200}"
        );
    }
    // Repeated keys.
    check(r#"{"choices":[{"delta":{"content":"a","content":"a"}}]}"#, "a");
    check(r#"{"id":"x","id":"x","choices":[{"delta":{"content":"a"}}]}"#, "a");
    // Half of a surrogate pair: in the text, in an ignored field, in a key.
    check(r#"{"choices":[{"delta":{"content":"a\ud83d"}}]}"#, "a\u{fffd}");
    check(r#"{"x":"\ud83d","choices":[{"delta":{"content":"a"}}]}"#, "a");
    check(r#"{"\ud83d":"q","choices":[{"delta":{"content":"a"}}]}"#, "a");
    // Numbers beyond any type.
    for number in ["1e999", "-1e999", "99999999999999999999999"] {
        let usage = format!(r#""usage":{{"prompt_tokens":{number}}}"#);
        check(&format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],{usage}}}"#), "a");
        let fields = format!(r#""content":"a","role":{number},"refusal":{number}"#);
        check(&format!(r#"{{"choices":[{{"index":0,"delta":{{{fields}}}}}]}}"#), "a");
    }
    // Deep nesting, in decoded fields and in ignored ones.
    let deep = nested_arrays(5000);
    check(&format!(r#"{{"x":{deep},"choices":[{{"delta":{{"content":"a"}}}}]}}"#), "a");
    let delta = format!(r#""content":"a","refusal":{deep},"tool_calls":{deep}"#);
    let chunk = format!(r#"{{"id":{deep},"usage":{deep},"choices":[{{"delta":{{{delta}}}}}]}}"#);
    check(&chunk, "a");
    let two = format!(r#"{{"delta":{{"content":{deep}}}}},{{"delta":{{"content":"a"}}}}"#);
    check(&format!(r#"{{"choices":[{two}]}}"#), "");
    // Other values in place of an object.
    check(r#"{"choices":[null,5,{"delta":{"content":"a"}}]}"#, "a");
    check(r#"{"choices":[{"delta":{"content":["x",{"type":"text","text":"a"}]}}]}"#, "a");
    check(r#"{"error":"","choices":[{"delta":{"content":"a"}}]}"#, "a");
    for error in ["null", "false", "\"\""] {
        check(&format!(r#"{{"choices":[{{"error":{error},"delta":{{"content":"a"}}}}]}}"#), "a");
    }
}

#[test]
fn chat_frames_that_are_not_chunks_are_ignored() {
    const TEXT_CHUNK: &str = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    for odd in ["", "null", r#"{"choices":"x"}"#, r#"{"choices":5}"#, r#"{"choices":true}"#] {
        assert_eq!(
            text_or_error(decode_chat(&[odd, TEXT_CHUNK, FINISH_STOP_CHUNK, "[DONE]"])),
            Ok("a".to_owned()),
            "{odd}"
        );
    }
}

#[test]
fn an_anthropic_block_with_unexpected_fields_loses_no_text() {
    #[track_caller]
    fn check(start: &str, delta: &str, text: &str) {
        let turn = decode_one_block(start, &[delta], MESSAGE_DELTA_END_TURN);
        assert_eq!(text_or_error(turn), Ok(text.to_owned()), "{start} {delta}");
    }
    let start = r#"{"type":"text","text":""}"#;
    let delta = |fields: &str, text: &str| {
        let delta = format!(r#""delta":{{"type":"text_delta","text":"{text}"}}"#);
        format!(r#"{{"type":"content_block_delta",{fields}"index":0,{delta}}}"#)
    };
    check(start, &delta(r#""type":"content_block_delta","#, "a"), "a");
    check(start, &delta("", r"a\ud83d"), "a\u{fffd}");
    check(start, &delta(r#""usage":{"input_tokens":1e400},"#, "a"), "a");
    check(r#"{"type":"text","text":"","citations":"none"}"#, &delta("", "a"), "a");
    check(r#"{"type":"text","text":"","text":""}"#, &delta("", "a"), "a");
}

#[test]
fn a_message_stream_is_read_through_idle_frames_and_ends_without_its_last_event() {
    let idle = "event: ping\ndata:\n\nevent: keepalive\ndata: still here\n\n".to_owned();
    let body = idle + &sse_body(&[MESSAGE_START, MESSAGE_DELTA_END_TURN, MESSAGE_STOP]);
    assert_eq!(
        text_or_error(decode_sse_turn(body, anthropic::Decoder::new("m"))),
        Ok(String::new())
    );
    assert_eq!(
        text_or_error(decode_messages(&[MESSAGE_START, MESSAGE_DELTA_END_TURN, "[DONE]"])),
        Ok(String::new())
    );
}

#[test]
fn an_error_in_a_message_stream_is_understood_in_any_shape() {
    let untyped = r#"{"error":{"type":"overloaded_error","message":"busy"}}"#;
    assert_eq!(
        decode_messages(&[MESSAGE_START, untyped]).unwrap_err().kind(),
        ErrorKind::Overloaded
    );
    let flat =
        decode_messages(&[MESSAGE_START, r#"{"type":"error","message":"busy now"}"#]).unwrap_err();
    assert!(flat.message().contains("busy now"), "{flat}");
}

/// The complete arguments of the call below.
const WHOLE_ARGUMENTS: &str = r#"{"path":"/x"}"#;

#[test]
fn an_anthropic_call_runs_with_its_own_arguments_or_not_at_all() {
    const TOOL_USE_BLOCK: &str = r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#;
    #[track_caller]
    fn check(deltas: &[&str]) {
        let runs =
            runnable_arguments(decode_one_block(TOOL_USE_BLOCK, deltas, MESSAGE_DELTA_TOOL_USE));
        assert!(
            runs.iter().all(|arguments| arguments == WHOLE_ARGUMENTS),
            "{runs:?} of {deltas:?}"
        );
    }
    let delta = |index: u32, kind: &str, json: &str| {
        let delta = format!(r#"{{{kind}"partial_json":{json}}}"#);
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
    };
    let (kind, json) = (r#""type":"input_json_delta","#, r#""{\"path\":\"/x\"}""#);
    assert_eq!(
        runnable_arguments(decode_one_block(
            TOOL_USE_BLOCK,
            &[&delta(0, kind, json)],
            MESSAGE_DELTA_TOOL_USE
        )),
        [WHOLE_ARGUMENTS]
    );
    // As an object, without the kind of the delta, for another block, after the end of its own
    // block.
    check(&[&delta(0, kind, WHOLE_ARGUMENTS)]);
    check(&[&delta(0, "", json)]);
    check(&[&delta(3, kind, json)]);
    check(&[BLOCK_STOP, &delta(0, kind, json)]);
}

#[test]
fn a_chat_call_runs_with_its_own_arguments_or_not_at_all() {
    fn run(calls: &[&str], after: &[&str]) -> Vec<String> {
        let chunks = |calls: &[&str]| calls.iter().map(|call| call_chunk(call)).collect::<Vec<_>>();
        let (calls, after) = (chunks(calls), chunks(after));
        runnable_arguments(decode_chat(
            &[&as_strs(&calls)[..], &[FINISH_TOOL_CALLS_CHUNK], &as_strs(&after), &["[DONE]"]]
                .concat(),
        ))
    }
    #[track_caller]
    fn check(calls: &[&str], after: &[&str]) {
        let runs = run(calls, after);
        assert!(runs.iter().all(|arguments| arguments == WHOLE_ARGUMENTS), "{runs:?} of {calls:?}");
    }
    let whole = r#""function":{"arguments":"{\"path\":\"/x\"}"}"#;
    let named = r#""id":"a","function":{"name":"f"}"#;
    assert_eq!(run(&[named, whole], &[]), [WHOLE_ARGUMENTS]);
    // The name comes last.
    assert_eq!(run(&[whole, named], &[]), [WHOLE_ARGUMENTS]);
    // In an array, with a number in the middle, not in an object, after the end.
    check(&[r#""id":"a","function":{"name":"f","arguments":[{"path":"/x"}]}"#], &[]);
    let begun = r#""id":"a","function":{"name":"f","arguments":"{\"n\": 1"}"#;
    let end = r#""function":{"arguments":"}"}"#;
    check(&[begun, r#""function":{"arguments":5}"#, end], &[]);
    check(&[named, r#""function":"{\"path\":\"/x\"}""#], &[]);
    check(&[r#""id":"a","function":{"name":"f","arguments":""}"#], &[whole]);
}

#[test]
fn a_lone_surrogate_in_arguments_never_changes_the_call() {
    fn run(pieces: &[&str]) -> Vec<String> {
        let pieces = [&[r#"{\"cmd\":\"rm "#, "-i draft-"], pieces, &[r#" *\"}"#]].concat();
        let (mut chunks, mut deltas) = (Vec::new(), Vec::new());
        for json in pieces {
            let call = format!(r#""id":"c","function":{{"name":"sh","arguments":"{json}"}}"#);
            chunks.push(call_chunk(&call));
            let delta = format!(r#"{{"type":"input_json_delta","partial_json":"{json}"}}"#);
            deltas.push(format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#));
        }
        let start = r#"{"type":"tool_use","id":"c","name":"sh","input":{}}"#;
        let mut all = runnable_arguments(decode_chat(
            &[&as_strs(&chunks)[..], &[FINISH_TOOL_CALLS_CHUNK, "[DONE]"]].concat(),
        ));
        all.extend(runnable_arguments(decode_one_block(
            start,
            &as_strs(&deltas),
            MESSAGE_DELTA_TOOL_USE,
        )));
        all
    }
    #[track_caller]
    fn check(pieces: &[&str]) {
        for arguments in run(pieces) {
            let value: Value = serde_json::from_str(&arguments).unwrap();
            let command = value["cmd"].as_str().unwrap();
            assert!(command.starts_with("rm -i draft-") && command.ends_with(" *"), "{command}");
        }
    }
    assert_eq!(run(&[r"\ud83d\ude00"]), [r#"{"cmd":"rm -i draft-😀 *"}"#; 2]);
    check(&[r"\ud83d", r"\ude00"]);
    check(&[r"\ud83d", "", r"\ude00"]);
    check(&[r"\ud83d"]);
    check(&[r"\ude00"]);
    check(&[r"\ud83d", "x", r"\ude00"]);
    check(&[r"\ud83d", r"\ud83d\ude00"]);
}

#[test]
fn an_anthropic_call_without_a_name_is_an_error() {
    let turn = decode_one_block(
        r#"{"type":"tool_use","id":"t1","input":{}}"#,
        &[],
        MESSAGE_DELTA_TOOL_USE,
    );
    assert!(turn.is_err(), "{turn:?}");
}

#[test]
fn a_turn_with_deeply_nested_provider_data_round_trips_through_a_record() {
    let input = nested_arrays(120);
    let start =
        format!(r#"{{"type":"server_tool_use","id":"s","name":"web_search","input":{input}}}"#);
    let turn = Arc::new(decode_one_block(&start, &[], MESSAGE_DELTA_END_TURN).unwrap());
    let record = serde_json::to_string(&Event::Turn(TurnEvent::TurnComplete { turn })).unwrap();
    let back: Result<Event, _> = serde_json::from_str(&record);
    assert!(back.is_ok(), "{back:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_hangs_after_its_last_chunk_is_a_complete_turn() {
    let text = r#"{"choices":[{"delta":{"content":"hey"},"finish_reason":"stop"}]}"#;
    let body = Bytes::from(sse_body(&[text, "[DONE]"]));
    let body = stream::iter([Ok::<_, Error>(body)]).chain(stream::pending());
    let turn = seal(
        &History::empty("h"),
        Decoding::new(body, openai_chat::Decoder::new("m", &openai_chat::Dialect::OPENAI)),
    );
    assert_eq!(turn.into_turn().await.unwrap().text(), "hey");
}
