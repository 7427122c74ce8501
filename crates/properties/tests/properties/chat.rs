//! Properties that hold for every dialect and every answer.

use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream::item::{ItemFlag, Part, ResultKind, StopReason, ToolResult, TurnInfo};
use turnstream::provider::Decoding;
use turnstream::provider::openai_chat::{Decoder, Dialect, ThinkTags, encode};
use turnstream::request::System;
use turnstream::stream::seal;
use turnstream::{Error, History, Item, Request, Usage};

use turnstream_test_support::wires::sse_body;

#[path = "../../../../tests/wires/openai_chat/fixture.rs"]
#[allow(dead_code, reason = "the tests of the wire use all of it")]
mod fixture;

use self::fixture::{
    MODEL, answer_chunks, decode_events, decode_in_dialect, encode_messages, tool_spec,
    with_provider_data,
};

/// Deltas of every kind, in an arbitrary order.
fn mixed_deltas() -> Vec<Value> {
    let call = |index: u64, id: &str, name: &str, arguments: &str| json!({ "tool_calls": [{ "index": index, "id": id, "function": { "name": name, "arguments": arguments } }] });
    vec![
        json!({ "role": "assistant", "content": "" }),
        json!({ "content": "é👍 <think>x</think>" }),
        json!({ "content": "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>" }),
        json!({ "reasoning_content": "hm", "reasoning": "hm" }),
        json!({ "reasoning_details": [{ "type": "reasoning.text", "text": "a", "index": 0 }] }),
        json!({ "reasoning_details": [{ "type": "reasoning.encrypted", "data": "b" }] }),
        json!({ "content": [{ "type": "text", "text": "part" }] }),
        json!({ "refusal": "no" }),
        call(0, "a", "f", "{\"x\""),
        call(0, "", "", ":1}"),
        call(1, "", "g", ""),
        json!({ "unknown": { "deep": [1, { "x": null }] } }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_split_and_any_comments_between_frames_yield_the_same_events(
        picked in vec(0..mixed_deltas().len(), 1..12),
        lengths in vec(1_usize..40, 1..6),
        comments in vec(any::<bool>(), 14),
        tagged in any::<bool>(),
    ) {
        let dialect = Dialect {
            think_tags: if tagged { ThinkTags::Tagged } else { ThinkTags::Off },
            parses_text_calls: tagged,
            ..Dialect::OPENROUTER
        };
        let all = mixed_deltas();
        let picked: Vec<_> = picked.into_iter().map(|at| all[at].clone()).collect();
        let chunks = answer_chunks(&picked, "tool_calls");
        let plain = sse_body(&chunks);
        let whole = decode_events(plain.clone(), &dialect);

        let mut noisy = String::new();
        for (chunk, comment) in chunks.iter().zip(comments.iter().cycle()) {
            if *comment {
                noisy += ": keep-alive\n\nevent: ping\ndata:\n\n";
                noisy += "data: {\"object\":\"moon.phase\",\"choices\":[]}\n\n";
            }
            noisy += &sse_body(std::slice::from_ref(chunk));
        }
        prop_assert_eq!(&decode_events(noisy, &dialect), &whole);

        let mut rest = Bytes::from(plain);
        let mut pieces: Vec<Result<Bytes, Error>> = Vec::new();
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            pieces.push(Ok(rest.split_to((*length).min(rest.len()))));
        }
        let source = Decoding::new(stream::iter(pieces), Decoder::new(MODEL, &dialect));
        let cut: Vec<_> = block_on(seal(&History::empty("h"), source).collect());
        prop_assert_eq!(&cut, &whole);
    }

    #[test]
    fn each_request_extends_the_previous_one_in_every_dialect(
        steps in vec(0..STEP_KINDS, 1..14),
        volatile in any::<bool>(),
    ) {
        for dialect in Dialect::ALL {
            let takes_media = dialect.media_forms >= turnstream::provider::openai_chat::MediaForms::ImageBytes;
            let mut items = Vec::new();
            let mut before: Option<(Vec<Value>, Value)> = None;
            for (at, step) in steps.iter().enumerate() {
                push_step(&mut items, *step, at, takes_media, dialect);
                let (blocks, head) = content_blocks(&items, dialect, volatile.then_some(at));
                if let Some((before, head_before)) = before {
                    prop_assert!(blocks.len() >= before.len(), "{} {steps:?}", dialect.name);
                    prop_assert_eq!(&blocks[..before.len()], &before[..], "{}", dialect.name);
                    prop_assert_eq!(&head, &head_before);
                }
                before = Some((blocks, head));
            }
        }
    }
}

const STEP_KINDS: usize = 7;

/// The items that a run adds to its history between two requests.
fn push_step(items: &mut Vec<Item>, step: usize, at: usize, takes_media: bool, of: &Dialect) {
    let info = |mut item: Item| {
        let stop_reason = StopReason::Stop;
        let usage = Usage::default();
        item.turn = Some(Arc::new(TurnInfo { usage, model: None, response_id: None, stop_reason }));
        item
    };
    let thought = r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}"#;
    let id = format!("call_{at}");
    let answered = |content| {
        let (call_id, name, kind) = (id.clone(), "f".to_owned(), ResultKind::Ok);
        Item::tool_result(ToolResult { call_id, name, content, kind, report: None })
    };
    match step {
        0 => items.push(Item::user("hello")),
        1 => items.extend([Item::reasoning("hm"), info(Item::text("hi \n"))]),
        2 => {
            let signed = with_provider_data(Item::reasoning(""), of.name, MODEL, thought);
            let call = info(Item::tool_call(&id, "f", "{}"));
            items.extend([signed, Item::text("I look."), call, answered("r".into())]);
        }
        3 => items.push(Item::text("cut o").with_flag(ItemFlag::Interrupted)),
        4 => items.push(Item::system("Be quick.")),
        5 if takes_media => {
            let image = vec!["see".into(), Part::image("image/png", b"\0\0\0")].into();
            items.extend([info(Item::tool_call(&id, "f", "{}")), answered(image)]);
        }
        5 => items.push(Item::user("again")),
        _ => {
            let data = r#"{"thought":"c2ln"}"#;
            let call = with_provider_data(Item::tool_call(&id, "f", "{"), of.name, MODEL, data);
            items.extend([info(call), answered("r".into())]);
        }
    }
}

