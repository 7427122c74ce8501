//! Calls, in all the forms in which servers write them.

use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use serde_json::{Value, json};
use turnstream::event::ToolEvent;
use turnstream::item::ResultKind;
use turnstream::provider::openai_chat::Dialect;
use turnstream::tool::Tool;
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Error, ErrorKind, History, Item, Toolkit};

use super::{
    answer_chunks, decode_events, decode_in_dialect, decode_turn, encode_messages,
    provider_data_texts, tool_spec,
};
use turnstream_test_support::wires::sse_body;

fn decode_calls(deltas: &[Value]) -> Result<Turn, Error> {
    let deltas: Vec<_> = deltas.iter().map(|calls| json!({ "tool_calls": calls })).collect();
    decode_turn(&answer_chunks(&deltas, "tool_calls"))
}

#[track_caller]
fn check_calls(deltas: &[Value], expected: &[&str]) {
    check_turn(&decode_calls(deltas).unwrap(), expected);
}

#[track_caller]
fn check_turn(turn: &Turn, expected: &[&str]) {
    let calls = turn.tool_calls();
    let calls: Vec<_> =
        calls.map(|call| format!("{} {} {}", call.call_id, call.name, call.arguments)).collect();
    assert_eq!(calls, expected);
}

#[test]
fn an_id_may_be_in_the_first_or_every_delta_and_null_or_empty_ones_are_ignored() {
    let first = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{" } }]);
    for id in [json!(null), json!(""), json!("a")] {
        let next = json!([{ "index": 0, "id": id, "function": { "arguments": "}" } }]);
        check_calls(&[first.clone(), next], &["a f {}"]);
    }
    check_calls(&[first, json!([{ "index": 0, "function": { "arguments": "}" } }])], &["a f {}"]);
}

#[test]
fn a_name_may_be_whole_split_repeated_or_late() {
    let whole = "a get_weather {}";
    let at = |name: &str, arguments: &str| json!([{ "index": 0, "id": "a", "function": { "name": name, "arguments": arguments } }]);
    check_calls(&[at("get_weather", "{"), at("get_weather", "}")], &[whole]);
    check_calls(&[at("get_", ""), at("weather", "{}")], &[whole]);
    check_calls(&[at("", "{"), at("", "}"), at("get_weather", "")], &[whole]);
    assert_eq!(decode_calls(&[at("", "{}")]).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn calls_are_distinguished_by_index_then_id_then_order() {
    let call = |index: Value, id: &str, arguments: &str| json!([{ "index": index, "id": id, "function": { "name": "f", "arguments": arguments } }]);
    // Indices that start at one and have gaps.
    check_calls(&[call(json!(1), "a", "{}"), call(json!(4), "b", "{}")], &["a f {}", "b f {}"]);
    // The same index with another id.
    check_calls(&[call(json!(0), "a", "{}"), call(json!(0), "b", "{}")], &["a f {}", "b f {}"]);
    // No index at all.
    check_calls(
        &[call(json!(null), "a", "{}"), call(json!(null), "b", "{}")],
        &["a f {}", "b f {}"],
    );
    // The same call with another index is not a second call.
    check_calls(&[call(json!(0), "a", "{}"), call(json!(1), "a", "{}")], &["a f {}"]);
    // Empty ids are replaced by distinct generated ones.
    let made = &["call_1_1 f {}", "call_1_2 f {}"];
    check_calls(&[call(json!(0), "", "{}"), call(json!(1), "", "{}")], made);
    check_calls(&[call(json!(null), "", "{}"), call(json!(null), "", "{}")], made);
}

#[test]
fn parallel_calls_that_all_have_the_index_zero_are_distinguished_by_their_ids() {
    let start = |id: &str, arguments: &str| json!([{ "index": 0, "id": id, "function": { "name": "f", "arguments": arguments } }]);
    let more = |arguments: &str| json!([{ "index": 0, "function": { "arguments": arguments } }]);
    let deltas = [
        start("a", "{\"x\":"),
        more("1}"),
        start("b", "{\"x\":"),
        more("2}"),
        start("c", "{\"x\":3}"),
    ];
    check_calls(&deltas, &["a f {\"x\":1}", "b f {\"x\":2}", "c f {\"x\":3}"]);
}

#[test]
fn later_deltas_with_an_empty_name_and_no_id_belong_to_the_open_call() {
    let delta = |id: Value, name: &str, arguments: &str| json!([{ "index": 0, "id": id, "function": { "name": name, "arguments": arguments } }]);
    let deltas =
        [delta(json!("9"), "f", ""), delta(json!(null), "", "{\"x\""), delta(json!(""), "", ":1}")];
    check_calls(&deltas, &["9 f {\"x\":1}"]);
}

#[test]
fn deltas_of_parallel_calls_may_interleave() {
    let piece = |index: u64, arguments: &str| json!({ "index": index, "function": { "arguments": arguments } });
    let begin = json!([
        { "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"x" } },
        { "index": 1, "id": "b", "function": { "name": "g", "arguments": "{\"y" } },
    ]);
    let rest = json!([piece(1, "\":1}"), piece(0, "\":2}")]);
    check_calls(&[begin, rest], &["a f {\"x\":2}", "b g {\"y\":1}"]);
}

#[test]
fn a_call_may_be_whole_without_arguments_or_followed_by_an_empty_chunk() {
    let whole = json!([{ "index": 0, "id": "a", "type": "function", "function": { "name": "f", "arguments": "{\"x\":1}" } }]);
    check_calls(std::slice::from_ref(&whole), &["a f {\"x\":1}"]);
    let behind = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "" } }]);
    check_calls(&[whole, behind], &["a f {\"x\":1}"]);
    for arguments in [json!(null), json!(""), json!({})] {
        let call =
            json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": arguments } }]);
        let turn = decode_calls(&[call]).unwrap();
        assert_eq!(turn.tool_calls().next().unwrap().arguments_or_empty_object(), "{}");
    }
    let missing = decode_calls(&[json!([{ "index": 0, "id": "a", "function": { "name": "f" } }])]);
    assert_eq!(missing.unwrap().tool_calls().next().unwrap().arguments_or_empty_object(), "{}");
    let object =
        json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": { "x": [1] } } }]);
    check_calls(&[object], &["a f {\"x\":[1]}"]);
}

