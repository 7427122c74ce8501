//! Properties that hold for any split, any noise and any history.

use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, stream};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use turnstream::item::{ItemFlag, MediaSource, Part, ProviderData, ResultKind};
use turnstream::provider::{Decoding, gemini};
use turnstream::stream::seal;
use turnstream::turn::TurnEvent;
use turnstream::{Error, History, Item};

#[path = "../../../../tests/wires/gemini/fixture.rs"]
#[allow(dead_code, reason = "the tests of the wire use all of it")]
mod fixture;

use self::fixture::{
    as_last_of_turn, as_strs, encode_for_model, finish_chunk, parts_chunk, request_with_items,
    sse_body, tool_result,
};

fn sample_chunks() -> Vec<String> {
    let call = |fields: &str| parts_chunk(&format!(r#"{{"functionCall":{{{fields}}}}}"#));
    vec![
        parts_chunk(r#"{"text":"Hm é.","thought":true},{"text":"Yes","thoughtSignature":"c2ln"}"#),
        call(r#""name":"f","willContinue":true"#),
        call(
            r#""partialArgs":[{"jsonPath":"$.a","stringValue":"ü","willContinue":true}],"willContinue":true"#,
        ),
        call(r#""partialArgs":[{"jsonPath":"$.a","stringValue":""}]"#),
        call(r#""id":"c","name":"g","args":{"b":1}"#),
        parts_chunk(r#"{"executableCode":{"code":"1"}}"#),
        r#"{"usageMetadata":{"promptTokenCount":3}}"#.to_owned(),
        finish_chunk("STOP"),
    ]
}

fn decode_pieces(pieces: Vec<Bytes>) -> Vec<Result<TurnEvent, Error>> {
    let body = stream::iter(pieces.into_iter().map(Ok));
    let decoding = Decoding::new(body, gemini::Decoder::new("m"));
    block_on(seal(&History::empty("h"), decoding).collect())
}

fn expected_events() -> Vec<Result<TurnEvent, Error>> {
    let events = decode_pieces(vec![Bytes::from(sse_body(&as_strs(&sample_chunks())))]);
    assert!(matches!(events.last(), Some(Ok(TurnEvent::TurnComplete { .. }))), "{events:?}");
    events
}

#[test]
fn any_split_of_the_bytes_yields_the_same_events() {
    let bytes = Bytes::from(sse_body(&as_strs(&sample_chunks())));
    let expected = expected_events();
    for at in 0..bytes.len() {
        assert_eq!(
            decode_pieces(vec![bytes.slice(..at), bytes.slice(at..)]),
            expected,
            "cut at {at}"
        );
    }
    let single = (0..bytes.len()).map(|at| bytes.slice(at..=at)).collect();
    assert_eq!(decode_pieces(single), expected);
}

/// Noise that a server may send between two frames.
fn any_noise() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(": ping\r\n\r\n".to_owned()),
        Just("event: novel\r\ndata: {\"novel\":[1]}\r\n\r\n".to_owned()),
        Just("data: {\"candidates\":[{\"novel\":1,\"safetyRatings\":[{}]}]}\r\n\r\n".to_owned()),
        Just("retry: 5\n\n\n".to_owned()),
    ]
}

/// Adds an unknown field to every object of a chunk.
fn add_unknown_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The value of an argument is the model's own, and an unknown kind of part is kept.
            let closed = ["args", "executableCode"];
            let open = fields.iter_mut().filter(|(name, _)| !closed.contains(&name.as_str()));
            open.for_each(|(_, value)| add_unknown_fields(value));
            if !fields.contains_key("executableCode") {
                fields.insert("novelField".into(), serde_json::json!([{ "x": null }]));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(add_unknown_fields),
        _ => {}
    }
}

proptest! {
    #[test]
    fn comments_and_unknown_events_and_fields_change_nothing(
        noise in vec(any_noise(), 9),
        unknown in vec(any::<bool>(), 8),
        lengths in vec(1_usize..60, 1..6),
    ) {
        let mut body = noise[8].clone();
        for ((chunk, noise), unknown) in sample_chunks().iter().zip(&noise).zip(unknown) {
            let mut chunk: Value = serde_json::from_str(chunk).unwrap();
            if unknown {
                add_unknown_fields(&mut chunk);
            }
            body.extend(["data: ", &chunk.to_string(), "\r\n\r\n", noise.as_str()]);
        }
        let mut rest = Bytes::from(body);
        let mut pieces = Vec::new();
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            pieces.push(rest.split_to((*length).min(rest.len())));
        }
        prop_assert_eq!(decode_pieces(pieces), expected_events());
    }

    #[test]
    fn the_decoder_never_panics(chunks in vec("[{}\\[\\]\":,a-z0-9. $]{0,40}", 0..6), cut in 0_usize..80) {
        let mut all: Vec<String> = sample_chunks();
        all.extend(chunks);
        let body = sse_body(&as_strs(&all));
        let cut = body.floor_char_boundary(body.len().saturating_sub(cut));
        drop(decode_pieces(vec![Bytes::from(body[..cut].to_owned())]));
    }

    #[test]
    fn each_request_extends_the_parts_of_the_previous_one(
        steps in vec(any_step(), 1..7),
        third in any::<bool>(),
    ) {
        let model = if third { "gemini-3-pro" } else { "gemini-2.5-pro" };
        let mut items = vec![Item::user("go")];
        let mut before = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            step.append_to(at, model, &mut items);
            let parts = role_and_part_texts(&encode_for_model(model, &request_with_items(items.clone())));
            prop_assert!(parts.starts_with(&before), "{before:?} then {parts:?}");
            before = parts;
        }
    }
}

/// The roles and parts of a request, each as JSON text.
fn role_and_part_texts(body: &Value) -> Vec<String> {
    let contents = body["contents"].as_array().unwrap();
    let parts = contents.iter().flat_map(|content| {
        let parts = content["parts"].as_array().unwrap();
        parts.iter().map(|part| format!("{} {part}", content["role"]))
    });
    parts.collect()
}

/// A step of a conversation between two requests: the model's items and their results.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn independently")]
struct ConversationStep {
    /// Text, reasoning and the provider's own parts, signed or not.
    model_items: Vec<(u8, bool)>,
    signed_calls: Vec<bool>,
    is_interrupted: bool,
    is_other_model: bool,
    has_image_results: bool,
    has_reversed_results: bool,
    has_user_message: bool,
}

fn any_step() -> impl Strategy<Value = ConversationStep> {
    let said = vec((0_u8..4, any::<bool>()), 0..4);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (said, vec(any::<bool>(), 0..4), flags, prop::bool::weighted(0.2)).prop_map(
        |(said, calls, (foreign, image, backwards, user), interrupted)| ConversationStep {
            model_items: said,
            signed_calls: calls,
            is_interrupted: interrupted,
            is_other_model: foreign,
            has_image_results: image,
            has_reversed_results: backwards,
            has_user_message: user,
        },
    )
}

impl ConversationStep {
    fn append_to(&self, at: usize, model: &str, items: &mut Vec<Item>) {
        let model = if self.is_other_model { "another" } else { model };
        let data = |value: Value| ProviderData {
            provider: "gemini".into(),
            model: model.into(),
            value: value.into(),
        };
        let signed = |mut item: Item, value: Value| {
            item.provider_data = Some(data(value).into());
            item
        };
        let signature = || serde_json::json!({ "thoughtSignature": format!("s{at}") });
        let mut turn: Vec<Item> = Vec::new();
        for (kind, is_signed) in &self.model_items {
            let item = match kind {
                0 => Item::text(format!("text {at}")),
                1 => Item::text(""),
                2 => Item::reasoning("hm"),
                _ => Item::provider_item(data(
                    serde_json::json!({ "executableCode": { "code": "1" } }),
                )),
            };
            let sign = *is_signed && *kind < 3;
            turn.push(if sign { signed(item, signature()) } else { item });
        }
        let ids: Vec<String> = (0..self.signed_calls.len()).map(|n| format!("c{at}_{n}")).collect();
        for (id, is_signed) in ids.iter().zip(&self.signed_calls) {
            let call = Item::tool_call(id.as_str(), "f", "{\"b\":1,\"a\":2}");
            let value = serde_json::json!({ "id": id, "thoughtSignature": "s" });
            turn.push(if *is_signed { signed(call, value) } else { call });
        }
        if self.is_interrupted {
            items.extend(turn.into_iter().map(|item| item.with_flag(ItemFlag::Interrupted)));
            items.push(Item::user("again"));
            return;
        }
        if let Some(item) = turn.pop() {
            turn.push(as_last_of_turn(item));
        }
        items.extend(turn);
        let mut results: Vec<Item> = ids
            .iter()
            .map(|id| {
                let mut result = tool_result(id, ResultKind::Ok, "1");
                if let turnstream::item::ItemKind::ToolResult(result) = &mut result.kind
                    && self.has_image_results
                {
                    result.content = vec![
                        "see".into(),
                        Part::image("image/png", MediaSource::Data("AA".into())),
                    ]
                    .into();
                }
                result
            })
            .collect();
        if self.has_reversed_results {
            results.reverse();
        }
        items.extend(results);
        if self.has_user_message {
            items.push(Item::user(format!("user {at}")));
        }
    }
}
