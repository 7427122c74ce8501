//! Unusual responses on the Chat Completions wire.

use bytes::Bytes;
use futures::{StreamExt, stream};
use turnstream::provider::{Decoding, openai_chat};
use turnstream::stream::{TurnStreamExt, seal};
use turnstream::turn::Turn;
use turnstream::{Error, History};

use turnstream_test_support::wires::{
    decode_sse_turn, nested_arrays, runnable_arguments, sse_body, text_or_error,
};

const FINISH_STOP_CHUNK: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
pub(crate) const FINISH_TOOL_CALLS_CHUNK: &str =
    r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;

/// Decodes a Chat Completions stream.
pub(crate) fn decode_chat(data: &[&str]) -> Result<Turn, Error> {
    decode_sse_turn(sse_body(data), openai_chat::Decoder::new("m", &openai_chat::Dialect::OPENAI))
}

/// A chunk with a piece of a call.
pub(crate) fn call_chunk(call: &str) -> String {
    format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,{call}}}]}}}}]}}"#)
}

pub(crate) fn as_strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

/// The complete arguments of the call below.
const WHOLE_ARGUMENTS: &str = r#"{"path":"/x"}"#;

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