#[test]
fn a_call_without_arguments_keeps_its_position_among_parallel_calls() {
    let call = |index: Value, id: &str, arguments: Value| json!([{ "index": index, "id": id, "function": { "name": "f", "arguments": arguments } }]);
    for nothing in [json!(""), json!(null)] {
        for indices in [[json!(0), json!(1), json!(2), json!(3)], [(); 4].map(|()| json!(null))] {
            let [a, b, c, d] = indices;
            let deltas = [
                call(a, "a", nothing.clone()),
                call(b, "b", json!("{\"n\":1}")),
                call(c, "c", nothing.clone()),
                call(d, "d", json!("{\"n\":2}")),
            ];
            let turn = decode_calls(&deltas).unwrap();
            let ids: Vec<_> = turn.tool_calls().map(|call| call.call_id.as_str()).collect();
            assert_eq!(ids, ["a", "b", "c", "d"], "{nothing}");
            let arguments = turn.tool_calls().map(|call| call.parse_arguments::<Value>().unwrap());
            let expected = [json!({}), json!({ "n": 1 }), json!({}), json!({ "n": 2 })];
            assert_eq!(arguments.collect::<Vec<_>>(), expected, "{nothing}");
        }
    }
}

#[test]
fn the_index_determines_a_calls_position_however_late_it_starts() {
    let call = |index: u64, id: &str, arguments: &str| json!([{ "index": index, "id": id, "function": { "name": "f", "arguments": arguments } }]);
    let whole = ["a f {}", "b f {\"n\":1}"];
    check_calls(&[call(1, "b", "{\"n\":1}"), call(0, "a", "{}")], &whole);
    check_calls(
        &[call(1, "b", "{\"n\""), call(0, "a", "{"), call(1, "", ":1}"), call(0, "", "}")],
        &whole,
    );
    check_calls(
        &[call(2, "c", "{}"), call(1, "b", "{}"), call(0, "a", "{}")],
        &["a f {}", "b f {}", "c f {}"],
    );
    check_calls(&[call(7, "b", "{}"), call(3, "a", "{}")], &["a f {}", "b f {}"]);
}

