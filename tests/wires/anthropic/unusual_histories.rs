//! Histories that have no obvious encoding on the Messages wire.

use std::sync::Arc;

use serde_json::Value;
use turnstream::item::{ItemFlag, ProviderData, RawJson, ResultKind, StopReason, ToolResult};
use turnstream::provider::anthropic;
use turnstream::{ErrorKind, History, Item, Request, Usage};

use turnstream_test_support::items::as_turn_end;

fn request_with_items(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items))
}

fn encode_json(items: Vec<Item>) -> Value {
    serde_json::from_slice(&anthropic::encode(&request_with_items(items), "m").unwrap()).unwrap()
}

/// An item that ends its turn.
fn as_last_of_turn(item: Item) -> Item {
    as_turn_end(StopReason::Pause, item, Usage::default())
}

/// A call of `f` and its result.
fn call_and_result(
    id: &str,
    name: &str,
    arguments: &str,
    text: &str,
    kind: ResultKind,
) -> Vec<Item> {
    let (call_id, content) = (id.into(), text.into());
    vec![
        Item::user("x"),
        as_last_of_turn(Item::tool_call(id, name, arguments)),
        Item::tool_result(ToolResult { call_id, name: name.into(), content, kind, report: None }),
    ]
}

#[track_caller]
fn check_tool_name(name: &Value) {
    let name = name.as_str().unwrap();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    assert!(name.len() <= 64 && name.chars().all(plain), "{name}");
}

#[test]
fn an_empty_error_result_is_sent_in_an_accepted_form() {
    let sent = encode_json(call_and_result("c", "f", "{}", "", ResultKind::Error));
    let result = &sent["messages"][2]["content"][0];
    assert!(result["is_error"] != true || result["content"].is_array(), "{result}");
}

#[test]
fn white_space_only_text_is_not_sent() {
    let request = request_with_items(vec![Item::user("x")]).with_system(" \n");
    let sent: Value = serde_json::from_slice(&anthropic::encode(&request, "m").unwrap()).unwrap();
    assert!(sent["system"].is_null(), "{sent}");
    let error = anthropic::encode(&request_with_items(vec![Item::user(" ")]), "m").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[test]
fn the_first_message_is_the_users() {
    let sent =
        encode_json(vec![Item::user(" "), as_last_of_turn(Item::text("a")), Item::user("b")]);
    assert_eq!(sent["messages"][0]["role"], "user", "{sent}");
}

#[test]
fn ids_and_names_of_other_wires_are_sent_in_an_accepted_alphabet() {
    let id = "call.1:x y".to_owned() + &"z".repeat(80);
    let sent = encode_json(call_and_result(&id, "f", "{}", "r", ResultKind::Ok));
    let (call, result) = (&sent["messages"][1]["content"][0], &sent["messages"][2]["content"][0]);
    check_tool_name(&call["id"]);
    assert_eq!(call["id"], result["tool_use_id"]);
    let name = "functions.get weather";
    let sent = encode_json(call_and_result("c", name, "{}", "r", ResultKind::UnknownTool));
    check_tool_name(&sent["messages"][1]["content"][0]["name"]);
}

#[test]
fn a_history_with_calls_is_never_sent_without_tools() {
    let mut items = call_and_result("c", "f", "{}", "r", ResultKind::Ok);
    items.push(Item::user("y"));
    let sent = encode_json(items);
    assert!(sent["tools"].is_array(), "{sent}");
}

#[test]
fn a_lone_surrogate_in_old_arguments_is_not_sent() {
    let items = call_and_result("c", "f", r#"{"p":"\ud800"}"#, "r", ResultKind::Ok);
    let body =
        String::from_utf8(anthropic::encode(&request_with_items(items), "m").unwrap()).unwrap();
    assert!(!body.contains(r"\ud800"), "{body}");
}

#[test]
fn no_message_ends_in_thinking() {
    let mut thought = Item::reasoning("hm").with_flag(ItemFlag::Interrupted);
    thought.provider_data = Some(Arc::new(ProviderData {
        provider: "anthropic".into(),
        model: "m".into(),
        value: RawJson::parse(r#"{"signature":"s"}"#).unwrap(),
    }));
    let sent = encode_json(vec![Item::user("x"), thought, Item::user("y")]);
    for message in sent["messages"].as_array().unwrap() {
        if let Some(block) = message["content"].as_array().and_then(|blocks| blocks.last()) {
            assert_ne!(block["type"], "thinking", "{message}");
        }
    }
}

#[test]
fn later_items_do_not_change_how_a_text_was_sent() {
    let mut items = vec![Item::user("x"), as_last_of_turn(Item::text("one \n"))];
    let before = encode_json(items.clone());
    items.push(as_last_of_turn(Item::text("two")));
    let after = encode_json(items);
    assert_eq!(before["messages"][1]["content"][0], after["messages"][1]["content"][0]);
}
