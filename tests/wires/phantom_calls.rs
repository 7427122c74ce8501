//! No call runs whose arguments are not known whole, on any wire: what a broken server may send.

use turnstream::ErrorKind;
use turnstream::provider::{Decode, anthropic, gemini, openai_chat, openai_responses};

use crate::support::wires::{frames, turn_of};

/// What runs, or the kind of the error.
fn runs(body: String, decoder: impl Decode + Send + 'static) -> Result<Vec<String>, ErrorKind> {
    let turn = turn_of(body, decoder).map_err(|error| error.kind())?;
    let calls = turn.calls();
    let runs = calls.iter().filter(|_| calls.veto().is_none());
    Ok(runs.map(|call| format!("{} {}", call.name, call.arguments_or_empty_object())).collect())
}

#[track_caller]
fn check(wire: &str, data: &[&str], expected: Result<&[&str], ErrorKind>) {
    check_body(wire, frames(data), expected);
}

#[track_caller]
fn check_body(wire: &str, body: String, expected: Result<&[&str], ErrorKind>) {
    let strict = &openai_chat::Dialect::MINIMAL;
    let runs = match wire {
        "anthropic" => runs(body, anthropic::Decoder::new("m")),
        "chat" => runs(body, openai_chat::Decoder::new("m", strict)),
        "responses" => runs(body, openai_responses::Decoder::new("m")),
        _ => runs(body, gemini::Decoder::new("m")),
    };
    assert_eq!(runs, expected.map(|calls| calls.iter().map(ToString::to_string).collect()));
}

const PROTOCOL: Result<&[&str], ErrorKind> = Err(ErrorKind::Protocol);
const INCOMPLETE: Result<&[&str], ErrorKind> = Err(ErrorKind::IncompleteTurn);

const START: &str = r#"{"type":"message_start","message":{"id":"m1"}}"#;
const USE: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}"#;
const USE_1: &str = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"b","name":"g","input":{}}}"#;
const END: &str = r#"{"type":"content_block_stop","index":0}"#;
const END_1: &str = r#"{"type":"content_block_stop","index":1}"#;
const TOOL_USE: &str = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

