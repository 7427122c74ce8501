//! Calls, which come whole: their ids, their arguments, and those that are not understood.

use turnstream::item::StopReason;
use turnstream::turn::TurnEvent;
use turnstream::{ErrorKind, History, Item};

use super::{END, answer, body, calls, check, end, events_after, read, read_ended, shown, text};

/// A call with these fields in its `function`.
fn function(fields: &str) -> String {
    calls(&format!(r#"{{"function":{{{fields}}}}}"#))
}

#[track_caller]
fn refused(lines: &[&str]) {
    assert_eq!(read_ended(lines).unwrap_err().kind(), ErrorKind::Protocol, "{lines:?}");
}

#[test]
fn a_whole_call_has_the_tool_calls_stop_reason() {
    let line = calls(r#"{"id":"c1","function":{"index":0,"name":"f","arguments":{"b":1, "a":2}}}"#);
    let turn = check(&[&text("So."), &line], &["text So.", r#"call c1 f {"b":1, "a":2}"#]);
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
    assert_eq!(turn.raw_stop_reason(), Some("stop"));
    assert!(turn.calls().veto().is_none());
}

#[test]
fn a_call_may_be_in_the_last_line() {
    let call = r#""tool_calls":[{"function":{"name":"f","arguments":{}}}],"content":"""#;
    let last = END.replace(r#""content":"""#, call);
    assert_eq!(shown(&read(&[&last]).unwrap()), ["call call_1_1 f {}"]);
}

#[test]
fn calls_that_the_output_limit_cut_short_may_not_run() {
    let turn = read(&[&function(r#""name":"f","arguments":{}"#), &end("length")]).unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::MaxTokens);
    assert!(turn.calls().veto().is_some());
}

#[test]
fn calls_without_ids_get_deterministic_ids_unique_in_the_history() {
    let line = calls(
        r#"{"function":{"name":"f","arguments":{"a":1}}},{"id":"","function":{"name":"f","arguments":{"a":1}}}"#,
    );
    let expected = [r#"call call_1_1 f {"a":1}"#, r#"call call_1_2 f {"a":1}"#];
    check(&[&line], &expected);
    check(&[&line], &expected);
    let taken = vec![
        Item::user("go"),
        Item::tool_call("call_1_1", "f", "{}"),
        answer("call_1_1", "1"),
        Item::tool_call("c1", "f", "{}"),
        answer("c1", "1"),
    ];
    let given = calls(r#"{"id":"c1","function":{"name":"f","arguments":{}}}"#);
    let body = body(&[&line, &given, END]);
    let events = events_after(&History::from_items("h", taken), [body.into()]);
    let Some(Ok(TurnEvent::TurnComplete { turn })) = events.last() else { panic!("{events:?}") };
    let ids: Vec<_> = turn.tool_calls().map(|call| call.call_id.as_str()).collect();
    assert_eq!(ids, ["call_1_1_dup1", "call_1_2", "c1_dup1"]);
}

#[test]
fn a_call_that_is_repeated_under_its_id_is_one_call() {
    let line = calls(r#"{"id":"c1","function":{"name":"f","arguments":{"a":1}}}"#);
    check(&[&line, &line], &[r#"call c1 f {"a":1}"#]);
    let other = line.replace(":1}", ":2}");
    check(&[&line, &other], &[r#"call c1 f {"a":1}"#, r#"call c1_dup1 f {"a":2}"#]);
}

#[test]
fn calls_of_several_lines_are_in_their_order() {
    let lines =
        ["a", "b", "c"].map(|name| function(&format!(r#""name":"{name}","arguments":{{}}"#)));
    check(
        &[&lines[0], &text("x"), &lines[1], &lines[2]],
        &["call call_1_1 a {}", "text x", "call call_1_2 b {}", "call call_1_3 c {}"],
    );
}

#[test]
fn missing_arguments_are_empty() {
    for arguments in ["", r#","arguments":null"#, r#","arguments":{}"#] {
        check(&[&function(&format!(r#""name":"f"{arguments}"#))], &["call call_1_1 f {}"]);
    }
}

#[test]
fn arguments_in_a_string_are_parsed_as_an_object() {
    let line = function(r#""name":"f","arguments":"{\"a\":1}""#);
    check(&[&line], &[r#"call call_1_1 f {"a":1}"#]);
    // Arguments that are not JSON are the model's own mistake, which it is told of.
    check(&[&function(r#""name":"f","arguments":"{a""#)], &["call call_1_1 f {a"]);
}

#[test]
fn arguments_in_a_string_may_be_split() {
    let first = function(r#""index":0,"name":"f","arguments":"{\"a\"""#);
    let more = function(r#""index":0,"arguments":":1}""#);
    check(&[&first, &more], &[r#"call call_1_1 f {"a":1}"#]);
    let second = function(r#""index":1,"name":"g","arguments":"{}""#);
    check(&[&first, &more, &second], &[r#"call call_1_1 f {"a":1}"#, "call call_1_2 g {}"]);
    // A piece of another call, of one that is whole, or of none.
    refused(&[&first, &function(r#""index":1,"arguments":":1}""#)]);
    refused(&[&first, &second, &more]);
    refused(&[&function(r#""name":"f","arguments":{}"#), &more]);
    refused(&[&first, &function(r#""index":0,"arguments":{}"#)]);
    refused(&[&more]);
}

#[test]
fn an_invalid_call_is_an_error_and_not_skipped() {
    let good = function(r#""name":"f","arguments":{}"#);
    for odd in [
        function(r#""arguments":{}"#),
        function(r#""name":"","arguments":{}"#),
        function(r#""name":5,"arguments":{}"#),
        function(r#""name":"f","arguments":[]"#),
        function(r#""name":"f","arguments":5"#),
        function(r#""name":"f","arguments":true"#),
        calls("5"),
        calls("[]"),
        calls("{}"),
        calls(r#"{"function":"f"}"#),
        r#"{"message":{"tool_calls":{"function":{"name":"f"}}}}"#.to_owned(),
        r#"{"message":{"tool_calls":"f"}}"#.to_owned(),
        // What a strict reader trips over is not mended where a call is.
        calls(r#"{"id":"a","id":"b","function":{"name":"f"}}"#),
        r#"{"message":{"content":"\ud800","tool_calls":[{"function":{"name":"f"}}]}}"#.to_owned(),
    ] {
        refused(&[&odd]);
        refused(&[&good, &odd]);
    }
    check(&[&calls("null"), &good], &["call call_1_1 f {}"]);
}

#[test]
fn a_call_after_the_end_is_an_error_and_does_not_run() {
    let late = function(r#""name":"f","arguments":{}"#);
    for lines in [[&text("a"), END, &late], [&late, END, &late]] {
        assert_eq!(read(&lines).unwrap_err().kind(), ErrorKind::Protocol);
    }
    assert!(read(&[&text("a"), END, r#"{"message":{"tool_calls":[]}}"#]).is_ok());
}

#[test]
fn no_call_runs_before_the_end() {
    let line = function(r#""name":"f","arguments":{}"#);
    assert_eq!(read(&[&line]).unwrap_err().kind(), ErrorKind::IncompleteTurn);
}
