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
    fn a_text_is_read_to_its_end_exactly_if_serde_json_reads_it(
        member in any_json(),
        escapes in any::<bool>(),
        at in any::<prop::sample::Index>(),
        removed in 0..3_usize,
        inserted in prop::sample::select(vec![
            "", "", "{", "}", "[", "]", ",", ":", "\"", "\"a\":", "\"a\"", "1", "-", "0", ".5", "e+1",
            "null", "tru", "e", "false", " ", "\n", "\\u00e9", "\\ud834\\udd1e", "\\ud834", "\\udd1e",
            "\\udd1e\\ud834", "\\x", "\u{1}", "\u{1f}", "é", "[]", "{}", "1e999", "01", "\\",
        ]),
    ) {
        let member = json!([member, "text", 12]);
        let text = if escapes { with_escapes(&member) } else { member.to_string() };
        let mut characters_of_text: Vec<&str> = characters(&text);
        let at = at.index(characters_of_text.len());
        let end = characters_of_text.len().min(at + removed);
        characters_of_text.splice(at..end, [inserted]);
        check_like_serde_json(&characters_of_text.concat());
    }
}

/// Checks that a text is read to its end exactly if `serde_json` reads it.
#[track_caller]
fn check_like_serde_json(text: &str) {
    // The last field appears only if the text before it was read without an error.
    let text = format!("{{\"x\":{text},\"end\":true}}");
    let expected = serde_json::from_str::<Value>(&text).ok();
    let is_end = |value: &Value| value["end"] == true;
    for pieces in [characters(&text), vec![&*text]] {
        assert_eq!(grow(&pieces).pop().filter(is_end), expected, "{text}");
    }
}

#[test]
fn each_escape_and_number_is_read_exactly_if_serde_json_reads_it() {
    for escape in [
        "n",
        "b",
        "f",
        "r",
        "t",
        "/",
        "x",
        "'",
        "u00e9",
        "uD834\\uDD1E",
        "ud834",
        "udd1e",
        "ud834x",
        "ud834\\n",
        "ud834\\ud834",
        "ud834\\u0041",
        "udd1e\\ud834",
        "u00g0",
        "u0000",
        "uFFFF",
    ] {
        check_like_serde_json(&format!("\"a\\{escape}b\""));
    }
    for character in ["\u{0}", "\u{9}", "\n", "\u{1f}", "\u{7f}", "\u{2028}", "𝄞"] {
        check_like_serde_json(&format!("\"a{character}b\""));
    }
    for number in [
        "0",
        "-0",
        "01",
        "-",
        "1.",
        "1.5",
        ".5",
        "1e5",
        "1E+5",
        "1e-5",
        "1e",
        "1e999",
        "-1e-999",
        "1-2",
        "1.2.3",
        "18446744073709551616",
        "0.1000000000000000055511151231257827",
        "+1",
        "Infinity",
        "1f",
    ] {
        check_like_serde_json(number);
        check_like_serde_json(&format!("[{number} ]"));
    }
    for other in
        ["nul", "nulll", "truefalse", "[1,]", "[,1]", "{\"a\"}", "{\"a\":}", "{a:1}", "[1}", ""]
    {
        check_like_serde_json(other);
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
    for depth in [125, 126, 127, 128] {
        check_like_serde_json(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        check_like_serde_json(&format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)));
    }
}
