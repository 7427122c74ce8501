//! Reasoning: how it is decoded, what is kept of it, and to which model it is sent back.

use serde_json::{Value, json};
use turnstream::item::ItemFlag;
use turnstream::provider::openai_chat::{Dialect, ReasoningEcho, encode};
use turnstream::{Item, Turn};

use super::{
    answer_chunks, decode_in_dialect, delta_chunk, encode_messages, finish_chunk,
    provider_data_texts, request_with_items, tool_result, with_provider_data,
};

fn decode_openrouter_turn(deltas: &[Value]) -> Turn {
    decode_in_dialect(&Dialect::OPENROUTER, &answer_chunks(deltas, "stop")).unwrap()
}

#[test]
fn reasoning_under_any_of_three_names_is_yielded_once() {
    for name in ["reasoning_content", "reasoning", "reasoning_text"] {
        let turn = decode_openrouter_turn(&[
            json!({ name: "h" }),
            json!({ name: "m" }),
            json!({ "content": "hi" }),
        ]);
        assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("hm", "hi"), "{name}");
    }
    let both = decode_openrouter_turn(&[json!({ "reasoning": "hm", "reasoning_content": "hm" })]);
    assert_eq!(both.reasoning(), "hm");
}

#[test]
fn reasoning_that_is_not_text_is_ignored() {
    for odd in [json!({}), json!([1]), json!(true), json!(7), json!(null)] {
        let turn = decode_openrouter_turn(&[
            json!({ "reasoning": odd, "reasoning_details": odd, "content": "hi" }),
        ]);
        assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("", "hi"), "{odd}");
    }
}

#[test]
fn reasoning_may_follow_the_text() {
    let turn = decode_openrouter_turn(&[json!({ "content": "hi" }), json!({ "reasoning": "hm" })]);
    assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("hm", "hi"));
}

/// The body of a request with a turn and a user message, as text.
fn encode_follow_up(turn: &Turn, model: &str, dialect: &Dialect) -> String {
    let mut items = turn.to_history_items();
    items.push(Item::user("go on"));
    String::from_utf8(encode(&request_with_items(items), model, dialect).unwrap()).unwrap()
}

