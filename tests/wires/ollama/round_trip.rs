//! The model's output is sent back to it unchanged, and to any other model without the reasoning.

use serde_json::{Value, json};
use turnstream::item::{ItemFlag, ProviderData, RawJson};
use turnstream::provider::ollama::{self, Chat};
use turnstream::provider::{anthropic, gemini, openai_chat, openai_responses};
use turnstream::{History, Item, Request};

use super::{
    MODEL, as_last_of_turn, decode_ended_turn, encode_messages, request_with_items, text_line,
    thinking_line, tool_calls_line, tool_result,
};

/// A history that ends with the turn of these lines and the results of its calls.
fn history_after(lines: &[&str]) -> Vec<Item> {
    let turn = decode_ended_turn(lines).unwrap();
    let mut items = vec![Item::user("go")];
    items.extend(turn.to_history_items());
    items.extend(turn.tool_calls().map(|call| tool_result(&call.call_id, "1")));
    items
}

fn encode_messages_for(model: &str, items: Vec<Item>) -> Value {
    let bytes = ollama::encode(&request_with_items(items), model, &Chat::default()).unwrap();
    serde_json::from_slice::<Value>(&bytes).unwrap()["messages"].take()
}

fn tool_loop_history() -> Vec<Item> {
    let call = r#"{"id":"c1","function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"g","arguments":{}}}"#;
    history_after(&[
        &thinking_line("Hm. "),
        &thinking_line("Yes."),
        &text_line("So."),
        &tool_calls_line(call),
    ])
}

#[test]
fn a_turn_is_sent_back_to_its_model_unchanged() {
    let tool_calls = json!([
        { "id": "c1", "function": { "name": "f", "arguments": { "a": 1 } } },
        { "id": "call_1_2", "function": { "name": "g", "arguments": {} } },
    ]);
    let expected = json!({ "role": "assistant", "content": "So.", "thinking": "Hm. Yes.",
        "tool_calls": tool_calls });
    let found = encode_messages(tool_loop_history());
    assert_eq!(found[1], expected);
    assert_eq!([&found[2]["tool_call_id"], &found[3]["tool_call_id"]], ["c1", "call_1_2"]);
}

#[test]
fn reasoning_is_not_sent_to_another_model() {
    let found = encode_messages_for("llama4", tool_loop_history());
    assert_eq!(found[1]["thinking"], Value::Null);
    assert_eq!(
        (&found[1]["content"], found[1]["tool_calls"][0]["id"].as_str()),
        (&json!("So."), Some("c1"))
    );
    let foreign = |provider: &str| {
        let value = RawJson::parse(r#"{"signature":"U0VDUkVU"}"#).unwrap();
        let data = ProviderData { provider: provider.into(), model: MODEL.into(), value };
        Item { provider_data: Some(data.into()), ..Item::reasoning("Foreign.") }
    };
    for thought in [foreign("anthropic"), Item::reasoning("Foreign.")] {
        let body =
            encode_messages(vec![Item::user("go"), thought, as_last_of_turn(Item::text("a"))])
                .to_string();
        assert!(!body.contains("Foreign") && !body.contains("U0VDUkVU"), "{body}");
    }
}

#[test]
fn incomplete_or_trailing_reasoning_is_not_sent() {
    let cut: Vec<Item> = tool_loop_history()
        .into_iter()
        .take(3)
        .map(|item| item.with_flag(ItemFlag::Interrupted))
        .collect();
    assert!(!encode_messages(cut).to_string().contains("thinking"));
    let alone = history_after(&[&thinking_line("Hm.")]);
    assert_eq!(encode_messages(alone), json!([{ "role": "user", "content": "go" }]));
}

#[test]
fn a_turn_survives_a_store() {
    let history = History::from_items("h", tool_loop_history());
    let stored = serde_json::to_string(&history).unwrap();
    let restored: History = serde_json::from_str(&stored).unwrap();
    let encode = |history| ollama::encode(&Request::new(history), MODEL, &Chat::default()).unwrap();
    assert_eq!(encode(restored), encode(history));
}

#[test]
fn a_history_of_this_wire_is_sent_on_every_other_wire() {
    let request = request_with_items(tool_loop_history());
    for bytes in [
        anthropic::encode(&request, MODEL),
        openai_chat::encode(&request, MODEL, &openai_chat::Dialect::OPENAI),
        openai_responses::encode(&request, MODEL),
        gemini::encode(&request, MODEL),
    ] {
        let body = String::from_utf8(bytes.unwrap()).unwrap();
        assert!(body.contains("So.") && body.contains("\"f\"") && body.contains("\"g\""), "{body}");
        assert!(!body.contains("Hm."), "{body}");
    }
}

#[test]
fn a_history_of_every_other_wire_is_sent_on_this_one_without_foreign_data() {
    for (provider, value) in [
        ("anthropic", r#"{"signature":"FOREIGN"}"#),
        ("gemini", r#"{"thoughtSignature":"FOREIGN"}"#),
        ("openai_responses", r#"{"item":{"id":"FOREIGN"},"after":"FOREIGN"}"#),
        ("openrouter", r#"{"reasoning_details":["FOREIGN"]}"#),
    ] {
        let value = RawJson::parse(value).unwrap();
        let data = ProviderData { provider: provider.into(), model: MODEL.into(), value };
        let with = |item| Item { provider_data: Some(data.clone().into()), ..item };
        let found = encode_messages(vec![
            Item::user("go"),
            with(Item::reasoning("FOREIGN")),
            with(Item::text("So.")),
            Item::provider_item(data.clone()),
            as_last_of_turn(with(Item::tool_call("c1", "f", "{}"))),
            tool_result("c1", "1"),
        ]);
        let call = json!([{ "id": "c1", "function": { "name": "f", "arguments": {} } }]);
        let turn = json!({ "role": "assistant", "content": "So.", "tool_calls": call });
        assert_eq!(found[1], turn, "{provider}");
    }
}
