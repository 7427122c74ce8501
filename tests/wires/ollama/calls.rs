//! Calls, which are sent whole: their ids, their arguments, and unsupported forms.

use turnstream::item::StopReason;
use turnstream::turn::TurnEvent;
use turnstream::{ErrorKind, History, Item};

use super::{
    DONE_LINE, check_items, decode_ended_turn, decode_events_after, decode_turn, done_line,
    item_summaries, json_lines_body, text_line, tool_calls_line, tool_result,
};

/// A call with these fields in its `function`.
fn function_call_line(fields: &str) -> String {
    tool_calls_line(&format!(r#"{{"function":{{{fields}}}}}"#))
}

#[track_caller]
fn check_refused(lines: &[&str]) {
    assert_eq!(decode_ended_turn(lines).unwrap_err().kind(), ErrorKind::Protocol, "{lines:?}");
}

#[test]
fn a_whole_call_has_the_tool_calls_stop_reason() {
    let line = tool_calls_line(
        r#"{"id":"c1","function":{"index":0,"name":"f","arguments":{"b":1, "a":2}}}"#,
    );
    let turn =
        check_items(&[&text_line("So."), &line], &["text So.", r#"call c1 f {"b":1, "a":2}"#]);
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
    assert_eq!(turn.raw_stop_reason(), Some("stop"));
    assert!(turn.calls().veto().is_none());
}

#[test]
fn a_call_may_be_in_the_last_line() {
    let call = r#""tool_calls":[{"function":{"name":"f","arguments":{}}}],"content":"""#;
    let last = DONE_LINE.replace(r#""content":"""#, call);
    assert_eq!(item_summaries(&decode_turn(&[&last]).unwrap()), ["call call_1_1 f {}"]);
}

#[test]
fn calls_truncated_by_the_output_limit_never_run() {
    let turn =
        decode_turn(&[&function_call_line(r#""name":"f","arguments":{}"#), &done_line("length")])
            .unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::MaxTokens);
    assert!(turn.calls().veto().is_some());
}

#[test]
fn calls_without_ids_get_deterministic_ids_unique_in_the_history() {
    let line = tool_calls_line(
        r#"{"function":{"name":"f","arguments":{"a":1}}},{"id":"","function":{"name":"f","arguments":{"a":1}}}"#,
    );
    let expected = [r#"call call_1_1 f {"a":1}"#, r#"call call_1_2 f {"a":1}"#];
    check_items(&[&line], &expected);
    check_items(&[&line], &expected);
    let taken = vec![
        Item::user("go"),
        Item::tool_call("call_1_1", "f", "{}"),
        tool_result("call_1_1", "1"),
        Item::tool_call("c1", "f", "{}"),
        tool_result("c1", "1"),
    ];
    let given = tool_calls_line(r#"{"id":"c1","function":{"name":"f","arguments":{}}}"#);
    let body = json_lines_body(&[&line, &given, DONE_LINE]);
    let events = decode_events_after(&History::from_items("h", taken), [body.into()]);
    let Some(Ok(TurnEvent::TurnComplete { turn })) = events.last() else { panic!("{events:?}") };
    let ids: Vec<_> = turn.tool_calls().map(|call| call.call_id.as_str()).collect();
    assert_eq!(ids, ["call_1_1_dup1", "call_1_2", "c1_dup1"]);
}

#[test]
fn a_call_repeated_with_the_same_id_is_one_call() {
    let line = tool_calls_line(r#"{"id":"c1","function":{"name":"f","arguments":{"a":1}}}"#);
    check_items(&[&line, &line], &[r#"call c1 f {"a":1}"#]);
    let other = line.replace(":1}", ":2}");
    check_items(&[&line, &other], &[r#"call c1 f {"a":1}"#, r#"call c1_dup1 f {"a":2}"#]);
}

#[test]
fn calls_of_several_lines_are_in_their_order() {
    let lines = ["a", "b", "c"]
        .map(|name| function_call_line(&format!(r#""name":"{name}","arguments":{{}}"#)));
    check_items(
        &[&lines[0], &text_line("x"), &lines[1], &lines[2]],
        &["call call_1_1 a {}", "text x", "call call_1_2 b {}", "call call_1_3 c {}"],
    );
}

#[test]
fn missing_arguments_are_empty() {
    for arguments in ["", r#","arguments":null"#, r#","arguments":{}"#] {
        check_items(
            &[&function_call_line(&format!(r#""name":"f"{arguments}"#))],
            &["call call_1_1 f {}"],
        );
    }
}

#[test]
fn arguments_in_a_string_are_parsed_as_an_object() {
    let line = function_call_line(r#""name":"f","arguments":"{\"a\":1}""#);
    check_items(&[&line], &[r#"call call_1_1 f {"a":1}"#]);
    // Arguments that are not JSON are the model's own error, which is returned to it.
    check_items(&[&function_call_line(r#""name":"f","arguments":"{a""#)], &["call call_1_1 f {a"]);
}

#[test]
fn arguments_in_a_string_may_be_split() {
    let first = function_call_line(r#""index":0,"name":"f","arguments":"{\"a\"""#);
    let more = function_call_line(r#""index":0,"arguments":":1}""#);
    check_items(&[&first, &more], &[r#"call call_1_1 f {"a":1}"#]);
    let second = function_call_line(r#""index":1,"name":"g","arguments":"{}""#);
    check_items(&[&first, &more, &second], &[r#"call call_1_1 f {"a":1}"#, "call call_1_2 g {}"]);
    // A piece of another call, of a complete call, or of none.
    check_refused(&[&first, &function_call_line(r#""index":1,"arguments":":1}""#)]);
    check_refused(&[&first, &second, &more]);
    check_refused(&[&function_call_line(r#""name":"f","arguments":{}"#), &more]);
    check_refused(&[&first, &function_call_line(r#""index":0,"arguments":{}"#)]);
    check_refused(&[&more]);
}

#[test]
fn an_invalid_call_is_an_error_and_not_skipped() {
    let good = function_call_line(r#""name":"f","arguments":{}"#);
    for odd in [
        function_call_line(r#""arguments":{}"#),
        function_call_line(r#""name":"","arguments":{}"#),
        function_call_line(r#""name":5,"arguments":{}"#),
        function_call_line(r#""name":"f","arguments":[]"#),
        function_call_line(r#""name":"f","arguments":5"#),
        function_call_line(r#""name":"f","arguments":true"#),
        tool_calls_line("5"),
        tool_calls_line("[]"),
        tool_calls_line("{}"),
        tool_calls_line(r#"{"function":"f"}"#),
        r#"{"message":{"tool_calls":{"function":{"name":"f"}}}}"#.to_owned(),
        r#"{"message":{"tool_calls":"f"}}"#.to_owned(),
        // Malformed JSON is not repaired if the line has a call.
        tool_calls_line(r#"{"id":"a","id":"b","function":{"name":"f"}}"#),
        r#"{"message":{"content":"\ud800","tool_calls":[{"function":{"name":"f"}}]}}"#.to_owned(),
    ] {
        check_refused(&[&odd]);
        check_refused(&[&good, &odd]);
    }
    check_items(&[&tool_calls_line("null"), &good], &["call call_1_1 f {}"]);
}

#[test]
fn a_call_after_the_end_is_an_error_and_does_not_run() {
    let late = function_call_line(r#""name":"f","arguments":{}"#);
    for lines in [[&text_line("a"), DONE_LINE, &late], [&late, DONE_LINE, &late]] {
        assert_eq!(decode_turn(&lines).unwrap_err().kind(), ErrorKind::Protocol);
    }
    assert!(decode_turn(&[&text_line("a"), DONE_LINE, r#"{"message":{"tool_calls":[]}}"#]).is_ok());
}

#[test]
fn no_call_runs_before_the_end() {
    let line = function_call_line(r#""name":"f","arguments":{}"#);
    assert_eq!(decode_turn(&[&line]).unwrap_err().kind(), ErrorKind::IncompleteTurn);
}
