//! Stored items are sent back to the model that wrote them, and only together with the items that
//! they belong to.

use super::*;

const PLAIN_CALL: &str = r#"{"arguments":"{}","call_id":"c","name":"f","type":"function_call"}"#;

fn assistant_message(text: &str) -> Value {
    json!({ "type": "message", "role": "assistant", "content":
        [{ "type": "output_text", "text": text }] })
}

/// The items of the turn that these output items are decoded to.
fn decode_output_items(output: &[Value]) -> Vec<Item> {
    let mut list: Vec<Value> =
        (0..).zip(output).map(|(at, item)| output_item_done(at, item.clone())).collect();
    list.push(response_completed(json!([])));
    decode_turn(&list).unwrap().to_history_items()
}

/// The encoding of a turn, without the user message before it and the results after it.
fn encode_replayed(items: Vec<Item>, model: &str) -> Vec<Value> {
    let results: Vec<Item> = items
        .iter()
        .filter_map(Item::as_tool_call)
        .map(|call| tool_result(&call.call_id, "r"))
        .collect();
    let history = [vec![Item::user("x")], items, results].concat();
    let mut input = encode_input(history, model);
    input.retain(|item| item["role"] != "user" && item["type"] != "function_call_output");
    input
}

#[track_caller]
fn check_replayed(output: &[Value], expected: &[Value]) {
    assert_eq!(encode_replayed(decode_output_items(output), MODEL), expected);
}

#[test]
fn a_turn_is_sent_back_verbatim_to_its_model() {
    let mut said = message_item("msg_1", "Let me see.");
    said["phase"] = "commentary".into();
    let own = json!({ "type": "web_search_call", "id": "ws_1", "status": "completed" });
    let output = [
        reasoning_item("rs_1", "e1"),
        said,
        own,
        reasoning_item("rs_2", "e2"),
        function_call_item("fc_1", "c", "{}"),
        function_call_item("fc_2", "d", "{\"x\":1}"),
    ];
    check_replayed(&output, &output);
}

#[test]
fn another_model_receives_text_and_calls() {
    let own = json!({ "type": "web_search_call", "id": "ws_1" });
    let output = [
        reasoning_item("rs_1", "e1"),
        message_item("msg_1", "a"),
        own,
        function_call_item("fc_1", "c", "{}"),
    ];
    let expected = [assistant_message("a"), serde_json::from_str(PLAIN_CALL).unwrap()];
    assert_eq!(encode_replayed(decode_output_items(&output), "gpt-5.2"), expected);
    // An item from another wire is treated like another model's.
    let mut items = decode_output_items(&output);
    for item in &mut items {
        let data = item.provider_data.as_deref().cloned();
        item.provider_data = data.map(|data| {
            let provider = "openai_chat".to_owned();
            turnstream::item::ProviderData { provider, ..data }.into()
        });
    }
    assert_eq!(encode_replayed(items, MODEL), expected);
}

#[test]
fn multi_part_content_is_sent_back_verbatim() {
    let annotated = json!({ "type": "message", "id": "m", "role": "assistant", "content": [
        { "type": "output_text", "text": "a", "annotations": [{ "type": "url_citation" }] },
        { "type": "output_text", "text": "b", "annotations": [] },
    ] });
    let refused = json!({ "type": "message", "id": "m", "role": "assistant", "content":
        [{ "type": "refusal", "refusal": "no" }] });
    for message in [&annotated, &refused] {
        check_replayed(std::slice::from_ref(message), std::slice::from_ref(message));
    }
    // Text that was changed since does not match the stored message.
    let mut items = decode_output_items(&[annotated]);
    items[0].kind = ItemKind::Text { text: "shorter".into() };
    assert_eq!(encode_replayed(items, MODEL), [assistant_message("shorter")]);
}

#[test]
fn reasoning_without_its_follower_is_not_sent() {
    check_replayed(
        &[message_item("m", "a"), reasoning_item("rs_1", "e")],
        &[message_item("m", "a")],
    );
    check_replayed(&[reasoning_item("rs_1", "e")], &[]);
}

#[test]
fn unusable_reasoning_is_omitted_together_with_dependent_ids() {
    let empty = json!({ "type": "reasoning", "id": "rs_1", "summary":
        [{ "type": "summary_text", "text": "hm" }] });
    let plain: Value = serde_json::from_str(PLAIN_CALL).unwrap();
    check_replayed(&[empty.clone(), message_item("m", "a")], &[assistant_message("a")]);
    check_replayed(&[empty, function_call_item("fc_1", "c", "{}")], &[plain]);
}

#[test]
fn plain_reasoning_is_sent_back_unencrypted() {
    let thought = json!({ "type": "reasoning", "id": "r", "summary": [],
        "content": [{ "type": "reasoning_text", "text": "hm" }] });
    let output = [thought, function_call_item("fc_1", "c", "{}")];
    check_replayed(&output, &output);
}

