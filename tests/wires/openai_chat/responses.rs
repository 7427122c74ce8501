//! The responses of servers, in the documented form and in the forms that servers send.

use serde_json::{Value, json};
use turnstream::provider::openai_chat::{Decoder, Dialect};
use turnstream::sse::write_frame;
use turnstream::turn::{StopReason, Turn};
use turnstream::{Error, ErrorKind};

use turnstream_test_support::wires::decode_sse_turn;

fn decode_turn(chunks: &[&str]) -> Result<Turn, Error> {
    let mut body = Vec::new();
    for chunk in chunks {
        write_frame(&mut body, None, chunk);
    }
    decode_sse_turn(body, Decoder::new("m", &Dialect::OPENAI))
}

/// A chunk with one choice.
pub(super) fn choice_chunk(delta: &Value, finish: Option<&str>) -> String {
    json!({ "id": "x", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
        .to_string()
}

#[track_caller]
fn check_calls(deltas: &[Value], expected: &[&str]) {
    let mut chunks: Vec<_> =
        deltas.iter().map(|calls| choice_chunk(&json!({ "tool_calls": calls }), None)).collect();
    chunks.push(choice_chunk(&json!({}), Some("tool_calls")));
    chunks.push("[DONE]".to_owned());
    let turn = decode_turn(&chunks.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let calls: Vec<_> = turn
        .tool_calls()
        .map(|call| format!("{} {} {}", call.call_id, call.name, call.arguments))
        .collect();
    assert_eq!(calls, expected);
}

#[test]
fn text_reasoning_usage_and_the_raw_stop_reason_are_decoded() {
    let turn = decode_turn(&[
        &choice_chunk(&json!({ "role": "assistant", "content": "" }), None),
        &choice_chunk(&json!({ "reasoning_content": "hm", "reasoning": "hm" }), None),
        &choice_chunk(&json!({ "content": "Hel" }), None),
        &choice_chunk(&json!({ "content": "lo" }), Some("stop")),
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}}"#,
        "[DONE]",
    ])
    .unwrap();
    assert_eq!((turn.text().as_str(), turn.reasoning().as_str()), ("Hello", "hm"));
    assert_eq!(turn.raw_stop_reason(), Some("stop"));
    assert_eq!((turn.model(), turn.response_id()), (Some("m"), Some("x")));
    let usage = turn.usage();
    assert_eq!((usage.input_tokens, usage.output_tokens), (9, 4));
    assert_eq!((usage.cache_read_input_tokens, usage.reasoning_tokens), (5, 2));
}

#[test]
fn a_call_in_the_documented_shape_is_decoded() {
    check_calls(
        &[
            json!([{ "index": 0, "id": "a", "type": "function", "function": { "name": "f", "arguments": "" } }]),
            json!([{ "index": 0, "function": { "arguments": "{\"x\"" } }]),
            json!([{ "index": 1, "id": "b", "function": { "name": "g", "arguments": "{}" } }]),
            json!([{ "index": 0, "function": { "arguments": ":1}" } }]),
        ],
        &["a f {\"x\":1}", "b g {}"],
    );
}

#[test]
fn repeated_or_empty_ids_and_names_are_ignored() {
    check_calls(
        &[
            json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"x\":" } }]),
            json!([{ "index": 0, "id": "", "function": { "name": "f", "arguments": "1" } }]),
            json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "}" } }]),
            json!([{ "index": 0, "id": null, "function": { "name": null, "arguments": null } }]),
        ],
        &["a f {\"x\":1}"],
    );
}

#[test]
fn a_name_may_be_split() {
    check_calls(
        &[
            json!([{ "index": 0, "id": "a", "function": { "name": "get_" } }]),
            json!([{ "index": 0, "function": { "name": "weather" } }]),
            json!([{ "index": 0, "function": { "arguments": "{}" } }]),
        ],
        &["a get_weather {}"],
    );
}

#[test]
fn calls_without_an_index_are_distinguished_by_id_then_by_order() {
    check_calls(
        &[
            json!([{ "id": "a", "function": { "name": "f", "arguments": "{" } }]),
            json!([{ "function": { "arguments": "}" } }]),
            json!([{ "id": "b", "function": { "name": "g", "arguments": "{}" } }]),
            json!([{ "function": { "name": "h", "arguments": "{}" } }]),
        ],
        &["a f {}", "b g {}", "call_1_3 h {}"],
    );
}

