//! Unusual responses on the Messages wire.

use std::sync::Arc;

use turnstream::provider::anthropic;
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Error, ErrorKind, Event};

use turnstream_test_support::wires::{
    decode_sse_turn, nested_arrays, runnable_arguments, sse_body, text_or_error,
};

const MESSAGE_START: &str =
    r#"{"type":"message_start","message":{"id":"m1","model":"m","usage":{"input_tokens":1}}}"#;
const BLOCK_STOP: &str = r#"{"type":"content_block_stop","index":0}"#;

const MESSAGE_DELTA_END_TURN: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
const MESSAGE_DELTA_TOOL_USE: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
const MESSAGE_STOP: &str = r#"{"type":"message_stop"}"#;

/// Decodes a Messages stream.
fn decode_messages(data: &[&str]) -> Result<Turn, Error> {
    decode_sse_turn(sse_body(data), anthropic::Decoder::new("m"))
}

/// Decodes a Messages stream with one block, given its start and deltas.
pub(crate) fn decode_one_block(start: &str, deltas: &[&str], reason: &str) -> Result<Turn, Error> {
    let start = format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#);
    decode_messages(
        &[&[MESSAGE_START, &start], deltas, &[BLOCK_STOP, reason, MESSAGE_STOP]].concat(),
    )
}

/// The complete arguments of the call below.
const WHOLE_ARGUMENTS: &str = r#"{"path":"/x"}"#;

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
