//! Function calls.

use super::*;
use turnstream::ErrorKind;
use turnstream::item::ToolCall;
use turnstream::request::ToolSpec;
use turnstream::turn::StopReason;

const WHOLE_ARGUMENTS: &str = r#"{"path":"/x"}"#;

fn call_added(index: u64, call_id: &str) -> Value {
    let mut item = function_call_item(&format!("fc_{call_id}"), call_id, "");
    item["status"] = "in_progress".into();
    output_item_added(index, item)
}

#[track_caller]
fn check_calls(list: &[Value], expected: &[&str]) {
    let list = [list, &[response_completed(json!([]))]].concat();
    let turn = decode_turn(&list).unwrap();
    assert_eq!(item_summaries(&turn), expected);
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
    assert_eq!(turn.calls().veto(), None);
}

/// The events of calls in short form.
fn call_event_summaries(list: &[Value]) -> Vec<String> {
    let short = |event: &Result<TurnEvent, Error>| match event {
        Ok(TurnEvent::ToolCallStart { call_id, name }) => Some(format!("start {call_id} {name}")),
        Ok(TurnEvent::ToolCallArgsDelta { call_id, delta }) => {
            Some(format!("args {call_id} {}", &**delta))
        }
        Ok(TurnEvent::ToolCallEnd { call_id }) => Some(format!("end {call_id}")),
        Ok(TurnEvent::Retracted { .. }) => Some("retracted".to_owned()),
        _ => None,
    };
    decode_events(list).iter().filter_map(short).collect()
}

