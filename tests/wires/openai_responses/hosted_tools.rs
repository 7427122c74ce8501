//! Tools that the provider executes itself: their items are kept unchanged.

use super::*;
use turnstream::turn::StopReason;

#[track_caller]
fn check_opaque_items(list: &[Value], expected: &[&Value]) {
    let turn = decode_turn(list).unwrap();
    let kept: Vec<Value> = turn.items().iter().map(provider_data_value).collect();
    assert_eq!(kept.iter().collect::<Vec<_>>(), expected);
    assert!(turn.items().iter().all(|item| item.kind == ItemKind::Other));
    assert_eq!(turn.stop_reason(), &StopReason::Stop);
}

#[test]
fn hosted_tool_items_are_kept_verbatim_as_of_their_done_event() {
    for kind in [
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_approval_request",
        "local_shell_call",
        "shell_call",
        "shell_call_output",
        "apply_patch_call",
        "computer_call",
        "tool_search_call",
        "tool_search_output",
        "custom_tool_call",
        "compaction",
        "program",
        "whatever_comes_next",
    ] {
        let item = json!({ "type": kind, "id": "x_1", "z": [1, { "b": 2, "a": "1" }],
            "pending_safety_checks": [{ "id": "s" }], "status": "completed" });
        let begun =
            output_item_added(0, json!({ "type": kind, "id": "x_1", "status": "in_progress" }));
        let list =
            [begun, output_item_done(0, item.clone()), response_completed(vec![item.clone()])];
        check_opaque_items(&list, &[&item]);
    }
}