#[test]
fn a_call_streams_once_all_calls_before_it_are_known() {
    let call = |index: u64, id: &str, arguments: &str| {
        let function = json!({ "name": "f", "arguments": arguments });
        json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] })
    };
    let deltas = [call(0, "a", ""), call(1, "b", "{\"n\""), call(1, "b", ":1}"), call(2, "c", "")];
    let events = decode_events(sse_body(&answer_chunks(&deltas, "tool_calls")), &Dialect::OPENAI);
    let said = events.into_iter().filter_map(|event| match event.unwrap() {
        TurnEvent::ToolCallStart { call_id, .. } => Some(format!("start {call_id}")),
        TurnEvent::ToolCallArgsDelta { call_id, delta } => Some(format!("{call_id} {delta}")),
        _ => None,
    });
    let said: Vec<_> = said.collect();
    assert_eq!(said, ["start a", "start b", "b {\"n\"", "b :1}", "start c"]);
}

#[test]
fn a_call_whose_kind_is_missing_or_unknown_is_a_call_and_a_custom_one_is_unsupported() {
    for kind in [json!(null), json!(""), json!("builtin_function")] {
        let call = json!([{ "index": 0, "id": "a", "type": kind, "function": { "name": "f", "arguments": "{}" } }]);
        check_calls(&[call], &["a f {}"]);
    }
    for custom in [
        json!([{ "index": 0, "id": "a", "type": "custom", "custom": { "name": "f", "input": "x" } }]),
        json!([{ "index": 0, "custom": { "input": "x" } }]),
    ] {
        assert_eq!(decode_calls(&[custom]).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn a_call_is_not_complete_because_its_arguments_parse() {
    let at = |arguments: &str| json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": arguments } }]);
    check_calls(&[at("{}"), at(" "), at("")], &["a f {} "]);
    // The call appears complete, but did not end.
    let cut_off = super::delta_chunk(&json!({ "tool_calls": at("{}") }));
    assert_eq!(decode_turn(&[cut_off]).unwrap_err().kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn an_invalid_or_ambiguous_call_delta_runs_no_call() {
    let begin = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "" } }]);
    let piece = json!({ "index": 0, "function": { "arguments": "{\"x\":1}" } });
    check_calls(&[begin.clone(), json!([piece.clone()])], &["a f {\"x\":1}"]);
    for none in
        [piece.clone(), json!("{\"x\":1}"), json!(1), json!(["{\"x\":1}"]), json!([[piece]])]
    {
        assert_eq!(decode_calls(&[begin.clone(), none]).unwrap_err().kind(), ErrorKind::Protocol);
    }
    // An empty value is neither a piece nor a call.
    for nothing in [json!(null), json!([]), json!([null]), json!([{}]), json!([{ "index": 3 }])] {
        check_calls(&[begin.clone(), nothing], &["a f "]);
    }
    let second = json!([{ "index": 1, "id": "b", "function": { "name": "g", "arguments": "" } }]);
    let whose = json!([{ "function": { "arguments": "{}" } }]);
    let one = decode_calls(&[begin.clone(), whose.clone()]);
    check_turn(&one.unwrap(), &["a f {}"]);
    assert_eq!(decode_calls(&[begin, second, whose]).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn an_invalid_function_call_does_not_run() {
    let begin = json!({ "function_call": { "name": "f", "arguments": "" } });
    let doubled = r#"{"choices":[{"delta":{"function_call":{"arguments":"{","arguments":"{}"}}}]}"#;
    let body =
        [super::delta_chunk(&begin), doubled.to_owned(), super::finish_chunk("function_call")];
    assert_eq!(decode_turn(&body).unwrap_err().kind(), ErrorKind::Protocol);
}

#[test]
fn text_may_precede_and_follow_calls() {
    let call = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{}" } }]);
    for reason in ["tool_calls", "stop"] {
        let deltas = [
            json!({ "content": "one " }),
            json!({ "tool_calls": call }),
            json!({ "content": "two" }),
        ];
        let turn = decode_turn(&answer_chunks(&deltas, reason)).unwrap();
        assert_eq!(turn.text(), "one two");
        check_turn(&turn, &["a f {}"]);
        assert!(turn.calls().veto().is_none(), "{reason}");
    }
}

#[test]
fn a_tool_calls_reason_without_calls_completes_a_turn() {
    let turn = decode_turn(&answer_chunks(&[json!({ "content": "hi" })], "tool_calls")).unwrap();
    assert!(turn.calls().is_empty());
    assert_eq!(turn.text(), "hi");
}

#[test]
fn a_thought_signature_is_kept_on_its_call_and_sent_back() {
    let google = json!({ "google": { "thought_signature": "c2ln" } });
    let calls = json!([
        { "index": 0, "id": "a", "extra_content": google, "function": { "name": "f", "arguments": "{}" } },
        { "index": 1, "id": "b", "function": { "name": "f", "arguments": "{}" } },
    ]);
    let later = json!([{ "index": 0, "function": { "arguments": "" } }]);
    let turn = decode_calls(&[calls, later]).unwrap();
    let kept = r#"{"extra_content":{"google":{"thought_signature":"c2ln"}}}"#.to_owned();
    assert_eq!(provider_data_texts(&turn), [Some(kept), None]);
    let back = encode_messages(turn.to_history_items(), &Dialect::OPENAI);
    assert_eq!(back[0]["tool_calls"][0]["extra_content"], google);
    assert!(back[0]["tool_calls"][1]["extra_content"].is_null());
    // Another vendor does not receive it.
    let other = encode_messages(turn.to_history_items(), &Dialect::GROQ);
    assert!(other[0]["tool_calls"][0]["extra_content"].is_null());
}

#[test]
fn a_call_with_a_generated_id_keeps_its_signature() {
    let delta = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"","extra_content":{"z":1,"a":{"y":"s","b":2}},"function":{"name":"f","arguments":"{}"}}]}}]}"#;
    let turn = decode_turn(&[delta.into(), super::finish_chunk("tool_calls")]).unwrap();
    let bytes = turnstream::provider::openai_chat::encode(
        &super::request_with_items(turn.to_history_items()),
        super::MODEL,
        &Dialect::OPENAI,
    );
    let text = String::from_utf8(bytes.unwrap()).unwrap();
    assert!(text.contains(r#""extra_content":{"z":1,"a":{"y":"s","b":2}}"#), "{text}");
}

#[test]
fn litellms_extra_call_fields_are_sent_back_unchanged() {
    let fields = json!({ "thought_signature": "s1" });
    let call = json!([{ "index": 0, "id": "call_1__thought__c2ln+/=", "provider_specific_fields": fields,
        "function": { "name": "f", "arguments": "{}", "provider_specific_fields": fields } }]);
    let deltas = [json!({ "tool_calls": call })];
    let turn = decode_in_dialect(&Dialect::LITELLM, &answer_chunks(&deltas, "tool_calls")).unwrap();
    check_turn(&turn, &["call_1 f {}"]);
    let mut items = turn.to_history_items();
    items.push(super::tool_result("call_1", "r"));
    let back = encode_messages(items.clone(), &Dialect::LITELLM);
    let call = &back[0]["tool_calls"][0];
    assert_eq!(call["id"], "call_1__thought__c2ln+/=");
    assert_eq!(back[1]["tool_call_id"], call["id"]);
    assert_eq!(call["provider_specific_fields"], fields);
    assert_eq!(call["function"]["provider_specific_fields"], fields);
    // For another vendor it is encoded as a call.
    let other = encode_messages(items, &Dialect::OPENAI);
    assert_eq!(other[0]["tool_calls"][0]["id"], "call_1");
    assert_eq!(other[1]["tool_call_id"], "call_1");
}

#[test]
fn the_legacy_function_call_field_is_decoded() {
    let piece = |name: Value, arguments: &str| json!({ "function_call": { "name": name, "arguments": arguments } });
    for name in [json!(null), json!("f")] {
        let deltas = [piece(json!("f"), ""), piece(name.clone(), "{\"x\""), piece(name, ":1}")];
        let turn = decode_turn(&answer_chunks(&deltas, "function_call")).unwrap();
        check_turn(&turn, &["call_1_1 f {\"x\":1}"]);
        assert!(turn.calls().veto().is_none());
    }
}

#[test]
fn calls_embedded_in_text_are_parsed_if_the_dialect_enables_it() {
    let text = "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\
                <tool_call>{\"name\":\"g\"}</tool_call><tool_call>{\"no\":1}</tool_call>";
    let pieces: Vec<_> = text
        .as_bytes()
        .chunks(5)
        .map(|piece| json!({ "content": String::from_utf8_lossy(piece) }))
        .collect();
    let dialect = Dialect { parses_text_calls: true, ..Dialect::MINIMAL };
    let turn = decode_in_dialect(&dialect, &answer_chunks(&pieces, "stop")).unwrap();
    check_turn(&turn, &["call_1_1 f {\"x\": 1}", "call_1_2 g {}"]);
    assert_eq!(turn.text(), "I look.\n<tool_call>{\"no\":1}</tool_call>");
    assert!(turn.calls().veto().is_none());
    let turn = decode_turn(&answer_chunks(&pieces, "stop")).unwrap();
    assert_eq!((turn.text().as_str(), turn.calls().len()), (text, 0));
    // Text that was held back comes before the call that follows it.
    let call = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{}" } }]);
    let mixed = [json!({ "content": "<tool" }), json!({ "tool_calls": call })];
    let turn = decode_in_dialect(&dialect, &answer_chunks(&mixed, "stop")).unwrap();
    assert_eq!(turn.items()[0].as_text(), Some("<tool"));
    assert!(turn.items()[1].as_tool_call().is_some());
    // A call that was sent whole receives no further pieces.
    let more = json!([{ "function": { "arguments": "{}" } }]);
    let whole = [
        json!({ "content": "<tool_call>{\"name\":\"f\"}</tool_call>" }),
        json!({ "tool_calls": more }),
    ];
    let error = decode_in_dialect(&dialect, &answer_chunks(&whole, "stop")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    // Without its closing tag it is text.
    let open = [json!({ "content": "<tool_call>{\"name\":\"f\"}" })];
    let turn = decode_in_dialect(&dialect, &answer_chunks(&open, "stop")).unwrap();
    assert_eq!((turn.text().as_str(), turn.calls().len()), ("<tool_call>{\"name\":\"f\"}", 0));
}

#[test]
fn truncated_arguments_with_a_normal_finish_reason_never_run() {
    let cut = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"path\":\"/" } }]);
    let turn = Arc::new(decode_calls(&[cut]).unwrap());
    check_turn(&turn, &["a f {\"path\":\"/"]);
    let tool = Tool::raw(tool_spec(), |_, _| async { "it ran" }).unwrap();
    let mut history = History::empty("h");
    history.push(Item::user("x"));
    let run = Toolkit::new([tool]).run(&history, &turn);
    let events: Vec<_> = block_on(run.collect());
    let kinds = events.iter().filter_map(|event| match event {
        ToolEvent::Output(result) => Some(result.kind),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [ResultKind::InvalidArguments]);
}
