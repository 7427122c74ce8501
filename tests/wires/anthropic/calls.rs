//! Tool calls: where their arguments come from, and which of them may run.

use turnstream::item::ResultKind;

use super::fixture::*;

const TOOL_USE_BLOCK: &str = r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#;

#[track_caller]
fn check_arguments(block: &str, deltas: &[&str], arguments: &str) {
    let deltas: Vec<_> = deltas.iter().map(|piece| input_json_delta(0, piece)).collect();
    let turn = decode_one_block(block, &deltas, "tool_use");
    let call = turn.tool_calls().next().unwrap();
    assert_eq!((&*call.call_id, &*call.name), ("t1", "f"));
    assert_eq!(call.arguments_or_empty_object(), arguments, "{block} {deltas:?}");
    assert_eq!(turn.calls().veto(), None);
}

#[test]
fn an_empty_first_input_delta_changes_nothing() {
    check_arguments(TOOL_USE_BLOCK, &["", "{\"a\"", ":1}"], r#"{"a":1}"#);
}

#[test]
fn only_empty_input_deltas_mean_empty_arguments() {
    check_arguments(TOOL_USE_BLOCK, &["", ""], "{}");
    check_arguments(TOOL_USE_BLOCK, &[], "{}");
}

#[test]
fn input_in_the_start_event_counts_if_no_deltas_follow() {
    let whole = TOOL_USE_BLOCK.replace("{}", r#"{"b":1,"a":[2]}"#);
    check_arguments(&whole, &[], r#"{"b":1,"a":[2]}"#);
    check_arguments(&whole, &[""], r#"{"b":1,"a":[2]}"#);
    check_arguments(&TOOL_USE_BLOCK.replace("{}", "null"), &[], "{}");
}

#[test]
fn deltas_take_precedence_over_the_input_of_the_start_event() {
    check_arguments(&TOOL_USE_BLOCK.replace("{}", r#"{"a":1}"#), &["{\"a\"", ":2}"], r#"{"a":2}"#);
}

#[test]
fn input_that_is_not_json_is_kept_verbatim() {
    check_arguments(
        TOOL_USE_BLOCK,
        &["{\"path\": \"/x\", unquoted}"],
        "{\"path\": \"/x\", unquoted}",
    );
    let turn = decode_one_block(
        TOOL_USE_BLOCK,
        &[input_json_delta(0, "{\"path\": \"/x\", unquoted}")],
        "tool_use",
    );
    let body = parse_json(&encode_items(items_with_results(&turn)));
    let sent = &body["messages"][1]["content"][0]["input"];
    assert_eq!(sent["INVALID_JSON"], "{\"path\": \"/x\", unquoted}");
}

#[test]
fn a_call_truncated_by_the_output_limit_does_not_run() {
    for ended in [true, false] {
        let mut events = vec![
            MESSAGE_START.into(),
            content_block_start(0, TOOL_USE_BLOCK),
            input_json_delta(0, "{\"path\":\"/x"),
        ];
        events.extend(ended.then(|| content_block_stop(0)));
        events.extend([message_delta("max_tokens"), MESSAGE_STOP.into()]);
        let turn = decode_turn(&events).unwrap();
        assert_eq!(turn.tool_calls().next().unwrap().arguments, "{\"path\":\"/x");
        assert_eq!(turn.calls().veto().unwrap().result_kind, ResultKind::Truncated);
    }
}

#[test]
fn a_call_without_its_end_event_is_an_error_even_if_its_input_parses() {
    let events = [
        MESSAGE_START.into(),
        content_block_start(0, TOOL_USE_BLOCK),
        input_json_delta(0, "{}"),
        message_delta("tool_use"),
        MESSAGE_STOP.into(),
    ];
    assert!(decode_turn(&events).is_err());
}

#[test]
fn a_server_tool_use_is_never_a_local_call() {
    for kind in ["server_tool_use", "mcp_tool_use", "tool_use_of_tomorrow"] {
        let call = format!(r#"{{"type":"{kind}","id":"s1","name":"web_search","input":{{}}}}"#);
        let turn = decode_one_block(&call, &[input_json_delta(0, "{\"query\":1}")], "end_turn");
        assert!(turn.calls().is_empty(), "{kind}");
        assert_eq!(provider_item_texts(&turn), [call.replace("{}", "{\"query\":1}")]);
    }
}