#[test]
fn progress_events_of_hosted_tools_are_ignored() {
    let item = json!({ "type": "code_interpreter_call", "id": "ci_1", "code": "1+1" });
    let on_its_way = [
        json!({ "type": "response.code_interpreter_call.in_progress", "output_index": 0 }),
        json!({ "type": "response.code_interpreter_call_code.delta", "output_index": 0, "delta": "1" }),
        json!({ "type": "response.mcp_call_arguments.delta", "output_index": 0, "delta": "{" }),
        json!({ "type": "response.image_generation_call.partial_image", "output_index": 0,
            "partial_image_b64": "AAAA" }),
        json!({ "type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "x" }),
        json!({ "type": "response.custom_tool_call_input.done", "output_index": 0, "input": "x" }),
        json!({ "type": "response.shell_call_output_content.delta", "output_index": 0,
            "delta": { "stdout": "x" } }),
        json!({ "type": "response.web_search_call.searching", "output_index": 0 }),
    ];
    let list =
        [&on_its_way[..], &[output_item_done(0, item.clone()), response_completed(json!([]))]]
            .concat();
    check_opaque_items(&list, &[&item]);
}

#[test]
fn an_item_without_its_done_event_is_omitted() {
    let begun = output_item_added(0, json!({ "type": "web_search_call", "id": "ws_1" }));
    check_opaque_items(&[begun, response_completed(json!([]))], &[]);
}

#[test]
fn values_that_are_not_items_are_ignored() {
    let odd = [json!(null), json!(5), json!("x"), json!([]), json!({}), json!({ "type": 5 })];
    let list: Vec<Value> = odd
        .iter()
        .flat_map(|item| [output_item_added(0, item.clone()), output_item_done(0, item.clone())])
        .collect();
    check_opaque_items(&[&list[..], &[response_completed(odd.to_vec())]].concat(), &[]);
}

#[test]
fn an_item_only_in_the_terminal_event_is_decoded() {
    let own = json!({ "type": "mcp_list_tools", "id": "mcpl_1", "tools": [{ "name": "t" }] });
    let list = [
        output_item_added(0, json!({ "type": "mcp_list_tools", "id": "mcpl_1" })),
        text_delta(1, "a"),
        output_item_done(1, message_item("m", "a")),
        response_completed(json!([
            own,
            message_item("m", "a"),
            function_call_item("fc_1", "c", "{}"),
            reasoning_item("r", "e")
        ])),
    ];
    let turn = decode_turn(&list).unwrap();
    assert_eq!(item_summaries(&turn), ["text a", "own mcp_list_tools", "c f {}", "reasoning "]);
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
}

#[test]
fn a_missing_mcp_tool_list_is_taken_from_the_terminal_event() {
    let bare = json!({ "type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s" });
    let mut whole = bare.clone();
    whole["tools"] = json!([{ "name": "t" }]);
    let list = |output: Value| [output_item_done(0, bare.clone()), response_completed(output)];
    check_opaque_items(&list(json!([whole])), &[&whole]);
    check_opaque_items(&list(json!([])), &[&bare]);
}

#[test]
fn streamed_items_are_kept_if_the_terminal_event_has_none() {
    let own = json!({ "type": "web_search_call", "id": "ws_1" });
    for mut end in [response_completed(json!([])), response_completed(Value::Null)] {
        let list = [
            output_item_done(0, own.clone()),
            text_delta(1, "a"),
            output_item_done(2, function_call_item("fc_1", "c", "{}")),
            end.take(),
        ];
        let turn = decode_turn(&list).unwrap();
        assert_eq!(item_summaries(&turn), ["own web_search_call", "text a", "c f {}"]);
    }
}

#[test]
fn differently_numbered_output_items_are_matched() {
    let list = [
        output_item_done(0, reasoning_item("rs_1", "e")),
        text_delta(1, "a"),
        output_item_done(2, function_call_item("fc_1", "c", "{}")),
        // Without the reasoning, with other ids, in another order.
        response_completed(json!([
            function_call_item("fc_9", "c", "{}"),
            message_item("m_9", "a")
        ])),
    ];
    let turn = decode_turn(&list).unwrap();
    assert_eq!(item_summaries(&turn), ["reasoning ", "text a", "c f {}"]);
}

#[test]
fn the_tier_and_the_calls_of_hosted_tools_are_reported_with_the_turn() {
    #[track_caller]
    fn check(tier: &Value, items: &Value, expected: (Option<&str>, &[(&str, u64)])) {
        let completed = json!({ "type": "response.completed", "response": {
            "id": "r", "status": "completed", "service_tier": tier, "output": items } });
        let turn = decode_turn(&[completed]).unwrap();
        let billing = turn.billing().cloned().unwrap_or_default();
        let tools: Vec<_> = billing.server_tool_calls().collect();
        assert_eq!((billing.service_tier(), &*tools), expected, "{items}");
    }
    let search = |id: &str, action: &str| {
        json!({ "type": "web_search_call", "id": id, "status": "completed",
            "action": { "type": action } })
    };
    check(&json!("default"), &json!([message_item("m", "a")]), (None, &[]));
    check(&json!("flex"), &json!([message_item("m", "a")]), (Some("flex"), &[]));
    let searches = json!([
        search("1", "search"),
        search("2", "open_page"),
        search("3", "find_in_page"),
        search("4", "search"),
    ]);
    check(&json!(null), &searches, (None, &[("web_search", 2)]));
    let others = json!([
        { "type": "file_search_call", "id": "1", "status": "completed" },
        { "type": "code_interpreter_call", "id": "2", "status": "completed" },
    ]);
    check(&json!(null), &others, (None, &[("code_execution", 1), ("file_search", 1)]));
}

#[test]
fn reported_calls_and_kinds_of_tokens_are_those_of_the_turn() {
    let usage = json!({
        "input_tokens": 9, "output_tokens": 8,
        "input_tokens_details": { "audio_tokens": 5 },
        "output_tokens_details": { "audio_tokens": 0, "image_tokens": 3 },
        "server_side_tool_usage_details": { "web_search_calls": 2, "x_search_calls": 1,
            "mcp_calls": 4, "image_generation_calls": 0 },
    });
    let search = json!({ "type": "web_search_call", "id": "1", "status": "completed" });
    let completed = json!({ "type": "response.completed", "response": {
        "id": "r", "status": "completed", "output": [search], "usage": usage } });
    let turn = decode_turn(&[completed]).unwrap();
    let billing = turn.billing().unwrap();
    let tools: Vec<_> = billing.server_tool_calls().collect();
    assert_eq!(tools, [("web_search", 2), ("x_search", 1)]);
    let kinds: Vec<_> = billing.tokens_by_kind().collect();
    assert_eq!(kinds, [("input_audio", 5), ("output_image", 3)]);
}
