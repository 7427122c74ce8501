//! No call runs unless its arguments are known in full, on any wire, whatever a broken server
//! sends.

use serde_json::Value;
use turnstream::ErrorKind;
use turnstream::provider::{Decode, anthropic, gemini, openai_chat, openai_responses};

use crate::anthropic::unusual_responses::decode_one_block;
use crate::openai_chat::unusual_responses::{
    FINISH_TOOL_CALLS_CHUNK, as_strs, call_chunk, decode_chat,
};
use turnstream_test_support::wires::{decode_sse_turn, runnable_arguments, sse_body};

/// The calls that may run, or the kind of the error.
fn runnable_calls(
    body: String,
    decoder: impl Decode + Send + 'static,
) -> Result<Vec<String>, ErrorKind> {
    let turn = decode_sse_turn(body, decoder).map_err(|error| error.kind())?;
    let calls = turn.calls();
    let runs = calls.iter().filter(|_| calls.veto().is_none());
    Ok(runs.map(|call| format!("{} {}", call.name, call.arguments_or_empty_object())).collect())
}

#[track_caller]
fn check_frames(wire: &str, data: &[&str], expected: Result<&[&str], ErrorKind>) {
    check_body(wire, sse_body(data), expected);
}

#[track_caller]
fn check_body(wire: &str, body: String, expected: Result<&[&str], ErrorKind>) {
    let strict = &openai_chat::Dialect::MINIMAL;
    let runs = match wire {
        "anthropic" => runnable_calls(body, anthropic::Decoder::new("m")),
        "chat" => runnable_calls(body, openai_chat::Decoder::new("m", strict)),
        "responses" => runnable_calls(body, openai_responses::Decoder::new("m")),
        _ => runnable_calls(body, gemini::Decoder::new("m")),
    };
    assert_eq!(runs, expected.map(|calls| calls.iter().map(ToString::to_string).collect()));
}

const PROTOCOL_ERROR: Result<&[&str], ErrorKind> = Err(ErrorKind::Protocol);
const INCOMPLETE_TURN_ERROR: Result<&[&str], ErrorKind> = Err(ErrorKind::IncompleteTurn);

const MESSAGE_START: &str = r#"{"type":"message_start","message":{"id":"m1"}}"#;
const FIRST_TOOL_USE_START: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#;
const SECOND_TOOL_USE_START: &str = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"b","name":"g","input":{}}}"#;
const FIRST_BLOCK_STOP: &str = r#"{"type":"content_block_stop","index":0}"#;
const SECOND_BLOCK_STOP: &str = r#"{"type":"content_block_stop","index":1}"#;
const MESSAGE_DELTA_TOOL_USE: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
const MESSAGE_STOP: &str = r#"{"type":"message_stop"}"#;

