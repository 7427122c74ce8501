//! JSON that has not ended: the parser agrees with `serde_json`, however the text is split.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use turnstream::partial::{PartialState, PartialValues};
use turnstream::{Event, TurnEvent};
use turnstream_test_support::partial_json::is_beginning_of;

/// The growing values of arguments that arrive in these pieces, one for each piece that changes it.
fn grow(pieces: &[&str]) -> Vec<Value> {
    let call = |event: TurnEvent| Event::from(event);
    let mut values = PartialValues::untyped_calls("t", &true.into());
    let (call_id, name) = ("c".to_owned(), "t".to_owned());
    values.observe(&call(TurnEvent::ToolCallStart { call_id, name }));
    let grown = pieces.iter().filter_map(|piece| {
        let (call_id, delta) = ("c".to_owned(), (*piece).into());
        values.observe(&call(TurnEvent::ToolCallArgsDelta { call_id, delta }));
        match values.next_partial()?.state {
            PartialState::Growing(value) => Some(value),
            other => panic!("{other:?}"),
        }
    });
    grown.collect()
}

/// Splits a text before the characters at these places.
fn split_at<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    at.retain(|at| text.is_char_boundary(*at));
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|two| &text[two[0]..two[1]]).collect()
}

/// All characters as pieces of their own.
fn characters(text: &str) -> Vec<&str> {
    text.split("").filter(|piece| !piece.is_empty()).collect()
}

fn any_json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\\\\"/\u{1}-\u{1f}é𝄞z]{0,6}".prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((".{0,4}", inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A text with the same value, in which all characters outside of ASCII, and some others, are
/// escaped, and with white space.
fn with_escapes(json: &Value) -> String {
    let text =
        serde_json::to_string_pretty(json).unwrap().replace('/', "\\/").replace('z', "\\u007a");
    let mut escaped = String::new();
    for c in text.chars() {
        if c.is_ascii() {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(escaped, "\\u{unit:04X}").unwrap();
        }
    }
    escaped
}

proptest! {
    #[test]
    fn a_growing_value_begins_like_the_whole_and_ends_equal_to_it(
        member in any_json(),
        escapes in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let whole = json!({ "value": member });
        let text = if escapes { with_escapes(&whole) } else { whole.to_string() };
        // The text of a number may be that of another number, as `serde_json` reads it.
        let whole: Value = serde_json::from_str(&text).unwrap();
        for pieces in [split_at(&text, &cuts), characters(&text)] {
            let grown = grow(&pieces);
            for value in &grown {
                prop_assert!(is_beginning_of(value, &whole), "{value} of {whole}");
            }
            for two in grown.windows(2) {
                prop_assert_ne!(&two[0], &two[1], "a value was built again without a change");
            }
            let last = grown.last().unwrap();
            prop_assert_eq!(last, &whole);
            prop_assert_eq!(last.to_string(), whole.to_string());
        }
    }

    #[test]
    fn a_text_is_read_up_to_its_first_error_exactly_if_serde_json_reads_it(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"", "\"a\":", "\"a\"", "1", "-", "0", ".5", "e+1",
                "null", "tru", "e", "false", " ", "\n", "\\u00e9", "\\ud834\\udd1e", "\\ud834",
                "\\udd1e", "\\x", "\u{1}", "é", "[]", "{}", "1e999", "01",
            ]),
            0..12,
        ),
    ) {
        // A field after the text appears only if the text before it was read without an error.
        let text = format!("{{\"x\":[{}],\"end\":true}}", parts.concat());
        let expected = serde_json::from_str::<Value>(&text).ok();
        let read = grow(&characters(&text)).pop().filter(|value| value["end"] == true);
        prop_assert_eq!(read.as_ref(), expected.as_ref(), "{}", text);
        let whole = grow(&[&text]).pop().filter(|value| value["end"] == true);
        prop_assert_eq!(whole, read);
    }
}

#[test]
fn an_object_keeps_the_last_of_equal_names_and_never_shows_an_earlier_one_beside_it() {
    let text = r#"{"a":"one","b":[1],"a":"two","b":{"c":1,"c":2}}"#;
    let grown = grow(&characters(text));
    let whole: Value = serde_json::from_str(text).unwrap();
    assert_eq!(grown.last().unwrap().to_string(), whole.to_string());
    assert!(grown.contains(&json!({ "a": "tw", "b": [1] })));
    assert!(!grown.iter().any(|value| value["a"] == "two" && value["b"] == json!([1, 1])));
    assert!(grown.iter().all(|value| value.as_object().unwrap().len() <= 2));
}

#[test]
fn a_value_is_read_to_the_depth_at_which_serde_json_stops() {
    for depth in [127, 128] {
        let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let expected = serde_json::from_str::<Value>(&text).ok();
        let read = grow(&[&text]).pop();
        assert_eq!(read == expected, depth < 128, "{depth}");
        assert_eq!(expected.is_some(), depth < 128, "{depth}");
    }
}