#[test]
fn anthropic_an_invalid_input_delta_runs_no_call() {
    let piece = |delta: &str| {
        let delta = format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
        check("anthropic", &[START, USE, &delta, END, TOOL_USE, STOP], PROTOCOL);
    };
    piece(r#""{\"x\":1}""#);
    piece("null");
    piece("[]");
    piece(r#"{"type":"input_json_delta","partial_json":{"x":1}}"#);
    // Of whatever kind it says to be.
    let odd = r#"{"type":"content_block_delta","index":0,"delta":{"type":"odd","partial_json":"{\"x\":1}"}}"#;
    check("anthropic", &[START, USE, odd, END, TOOL_USE, STOP], Ok(&["f {\"x\":1}"]));
}

#[test]
fn anthropic_an_ambiguous_input_delta_runs_no_call() {
    let piece =
        r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    check("anthropic", &[START, USE, piece, END, TOOL_USE, STOP], Ok(&["f {}"]));
    check("anthropic", &[START, USE, USE_1, piece, END, END_1, TOOL_USE, STOP], PROTOCOL);
    let end = r#"{"type":"content_block_stop"}"#;
    check("anthropic", &[START, USE, USE_1, end, END, TOOL_USE, STOP], PROTOCOL);
}

#[test]
fn anthropic_a_call_after_the_stop_reason_does_not_run() {
    check("anthropic", &[START, TOOL_USE, USE, END, STOP], PROTOCOL);
    let piece = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    check("anthropic", &[START, USE, TOOL_USE, piece, END, STOP], PROTOCOL);
    // Its end alone may be late.
    check("anthropic", &[START, USE, piece, TOOL_USE, END, STOP], Ok(&["f {}"]));
    // A message that begins has no end yet, whatever it says.
    let start = r#"{"type":"message_start","message":{"id":"m1","stop_reason":"tool_use"}}"#;
    check("anthropic", &[start, USE, END], INCOMPLETE);
    check("anthropic", &[start, USE, END, TOOL_USE, STOP], Ok(&["f {}"]));
}

#[test]
fn anthropic_a_message_without_an_id_does_not_continue_another() {
    let start = r#"{"type":"message_start","message":{}}"#;
    check("anthropic", &[start, USE, END, start, USE_1, END_1, TOOL_USE, STOP], PROTOCOL);
    check("anthropic", &[start, start, USE, END, TOOL_USE, STOP], Ok(&["f {}"]));
}

#[test]
fn gemini_an_invalid_partial_call_does_not_run() {
    let parts = |parts: &str| format!(r#"{{"candidates":[{{"content":{{"parts":{parts}}}}}]}}"#);
    let begin = parts(r#"[{"functionCall":{"name":"f","willContinue":true}}]"#);
    let piece = r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x"}],"willContinue":true}}"#;
    let end = parts(r#"[{"functionCall":{}}]"#);
    let stop = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    let all = |piece: &str, expected| check("gemini", &[&begin, piece, &end, stop], expected);
    all(&parts(&format!("[{piece}]")), Ok(&["f {\"a\":\"x\"}"]));
    all(&parts(piece), PROTOCOL);
    all(&parts(&format!("[[{piece}]]")), PROTOCOL);
    all(&parts("\"x\""), PROTOCOL);
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
        check("gemini", &[call, &end], Ok(expected));
    }
}

fn added(index: &str, call_id: &str, name: &str) -> String {
    format!(
        r#"{{"type":"response.output_item.added",{index}"item":{{"type":"function_call","id":"fc_{call_id}","call_id":"{call_id}","name":"{name}","arguments":""}}}}"#
    )
}

const COMPLETED: &str = r#"{"type":"response.completed","response":{"status":"completed"}}"#;

#[test]
fn responses_an_empty_delta_runs_no_call_unless_the_full_arguments_follow() {
    let begin = added(r#""output_index":0,"#, "a", "f");
    let lost = r#"{"type":"response.function_call_arguments.delta","output_index":0}"#;
    let bare = r#"{"type":"response.function_call_arguments.done","output_index":0}"#;
    let whole = r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"x\":1}"}"#;
    check("responses", &[&begin, lost, bare, COMPLETED], PROTOCOL);
    check("responses", &[&begin, lost, whole, COMPLETED], Ok(&["f {\"x\":1}"]));
}

#[test]
fn responses_an_ambiguous_delta_runs_no_call_unless_the_full_arguments_follow() {
    let (one, two) = (added("", "a", "f"), added("", "b", "g"));
    let piece = r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#;
    let end = |id: &str, arguments: &str| {
        format!(
            r#"{{"type":"response.function_call_arguments.done","item_id":"fc_{id}"{arguments}}}"#
        )
    };
    let told = r#","arguments":"{}""#;
    check("responses", &[&one, piece, &end("a", ""), COMPLETED], Ok(&["f {}"]));
    check("responses", &[&one, &two, piece, &end("a", ""), &end("b", ""), COMPLETED], PROTOCOL);
    let ends = [&end("a", told), &end("b", told)];
    check("responses", &[&one, &two, piece, ends[0], ends[1], COMPLETED], Ok(&["f {}", "g {}"]));
    check("responses", &[&one, &two, &end("c", told), &end("a", ""), COMPLETED], PROTOCOL);
}

#[test]
fn responses_an_end_event_with_another_name_does_not_end_a_call() {
    let begin = added("", "", "f");
    let other = r#"{"type":"response.output_item.done","item":{"type":"function_call","name":"g","arguments":"{}"}}"#;
    check("responses", &[&begin, other, COMPLETED], PROTOCOL);
}

#[test]
fn responses_a_response_marked_incomplete_anywhere_runs_no_call() {
    let begin = added(r#""output_index":0,"#, "a", "f");
    let whole =
        r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#;
    for (word, status) in [("incomplete", "completed"), ("completed", "incomplete")] {
        let end = format!(r#"{{"type":"response.{word}","response":{{"status":"{status}"}}}}"#);
        check("responses", &[&begin, whole, &end], Ok(&[]));
    }
    let failed = r#"{"type":"response.failed","response":{"status":"completed"}}"#;
    assert!(runs(frames(&[&begin, whole, failed]), openai_responses::Decoder::new("m")).is_err());
    let done = r#"{"type":"response.done","response":{"status":"completed"}}"#;
    check("responses", &[&begin, whole, done], Ok(&["f {}"]));
}

#[test]
fn responses_a_second_response_does_not_continue_the_first() {
    let created = |id: &str| format!(r#"{{"type":"response.created","response":{{"id":"{id}"}}}}"#);
    let begin = added(r#""output_index":0,"#, "a", "f");
    let whole =
        r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#;
    let all = |second: &str, expected| {
        check("responses", &[&created("r1"), &begin, whole, second, COMPLETED], expected);
    };
    all(&created("r2"), PROTOCOL);
    all(&created("r1"), Ok(&["f {}"]));
}

#[test]
fn a_frame_truncated_by_the_end_of_the_body_is_an_incomplete_turn() {
    let chat = r#"{"choices":[{"delta":{"content":"hi"}}]}"#;
    let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    for (wire, first) in
        [("anthropic", START), ("chat", chat), ("responses", COMPLETED), ("gemini", "{}")]
    {
        check_body(wire, format!("data: {}", &first[..first.len() - 1]), INCOMPLETE);
        // In the middle of a body it is a breach of the protocol.
        check_body(wire, format!("data: {}\n\n", &first[..first.len() - 1]), PROTOCOL);
    }
    check_body("chat", frames(&[chat]) + "data: {\"choi", INCOMPLETE);
    // What is cut off behind the end costs nothing.
    check_body("chat", frames(&[chat, finish]) + "data: {\"usa", Ok(&[]));
}