#[test]
fn reasoning_details_are_merged_and_sent_back_to_their_model_byte_for_byte() {
    let chunk = |details: &str, reasoning: &str| {
        format!(
            r#"{{"choices":[{{"delta":{{"reasoning":{reasoning},"reasoning_details":{details}}}}}]}}"#
        )
    };
    let encrypted = r#"{"type":"reasoning.encrypted","data":"gAAA+/=","z":{"b":1,"a":[2]},"id":"rs_1","index":1}"#;
    let chunks = [
        chunk(r#"[{"type":"reasoning.text","text":"We ","index":0,"format":null}]"#, "\"We \""),
        chunk(r#"[{"type":"reasoning.text","text":"need","index":0,"signature":"s"}]"#, "\"need\""),
        chunk(&format!("[{encrypted}]"), "null"),
        delta_chunk(&json!({ "content": "hi" })),
        finish_chunk("stop"),
    ];
    let turn = decode_in_dialect(&Dialect::OPENROUTER, &chunks).unwrap();
    // The text is in two fields, and is read once.
    assert_eq!(turn.reasoning(), "We need");
    let sent = format!(
        r#""reasoning_details":[{{"type":"reasoning.text","text":"We need","index":0,"format":null,"signature":"s"}},{encrypted}]"#
    );
    let own = encode_follow_up(&turn, "m", &Dialect::OPENROUTER);
    assert!(own.contains(&sent), "{own}");
    for (model, dialect) in [("other", Dialect::OPENROUTER), ("m", Dialect::LITELLM)] {
        let other = encode_follow_up(&turn, model, &dialect);
        assert!(!other.contains("reasoning_details") && !other.contains("need"), "{other}");
    }
}

#[test]
fn encrypted_only_reasoning_is_an_item_in_order() {
    let details = json!([{ "type": "reasoning.encrypted", "data": "x" }]);
    let turn = decode_openrouter_turn(&[
        json!({ "reasoning_details": details }),
        json!({ "content": "hi" }),
    ]);
    let kept = r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}"#;
    assert_eq!(provider_data_texts(&turn), [Some(kept.to_owned()), None]);
    assert_eq!(turn.reasoning(), "");
}

#[test]
fn details_with_another_index_are_a_separate_reasoning_item() {
    let piece = |index: u64, text: &str| json!({ "reasoning_details": [{ "type": "reasoning.text", "text": text, "index": index }] });
    let turn = decode_openrouter_turn(&[
        piece(0, "a"),
        piece(1, "b"),
        piece(0, "c"),
        json!({ "content": "hi" }),
    ]);
    let kept = json!([
        { "type": "reasoning.text", "text": "ac", "index": 0 },
        { "type": "reasoning.text", "text": "b", "index": 1 },
    ]);
    assert_eq!(
        encode_messages(turn.to_history_items(), &Dialect::OPENROUTER)[0]["reasoning_details"],
        kept
    );
}

#[test]
fn text_found_only_in_the_details_is_yielded() {
    let piece = |text: &str| json!({ "reasoning_details": [{ "type": "reasoning.summary", "summary": text, "index": 0 }] });
    let turn = decode_openrouter_turn(&[piece("We "), piece("need"), json!({ "content": "hi" })]);
    assert_eq!(turn.reasoning(), "We need");
}

#[test]
fn content_parts_without_reasoning_do_not_hide_the_details_text() {
    let turn = decode_openrouter_turn(&[
        json!({ "content": [{ "type": "text", "text": "hi" }] }),
        json!({ "reasoning_details": [{ "type": "reasoning.text", "text": "hm" }] }),
    ]);
    assert_eq!((turn.reasoning().as_str(), turn.text().as_str()), ("hm", "hi"));
}

#[test]
fn signed_and_redacted_thinking_blocks_are_sent_back_unchanged() {
    let block = |thinking: &str, signature: &str| json!({ "thinking_blocks": [{ "type": "thinking", "thinking": thinking, "signature": signature }], "reasoning_content": thinking });
    let redacted = json!({ "thinking_blocks": [{ "type": "redacted_thinking", "data": "r+/=" }] });
    let deltas = [
        block("h", ""),
        block("m", ""),
        block("", "sig"),
        block("next", "sig3"),
        redacted,
        block("second", "sig2"),
        json!({ "content": "hi" }),
    ];
    let turn = decode_in_dialect(&Dialect::LITELLM, &answer_chunks(&deltas, "stop")).unwrap();
    assert_eq!(turn.reasoning(), "hmnextsecond");
    let messages = encode_messages(turn.to_history_items(), &Dialect::LITELLM);
    assert_eq!(
        messages[0]["thinking_blocks"],
        json!([
            { "type": "thinking", "thinking": "hm", "signature": "sig" },
            { "type": "thinking", "thinking": "next", "signature": "sig3" },
            { "type": "redacted_thinking", "data": "r+/=" },
            { "type": "thinking", "thinking": "second", "signature": "sig2" },
        ])
    );
}

#[test]
fn reasoning_of_an_incomplete_turn_is_not_sent() {
    let value = r#"{"reasoning_details":[{"type":"reasoning.text","text":"h"}]}"#;
    let thought = with_provider_data(Item::reasoning("h"), "openrouter", "m", value);
    let items = |thought: Item, text: Item| vec![Item::user("x"), thought, text, Item::user("y")];
    let cut = |item: Item| item.with_flag(ItemFlag::Interrupted);
    let whole = items(thought.clone(), Item::text("a"));
    assert!(encode_messages(whole, &Dialect::OPENROUTER)[1]["reasoning_details"].is_array());
    let broken = encode_messages(items(cut(thought), cut(Item::text("a"))), &Dialect::OPENROUTER);
    assert_eq!(broken.len(), 3);
    assert!(broken[1]["reasoning_details"].is_null(), "{}", broken[1]);
}

#[test]
fn reasoning_text_is_sent_back_only_inside_a_tool_loop() {
    let items = vec![
        Item::user("hello"),
        Item::reasoning("of no call"),
        Item::text("hi"),
        Item::user("look"),
        Item::reasoning("of a call"),
        Item::tool_call("a", "f", "{}"),
        tool_result("a", "r"),
        Item::tool_call("b", "f", "{}"),
        tool_result("b", "r"),
        Item::reasoning("after a result"),
        Item::text("done"),
        Item::user("thanks"),
        Item::reasoning("again of none"),
        Item::text("bye"),
    ];
    let echoed = |dialect: &Dialect| {
        let messages = encode_messages(items.clone(), dialect);
        let spoken = messages.iter().filter(|message| message["role"] == "assistant");
        spoken.map(|message| message["reasoning_content"].clone()).collect::<Vec<_>>()
    };
    let null = Value::Null;
    assert_eq!(
        echoed(&Dialect::DEEPSEEK),
        [null.clone(), json!("of a call"), json!(""), json!("after a result"), null.clone()]
    );
    for dialect in Dialect::ALL {
        if dialect.reasoning_echo != ReasoningEcho::ContentInToolLoop {
            assert!(echoed(dialect).iter().all(Value::is_null), "{}", dialect.name);
        }
    }
}