#[test]
fn a_call_in_the_documented_shape_streams_its_arguments() {
    let list = [
        call_added(0, "call_1"),
        arguments_delta(0, r#"{"path":"#),
        arguments_delta(0, r#""/x"}"#),
        arguments_done(0, WHOLE_ARGUMENTS),
        output_item_done(0, function_call_item("fc_1", "call_1", WHOLE_ARGUMENTS)),
        response_completed(json!([function_call_item("fc_1", "call_1", WHOLE_ARGUMENTS)])),
    ];
    assert_eq!(
        call_event_summaries(&list),
        ["start call_1 f", r#"args call_1 {"path":"#, r#"args call_1 "/x"}"#, "end call_1"]
    );
    let turn = decode_turn(&list).unwrap();
    assert_eq!(item_summaries(&turn), [r#"call_1 f {"path":"/x"}"#]);
    let kept = json!({ "item": { "type": "function_call", "id": "fc_1", "status": "completed" } });
    assert_eq!(provider_data_value(&turn.items()[0]), kept);
}

#[test]
fn arguments_may_be_present_in_only_one_of_several_events() {
    let whole = function_call_item("fc_1", "c", WHOLE_ARGUMENTS);
    let unfinished = function_call_item("fc_1", "c", "");
    // Only at the end of the arguments, at the end of the item, at its start, in pieces.
    check_calls(
        &[call_added(0, "c"), arguments_done(0, WHOLE_ARGUMENTS)],
        &[r#"c f {"path":"/x"}"#],
    );
    check_calls(
        &[call_added(0, "c"), output_item_done(0, whole.clone())],
        &[r#"c f {"path":"/x"}"#],
    );
    check_calls(&[output_item_done(0, whole.clone())], &[r#"c f {"path":"/x"}"#]);
    check_calls(
        &[output_item_added(0, whole), output_item_done(0, unfinished.clone())],
        &[r#"c f {"path":"/x"}"#],
    );
    check_calls(
        &[call_added(0, "c"), arguments_delta(0, WHOLE_ARGUMENTS), arguments_done(0, Value::Null)],
        &[r#"c f {"path":"/x"}"#],
    );
    check_calls(
        &[call_added(0, "c"), arguments_delta(0, WHOLE_ARGUMENTS), output_item_done(0, unfinished)],
        &[r#"c f {"path":"/x"}"#],
    );
}

#[test]
fn deltas_take_precedence_over_the_arguments_of_the_added_event() {
    check_calls(
        &[
            output_item_added(0, function_call_item("fc_1", "c", "{}")),
            arguments_delta(0, r#"{"a":1}"#),
            output_item_done(0, function_call_item("fc_1", "c", "")),
        ],
        &[r#"c f {"a":1}"#],
    );
}

#[test]
fn a_call_without_arguments_runs_with_an_empty_object() {
    let none = json!({ "type": "function_call", "call_id": "c", "name": "f" });
    let turn = decode_turn(&[output_item_done(0, none), response_completed(json!([]))]).unwrap();
    assert_eq!(turn.tool_calls().next().unwrap().arguments_or_empty_object(), "{}");
    assert_eq!(turn.calls().veto(), None);
}

#[test]
fn arguments_may_be_a_json_object() {
    let mut item = function_call_item("fc_1", "c", "");
    item["arguments"] = json!({ "a": 1 });
    check_calls(&[call_added(0, "c"), output_item_done(0, item)], &[r#"c f {"a":1}"#]);
}

#[test]
fn arguments_added_by_the_done_event_are_yielded() {
    let list = [
        call_added(0, "c"),
        arguments_delta(0, r#"{"path":"#),
        arguments_done(0, WHOLE_ARGUMENTS),
        response_completed(json!([])),
    ];
    assert_eq!(
        call_event_summaries(&list),
        ["start c f", r#"args c {"path":"#, r#"args c "/x"}"#, "end c"]
    );
}

#[test]
fn a_call_contradicted_by_its_done_event_is_retracted_and_replaced() {
    let list = [
        text_delta(0, "Let me see."),
        call_added(1, "c"),
        arguments_delta(1, r#"{"path":"/y"}"#),
        arguments_done(1, WHOLE_ARGUMENTS),
        output_item_done(1, function_call_item("fc_1", "c", WHOLE_ARGUMENTS)),
        response_completed(json!([])),
    ];
    assert_eq!(
        call_event_summaries(&list),
        [
            "start c f",
            r#"args c {"path":"/y"}"#,
            "retracted",
            "start c f",
            r#"args c {"path":"/x"}"#,
            "end c"
        ]
    );
    let turn = decode_turn(&list).unwrap();
    assert_eq!(item_summaries(&turn), ["text Let me see.", r#"c f {"path":"/x"}"#]);
    assert_eq!(provider_data_value(&turn.items()[1])["item"]["id"], "fc_1");
    assert_eq!(runnable_calls(Ok(turn)), [r#"f {"path":"/x"}"#]);
}

#[test]
fn a_retracted_call_does_not_run_if_the_stream_breaks_off() {
    let list = [
        call_added(0, "c"),
        arguments_delta(0, r#"{"path":"/y"}"#),
        output_item_done(0, function_call_item("fc_1", "c", WHOLE_ARGUMENTS)),
    ];
    assert_eq!(decode_turn(&list).unwrap_err().kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn item_done_overrides_arguments_done_and_the_terminal_event_overrides_both() {
    let end = |arguments: &str| output_item_done(0, function_call_item("fc_1", "c", arguments));
    check_calls(
        &[call_added(0, "c"), arguments_done(0, "{}"), end(WHOLE_ARGUMENTS)],
        &[r#"c f {"path":"/x"}"#],
    );
    let list = [
        call_added(0, "c"),
        end("{}"),
        response_completed(json!([function_call_item("fc_1", "c", WHOLE_ARGUMENTS)])),
    ];
    assert_eq!(runnable_calls(decode_turn(&list)), [r#"f {"path":"/x"}"#]);
}

#[test]
fn the_terminal_event_overrides_arguments_that_changed_after_their_item_was_done() {
    let item = function_call_item("fc_1", "c", WHOLE_ARGUMENTS);
    let list = [
        call_added(0, "c"),
        output_item_done(0, item.clone()),
        arguments_done(0, "{}"),
        response_completed(json!([item])),
    ];
    assert_eq!(runnable_calls(decode_turn(&list)), [r#"f {"path":"/x"}"#]);
}

#[test]
fn items_that_the_terminal_event_repeats_in_any_order_are_applied_once() {
    let item = |n: u64| function_call_item(&format!("fc_{n}"), &format!("c{n}"), "{}");
    let calls = [0, 1, 2].map(|n| [call_added(n, &format!("c{n}")), output_item_done(n, item(n))]);
    let changed = function_call_item("fc_1", "c1", WHOLE_ARGUMENTS);
    for (output, second) in [
        (json!([item(0), item(1), item(2)]), "f {}"),
        (json!([item(2), item(0), item(1)]), "f {}"),
        (json!([item(1), item(2)]), "f {}"),
        (json!([item(0), changed, item(2)]), r#"f {"path":"/x"}"#),
    ] {
        let end = [response_completed(output.clone())];
        let list: Vec<Value> = calls.as_flattened().iter().chain(&end).cloned().collect();
        assert_eq!(runnable_calls(decode_turn(&list)), ["f {}", second, "f {}"], "{output}");
    }
}

#[test]
fn equal_arguments_in_another_notation_are_not_a_contradiction() {
    let list = [
        call_added(0, "c"),
        arguments_delta(0, r#"{"path":"/x"}"#),
        arguments_done(0, r#"{ "path": "\/x" }"#),
        response_completed(json!([])),
    ];
    assert_eq!(call_event_summaries(&list), ["start c f", r#"args c {"path":"/x"}"#, "end c"]);
}

#[test]
fn deltas_after_the_end_of_a_call_are_ignored() {
    let list = [
        call_added(0, "c"),
        arguments_delta(0, WHOLE_ARGUMENTS),
        arguments_done(0, WHOLE_ARGUMENTS),
        arguments_delta(0, "x"),
        arguments_delta(0, 5),
        output_item_done(0, function_call_item("fc_1", "c", WHOLE_ARGUMENTS)),
        response_completed(json!([])),
    ];
    assert_eq!(call_event_summaries(&list), ["start c f", r#"args c {"path":"/x"}"#, "end c"]);
}

#[test]
fn interleaved_calls_are_kept_separate() {
    check_calls(
        &[
            call_added(0, "a"),
            call_added(1, "b"),
            arguments_delta(0, r#"{"x""#),
            arguments_delta(1, r#"{"y""#),
            text_delta(2, "and"),
            arguments_delta(0, ":1}"),
            arguments_delta(1, ":2}"),
            arguments_done(1, r#"{"y":2}"#),
            arguments_done(0, r#"{"x":1}"#),
        ],
        &[r#"a f {"x":1}"#, r#"b f {"y":2}"#, "text and"],
    );
}

#[test]
fn the_call_id_differs_from_the_item_id_which_may_be_missing() {
    let mut item = function_call_item("", "call_1", WHOLE_ARGUMENTS);
    item.as_object_mut().unwrap().shift_remove("id");
    check_calls(
        &[output_item_added(0, item.clone()), output_item_done(0, item)],
        &[r#"call_1 f {"path":"/x"}"#],
    );
}

#[test]
fn a_call_without_an_id_gets_a_generated_one() {
    let mut item = function_call_item("fc_1", "", WHOLE_ARGUMENTS);
    item.as_object_mut().unwrap().shift_remove("call_id");
    let begun = output_item_added(0, item.clone());
    check_calls(
        &[begun, arguments_delta(0, WHOLE_ARGUMENTS), output_item_done(0, item)],
        &[r#"call_1_1 f {"path":"/x"}"#],
    );
}

#[test]
fn a_call_without_its_added_event_is_yielded_at_its_end() {
    check_calls(
        &[
            arguments_delta(0, r#"{"path":"#),
            arguments_delta(0, r#""/x"}"#),
            output_item_done(0, function_call_item("fc_1", "c", WHOLE_ARGUMENTS)),
        ],
        &[r#"c f {"path":"/x"}"#],
    );
}

#[test]
fn calls_with_one_output_index_are_distinguished_by_id() {
    check_calls(
        &[
            output_item_done(0, function_call_item("fc_1", "a", "{}")),
            output_item_done(0, function_call_item("fc_2", "b", "{}")),
        ],
        &["a f {}", "b f {}"],
    );
}

#[test]
fn a_duplicate_id_means_two_calls_only_if_they_differ() {
    check_calls(
        &[
            output_item_done(0, function_call_item("fc_1", "a", "{}")),
            output_item_done(1, function_call_item("fc_2", "a", r#"{"x":1}"#)),
        ],
        &["a f {}", r#"a_dup1 f {"x":1}"#],
    );
    check_calls(
        &[
            output_item_done(0, function_call_item("fc_1", "a", "{}")),
            output_item_done(1, function_call_item("fc_2", "a", "{}")),
        ],
        &["a f {}"],
    );
}

#[test]
fn a_call_without_its_done_event_never_runs() {
    #[track_caller]
    fn check(list: &[Value]) {
        let error = decode_turn(list).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    }
    let streamed = [call_added(0, "c"), arguments_delta(0, WHOLE_ARGUMENTS)];
    // The text is valid JSON, but was not reported as complete.
    check(&[&streamed[..], &[response_completed(json!([]))]].concat());
    let mut cut_off = function_call_item("fc_1", "c", WHOLE_ARGUMENTS);
    cut_off["status"] = "incomplete".into();
    check(
        &[&streamed[..], &[output_item_done(0, cut_off.clone()), response_completed(json!([]))]]
            .concat(),
    );
    check(&[&streamed[..], &[response_completed(json!([cut_off]))]].concat());
    // The terminal event has another call.
    check(
        &[&streamed[..], &[response_completed(json!([function_call_item("fc_2", "d", "{}")]))]]
            .concat(),
    );
}

#[test]
fn a_call_in_the_terminal_event_is_complete() {
    let streamed = [call_added(0, "c"), arguments_delta(0, r#"{"path":"#)];
    let end = response_completed(json!([function_call_item("fc_1", "c", WHOLE_ARGUMENTS)]));
    assert_eq!(
        runnable_calls(decode_turn(&[&streamed[..], &[end]].concat())),
        [r#"f {"path":"/x"}"#]
    );
}

#[test]
fn a_call_with_ambiguous_arguments_never_runs() {
    #[track_caller]
    fn check(list: &[Value]) {
        let runs = runnable_calls(decode_turn(&[list, &[response_completed(json!([]))]].concat()));
        assert!(runs.iter().all(|run| run == r#"f {"path":"/x"}"#), "{runs:?}");
    }
    let mut listed = function_call_item("fc_1", "c", "");
    listed["arguments"] = json!([{ "path": "/y" }]);
    check(&[call_added(0, "c"), output_item_done(0, listed.clone())]);
    check(&[call_added(0, "c"), arguments_delta(0, "{}"), output_item_done(0, listed)]);
    check(&[call_added(0, "c"), arguments_done(0, 5)]);
    check(&[
        call_added(0, "c"),
        arguments_delta(0, "{"),
        arguments_delta(0, 5),
        arguments_delta(0, "}"),
        arguments_done(0, Value::Null),
    ]);
    // A later event completes a missing piece.
    check(&[call_added(0, "c"), arguments_delta(0, 5), arguments_done(0, WHOLE_ARGUMENTS)]);
    // After the end.
    check(&[call_added(0, "c"), arguments_done(0, WHOLE_ARGUMENTS), arguments_delta(0, "x")]);
}

#[test]
fn a_call_without_a_name_is_a_protocol_error() {
    for end in [
        arguments_done(0, "{}"),
        output_item_done(0, json!({ "type": "function_call", "call_id": "c" })),
    ] {
        let error = decode_turn(&[end, response_completed(json!([]))]).unwrap_err();
        assert_eq!(error.message(), "a tool call has no name");
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}

#[test]
fn the_arguments_done_event_may_carry_the_name() {
    let mut end = arguments_done(0, "{}");
    end["name"] = "g".into();
    let begun = output_item_added(0, json!({ "type": "function_call", "call_id": "c" }));
    check_calls(&[begun, end], &["c g {}"]);
}

fn parallel_wrapper_call(name: &str, uses: &Value) -> Value {
    let mut item = function_call_item("fc_1", "c", &json!({ "tool_uses": uses }).to_string());
    item["name"] = name.into();
    item
}

#[track_caller]
fn check_wrapper(declared: &[&str], name: &str, uses: &Value, expected: &[&str]) {
    let item = parallel_wrapper_call(name, uses);
    let list = [
        output_item_added(0, parallel_wrapper_call(name, &json!([]))),
        arguments_delta(0, item["arguments"].clone()),
        output_item_done(0, item),
        response_completed(json!([])),
    ];
    let specs = declared.iter().map(|name| ToolSpec::new(*name, "", json!({})));
    let decoder = Decoder::new(MODEL).with_tools(specs.collect::<Vec<_>>());
    let turn = fold_turn(decode_events_with(decoder, sse_body(&list))).unwrap();
    let short = |call: &ToolCall| format!("{} {} {}", call.call_id, call.name, call.arguments);
    let calls: Vec<String> = turn.tool_calls().map(short).collect();
    assert_eq!(calls, expected);
}

#[test]
fn a_parallel_call_wrapper_is_expanded_to_its_calls() {
    let uses = || {
        json!([{ "recipient_name": "functions.f", "parameters": { "x": 1 } },
            { "recipient_name": "g", "parameters": {} }])
    };
    for name in ["parallel", "multi_tool_use.parallel"] {
        check_wrapper(&["f", "g"], name, &uses(), &[r#"c_0 f {"x":1}"#, "c_1 g {}"]);
    }
    let whole = r#"{"tool_uses":[{"recipient_name":"functions.f","parameters":{"x":1}},{"recipient_name":"g","parameters":{}}]}"#;
    let whole = format!("c parallel {whole}");
    // One of the inner tools is not declared; the wrapper itself is a declared tool; the tools are
    // unknown.
    check_wrapper(&["f"], "parallel", &uses(), &[&whole]);
    check_wrapper(&["f", "g", "parallel"], "parallel", &uses(), &[&whole]);
    check_wrapper(&[], "parallel", &uses(), &[&whole]);
}

#[test]
fn a_malformed_parallel_call_wrapper_is_a_call_of_an_unknown_tool() {
    for uses in [json!([]), json!([{ "recipient_name": "f", "parameters": "x" }]), json!([5])] {
        let expected = format!(r#"c parallel {{"tool_uses":{uses}}}"#);
        check_wrapper(&["f"], "parallel", &uses, &[&expected]);
    }
}

#[test]
fn a_truncated_parallel_call_wrapper_is_not_expanded() {
    let list = [
        output_item_added(0, parallel_wrapper_call("parallel", &json!([]))),
        arguments_delta(0, r#"{"tool_uses":[{"recipient_name":"f","parameters":{}}]}"#),
        json!({ "type": "response.incomplete", "response": { "status": "incomplete",
            "incomplete_details": { "reason": "max_output_tokens" } } }),
    ];
    let decoder = Decoder::new(MODEL).with_tools([ToolSpec::new("f", "", json!({}))]);
    let turn = fold_turn(decode_events_with(decoder, sse_body(&list))).unwrap();
    assert_eq!(turn.tool_calls().next().unwrap().name, "parallel");
    assert!(turn.calls().veto().is_some());
}
