//! Properties that hold for any split, any noise and any history.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream::item::{ItemFlag, MediaSource, Part, ProviderData};
use turnstream::turn::TurnEvent;
use turnstream::{Error, Item};

#[path = "../../../../tests/wires/ollama/fixture.rs"]
#[allow(dead_code, reason = "the tests of the wire use all of it")]
mod fixture;

use self::fixture::{
    DONE_LINE, MODEL, as_last_of_turn, decode_events, encode_messages, json_lines_body, text_line,
    thinking_line, tool_calls_line, tool_result,
};

fn sample_lines() -> Vec<String> {
    vec![
        thinking_line("Hm é."),
        text_line("Yes"),
        tool_calls_line(r#"{"function":{"name":"f","arguments":{"a":"ü"}}}"#),
        tool_calls_line(r#"{"function":{"index":1,"name":"g","arguments":"{\"b\""}}"#),
        tool_calls_line(r#"{"function":{"index":1,"arguments":":1}"}}"#),
        DONE_LINE.to_owned(),
    ]
}

fn joined_body(lines: &[String]) -> String {
    json_lines_body(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn expected_events() -> Vec<Result<TurnEvent, Error>> {
    let events = decode_events([Bytes::from(joined_body(&sample_lines()))]);
    assert!(matches!(events.last(), Some(Ok(TurnEvent::TurnComplete { .. }))), "{events:?}");
    events
}

/// Noise that a server may send between two lines.
fn any_noise() -> impl Strategy<Value = String> {
    let lines = ["", "\n", " \r\n", "{}\n", "null\n", "[1]\n", "{\"novel\":[{\"done\":true}]}\n"];
    prop::sample::select(lines.map(str::to_owned).to_vec())
}

/// Adds an unknown field to every object of a line except the arguments.
fn add_unknown_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let open = fields.iter_mut().filter(|(name, _)| *name != "arguments");
            open.for_each(|(_, value)| add_unknown_fields(value));
            fields.insert("novel".into(), json!([{ "x": null }]));
        }
        Value::Array(values) => values.iter_mut().for_each(add_unknown_fields),
        _ => {}
    }
}

proptest! {
    #[test]
    fn blank_lines_and_unknown_lines_and_fields_change_nothing(
        noise in vec(any_noise(), 7),
        unknown in vec(any::<bool>(), 6),
        lengths in vec(1_usize..60, 1..6),
    ) {
        let mut body = noise[6].clone();
        for ((line, noise), unknown) in sample_lines().iter().zip(&noise).zip(unknown) {
            let mut line: Value = serde_json::from_str(line).unwrap();
            if unknown {
                add_unknown_fields(&mut line);
            }
            body.extend([&line.to_string(), "\n", noise.as_str()]);
        }
        let mut rest = Bytes::from(body);
        let mut pieces = Vec::new();
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            pieces.push(rest.split_to((*length).min(rest.len())));
        }
        prop_assert_eq!(decode_events(pieces), expected_events());
    }

    #[test]
    fn the_decoder_never_panics(lines in vec("[{}\\[\\]\":,a-z0-9. $]{0,40}", 0..6), cut in 0_usize..80) {
        let mut all = sample_lines();
        all.extend(lines);
        let body = joined_body(&all);
        let cut = body.floor_char_boundary(body.len().saturating_sub(cut));
        drop(decode_events([Bytes::from(body[..cut].to_owned())]));
    }

    #[test]
    fn each_request_extends_the_messages_of_the_previous_one(steps in vec(any_step(), 1..7)) {
        let mut items = vec![Item::user("go")];
        let mut before = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            step.append_to(at, &mut items);
            let sent: Vec<String> = encode_messages(items.clone())
                .as_array()
                .unwrap()
                .iter()
                .map(Value::to_string)
                .collect();
            prop_assert!(sent.starts_with(&before), "{before:?} then {sent:?}");
            before = sent;
        }
    }
}

/// A step of a conversation between two requests: the model's items and their results.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn independently")]
struct ConversationStep {
    model_items: Vec<u8>,
    call_count: usize,
    is_interrupted: bool,
    is_other_model: bool,
    has_reversed_results: bool,
    has_user_message: bool,
}

fn any_step() -> impl Strategy<Value = ConversationStep> {
    let flags = (prop::bool::weighted(0.2), any::<bool>(), any::<bool>(), any::<bool>());
    (vec(0_u8..4, 0..4), 0_usize..4, flags).prop_map(
        |(said, calls, (interrupted, foreign, backwards, user))| ConversationStep {
            model_items: said,
            call_count: calls,
            is_interrupted: interrupted,
            is_other_model: foreign,
            has_reversed_results: backwards,
            has_user_message: user,
        },
    )
}

impl ConversationStep {
    fn append_to(&self, at: usize, items: &mut Vec<Item>) {
        let model = if self.is_other_model { "another" } else { MODEL };
        let data = ProviderData {
            provider: "ollama".into(),
            model: model.into(),
            value: json!({}).into(),
        };
        let mut turn: Vec<Item> = self
            .model_items
            .iter()
            .map(|kind| match kind {
                0 => Item::text(format!("text {at}")),
                1 => Item::text(" "),
                2 => Item::provider_item(data.clone()),
                _ => Item { provider_data: Some(data.clone().into()), ..Item::reasoning("hm") },
            })
            .collect();
        let ids: Vec<String> = (0..self.call_count).map(|n| format!("c{at}_{n}")).collect();
        turn.extend(ids.iter().map(|id| Item::tool_call(id.as_str(), "f", "{\"b\":1,\"a\":2}")));
        if self.is_interrupted {
            items.extend(turn.into_iter().map(|item| item.with_flag(ItemFlag::Interrupted)));
            items.push(Item::user("again"));
            return;
        }
        if let Some(item) = turn.pop() {
            turn.push(as_last_of_turn(item));
        }
        items.extend(turn);
        let mut results: Vec<Item> = ids.iter().map(|id| tool_result(id, "1")).collect();
        if self.has_reversed_results {
            results.reverse();
        }
        items.extend(results);
        if self.has_user_message {
            items.push(Item::user(vec![
                "see".into(),
                Part::image("image/png", MediaSource::Data("AA".into())),
            ]));
        }
    }
}