/// The content blocks of a request, without marks and the volatile zone, and separately the rest of
/// the request.
fn content_blocks(
    items: &[Item],
    dialect: &Dialect,
    volatile: Option<usize>,
) -> (Vec<Value>, Value) {
    // A leading instruction joins the stable zone.
    let items = [&[Item::user("begin")], items].concat();
    let mut request = Request::new(History::from_items("h", items)).with_tools([tool_spec()]);
    request.system = System {
        stable: "stable".into(),
        volatile: volatile.map(|n| format!("VOLATILE {n}")).unwrap_or_default(),
    };
    let bytes = encode(&request, MODEL, dialect).unwrap();
    let mut body: Value = serde_json::from_slice(&bytes).unwrap();
    let messages = body["messages"].take();
    let mut blocks = Vec::new();
    for message in messages.as_array().unwrap() {
        let mut rest = message.clone();
        let content = rest["content"].take();
        let parts = match content {
            Value::Array(parts) => parts,
            text => vec![text],
        };
        blocks.push(rest);
        blocks.extend(parts.into_iter().map(without_cache_control));
    }
    let is_volatile = |block: &Value| {
        let text = block.as_str().or_else(|| block["text"].as_str());
        text.is_some_and(|text| text.starts_with("VOLATILE"))
    };
    let mut kept: Vec<Value> = Vec::new();
    for block in blocks {
        let own_message = block.is_string() && is_volatile(&block);
        if own_message {
            kept.pop();
        }
        if !is_volatile(&block) {
            let text = block.as_str().and_then(|text| text.split_once("\n\nVOLATILE"));
            kept.push(text.map_or(block.clone(), |(stable, _)| json!(stable)));
        }
    }
    (kept, without_cache_control(body))
}

fn without_cache_control(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.shift_remove("cache_control");
            for value in fields.values_mut() {
                *value = without_cache_control(value.take());
            }
        }
        Value::Array(values) => {
            for value in values {
                *value = without_cache_control(value.take());
            }
        }
        _ => {}
    }
    value
}

#[test]
fn every_dialect_round_trips_its_decoded_turns() {
    for dialect in Dialect::ALL {
        let call = json!([{ "index": 0, "id": "abcdefghi", "function": { "name": "f", "arguments": "{\"x\": 1}" } }]);
        let said = [json!({ "content": "I look." }), json!({ "tool_calls": call })];
        let turn = decode_in_dialect(dialect, &answer_chunks(&said, "tool_calls")).unwrap();
        let message = encode_messages(turn.to_history_items(), dialect).remove(0);
        let words = message["content"].as_str().or_else(|| message["content"][0]["text"].as_str());
        assert_eq!(words, Some("I look."), "{}", dialect.name);
        let calls = &message["tool_calls"];
        assert_eq!(calls[0]["id"], "abcdefghi");
        assert_eq!(calls[0]["function"], json!({ "name": "f", "arguments": "{\"x\": 1}" }));
    }
}