#[test]
fn the_same_index_under_another_id_is_another_call() {
    check_calls(
        &[
            json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{}" } }]),
            json!([{ "index": 0, "id": "b", "function": { "name": "f", "arguments": "{}" } }]),
        ],
        &["a f {}", "b f {}"],
    );
}

#[test]
fn arguments_may_be_an_object_and_empty_ones_stay_empty() {
    check_calls(
        &[
            json!([{ "index": 1, "id": "a", "function": { "name": "f", "arguments": { "x": 1 } } }]),
            json!([{ "index": 2, "id": "b", "function": { "name": "g" } }]),
        ],
        &["a f {\"x\":1}", "b g "],
    );
}

#[test]
fn a_call_without_a_name_is_a_protocol_error() {
    let calls =
        json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "arguments": "{}" } }] });
    let error =
        decode_turn(&[&choice_chunk(&calls, None), &choice_chunk(&json!({}), Some("tool_calls"))])
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn a_refusal_is_text_with_the_refusal_stop_reason() {
    let turn = decode_turn(&[
        &choice_chunk(&json!({ "content": null, "refusal": "" }), None),
        &choice_chunk(&json!({ "refusal": "I can't" }), None),
        &choice_chunk(&json!({}), Some("stop")),
        "[DONE]",
    ])
    .unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::Refusal);
    assert_eq!((turn.raw_stop_reason(), turn.text().as_str()), (Some("stop"), "I can't"));
}

#[test]
fn a_stream_without_done_is_complete_if_it_had_a_finish_reason() {
    let said = choice_chunk(&json!({ "content": "hi" }), Some("stop"));
    assert_eq!(decode_turn(&[&said]).unwrap().text(), "hi");
    let error = decode_turn(&[&choice_chunk(&json!({ "content": "hi" }), None)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    let error =
        decode_turn(&[&choice_chunk(&json!({ "content": "hi" }), None), "[DONE]"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn content_after_the_finish_reason_is_ignored() {
    let turn = decode_turn(&[
        &choice_chunk(&json!({ "content": "hi" }), Some("stop")),
        &choice_chunk(&json!({ "content": " there" }), Some("length")),
        "[DONE]",
    ])
    .unwrap();
    assert_eq!((turn.text().as_str(), turn.raw_stop_reason()), ("hi", Some("stop")));
}

#[test]
fn an_error_in_the_stream_has_its_kind() {
    let kind = |json: &str| decode_turn(&[json]).unwrap_err().kind();
    assert_eq!(kind(r#"{"error":{"message":"m","code":429}}"#), ErrorKind::RateLimited);
    assert_eq!(kind(r#"{"error":"broken"}"#), ErrorKind::Server);
    assert_eq!(kind(r#"{"error":{"code":"context_length_exceeded"}}"#), ErrorKind::ContextWindow);
    assert_eq!(kind("not json"), ErrorKind::Protocol);
    let ended = choice_chunk(&json!({}), Some("error"));
    assert_eq!(decode_turn(&[&ended]).unwrap_err().kind(), ErrorKind::Server);
}

#[test]
fn unusual_envelopes_do_not_fail_the_turn() {
    let turn = decode_turn(&[
        r#"{"choices":null}"#,
        r#"{"prompt_filter_results":[{}]}"#,
        r#"{"id":7,"model":null,"choices":[{"index":1,"delta":{"content":"other"}}]}"#,
        r#"{"choices":[{"delta":null,"finish_reason":null}],"usage":"none","x_groq":{}}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"t"}]},{"type":"text","text":"a"}],"tool_calls":null,"reasoning":{}}}]}"#,
        r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"end"}],"usage":{"prompt_tokens":1}}"#,
    ])
    .unwrap();
    assert_eq!((turn.text().as_str(), turn.reasoning().as_str()), ("ab", "t"));
    assert_eq!(turn.stop_reason(), &StopReason::Stop);
    assert_eq!(turn.usage().input_tokens, 1);
}