#[test]
fn anthropic_an_invalid_input_delta_runs_no_call() {
    let piece = |delta: &str| {
        let delta = format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
        check_frames(
            "anthropic",
            &[
                MESSAGE_START,
                FIRST_TOOL_USE_START,
                &delta,
                FIRST_BLOCK_STOP,
                MESSAGE_DELTA_TOOL_USE,
                MESSAGE_STOP,
            ],
            PROTOCOL_ERROR,
        );
    };
    piece(r#""{\"x\":1}""#);
    piece("null");
    piece("[]");
    piece(r#"{"type":"input_json_delta","partial_json":{"x":1}}"#);
    // Even if the delta claims to be of another kind.
    let odd = r#"{"type":"content_block_delta","index":0,"delta":{"type":"odd","partial_json":"{\"x\":1}"}}"#;
    check_frames(
        "anthropic",
        &[
            MESSAGE_START,
            FIRST_TOOL_USE_START,
            odd,
            FIRST_BLOCK_STOP,
            MESSAGE_DELTA_TOOL_USE,
            MESSAGE_STOP,
        ],
        Ok(&["f {\"x\":1}"]),
    );
}

#[test]
fn anthropic_an_ambiguous_input_delta_runs_no_call() {
    let piece =
        r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    check_frames(
        "anthropic",
        &[
            MESSAGE_START,
            FIRST_TOOL_USE_START,
            piece,
            FIRST_BLOCK_STOP,
            MESSAGE_DELTA_TOOL_USE,
            MESSAGE_STOP,
        ],
        Ok(&["f {}"]),
    );
    check_frames(
        "anthropic",
        &[
            MESSAGE_START,
            FIRST_TOOL_USE_START,
            SECOND_TOOL_USE_START,
            piece,
            FIRST_BLOCK_STOP,
            SECOND_BLOCK_STOP,
            MESSAGE_DELTA_TOOL_USE,
            MESSAGE_STOP,
        ],
        PROTOCOL_ERROR,
    );
    let end = r#"{"type":"content_block_stop"}"#;
    check_frames(
        "anthropic",
        &[
            MESSAGE_START,
            FIRST_TOOL_USE_START,
            SECOND_TOOL_USE_START,
            end,
            FIRST_BLOCK_STOP,
            MESSAGE_DELTA_TOOL_USE,
            MESSAGE_STOP,
        ],
        PROTOCOL_ERROR,
    );
}

#[test]
fn anthropic_a_call_after_the_stop_reason_does_not_run() {
    check_frames(
        "anthropic",
        &[
            MESSAGE_START,
            MESSAGE_DELTA_TOOL_USE,
            FIRST_TOOL_USE_START,
            FIRST_BLOCK_STOP,
            MESSAGE_STOP,
        ],
        PROTOCOL_ERROR,
    );
    let piece = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    check_frames(
        "anthropic",
        &[
            MESSAGE_START,
            FIRST_TOOL_USE_START,
            MESSAGE_DELTA_TOOL_USE,
            piece,
            FIRST_BLOCK_STOP,
            MESSAGE_STOP,
        ],
        PROTOCOL_ERROR,
    );
    // Only its end may be late.
    check_frames(
        "anthropic",
        &[
            MESSAGE_START,
            FIRST_TOOL_USE_START,
            piece,
            MESSAGE_DELTA_TOOL_USE,
            FIRST_BLOCK_STOP,
            MESSAGE_STOP,
        ],
        Ok(&["f {}"]),
    );
    // A message that starts has no stop reason yet, whatever its fields say.
    let start = r#"{"type":"message_start","message":{"id":"m1","stop_reason":"tool_use"}}"#;
    check_frames(
        "anthropic",
        &[start, FIRST_TOOL_USE_START, FIRST_BLOCK_STOP],
        INCOMPLETE_TURN_ERROR,
    );
    check_frames(
        "anthropic",
        &[start, FIRST_TOOL_USE_START, FIRST_BLOCK_STOP, MESSAGE_DELTA_TOOL_USE, MESSAGE_STOP],
        Ok(&["f {}"]),
    );
}

#[test]
fn anthropic_a_message_without_an_id_does_not_continue_another() {
    let start = r#"{"type":"message_start","message":{}}"#;
    check_frames(
        "anthropic",
        &[
            start,
            FIRST_TOOL_USE_START,
            FIRST_BLOCK_STOP,
            start,
            SECOND_TOOL_USE_START,
            SECOND_BLOCK_STOP,
            MESSAGE_DELTA_TOOL_USE,
            MESSAGE_STOP,
        ],
        PROTOCOL_ERROR,
    );
    check_frames(
        "anthropic",
        &[
            start,
            start,
            FIRST_TOOL_USE_START,
            FIRST_BLOCK_STOP,
            MESSAGE_DELTA_TOOL_USE,
            MESSAGE_STOP,
        ],
        Ok(&["f {}"]),
    );
}

#[test]
fn gemini_an_invalid_partial_call_does_not_run() {
    let parts = |parts: &str| format!(r#"{{"candidates":[{{"content":{{"parts":{parts}}}}}]}}"#);
    let begin = parts(r#"[{"functionCall":{"name":"f","willContinue":true}}]"#);
    let piece = r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}"#;
    let end = parts(r#"[{"functionCall":{}}]"#);
    let stop = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    let all =
        |piece: &str, expected| check_frames("gemini", &[&begin, piece, &end, stop], expected);
    all(&parts(&format!("[{piece}]")), Ok(&["f {\"a\":\"x\"}"]));
    all(&parts(piece), PROTOCOL_ERROR);
    all(&parts(&format!("[[{piece}]]")), PROTOCOL_ERROR);
    all(&parts("\"x\""), PROTOCOL_ERROR);
    all(&parts("[null]"), Ok(&["f {}"]));
    all(&parts("null"), Ok(&["f {}"]));
}

#[test]
fn gemini_finish_reasons_of_gateways_for_calls_are_accepted() {
    let call = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}"#;
    for (word, expected) in
        [("FUNCTION_CALL", &["f {}"][..]), ("TOOL_CALLS", &["f {}"]), ("X", &[])]
    {
        let end = format!(r#"{{"candidates":[{{"finishReason":"{word}"}}]}}"#);
        check_frames("gemini", &[call, &end], Ok(expected));
    }
}

fn output_item_added(index: &str, call_id: &str, name: &str) -> String {
    format!(
        r#"{{"type":"response.output_item.added",{index}"item":{{"type":"function_call","id":"fc_{call_id}","call_id":"{call_id}","name":"{name}","arguments":""}}}}"#
    )
}

const RESPONSE_COMPLETED: &str =
    r#"{"type":"response.completed","response":{"status":"completed"}}"#;

#[test]
fn responses_an_empty_delta_runs_no_call_unless_the_full_arguments_follow() {
    let begin = output_item_added(r#""output_index":0,"#, "a", "f");
    let lost = r#"{"type":"response.function_call_arguments.delta","output_index":0}"#;
    let bare = r#"{"type":"response.function_call_arguments.done","output_index":0}"#;
    let whole = r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"x\":1}"}"#;
    check_frames("responses", &[&begin, lost, bare, RESPONSE_COMPLETED], PROTOCOL_ERROR);
    check_frames("responses", &[&begin, lost, whole, RESPONSE_COMPLETED], Ok(&["f {\"x\":1}"]));
}

#[test]
fn responses_an_ambiguous_delta_runs_no_call_unless_the_full_arguments_follow() {
    let (one, two) = (output_item_added("", "a", "f"), output_item_added("", "b", "g"));
    let piece = r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#;
    let end = |id: &str, arguments: &str| {
        format!(
            r#"{{"type":"response.function_call_arguments.done","item_id":"fc_{id}"{arguments}}}"#
        )
    };
    let told = r#","arguments":"{}""#;
    check_frames("responses", &[&one, piece, &end("a", ""), RESPONSE_COMPLETED], Ok(&["f {}"]));
    check_frames(
        "responses",
        &[&one, &two, piece, &end("a", ""), &end("b", ""), RESPONSE_COMPLETED],
        PROTOCOL_ERROR,
    );
    let ends = [&end("a", told), &end("b", told)];
    check_frames(
        "responses",
        &[&one, &two, piece, ends[0], ends[1], RESPONSE_COMPLETED],
        Ok(&["f {}", "g {}"]),
    );
    check_frames(
        "responses",
        &[&one, &two, &end("c", told), &end("a", ""), RESPONSE_COMPLETED],
        PROTOCOL_ERROR,
    );
}

#[test]
fn responses_an_end_event_with_another_name_does_not_end_a_call() {
    let begin = output_item_added("", "", "f");
    let other = r#"{"type":"response.output_item.done","item":{"type":"function_call","name":"g","arguments":"{}"}}"#;
    check_frames("responses", &[&begin, other, RESPONSE_COMPLETED], PROTOCOL_ERROR);
}

#[test]
fn responses_a_response_marked_incomplete_anywhere_runs_no_call() {
    let begin = output_item_added(r#""output_index":0,"#, "a", "f");
    let whole =
        r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#;
    for (word, status) in [("incomplete", "completed"), ("completed", "incomplete")] {
        let end = format!(r#"{{"type":"response.{word}","response":{{"status":"{status}"}}}}"#);
        check_frames("responses", &[&begin, whole, &end], Ok(&[]));
    }
    let failed = r#"{"type":"response.failed","response":{"status":"completed"}}"#;
    assert!(
        runnable_calls(sse_body(&[&begin, whole, failed]), openai_responses::Decoder::new("m"))
            .is_err()
    );
    let done = r#"{"type":"response.done","response":{"status":"completed"}}"#;
    check_frames("responses", &[&begin, whole, done], Ok(&["f {}"]));
}

#[test]
fn responses_a_second_response_does_not_continue_the_first() {
    let created = |id: &str| format!(r#"{{"type":"response.created","response":{{"id":"{id}"}}}}"#);
    let begin = output_item_added(r#""output_index":0,"#, "a", "f");
    let whole =
        r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#;
    let all = |second: &str, expected| {
        check_frames(
            "responses",
            &[&created("r1"), &begin, whole, second, RESPONSE_COMPLETED],
            expected,
        );
    };
    all(&created("r2"), PROTOCOL_ERROR);
    all(&created("r1"), Ok(&["f {}"]));
}

#[test]
fn a_frame_truncated_by_the_end_of_the_body_is_an_incomplete_turn() {
    let chat = r#"{"choices":[{"delta":{"content":"hi"}}]}"#;
    let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    for (wire, first) in [
        ("anthropic", MESSAGE_START),
        ("chat", chat),
        ("responses", RESPONSE_COMPLETED),
        ("gemini", "{}"),
    ] {
        check_body(wire, format!("data: {}", &first[..first.len() - 1]), INCOMPLETE_TURN_ERROR);
        // In the middle of a body it violates the protocol.
        check_body(wire, format!("data: {}\n\n", &first[..first.len() - 1]), PROTOCOL_ERROR);
    }
    check_body("chat", sse_body(&[chat]) + "data: {\"choi", INCOMPLETE_TURN_ERROR);
    // A truncation after the end has no effect.
    check_body("chat", sse_body(&[chat, finish]) + "data: {\"usa", Ok(&[]));
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
