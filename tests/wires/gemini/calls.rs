//! Calls: ids, arguments in one piece and in many, and which calls may run.

use turnstream::item::StopReason;
use turnstream::{Error, ErrorKind};

use super::{
    as_strs, check_parts, decode_parts, decode_turn, finish_chunk, item_summaries, parts_chunk,
};

/// A part with a call, or a piece of one.
fn function_call_part(fields: &str) -> String {
    format!(r#"{{"functionCall":{{{fields}}}}}"#)
}

/// A piece of a text argument.
fn partial_arg_part(path: &str, text: &str, goes_on: bool) -> String {
    let goes_on = if goes_on { r#","willContinue":true"# } else { "" };
    let argument = format!(r#"{{"jsonPath":"{path}","stringValue":"{text}"{goes_on}}}"#);
    function_call_part(&format!(r#""partialArgs":[{argument}],"willContinue":true"#))
}

/// Checks the decoded calls of parts, each in a chunk of its own, and that they may run.
#[track_caller]
fn check_calls(all: &[String], expected: &[&str]) {
    let turn = check_parts(&as_strs(all), expected);
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
    assert_eq!(turn.raw_stop_reason(), Some("STOP"));
    assert!(turn.calls().veto().is_none());
}

#[track_caller]
fn check_error(all: &[String], end: &str) {
    let error: Error = decode_parts(&as_strs(all)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(error.message().ends_with(end), "{error}");
}

#[test]
fn a_stop_with_calls_has_the_tool_calls_reason() {
    check_calls(
        &[function_call_part(r#""id":"c1","name":"f","args":{"b":1,"a":[2]}"#)],
        &[r#"call c1 f {"b":1,"a":[2]} | {"id":"c1"}"#],
    );
}

#[test]
fn a_missing_or_empty_id_is_generated() {
    check_calls(
        &[
            function_call_part(r#""name":"f","args":{}"#),
            function_call_part(r#""id":"","name":"g","args":{}"#),
        ],
        &[r#"call call_1_1 f {} | {"wire_id":""}"#, r#"call call_1_2 g {} | {"wire_id":""}"#],
    );
}

#[test]
fn a_duplicate_id_is_another_call_unless_the_calls_are_equal() {
    let first = function_call_part(r#""id":"c","name":"f","args":{"a":1}"#);
    let other = function_call_part(r#""id":"c","name":"f","args":{"a":2}"#);
    check_calls(
        &[first.clone(), other],
        &[
            r#"call c f {"a":1} | {"id":"c"}"#,
            r#"call c_dup1 f {"a":2} | {"wire_id":"c","id":"c"}"#,
        ],
    );
    check_calls(&[first.clone(), first], &[r#"call c f {"a":1} | {"id":"c"}"#]);
}

#[test]
fn the_same_call_twice_without_ids_is_two_calls() {
    let call = function_call_part(r#""name":"f","args":{}"#);
    assert_eq!(decode_parts(&[&call, &call]).unwrap().tool_calls().count(), 2);
}

#[test]
fn arguments_that_are_omitted_or_null_are_an_empty_object() {
    let empty = [r#"call call_1_1 f {} | {"wire_id":""}"#];
    check_calls(&[function_call_part(r#""name":"f""#)], &empty);
    check_calls(&[function_call_part(r#""name":"f","args":null"#)], &empty);
    check_calls(&[function_call_part(r#""name":"f","args":{}"#)], &empty);
}

#[test]
fn several_calls_in_one_chunk_are_read_in_order() {
    let two = [
        function_call_part(r#""name":"f","args":{}"#),
        function_call_part(r#""name":"g","args":{}"#),
    ]
    .join(",");
    let turn = decode_parts(&[&two]).unwrap();
    let names: Vec<_> = turn.tool_calls().map(|call| call.name.clone()).collect();
    assert_eq!(names, ["f", "g"]);
}

#[test]
fn arguments_stay_as_they_are_written() {
    let args = r#"{ "z": 1e2, "n": 123456789012345678901, "s": "\u00e9\ud800" }"#;
    let turn =
        decode_parts(&[&function_call_part(&format!(r#""name":"f","args":{args}"#))]).unwrap();
    assert_eq!(turn.tool_calls().next().unwrap().arguments, args);
}

#[test]
fn only_the_first_of_several_calls_is_signed() {
    let signed = r#"{"functionCall":{"name":"f","args":{}},"thoughtSignature":"czE="}"#;
    check_calls(
        &[signed.to_owned(), function_call_part(r#""name":"g","args":{}"#)],
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
    check_calls(
        &[signed.to_owned(), function_call_part(r#""id":"c","name":"f","args":{}"#)],
        &kept,
    );
    let begun =
        r#"{"functionCall":{"id":"c","name":"f","willContinue":true},"thoughtSignature":"czE="}"#;
    check_calls(&[begun.to_owned(), function_call_part(r#""id":"c""#)], &kept);
    let ended = r#"{"functionCall":{"id":"c"},"thoughtSignature":"czE="}"#;
    check_calls(
        &[function_call_part(r#""id":"c","name":"f","willContinue":true"#), ended.to_owned()],
        &kept,
    );
}

#[test]
fn partial_arguments_are_merged_when_the_call_ends() {
    check_calls(
        &[
            function_call_part(r#""name":"f","willContinue":true"#),
            partial_arg_part("$.city", "Bos", true),
            partial_arg_part("$.city", "ton", true),
            partial_arg_part("$.city", "", false),
            function_call_part(
                r#""partialArgs":[{"jsonPath":"$.days","numberValue":3},{"jsonPath":"$.f","boolValue":true}],"willContinue":true"#,
            ),
            function_call_part(r#""willContinue":true"#),
            function_call_part(""),
        ],
        &[r#"call call_1_1 f {"city":"Boston","days":3,"f":true} | {"wire_id":""}"#],
    );
}

#[test]
fn the_last_partial_may_be_the_one_without_will_continue() {
    check_calls(
        &[
            function_call_part(r#""name":"f","willContinue":true"#),
            partial_arg_part("$.list[0].a", "x", false),
            function_call_part(r#""partialArgs":[{"jsonPath":"$.list[1].a","stringValue":"y"}]"#),
        ],
        &[r#"call call_1_1 f {"list":[{"a":"x"},{"a":"y"}]} | {"wire_id":""}"#],
    );
    check_calls(
        &[
            function_call_part(r#""name":"f","willContinue":true"#),
            function_call_part(
                r#""partialArgs":[{"jsonPath":"$.a","nullValue":"NULL_VALUE"}],"willContinue":false"#,
            ),
        ],
        &[r#"call call_1_1 f {"a":null} | {"wire_id":""}"#],
    );
}

#[test]
fn a_partial_call_without_arguments_has_none() {
    check_calls(
        &[function_call_part(r#""name":"f","willContinue":true"#), function_call_part("")],
        &[r#"call call_1_1 f {} | {"wire_id":""}"#],
    );
}

#[test]
fn partial_arguments_extend_whole_ones() {
    check_calls(
        &[
            function_call_part(r#""id":"c","name":"f","args":{"a":{"x":1}},"willContinue":true"#),
            partial_arg_part("$.a.y", "z", false),
            function_call_part(r#""id":"c""#),
        ],
        &[r#"call c f {"a":{"x":1,"y":"z"}} | {"id":"c"}"#],
    );
}

#[test]
fn partials_of_parallel_calls_are_distinguished_by_id() {
    let piece = |id: &str, text: &str, goes_on: &str| {
        function_call_part(&format!(
            r#""id":"{id}","partialArgs":[{{"jsonPath":"$.a","stringValue":"{text}"{goes_on}}}],"willContinue":true"#
        ))
    };
    let more = r#","willContinue":true"#;
    check_calls(
        &[
            function_call_part(r#""id":"c1","name":"f","willContinue":true"#),
            function_call_part(r#""id":"c2","name":"g","willContinue":true"#),
            piece("c1", "on", more),
            piece("c2", "tw", more),
            piece("c1", "e", ""),
            piece("c2", "o", ""),
            function_call_part(r#""id":"c2""#),
            function_call_part(r#""id":"c1""#),
        ],
        &[r#"call c1 f {"a":"one"} | {"id":"c1"}"#, r#"call c2 g {"a":"two"} | {"id":"c2"}"#],
    );
}

#[test]
fn partial_calls_may_follow_each_other() {
    check_calls(
        &[
            function_call_part(r#""name":"f","willContinue":true"#),
            partial_arg_part("$.a", "1", false),
            function_call_part(""),
            function_call_part(r#""name":"f","willContinue":true"#),
            partial_arg_part("$.a", "2", false),
            function_call_part(""),
            function_call_part(r#""name":"g","args":{}"#),
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
            function_call_part(r#""name":"f","willContinue":true"#),
            function_call_part(r#""name":"g","willContinue":true"#),
            partial_arg_part("$.a", "x", false),
        ],
        "may belong to several calls",
    );
}

#[test]
fn an_unfinished_partial_call_never_runs() {
    let begun = function_call_part(r#""name":"f","willContinue":true"#);
    check_error(std::slice::from_ref(&begun), "is unfinished");
    check_error(&[begun.clone(), partial_arg_part("$.a", "x", false)], "is unfinished");
    // The text of an argument was incomplete.
    check_error(
        &[begun, partial_arg_part("$.a", "x", true), function_call_part("")],
        "is unfinished",
    );
}

#[test]
fn a_call_truncated_by_the_output_limit_is_yielded_and_never_runs() {
    let begun = parts_chunk(&function_call_part(r#""name":"f","willContinue":true"#));
    let turn = decode_turn(&[
        &begun,
        &parts_chunk(&partial_arg_part("$.a", "x", true)),
        &finish_chunk("MAX_TOKENS"),
    ])
    .unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::MaxTokens);
    assert_eq!(turn.tool_calls().count(), 1);
    assert!(turn.calls().veto().is_some());
}

#[test]
fn an_end_without_an_open_call_is_ignored() {
    check_calls(
        &[function_call_part(r#""name":"f""#), function_call_part("")],
        &[r#"call call_1_1 f {} | {"wire_id":""}"#],
    );
}

#[test]
fn an_invalid_call_is_an_error() {
    check_error(&[function_call_part(r#""args":{}"#)], "has no name");
    check_error(&[function_call_part(r#""id":"c","args":{}"#)], "has no name");
    check_error(&[partial_arg_part("$.a", "x", false)], "has no name");
    for args in ["1", "[]", "\"{}\"", "true"] {
        check_error(
            &[function_call_part(&format!(r#""name":"f","args":{args}"#))],
            "are not an object",
        );
    }
    check_error(&[r#"{"functionCall":1}"#.to_owned()], "is malformed");
    check_error(&[r#"{"functionCall":["c","f",{}]}"#.to_owned()], "is malformed");
    check_error(&[function_call_part(r#""name":1"#)], "is malformed");
    check_error(&[function_call_part(r#""name":"f","partialArgs":1"#)], "is malformed");
    check_error(&[function_call_part(r#""name":"f","willContinue":"yes""#)], "is malformed");
    check_error(&[function_call_part(r#""name":"f","args":{},"args":{"a":1}"#)], "is malformed");
}

#[test]
fn lenient_decoding_never_applies_to_calls() {
    let half = r#"{"text":"\ud800","functionCall":{"name":"f","args":{"a":1e999}}}"#;
    let error = decode_parts(&[half]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    let chunk = r#"{"responseId":"\ud800","candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1e999}}}]}}]}"#;
    assert_eq!(
        decode_turn(&[chunk, &finish_chunk("STOP")]).unwrap_err().kind(),
        ErrorKind::Protocol
    );
}

#[test]
fn a_call_after_a_finish_reason_counts_once_another_one_follows() {
    let (text, late) = (
        parts_chunk(r#"{"text":"a"}"#),
        parts_chunk(&function_call_part(r#""name":"g","args":{"n":1}"#)),
    );
    let turn = decode_turn(&[&text, &finish_chunk("STOP"), &late, &finish_chunk("STOP")]).unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
    assert_eq!((turn.calls().len(), turn.calls().veto()), (1, None));
    let cut = decode_turn(&[&text, &finish_chunk("STOP"), &late]).unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::IncompleteTurn);
    // A piece of a call without a start is not a call.
    let lost = parts_chunk(&function_call_part(r#""partialArgs":[]"#));
    assert_eq!(
        decode_turn(&[&text, &finish_chunk("STOP"), &lost]).unwrap_err().kind(),
        ErrorKind::Protocol
    );
    let turn = decode_turn(&[
        &parts_chunk(&function_call_part(r#""name":"f""#)),
        &finish_chunk("STOP"),
        &parts_chunk(&function_call_part("")),
    ])
    .unwrap();
    assert_eq!(item_summaries(&turn).len(), 1);
}

#[test]
fn no_call_of_a_filtered_turn_may_run() {
    let turn = decode_turn(&[
        &parts_chunk(&function_call_part(r#""name":"f","args":{}"#)),
        &finish_chunk("SAFETY"),
    ])
    .unwrap();
    assert_eq!(turn.stop_reason(), &StopReason::ContentFilter);
    assert!(turn.calls().veto().is_some());
}
