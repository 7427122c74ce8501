//! Calls: ids, arguments in one piece and in many, and what may run.

use turnstream::item::StopReason;
use turnstream::{Error, ErrorKind};

use super::{check_parts, end, parts, read, read_parts, shown, slices};

/// A part with a call, or a piece of one.
fn call(fields: &str) -> String {
    format!(r#"{{"functionCall":{{{fields}}}}}"#)
}

/// A piece of a text argument.
fn piece(path: &str, text: &str, goes_on: bool) -> String {
    let goes_on = if goes_on { r#","willContinue":true"# } else { "" };
    let argument = format!(r#"{{"jsonPath":"{path}","stringValue":"{text}"{goes_on}}}"#);
    call(&format!(r#""partialArgs":[{argument}],"willContinue":true"#))
}

/// Checks what calls are read as, each part in a chunk of its own, and that they may run.
#[track_caller]
fn check(all: &[String], expected: &[&str]) {
    let turn = check_parts(&slices(all), expected);
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
    assert_eq!(turn.raw_stop_reason(), Some("STOP"));
    assert!(turn.calls().veto().is_none());
}

#[track_caller]
fn check_error(all: &[String], end: &str) {
    let error: Error = read_parts(&slices(all)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(error.message().ends_with(end), "{error}");
}

#[test]
fn a_stop_with_calls_has_the_tool_calls_reason() {
    check(
        &[call(r#""id":"c1","name":"f","args":{"b":1,"a":[2]}"#)],
        &[r#"call c1 f {"b":1,"a":[2]} | {"id":"c1"}"#],
    );
}

#[test]
fn a_missing_or_empty_id_is_generated() {
    check(
        &[call(r#""name":"f","args":{}"#), call(r#""id":"","name":"g","args":{}"#)],
        &[r#"call call_1_1 f {} | {"wire_id":""}"#, r#"call call_1_2 g {} | {"wire_id":""}"#],
    );
}

#[test]
fn a_duplicate_id_is_another_call_unless_the_calls_are_equal() {
    let first = call(r#""id":"c","name":"f","args":{"a":1}"#);
    let other = call(r#""id":"c","name":"f","args":{"a":2}"#);
    check(
        &[first.clone(), other],
        &[
            r#"call c f {"a":1} | {"id":"c"}"#,
            r#"call c_dup1 f {"a":2} | {"wire_id":"c","id":"c"}"#,
        ],
    );
    check(&[first.clone(), first], &[r#"call c f {"a":1} | {"id":"c"}"#]);
}

#[test]
fn the_same_call_twice_without_ids_is_two_calls() {
    let call = call(r#""name":"f","args":{}"#);
    assert_eq!(read_parts(&[&call, &call]).unwrap().tool_calls().count(), 2);
}

#[test]
fn arguments_that_are_omitted_or_null_are_an_empty_object() {
    let empty = [r#"call call_1_1 f {} | {"wire_id":""}"#];
    check(&[call(r#""name":"f""#)], &empty);
    check(&[call(r#""name":"f","args":null"#)], &empty);
    check(&[call(r#""name":"f","args":{}"#)], &empty);
}

#[test]
fn several_calls_in_one_chunk_are_read_in_order() {
    let two = [call(r#""name":"f","args":{}"#), call(r#""name":"g","args":{}"#)].join(",");
    let turn = read_parts(&[&two]).unwrap();
    let names: Vec<_> = turn.tool_calls().map(|call| call.name.clone()).collect();
    assert_eq!(names, ["f", "g"]);
}

#[test]
fn arguments_stay_as_they_are_written() {
    let args = r#"{ "z": 1e2, "n": 123456789012345678901, "s": "\u00e9\ud800" }"#;
    let turn = read_parts(&[&call(&format!(r#""name":"f","args":{args}"#))]).unwrap();
    assert_eq!(turn.tool_calls().next().unwrap().arguments, args);
}

#[test]
fn only_the_first_of_several_calls_is_signed() {
    let signed = r#"{"functionCall":{"name":"f","args":{}},"thoughtSignature":"czE="}"#;
    check(
        &[signed.to_owned(), call(r#""name":"g","args":{}"#)],
        &[
            r#"call call_1_1 f {} | {"wire_id":"","thoughtSignature":"czE="}"#,
            r#"call call_1_2 g {} | {"wire_id":""}"#,
        ],
    );
}

#[test]
fn a_repeated_call_without_a_signature_keeps_the_first_signature() {
    let signed = r#"{"functionCall":{"id":"c","name":"f","args":{}},"thoughtSignature":"czE="}"#;
    let kept = [r#"call c f {} | {"id":"c","thoughtSignature":"czE="}"#];
    check(&[signed.to_owned(), call(r#""id":"c","name":"f","args":{}"#)], &kept);
    let begun =
        r#"{"functionCall":{"id":"c","name":"f","willContinue":true},"thoughtSignature":"czE="}"#;
    check(&[begun.to_owned(), call(r#""id":"c""#)], &kept);
    let ended = r#"{"functionCall":{"id":"c"},"thoughtSignature":"czE="}"#;
    check(&[call(r#""id":"c","name":"f","willContinue":true"#), ended.to_owned()], &kept);
}

#[test]
fn partial_arguments_are_merged_when_the_call_ends() {
    check(
        &[
            call(r#""name":"f","willContinue":true"#),
            piece("$.city", "Bos", true),
            piece("$.city", "ton", true),
            piece("$.city", "", false),
            call(
                r#""partialArgs":[{"jsonPath":"$.days","numberValue":3},{"jsonPath":"$.f","boolValue":true}],"willContinue":true"#,
            ),
            call(r#""willContinue":true"#),
            call(""),
        ],
        &[r#"call call_1_1 f {"city":"Boston","days":3,"f":true} | {"wire_id":""}"#],
    );
}

#[test]
fn the_last_partial_may_be_the_one_without_will_continue() {
    check(
        &[
            call(r#""name":"f","willContinue":true"#),
            piece("$.list[0].a", "x", false),
            call(r#""partialArgs":[{"jsonPath":"$.list[1].a","stringValue":"y"}]"#),
        ],
        &[r#"call call_1_1 f {"list":[{"a":"x"},{"a":"y"}]} | {"wire_id":""}"#],
    );
    check(
        &[
            call(r#""name":"f","willContinue":true"#),
            call(
                r#""partialArgs":[{"jsonPath":"$.a","nullValue":"NULL_VALUE"}],"willContinue":false"#,
            ),
        ],
        &[r#"call call_1_1 f {"a":null} | {"wire_id":""}"#],
    );
}

#[test]
fn a_partial_call_without_arguments_has_none() {
    check(
        &[call(r#""name":"f","willContinue":true"#), call("")],
        &[r#"call call_1_1 f {} | {"wire_id":""}"#],
    );
}

#[test]
fn partial_arguments_extend_whole_ones() {
    check(
        &[
            call(r#""id":"c","name":"f","args":{"a":{"x":1}},"willContinue":true"#),
            piece("$.a.y", "z", false),
            call(r#""id":"c""#),
        ],
        &[r#"call c f {"a":{"x":1,"y":"z"}} | {"id":"c"}"#],
    );
}

#[test]
fn partials_of_parallel_calls_are_distinguished_by_id() {
    let piece = |id: &str, text: &str, goes_on: &str| {
        call(&format!(
            r#""id":"{id}","partialArgs":[{{"jsonPath":"$.a","stringValue":"{text}"{goes_on}}}],"willContinue":true"#
        ))
    };
    let more = r#","willContinue":true"#;
    check(
        &[
            call(r#""id":"c1","name":"f","willContinue":true"#),
            call(r#""id":"c2","name":"g","willContinue":true"#),
            piece("c1", "on", more),
            piece("c2", "tw", more),
            piece("c1", "e", ""),
            piece("c2", "o", ""),
            call(r#""id":"c2""#),
            call(r#""id":"c1""#),
        ],
        &[r#"call c1 f {"a":"one"} | {"id":"c1"}"#, r#"call c2 g {"a":"two"} | {"id":"c2"}"#],
    );
}

#[test]
fn partial_calls_may_follow_each_other() {
    check(
        &[
            call(r#""name":"f","willContinue":true"#),
            piece("$.a", "1", false),
            call(""),
            call(r#""name":"f","willContinue":true"#),
            piece("$.a", "2", false),
            call(""),
            call(r#""name":"g","args":{}"#),
        ],
        &[
            r#"call call_1_1 f {"a":"1"} | {"wire_id":""}"#,
            r#"call call_1_2 f {"a":"2"} | {"wire_id":""}"#,
            r#"call call_1_3 g {} | {"wire_id":""}"#,
        ],
    );
}

#[test]
fn an_ambiguous_partial_is_an_error() {
    check_error(
        &[
            call(r#""name":"f","willContinue":true"#),
            call(r#""name":"g","willContinue":true"#),
            piece("$.a", "x", false),
        ],
        "belongs to one of several",
    );
}

#[test]
fn an_unfinished_partial_call_never_runs() {
    let begun = call(r#""name":"f","willContinue":true"#);
    check_error(std::slice::from_ref(&begun), "was not written to its end");
    check_error(&[begun.clone(), piece("$.a", "x", false)], "was not written to its end");
    // The text of an argument was to go on.
    check_error(&[begun, piece("$.a", "x", true), call("")], "was not written to its end");
}

#[test]
fn a_call_truncated_by_the_output_limit_is_yielded_and_never_runs() {
    let begun = parts(&call(r#""name":"f","willContinue":true"#));
    let turn = read(&[&begun, &parts(&piece("$.a", "x", true)), &end("MAX_TOKENS")]).unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::MaxTokens);
    assert_eq!(turn.tool_calls().count(), 1);
    assert!(turn.calls().veto().is_some());
}

#[test]
fn an_end_without_an_open_call_is_ignored() {
    check(&[call(r#""name":"f""#), call("")], &[r#"call call_1_1 f {} | {"wire_id":""}"#]);
}

#[test]
fn an_invalid_call_is_an_error() {
    check_error(&[call(r#""args":{}"#)], "has no name");
    check_error(&[call(r#""id":"c","args":{}"#)], "has no name");
    check_error(&[piece("$.a", "x", false)], "has no name");
    for args in ["1", "[]", "\"{}\"", "true"] {
        check_error(&[call(&format!(r#""name":"f","args":{args}"#))], "are no object");
    }
    check_error(&[r#"{"functionCall":1}"#.to_owned()], "is not understood");
    check_error(&[r#"{"functionCall":["c","f",{}]}"#.to_owned()], "is not understood");
    check_error(&[call(r#""name":1"#)], "is not understood");
    check_error(&[call(r#""name":"f","partialArgs":1"#)], "is not understood");
    check_error(&[call(r#""name":"f","willContinue":"yes""#)], "is not understood");
    check_error(&[call(r#""name":"f","args":{},"args":{"a":1}"#)], "is not understood");
}

#[test]
fn lenient_decoding_never_applies_to_calls() {
    let half = r#"{"text":"\ud800","functionCall":{"name":"f","args":{"a":1e999}}}"#;
    let error = read_parts(&[half]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    let chunk = r#"{"responseId":"\ud800","candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1e999}}}]}}]}"#;
    assert_eq!(read(&[chunk, &end("STOP")]).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn a_call_after_a_finish_reason_counts_once_another_one_follows() {
    let (text, late) = (parts(r#"{"text":"a"}"#), parts(&call(r#""name":"g","args":{"n":1}"#)));
    let turn = read(&[&text, &end("STOP"), &late, &end("STOP")]).unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
    assert_eq!((turn.calls().len(), turn.calls().veto()), (1, None));
    let cut = read(&[&text, &end("STOP"), &late]).unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::IncompleteTurn);
    // A piece of a call without a beginning is none.
    let lost = parts(&call(r#""partialArgs":[]"#));
    assert_eq!(read(&[&text, &end("STOP"), &lost]).unwrap_err().kind(), ErrorKind::Protocol);
    let turn = read(&[&parts(&call(r#""name":"f""#)), &end("STOP"), &parts(&call(""))]).unwrap();
    assert_eq!(shown(&turn).len(), 1);
}

#[test]
fn no_call_of_a_filtered_turn_may_run() {
    let turn = read(&[&parts(&call(r#""name":"f","args":{}"#)), &end("SAFETY")]).unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::ContentFilter);
    assert!(turn.calls().veto().is_some());
}