#[test]
fn an_item_whose_reasoning_is_gone_is_sent_without_its_id() {
    let output = [reasoning_item("rs_1", "e"), function_call_item("fc_1", "c", "{}")];
    let plain: Value = serde_json::from_str(PLAIN_CALL).unwrap();
    let mut items = decode_output_items(&output);
    items[0].tombstone = true;
    assert_eq!(encode_replayed(items, MODEL), std::slice::from_ref(&plain));
    // Simulates a history that was truncated there.
    assert_eq!(encode_replayed(decode_output_items(&output).split_off(1), MODEL), [plain]);
}

#[test]
fn reasoning_with_a_changed_follower_is_not_sent() {
    let output = [
        reasoning_item("rs_1", "e"),
        message_item("m", "a"),
        function_call_item("fc_1", "c", "{}"),
    ];
    let plain: Value = serde_json::from_str(PLAIN_CALL).unwrap();
    let mut items = decode_output_items(&output);
    items[1].provider_data = None;
    assert_eq!(encode_replayed(items, MODEL), [assistant_message("a"), plain]);
}

#[test]
fn reasoning_is_never_linked_to_the_next_turn() {
    let first = decode_output_items(&[message_item("m1", "a"), reasoning_item("rs_1", "e1")]);
    let second = decode_output_items(&[message_item("m2", "b")]);
    let items = [first, second].concat();
    assert_eq!(encode_replayed(items, MODEL), [message_item("m1", "a"), message_item("m2", "b")]);
}

#[test]
fn a_turn_without_reasoning_after_one_with_it_is_sent_back_verbatim() {
    let (first, second) =
        ([reasoning_item("rs_1", "e1"), message_item("m1", "a")], [message_item("m2", "b")]);
    let items = [decode_output_items(&first), decode_output_items(&second)].concat();
    assert_eq!(encode_replayed(items, MODEL), [&first[..], &second].concat());
}

#[test]
fn reasoning_separated_from_its_follower_is_not_linked_to_the_next_turn() {
    let error = decode_turn(&[output_item_done(0, reasoning_item("rs_1", "e1"))]).unwrap_err();
    let cut_off = error.find_source::<PartialTurn>().unwrap().items();
    let items = [cut_off, decode_output_items(&[message_item("m2", "b")])].concat();
    assert_eq!(encode_replayed(items, MODEL), [message_item("m2", "b")]);
}

#[test]
fn of_an_incomplete_turn_only_finished_items_are_sent_back_verbatim() {
    let list = [
        output_item_done(0, reasoning_item("rs_1", "e1")),
        output_item_done(1, message_item("m1", "a")),
        output_item_done(2, reasoning_item("rs_2", "e2")),
        text_delta(3, "half"),
    ];
    let error = decode_turn(&list).unwrap_err();
    let items = error.find_source::<PartialTurn>().unwrap().items();
    let expected =
        [reasoning_item("rs_1", "e1"), message_item("m1", "a"), assistant_message("half")];
    assert_eq!(encode_replayed(items, MODEL), expected);
}

#[test]
fn a_call_that_was_renamed_keeps_its_item_and_its_result() {
    let mut items = decode_output_items(&[function_call_item("fc_1", "c", "{}")]);
    items.push(tool_result("c", "r"));
    let before = History::from_items("h", items);
    let list =
        [output_item_done(0, function_call_item("fc_2", "c", "{}")), response_completed(json!([]))];
    let decoding =
        Decoding::new(stream::iter([Ok(Bytes::from(sse_body(&list)))]), Decoder::new(MODEL));
    let second = fold_turn(block_on(seal(&before, decoding).collect())).unwrap();
    let mut history = before;
    history.extend(second.to_history_items());
    history.push(tool_result("c_dup1", "s"));
    let input = encode_json(&Request::new(history), MODEL).unwrap()["input"].clone();
    assert_eq!((&input[2]["id"], &input[2]["call_id"]), (&json!("fc_2"), &json!("c_dup1")));
    assert_eq!(
        input[3],
        json!({ "type": "function_call_output", "call_id": "c_dup1", "output": "s" })
    );
    assert_eq!(input[2].get("wire_id"), None);
}

#[test]
fn nothing_is_sent_by_reference() {
    let items = decode_output_items(&[reasoning_item("rs_1", "e"), message_item("m", "a")]);
    let history = [vec![Item::user("x")], items, vec![Item::user("y")]].concat();
    let request = Request::new(History::from_items("h", history));
    let body = encode_json(&request, MODEL).unwrap();
    assert_eq!(body.get("previous_response_id"), None);
    assert!(!body.to_string().contains("item_reference"));
    assert_eq!(body["store"], false);
}

#[test]
fn a_too_deeply_nested_provider_item_round_trips_through_a_record() {
    for depth in 50..140 {
        let action = (0..depth).fold(json!([]), |inner, _| json!([inner]));
        let item = json!({ "type": "web_search_call", "id": "ws_1", "action": action });
        let turn = decode_turn(&[
            response_created(),
            output_item_done(0, item.clone()),
            response_completed(json!([item])),
        ])
        .unwrap();
        let record = serde_json::to_string(&turnstream::Event::from(TurnEvent::TurnComplete {
            turn: std::sync::Arc::new(turn),
        }));
        let record = record.unwrap();
        serde_json::from_str::<turnstream::Event>(&record).expect("it is read back");
    }
}
